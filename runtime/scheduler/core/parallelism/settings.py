"""How the AdaptiveBatchScheduler runs a job: what bounds a parallelism that it chooses, and what slow tasks get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from runtime.scheduler.core.speculation.settings import NO_SPECULATION, SpeculativeSettings


@dataclass(frozen=True, slots=True)
class AdaptiveSettings:
    """`execution.batch.adaptive.auto-parallelism.*`; without `is_enabled` each vertex gets `parallelism_default`.

    `bytes_per_task`: of Parquet files, what one subtask should read. `skew_factor`: a subpartition with this many times
    the bytes of the median is divided between several subtasks, where its edge allows that. `speculation`: of slow
    tasks.
    """

    is_enabled: bool = True
    parallelism_min: int = 1
    parallelism_max: int = 128
    bytes_per_task: int = 128 * 1024 * 1024
    parallelism_default: int = 1
    skew_factor: float = 4.0
    speculation: SpeculativeSettings = NO_SPECULATION


DEFAULT_ADAPTIVE = AdaptiveSettings()

AdaptiveOf = Callable[[Mapping[str, str]], AdaptiveSettings]
"""The settings of a job, by its own configuration."""


def default_adaptive(configuration: Mapping[str, str]) -> AdaptiveSettings:
    """Those of a cluster without a configuration."""
    del configuration
    return DEFAULT_ADAPTIVE
