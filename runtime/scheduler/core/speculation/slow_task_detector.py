"""Which tasks are slow (Flink's ExecutionTimeBasedSlowTaskDetector): by the run times of tasks that have finished.

A subtask that reads more than the others may take longer, in proportion.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.scheduler.core.speculation.settings import SpeculativeSettings


@dataclass(frozen=True, slots=True)
class RunTime:
    """How long a task has run, in seconds, and what it reads of other tasks; None where that is not known."""

    seconds: float
    input_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """A task that has run for longer than `seconds` is slow, if it reads no more than `input_bytes`."""

    seconds: float
    input_bytes: int | None = None

    def seconds_for(self, input_bytes: int | None) -> float:
        """After how long a task is slow that reads so much."""
        if not self.input_bytes or not input_bytes:
            return self.seconds
        return self.seconds * max(1.0, input_bytes / self.input_bytes)


def baseline_of(finished: Sequence[RunTime], parallelism: int, settings: SpeculativeSettings) -> Baseline | None:
    """What the finished subtasks of a vertex say of the others; None while too few have finished.

    As in Flink: the median of the fastest ones, as many as `baseline_ratio` asks for; one at least, and never all.
    """
    count = max(1, min(round(parallelism * settings.baseline_ratio), parallelism - 1))
    if count > len(finished):
        return None
    fastest = sorted(finished, key=lambda one: one.seconds)[:count]
    median = fastest[count // 2].seconds
    known = [one.input_bytes for one in fastest if one.input_bytes is not None]
    return Baseline(
        max(settings.baseline_lower_bound, median * settings.baseline_multiplier),
        int(statistics.median(known)) if known else None,
    )
