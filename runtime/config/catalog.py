"""Every option there is, found in the modules of `runtime.config.options`."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

from runtime.config.option import ConfigOption
from runtime.config.options import (
    adaptive_batch,
    adaptive_scheduler,
    checkpointing,
    cluster,
    docker,
    failures,
    high_availability,
    history,
    jobmanager,
    metrics,
    resourcemanager,
    security,
    slotmanager,
    speculation,
    ssh,
    taskmanager,
    traces,
)

AREAS: tuple[tuple[str, ModuleType], ...] = (
    ("Cluster", cluster),
    ("Security", security),
    ("High availability and storage", high_availability),
    ("JobManager, JobMaster processes, REST", jobmanager),
    ("Queues of jobs", slotmanager),
    ("Failures and restarts", failures),
    ("Parallelism of batches", adaptive_batch),
    ("Slow tasks of batches", speculation),
    ("Parallelism of streaming jobs", adaptive_scheduler),
    ("Checkpoints of streaming jobs", checkpointing),
    ("ResourceManager: TaskManagers on demand", resourcemanager),
    ("TaskManagers in containers (resourcemanager.driver: docker)", docker),
    ("TaskManagers over ssh (resourcemanager.driver: ssh)", ssh),
    ("TaskManager, slots, Spark", taskmanager),
    ("Metrics", metrics),
    ("History of ended jobs", history),
    ("Traces", traces),
)

SPARK_PREFIX = "spark."
"""Keys with this prefix go to Spark unchanged."""


def options_of(area: ModuleType) -> list[ConfigOption[Any]]:
    """The options of one module, in the order of their keys."""
    found = [value for value in vars(area).values() if isinstance(value, ConfigOption)]
    return sorted(found, key=lambda option: option.key)


@cache
def all_options() -> dict[str, ConfigOption[Any]]:
    """key -> option."""
    return {option.key: option for _, area in AREAS for option in options_of(area)}
