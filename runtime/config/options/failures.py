"""Options of failures: what restarts, when, and how much of the history is kept."""

from __future__ import annotations

from runtime.common.restart_strategies import (
    ATTEMPTS_MAX,
    DEFAULT_ATTEMPTS,
    DEFAULT_USER_FAILURES,
    RESTART_STRATEGIES,
    RESTART_STRATEGY_ALIASES,
    USER_FAILURES,
    UserFailures,
    parse_user_failures,
)
from runtime.config.option import (
    ConfigOption,
    choice_option,
    duration_option,
    float_option,
    int_between,
    int_option,
    one_of,
    parse_list,
)


def _parse_type(text: str) -> str:
    name = text.strip().lower()
    return one_of(*RESTART_STRATEGIES)(RESTART_STRATEGY_ALIASES.get(name, name))


RESTART_STRATEGY: ConfigOption[str | None] = ConfigOption(
    "restart-strategy.type",
    _parse_type,
    None,
    f"What happens after a task has failed, for jobs without a strategy of their own. Not set: exponential-delay with "
    f"at most {DEFAULT_ATTEMPTS} restarts. One of: {', '.join(RESTART_STRATEGIES)}; Flink's other spellings (off, "
    "disable, fixeddelay, failurerate, exponentialdelay) are read too.",
    "Enum",
)
USER_FAILURE: ConfigOption[UserFailures] = ConfigOption(
    "restart-strategy.user-failures",
    parse_user_failures,
    DEFAULT_USER_FAILURES,
    "What follows from a failure of user code, for jobs that set neither this nor a restart strategy. "
    "final-when-exclusive: the failure ends the job when its task is exclusive (a script, a function, a sink); other "
    "tasks restart by the strategy. restart: all tasks restart by the strategy. final: the failure ends the job. Other "
    f"failures always restart by the strategy. One of: {', '.join(USER_FAILURES)}.",
    "Enum",
)
FIXED_DELAY_ATTEMPTS = int_option(
    "restart-strategy.fixed-delay.attempts", 1, "Restarts of one job before a failure is its last.", low=0
)
FIXED_DELAY_DELAY = duration_option(
    "restart-strategy.fixed-delay.delay", "1 s", "Pause before each restart.", low="0 ms"
)
FAILURE_RATE_MAX = int_option(
    "restart-strategy.failure-rate.max-failures-per-interval", 1, "More failures in one interval end the job."
)
FAILURE_RATE_INTERVAL = duration_option(
    "restart-strategy.failure-rate.failure-rate-interval", "1 min", "The interval in which failures are counted."
)
FAILURE_RATE_DELAY = duration_option(
    "restart-strategy.failure-rate.delay", "1 s", "Pause before each restart.", low="0 ms"
)
EXPONENTIAL_DELAY_INITIAL = duration_option(
    "restart-strategy.exponential-delay.initial-backoff", "1 s", "Pause before the first restart."
)
EXPONENTIAL_DELAY_MAX = duration_option(
    "restart-strategy.exponential-delay.max-backoff", "1 min", "Largest pause before a restart."
)
EXPONENTIAL_DELAY_MULTIPLIER = float_option(
    "restart-strategy.exponential-delay.backoff-multiplier",
    1.5,
    "By how much the pause grows with every restart.",
    low=1.0,
    high=1000.0,
)
EXPONENTIAL_DELAY_RESET = duration_option(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    "1 h",
    "A job without a failure for this long starts again with the first pause and all its restarts.",
)
EXPONENTIAL_DELAY_JITTER = float_option(
    "restart-strategy.exponential-delay.jitter-factor",
    0.1,
    "Share of the pause that is random, so that jobs which fail together do not restart together.",
    low=0.0,
    high=1.0,
)
EXPONENTIAL_DELAY_ATTEMPTS: ConfigOption[int | None] = ConfigOption(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    int_between(0, ATTEMPTS_MAX),
    None,
    "Restarts, until the count is reset, before a failure is the job's last. Failures within one pause count once.",
    "Integer",
    f"{DEFAULT_ATTEMPTS}, {ATTEMPTS_MAX} when restart-strategy.type is set",
)
FAILOVER_STRATEGY = choice_option(
    "jobmanager.execution.failover-strategy",
    "region",
    "What restarts with a failed task: its region and the consumers of the partitions that it writes again, or every "
    "task of the job. Finished tasks of exclusive vertices never restart.",
    "region",
    "full",
)
ATTEMPTS_HISTORY_SIZE = int_option(
    "jobmanager.execution.attempts-history-size", 16, "Earlier attempts of each subtask that REST shows.", low=0
)
EXCEPTION_HISTORY_SIZE = int_option(
    "web.exception-history-size", 16, "Failures of one job that its exception history keeps.", high=1000
)
FAILURE_ENRICHERS: ConfigOption[tuple[str, ...]] = ConfigOption(
    "jobmanager.failure-enrichers",
    parse_list,
    ("type",),
    "Plug-ins that label failures, by the names of their entry points in airflow_flinklike.failure_enrichers. `type` "
    "labels a failure USER, SYSTEM or RESOURCE.",
    "List",
)
