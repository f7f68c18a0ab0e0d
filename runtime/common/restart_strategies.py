"""The names of the restart strategies, for jobs and for the cluster's configuration."""

from __future__ import annotations

RESTART_STRATEGIES = ("none", "fixed-delay", "failure-rate", "exponential-delay")

RESTART_STRATEGY_ALIASES = {
    "off": "none",
    "disable": "none",
    "fixeddelay": "fixed-delay",
    "failurerate": "failure-rate",
    "exponentialdelay": "exponential-delay",
}
"""Flink's other spellings."""

ATTEMPTS_MAX = 2**31 - 1
"""Flink's "no limit"."""

DEFAULT_ATTEMPTS = 3
"""Restarts of a job for which nobody has set a strategy: a passing trouble is survived, a lasting one ends it soon."""
