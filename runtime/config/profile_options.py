"""`resourcemanager.profiles.<name>.*`: what a driver starts for jobs that the cluster's own configuration does not fit.

A profile is that configuration with some options of TaskManagers changed (D-141).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from runtime.common.masking import is_secret_key
from runtime.common.worker_ids import DEFAULT_PROFILE_NAME, PROFILE_PATTERN
from runtime.config.catalog import SPARK_PREFIX
from runtime.config.option import ConfigOption
from runtime.config.options import docker
from runtime.config.options import taskmanager as tm

PREFIX = "resourcemanager.profiles."
PROFILES_MAX = 50
OPTIONS: tuple[ConfigOption[Any], ...] = (
    tm.SLOTS,
    tm.TASK_MEMORY,
    tm.LABELS,
    tm.SPARK_ENABLED,
    tm.SPARK_PROFILE,
    tm.SPARK_MEMORY,
    tm.SPARK_MEMORY_TOTAL,
    tm.SPARK_WARM_UP,
    tm.SLOT_CPU_MAX,
    docker.MEMORY,
    docker.CPUS,
)
"""What a profile may change, beside `spark.*`: the conf of the Spark that its TaskManagers begin with."""
_BY_KEY = {one.key: one for one in OPTIONS}
_KEY = re.compile(re.escape(PREFIX) + f"({PROFILE_PATTERN})" + r"\.([A-Za-z0-9_.-]{1,200})\Z")


def key_problem(key: str, value: str) -> str:
    """The problem of a setting whose key begins with PREFIX, "" when there is none."""
    found = _KEY.match(key)
    option = None if found is None else _BY_KEY.get(found[2])
    if found is None or (option is None and not found[2].startswith(SPARK_PREFIX)):
        return (
            f"expected {PREFIX}<name>.<option>, a name of small letters, digits, - and _, and an option spark.* or one "
            f"of {', '.join(_BY_KEY)}"
        )
    if found[1] == DEFAULT_PROFILE_NAME:
        return f"the profile {DEFAULT_PROFILE_NAME} is the cluster's own configuration: set {found[2]}, or rename it"
    if option is None:
        if is_secret_key(found[2]):
            return f"TaskManagers get it by -D, which shows a secret to every user of a host: set {found[2]} for all"
        return ""
    try:
        option.parse(value)
    except ValueError as error:
        return str(error)
    return ""


def profiles_of(settings: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
    """The options of each profile as written, by its name. Each setting is without a problem."""
    grouped: dict[str, dict[str, str]] = {}
    for key, value in settings.items():
        found = _KEY.match(key)
        assert found is not None, key
        grouped.setdefault(found[1], {})[found[2]] = value
    return dict(sorted(grouped.items()))


def parsed(changed: Mapping[str, str]) -> dict[str, Any]:
    """The values of a profile, without its Spark conf."""
    return {key: _BY_KEY[key].parse(value) for key, value in changed.items() if key in _BY_KEY}


def conflicts(profiles: Mapping[str, Mapping[str, str]], driver: str, driver_key: str) -> Iterator[str]:
    """Profiles without an effect."""
    if len(profiles) > PROFILES_MAX:
        yield f"{PREFIX}*: there are {len(profiles)} profiles, the limit is {PROFILES_MAX}"
    for name, changed in profiles.items():
        if driver == "standalone":
            yield (
                f"{PREFIX}{name}: nothing starts TaskManagers with {driver_key}: standalone: set that to process, "
                "docker or ssh, or remove the profile and give a TaskManager its options where it is started"
            )
            continue
        for key in (docker.MEMORY.key, docker.CPUS.key):
            if key in changed and driver != "docker":
                yield f"{PREFIX}{name}.{key} has no effect with {driver_key}: {driver}: remove it"
