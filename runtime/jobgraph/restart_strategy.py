"""Flink's restart strategies and their settings, for one job or as the cluster's default.

Each field's default is Flink's. A job without a strategy of its own has the cluster's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from runtime.common.durations import duration_words
from runtime.common.errors import InvalidInputError
from runtime.common.restart_strategies import (
    ATTEMPTS_MAX,
    DEFAULT_ATTEMPTS,
    RESTART_STRATEGY_ALIASES,
    UserFailures,
    parse_user_failures,
)
from runtime.jobgraph.code import JobGraphModel

SECONDS_MAX = 3650 * 86400.0


class NoRestartStrategy(JobGraphModel):
    """The first failure of a task fails the job."""

    type: Literal["none"] = "none"

    def __str__(self) -> str:
        return "no restarts"


class FixedDelayRestartStrategy(JobGraphModel):
    """So many restarts, each after the same pause."""

    type: Literal["fixed-delay"] = "fixed-delay"
    attempts: int = 1
    delay_seconds: float = 1.0

    def __str__(self) -> str:
        if not self.attempts:
            return str(NO_RESTART)
        return f"{_restarts(self.attempts)}, {_after(self.delay_seconds, is_each=self.attempts > 1)}"


class FailureRateRestartStrategy(JobGraphModel):
    """Restarts, each after the same pause, as long as no more than so many failures fall into one interval."""

    type: Literal["failure-rate"] = "failure-rate"
    max_failures_per_interval: int = 1
    failure_rate_interval_seconds: float = 60.0
    delay_seconds: float = 1.0

    def __str__(self) -> str:
        failures = self.max_failures_per_interval
        return (
            f"restarts, {_after(self.delay_seconds, is_each=True)}, until more than {failures} "
            f"failure{'' if failures == 1 else 's'} fall{'s' if failures == 1 else ''} into "
            f"{duration_words(self.failure_rate_interval_seconds)}"
        )


class ExponentialDelayRestartStrategy(JobGraphModel):
    """Restarts after pauses that grow with every failure, until the job has been well for a while."""

    type: Literal["exponential-delay"] = "exponential-delay"
    initial_backoff_seconds: float = 1.0
    max_backoff_seconds: float = 60.0
    backoff_multiplier: float = 1.5
    reset_backoff_threshold_seconds: float = 3600.0
    jitter_factor: float = 0.1
    attempts_before_reset_backoff: int = ATTEMPTS_MAX

    def __str__(self) -> str:
        if not self.attempts_before_reset_backoff:
            return str(NO_RESTART)
        pauses = duration_words(self.initial_backoff_seconds)
        if self.max_backoff_seconds > self.initial_backoff_seconds and self.backoff_multiplier > 1:
            pauses += f", growing to {duration_words(self.max_backoff_seconds)}"
        anew = duration_words(self.reset_backoff_threshold_seconds)
        return f"{_restarts(self.attempts_before_reset_backoff)}, {pauses}; counted anew after {anew} without a failure"


RestartStrategy = (
    NoRestartStrategy | FixedDelayRestartStrategy | FailureRateRestartStrategy | ExponentialDelayRestartStrategy
)
RestartStrategyField = Annotated[RestartStrategy, Field(discriminator="type")]

NO_RESTART = NoRestartStrategy()
DEFAULT_RESTART_STRATEGY = ExponentialDelayRestartStrategy(attempts_before_reset_backoff=DEFAULT_ATTEMPTS)
"""The strategy of a cluster without the option restart-strategy.type."""

_TYPES: dict[str, type[RestartStrategy]] = {
    "none": NoRestartStrategy,
    "fixed-delay": FixedDelayRestartStrategy,
    "failure-rate": FailureRateRestartStrategy,
    "exponential-delay": ExponentialDelayRestartStrategy,
}


def restart_strategy_type(text: str) -> str:
    """The type's name for any of its spellings. Raises InvalidInputError."""
    name = text.strip().lower()
    name = RESTART_STRATEGY_ALIASES.get(name, name)
    if name not in _TYPES:
        message = f"{text[:80]!r} is not a restart strategy: expected one of {', '.join(_TYPES)}"
        raise InvalidInputError(message)
    return name


