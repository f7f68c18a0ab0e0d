"""When a task counts as slow, and what follows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpeculativeSettings:
    """`execution.batch.speculative.*` and `slow-task-detector.*`; times in seconds.

    `baseline_ratio`: the part of the subtasks of a vertex that must have finished, whose median run time times
    `baseline_multiplier` makes another one slow, but not below `baseline_lower_bound`.
    """

    is_enabled: bool = False
    concurrent_max: int = 2
    block_seconds: float = 60.0
    check_seconds: float = 1.0
    baseline_ratio: float = 0.75
    baseline_multiplier: float = 1.5
    baseline_lower_bound: float = 60.0


NO_SPECULATION = SpeculativeSettings()
