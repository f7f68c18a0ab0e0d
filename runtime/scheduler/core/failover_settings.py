"""What the cluster says about failed tasks, to every job."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.jobgraph.restart_strategy import DEFAULT_RESTART_STRATEGY, NO_RESTART, RestartStrategy


@dataclass(frozen=True, slots=True)
class FailoverSettings:
    """`restart_strategy` is for jobs without one of their own; `is_full` restarts every task with a failed one."""

    restart_strategy: RestartStrategy = DEFAULT_RESTART_STRATEGY
    is_full: bool = False
    exceptions_max: int = 16
    prior_attempts_max: int = 16


NO_FAILOVER = FailoverSettings(restart_strategy=NO_RESTART)
"""The first failure of a task fails the job."""

DEFAULT_FAILOVER = FailoverSettings()