def restart_strategy_of(given: RestartStrategy | str | None) -> RestartStrategy | None:
    """The strategy that a user gave: an object, a text, or None for the cluster's.

    A text is the name of a strategy with the fields that differ from Flink's defaults:
    `fixed-delay,attempts=5,delay_seconds=10`. Raises InvalidInputError.
    """
    return _parsed(given) if isinstance(given, str) else given


def _parsed(text: str) -> RestartStrategy:
    name, *settings = text.split(",")
    model = _TYPES[restart_strategy_type(name)]
    fields: dict[str, str] = {}
    for setting in settings:
        field, separator, value = (part.strip() for part in setting.partition("="))
        if not separator or field == "type" or field not in model.model_fields:
            known = ", ".join(one for one in model.model_fields if one != "type") or "none"
            message = f"restart strategy {text[:200]!r}: {setting.strip()[:80]!r} sets no field of it, but: {known}"
            raise InvalidInputError(message)
        fields[field] = value
    try:
        return model.model_validate_strings(fields)
    except ValidationError as error:
        problems = tuple(f"{one['loc'][0]} {one['input']!r}: {one['msg']}" for one in error.errors())
        message = f"restart strategy {text[:200]!r} cannot be read: {'; '.join(problems)}"
        raise InvalidInputError(message, problems) from error


def restart_strategy_problems(strategy: RestartStrategy) -> Iterator[str]:
    """Every problem of a strategy, one sentence each."""
    for name, value in strategy:
        label = f"restart strategy {strategy.type}: {name}"
        if isinstance(value, int) and not 0 <= value <= ATTEMPTS_MAX:
            yield f"{label} is {value}, it must be between 0 and {ATTEMPTS_MAX}"
        elif name.endswith("_seconds") and not 0 <= value <= SECONDS_MAX:
            yield f"{label} is {value:g}, it must be between 0 and {SECONDS_MAX:g}"
    if isinstance(strategy, ExponentialDelayRestartStrategy):
        yield from _exponential_delay_problems(strategy)
    elif isinstance(strategy, FailureRateRestartStrategy) and not strategy.failure_rate_interval_seconds > 0:
        yield "restart strategy failure-rate: failure_rate_interval_seconds must be above 0"


def _exponential_delay_problems(strategy: ExponentialDelayRestartStrategy) -> Iterator[str]:
    label = "restart strategy exponential-delay:"
    if not 1 <= strategy.backoff_multiplier <= 1000:
        yield f"{label} backoff_multiplier is {strategy.backoff_multiplier:g}, it must be between 1 and 1000"
    if not 0 <= strategy.jitter_factor <= 1:
        yield f"{label} jitter_factor is {strategy.jitter_factor:g}, it must be between 0 and 1"
    if not strategy.initial_backoff_seconds > 0:
        yield f"{label} initial_backoff_seconds must be above 0"
    if strategy.max_backoff_seconds < strategy.initial_backoff_seconds:
        yield f"{label} max_backoff_seconds must not be below initial_backoff_seconds"


def _restarts(attempts: int) -> str:
    if attempts == ATTEMPTS_MAX:
        return "restarts without limit"
    return f"at most {attempts} restart{'' if attempts == 1 else 's'}"


def _after(delay_seconds: float, *, is_each: bool) -> str:
    if not delay_seconds:
        return "at once"
    return f"{'each ' if is_each else ''}after {duration_words(delay_seconds)}"


def user_failures_of(given: str | None) -> UserFailures | None:
    """The value that a user gave for failures of user code; None or "" for the cluster's. Raises InvalidInputError."""
    if not given:
        return None
    try:
        return parse_user_failures(given)
    except ValueError as error:
        message = f"user_failures {given[:80]!r}: {error}"
        raise InvalidInputError(message) from error
