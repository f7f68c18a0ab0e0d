"""The names of the restart strategies, for jobs and for the cluster's configuration."""

from __future__ import annotations

from typing import Literal, get_args

RESTART_STRATEGIES = ("none", "fixed-delay", "failure-rate", "exponential-delay")

RESTART_STRATEGY_ALIASES = {
    "off": "none",
    "disable": "none",
    "fixeddelay": "fixed-delay",
    "failurerate": "failure-rate",
    "exponentialdelay": "exponential-delay",
}
"""Flink's other spellings."""

UserFailures = Literal["final-when-exclusive", "restart", "final"]
"""A failure of user code ends the job (R36): when its task is exclusive, never, or always."""

USER_FAILURES: tuple[UserFailures, ...] = get_args(UserFailures)
DEFAULT_USER_FAILURES: UserFailures = "final-when-exclusive"


_IN_WORDS = {
    "final-when-exclusive": "; a failure of user code in an exclusive task is final, but for streaming queries",
    "final": "; a failure of user code is final",
    "restart": ", also after a failure of user code",
}


def in_words(restart_strategy: str, user_failures: str) -> str:
    """A sentence that says what follows from a failed task.

    Summaries of earlier releases have no `user_failures`, and a whole sentence as `restart_strategy`.
    """
    if not user_failures:
        return restart_strategy
    return f"After a failure: {restart_strategy}{_IN_WORDS.get(user_failures, '')}"


def parse_user_failures(text: str) -> UserFailures:
    """One of USER_FAILURES. Raises ValueError."""
    for one in USER_FAILURES:
        if text.strip().lower() == one:
            return one
    message = f"expected one of {', '.join(USER_FAILURES)}"
    raise ValueError(message)


ATTEMPTS_MAX = 2**31 - 1
"""Flink's "no limit"."""

DEFAULT_ATTEMPTS = 3
"""Restarts of a job when neither job nor cluster sets a strategy: a short fault is survived, a lasting one ends the job
soon."""
