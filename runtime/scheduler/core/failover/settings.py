"""How the cluster treats failed tasks, where a job says nothing itself."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.restart_strategies import DEFAULT_USER_FAILURES, UserFailures
from runtime.gateways.failure_enricher import Enrich, label_type
from runtime.jobgraph.restart_strategy import DEFAULT_RESTART_STRATEGY, NO_RESTART, RestartStrategy


@dataclass(frozen=True, slots=True)
class FailoverSettings:
    """`restart_strategy` is for jobs without one of their own; `is_full` restarts every task with a failed one.

    `user_failures` is for jobs that say nothing about failures of their own code (R36).

    `enrich` labels failures: quick, without side effects that matter, and it never raises. `unconfirmed_wait`: seconds
    after which a fence need not be confirmed any more (R14), None where TaskManagers cannot be fenced off.
    """

    restart_strategy: RestartStrategy = DEFAULT_RESTART_STRATEGY
    user_failures: UserFailures = DEFAULT_USER_FAILURES
    is_full: bool = False
    exceptions_max: int = 16
    prior_attempts_max: int = 16
    enrich: Enrich = label_type
    unconfirmed_wait: float | None = None


NO_FAILOVER = FailoverSettings(restart_strategy=NO_RESTART)
"""The first failure of a task fails the job."""

DEFAULT_FAILOVER = FailoverSettings()
