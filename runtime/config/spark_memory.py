"""The memory of a TaskManager's driver JVMs, as the options share it out (R53)."""

from __future__ import annotations

from runtime.common.spark_conf import JVM
from runtime.common.spark_environments import overhead_bytes
from runtime.config.configuration import Configuration
from runtime.config.options import taskmanager as tm

ENVIRONMENT_BYTES_DEFAULT = 4 << 30
"""For Spark environments of jobs, where `taskmanager.memory.spark.total` is not set."""


def has_own_jvms(configuration: Configuration) -> bool:
    """True for a TaskManager where each job has a JVM of its own, and none is kept warm."""
    return configuration.get(tm.SLOT_ISOLATION) == JVM


def default_environment_bytes(configuration: Configuration) -> int:
    """Heap and overhead of the default environment."""
    heap = configuration.get(tm.SPARK_MEMORY)
    return heap + overhead_bytes(heap, configuration.spark_conf)
