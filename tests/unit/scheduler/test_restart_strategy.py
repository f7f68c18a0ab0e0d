"""Flink's restart strategies, by table: which failures are survived, and after what pause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.errors import InvalidInputError
from runtime.common.restart_strategies import ATTEMPTS_MAX
from runtime.jobgraph.restart_strategy import (
    DEFAULT_RESTART_STRATEGY,
    NO_RESTART,
    ExponentialDelayRestartStrategy,
    FailureRateRestartStrategy,
    FixedDelayRestartStrategy,
    RestartStrategy,
    restart_strategy_of,
    restart_strategy_problems,
)
from runtime.scheduler.core.failover.restart_strategy import create_strategy

NO_JITTER = ExponentialDelayRestartStrategy(jitter_factor=0.0)
ONE_RESTART = NO_JITTER.model_copy(update={"attempts_before_reset_backoff": 1})


def pauses(settings: RestartStrategy, *moments: float, draw: float = 0.0) -> list[float | None]:
    """The pause after each failure; None from the one on that is the last."""
    strategy = create_strategy(settings)
    found: list[float | None] = []
    for now in moments:
        failure = strategy.failure(now, draw)
        if failure is not None:
            strategy.note(failure)
        found.append(round(strategy.delay(now), 3) if strategy.can_restart(now) else None)
    return found


@pytest.mark.parametrize(
    ("settings", "moments", "expected"),
    [
        pytest.param(NO_RESTART, [0], [None], id="none"),
        pytest.param(FixedDelayRestartStrategy(), [0, 100], [1, None], id="fixed: Flink's default is one restart"),
        pytest.param(FixedDelayRestartStrategy(attempts=2, delay_seconds=5), [0, 0, 9], [5, 5, None], id="fixed"),
        pytest.param(FixedDelayRestartStrategy(attempts=0), [0], [None], id="fixed without attempts"),
        pytest.param(FailureRateRestartStrategy(), [0, 61, 122], [1, 1, 1], id="rate: one a minute is borne"),
        pytest.param(FailureRateRestartStrategy(), [0, 60], [1, None], id="rate: two within a minute are not"),
        pytest.param(
            FailureRateRestartStrategy(max_failures_per_interval=2), [0, 1, 61, 62, 63], [1, 1, 1, 1, None], id="rate 2"
        ),
        pytest.param(NO_JITTER, [0, 2, 10, 20], [1, 1.5, 2.25, 3.375], id="exponential"),
        pytest.param(NO_JITTER, [0, 0.5, 1.0, 1.1], [1, 0.5, 0, 1.5], id="failures within one pause count once"),
        pytest.param(
            NO_JITTER.model_copy(update={"attempts_before_reset_backoff": 1}),
            [0, 0.5, 2],
            [1, 0.5, None],
            id="attempts",
        ),
        pytest.param(ONE_RESTART, [0, 3601], [1, 1], id="well for an hour"),
        pytest.param(ONE_RESTART, [0, 3600], [1, None], id="not quite"),
        pytest.param(
            NO_JITTER.model_copy(update={"backoff_multiplier": 1.0}), [0, 10, 20], [1, 1, 1], id="without growth"
        ),
        pytest.param(DEFAULT_RESTART_STRATEGY, [0, 10, 20, 30], [1, 1.5, 2.25, None], id="three, by default"),
    ],
)
def test_pauses(settings: RestartStrategy, moments: list[float], expected: list[float | None]) -> None:
    assert pauses(settings, *moments) == expected


@pytest.mark.parametrize(("draw", "expected"), [(-1.0, 1.35), (0.0, 1.5), (1.0, 1.65)])
def test_jitter_is_a_share_of_the_pause(draw: float, expected: float) -> None:
    assert pauses(ExponentialDelayRestartStrategy(), 0, 10, draw=draw)[1] == expected


@given(
    failures=st.integers(0, 40),
    draw=st.floats(-1, 1, exclude_max=True),
    multiplier=st.floats(1, 1000),
    initial=st.floats(0.001, 60),
)
def test_pauses_stay_between_the_first_and_the_largest(
    failures: int, draw: float, multiplier: float, initial: float
) -> None:
    settings = ExponentialDelayRestartStrategy(initial_backoff_seconds=initial, backoff_multiplier=multiplier)
    strategy = create_strategy(settings)
    now = 0.0
    for _ in range(failures):
        failure = strategy.failure(now, draw)
        assert failure is not None
        assert initial <= failure.delay <= settings.max_backoff_seconds
        strategy.note(failure)
        now += failure.delay + 0.001


@given(st.lists(st.floats(0, 4000), max_size=20), st.floats(-1, 1, exclude_max=True))
def test_what_was_noted_can_be_noted_again(gaps: list[float], draw: float) -> None:
    for settings in (ExponentialDelayRestartStrategy(), FailureRateRestartStrategy(), FixedDelayRestartStrategy()):
        first, noted, now = create_strategy(settings), [], 0.0
        for gap in gaps:
            now += gap
            if (failure := first.failure(now, draw)) is not None:
                first.note(failure)
                noted.append(failure)
        second = create_strategy(settings)
        for failure in noted:
            second.note(failure)
        if noted:
            assert second.can_restart(now) == first.can_restart(now)
            assert second.delay(now) == first.delay(now)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", NO_RESTART),
        ("off", NO_RESTART),
        ("disable", NO_RESTART),
        ("fixed-delay", FixedDelayRestartStrategy()),
        ("FixedDelay", FixedDelayRestartStrategy()),
        ("failurerate", FailureRateRestartStrategy()),
        ("exponentialdelay", ExponentialDelayRestartStrategy()),
        ("fixed-delay, attempts=5,delay_seconds=0.5", FixedDelayRestartStrategy(attempts=5, delay_seconds=0.5)),
    ],
)
def test_a_name_stands_for_the_strategy_with_flinks_defaults(text: str, expected: RestartStrategy) -> None:
    assert restart_strategy_of(text) == expected


def test_other_names_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="'always' is not a restart strategy: expected one of none"):
        restart_strategy_of("always")


@pytest.mark.parametrize(
    ("strategy", "problems"),
    [
        (FixedDelayRestartStrategy(attempts=-1, delay_seconds=-1.0), 2),
        (FailureRateRestartStrategy(max_failures_per_interval=-1, failure_rate_interval_seconds=0), 2),
        (
            ExponentialDelayRestartStrategy(
                initial_backoff_seconds=5, max_backoff_seconds=1, backoff_multiplier=0.5, jitter_factor=2
            ),
            3,
        ),
        (ExponentialDelayRestartStrategy(initial_backoff_seconds=0, max_backoff_seconds=1e12), 2),
        (ExponentialDelayRestartStrategy(), 0),
        (NO_RESTART, 0),
    ],
)
def test_every_problem_of_a_strategy_is_listed(strategy: RestartStrategy, problems: int) -> None:
    assert len(list(restart_strategy_problems(strategy))) == problems


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (NO_RESTART, "no restarts"),
        (FixedDelayRestartStrategy(), "at most 1 restart, after 1 s"),
        (FixedDelayRestartStrategy(attempts=5, delay_seconds=90), "at most 5 restarts, each after 1 min 30 s"),
        (FixedDelayRestartStrategy(attempts=0), "no restarts"),
        (FixedDelayRestartStrategy(attempts=2, delay_seconds=0), "at most 2 restarts, at once"),
        (FixedDelayRestartStrategy(attempts=ATTEMPTS_MAX, delay_seconds=0.25),
         "restarts without limit, each after 250 ms"),
        (FailureRateRestartStrategy(), "restarts, each after 1 s, until more than 1 failure falls into 1 min"),
        (FailureRateRestartStrategy(max_failures_per_interval=4, failure_rate_interval_seconds=7200),
         "restarts, each after 1 s, until more than 4 failures fall into 2 h"),
        (DEFAULT_RESTART_STRATEGY,
         "at most 3 restarts, 1 s, growing to 1 min; counted anew after 1 h without a failure"),
        (ExponentialDelayRestartStrategy(initial_backoff_seconds=0.5, max_backoff_seconds=0.5),
         "restarts without limit, 500 ms; counted anew after 1 h without a failure"),
    ],
)  # fmt: skip
def test_strategies_say_in_words_what_they_do(strategy: RestartStrategy, words: str) -> None:
    assert str(strategy) == words
