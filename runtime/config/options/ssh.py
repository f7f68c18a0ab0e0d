"""Options of the driver `ssh`: hosts of conf/workers on which TaskManagers start when jobs need them."""

from __future__ import annotations

from runtime.config.option import duration_option

PREFIX = "resourcemanager.ssh."

LOOK_INTERVAL = duration_option(
    f"{PREFIX}look-interval",
    "10 s",
    "How often each host is asked what runs there. An end that nobody has announced is noticed that late.",
    low="1 s",
)
TIMEOUT = duration_option(f"{PREFIX}timeout", "30 s", "How long a host may take for one answer.", low="1 s")
RETRY_INTERVAL = duration_option(
    f"{PREFIX}retry-interval",
    "30 s",
    "A host that could not be reached is left out for this long, and asked again then.",
    low="1 s",
)
