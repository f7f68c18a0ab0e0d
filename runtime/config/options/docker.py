"""Options of the driver `docker`: the daemon, and the containers in which TaskManagers run."""

from __future__ import annotations

import re

from runtime.config.option import (
    ConfigOption,
    at_least,
    duration_option,
    float_option,
    matching,
    parse_list,
    parse_size,
    string_option,
)

PREFIX = "resourcemanager.docker."
_VOLUME = re.compile(r"(/[^:]*|[A-Za-z0-9][A-Za-z0-9_.-]*):/[^:]+(:ro|:rw)?\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*\Z", re.DOTALL)


def parse_volumes(text: str) -> tuple[str, ...]:
    """A list of `source:/path` and `source:/path:ro`; a source is a name of a volume, or a path of the docker host."""
    volumes = parse_list(text)
    for one in volumes:
        if not _VOLUME.match(one):
            message = f"expected volume:/path or /path/of/docker/host:/path, with :ro or without, not {one[:80]!r}"
            raise ValueError(message)
    return volumes


def parse_container_variables(text: str) -> tuple[str, ...]:
    """A list of `NAME=value`."""
    variables = parse_list(text)
    for one in variables:
        if not _VARIABLE.match(one):
            message = f"expected NAME=value, not {one[:80]!r}"
            raise ValueError(message)
    return variables


HOST = ConfigOption(
    f"{PREFIX}host",
    matching(r"unix://\S+|tcp://[^\s/]+:\d+", "unix:///path/to/docker.sock or tcp://host:port"),
    "unix:///var/run/docker.sock",
    "The docker daemon that starts containers. Whoever reaches it is root on its host: tcp:// needs certificates.",
    "String",
)
CERTIFICATES = string_option(
    f"{PREFIX}certificates",
    "",
    "A directory with ca.pem, cert.pem and key.pem, as DOCKER_CERT_PATH has them, for a daemon at tcp://.",
)
IMAGE = string_option(
    f"{PREFIX}image", "flinklike", "The image of TaskManagers (conf/docker/Dockerfile). It is not pulled."
)
NETWORK = string_option(
    f"{PREFIX}network", "", "The network that containers join. It exists.", default_text="the daemon's default"
)
MEMORY: ConfigOption[int | None] = ConfigOption(
    f"{PREFIX}memory", at_least("64 mb", parse_size), None, "Memory of a container.", "MemorySize", "no limit"
)
CPUS = float_option(f"{PREFIX}cpus", 0.0, "Cores of a container, such as 1.5. 0: no limit.", low=0.0, high=10_000.0)
VOLUMES: ConfigOption[tuple[str, ...]] = ConfigOption(
    f"{PREFIX}volumes",
    parse_volumes,
    (),
    "What containers mount: volume:/path or /path/of/docker/host:/path, with :ro or without. All directories that the "
    "cluster shares, and files that its options name, such as certificates.",
    "List",
    "none",
)
ENVIRONMENT: ConfigOption[tuple[str, ...]] = ConfigOption(
    f"{PREFIX}environment",
    parse_container_variables,
    (),
    "NAME=value of each variable that containers have beside those of FLINKLIKE__... that the JobManager has.",
    "List",
    "none",
)
TIMEOUT = duration_option(f"{PREFIX}timeout", "30 s", "How long the daemon may take for one answer.", low="1 s")
