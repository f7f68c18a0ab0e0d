"""What a report says of a task that moves, beside its verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from airflow_flinklike.api.artifacts import is_elsewhere
from airflow_flinklike.migrate.confs import (
    ENVIRONMENTS_BYTES,
    NAME_OF_CONF,
    WARM,
    WARM_BYTES,
    confs_of,
    is_conf_text,
    is_shielded,
    paths_of,
)
from airflow_flinklike.migrate.model import Computed, Kind, Place
from airflow_flinklike.migrate.parameters import NEW
from runtime.common.spark_conf import conf_text, is_offered, is_without_effect
from runtime.common.spark_environments import HEAP, EnvironmentSpec, size_bytes

_GIB = 1 << 30
_FILES = ("application", "file", "py_files", "files", "archives")


def notes_of(place: Place) -> Iterator[str]:
    new = sorted(NEW[place.kind] & place.default_names - {name for name in place.parameters if place.is_given(name)})
    if new:
        yield f"{', '.join(new)}: default_args give it, and it counts for this task from now on"
    yield from _of_urls(place)
    if place.kind is Kind.LIVY:
        yield "its XCom is the job's value, or its id where it does not wait, and no batch id"
    if place.kind is Kind.SPARK_SQL:
        yield "spark-sql reads the Hive metastore by itself: name it in conf, or in the cluster's configuration"
    conf = place.value(NAME_OF_CONF.get(place.kind, "conf"))
    if isinstance(conf, Computed) or (isinstance(conf, str) and conf and not is_conf_text(conf)):
        yield "conf is known when it runs: with static keys the task gets a Spark environment"
    elif any(isinstance(key, Computed) for one in confs_of(place) for key in one):
        yield "a part of conf is known when it runs: with static keys the task gets a Spark environment"
    if place.script_problem and not place.is_jar:
        yield place.script_problem
    application = place.value(place.application)
    if isinstance(application, Computed) and not application.end.endswith((".py", ".jar")):
        yield "the application is known when it runs: a jar needs java_class"
    if place.value("properties_file") and not is_shielded(place, "properties_file"):
        yield "properties_file: static keys in it give the task a Spark environment"
    without = [key for one in confs_of(place) for key, value in one.items() if _is_vain(key, value)]
    if without:
        names = ", ".join(dict.fromkeys(without))
        yield f"{names}: without effect where Spark's tasks run in the TaskManager's JVM"


def _is_vain(key: object, value: object) -> bool:
    """No effect here, and not what Spark does anyhow."""
    return isinstance(key, str) and is_without_effect(key, WARM) and not is_offered(key, conf_text(value), WARM)


def notes_of_starts(started: Sequence[EnvironmentSpec]) -> Iterator[str]:
    """What the JVMs that are started for a task take."""
    memory = max((spec.memory_bytes for spec in started), default=0)
    if memory > ENVIRONMENTS_BYTES:
        least = math.ceil((WARM_BYTES + memory) / _GIB)
        yield (
            f"needs taskmanager.memory.spark.total of at least {least} gb: its JVM takes {size_text(memory)}, with its "
            f"overhead, beside the warm one's {size_text(WARM_BYTES)}"
        )
    heaps = [spec.conf[HEAP] for spec in started if {*spec.conf} == {HEAP} and not spec.is_application]
    if small := [heap for heap in heaps if (size_bytes(heap) or _GIB) < _GIB]:
        yield f"leave out driver_memory (or {HEAP}) of {small[0]}: the warm Spark has {WARM[HEAP]}"


def size_text(size: int) -> str:
    """Bytes for people."""
    return f"{size / _GIB:.1f}".removesuffix(".0") + " gb"


def _of_urls(place: Place) -> Iterator[str]:
    """Where the files are read that a URL names: one note for each kind."""
    given = [place.parameters[name].value for name in _FILES if name in place.parameters]
    paths = [path for value in given for path in paths_of(value) if is_elsewhere(path)]
    if found := [path for path in paths if path.startswith("local:")]:
        yield f"{found[0]} is a file of each TaskManager's host"
    if found := [path for path in paths if not path.startswith("local:")]:
        yield f"{found[0]} is fetched where the task runs, with the credentials of the TaskManagers or of the job"
