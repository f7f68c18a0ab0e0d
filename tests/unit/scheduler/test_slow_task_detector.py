"""R67: when a task is slow, by the tasks of its vertex that have finished."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.scheduler.core.speculation.settings import SpeculativeSettings
from runtime.scheduler.core.speculation.slow_task_detector import Baseline, RunTime, baseline_of

QUICK = SpeculativeSettings(baseline_lower_bound=0.0)


def times(*seconds: float) -> list[RunTime]:
    return [RunTime(one) for one in seconds]


@pytest.mark.parametrize(
    ("finished", "parallelism", "settings", "expected"),
    [
        ((), 4, QUICK, None),
        ((1.0, 1.0), 4, QUICK, None),
        ((1.0, 1.0, 1.0), 4, QUICK, 1.5),
        ((3.0, 2.0, 1.0), 4, QUICK, 3.0),
        ((9.0, 3.0, 2.0, 1.0), 4, QUICK, 3.0),  # of the three fastest
        ((1.0,), 2, SpeculativeSettings(baseline_ratio=0.5, baseline_lower_bound=0.0), 1.5),
        ((1.0,), 2, QUICK, 1.5),  # not of both, or there would be nobody who is slow
        ((1.0,) * 3, 4, SpeculativeSettings(), 60.0),
        ((100.0,) * 3, 4, SpeculativeSettings(), 150.0),
        ((100.0,) * 3, 4, SpeculativeSettings(baseline_multiplier=2.0), 200.0),
        ((4.0,), 8, SpeculativeSettings(baseline_ratio=0.01, baseline_lower_bound=0.0), 6.0),  # of one at least
    ],
)
def test_the_baseline(
    finished: tuple[float, ...], parallelism: int, settings: SpeculativeSettings, expected: float | None
) -> None:
    baseline = baseline_of(times(*finished), parallelism, settings)
    assert (None if baseline is None else baseline.seconds) == expected


@pytest.mark.parametrize(
    ("baseline_bytes", "own_bytes", "expected"),
    [(100, 100, 10.0), (100, 50, 10.0), (100, 300, 30.0), (None, 300, 10.0), (0, 300, 10.0), (100, None, 10.0)],
)
def test_who_reads_more_may_take_longer(baseline_bytes: int | None, own_bytes: int | None, expected: float) -> None:
    assert Baseline(10.0, baseline_bytes).seconds_for(own_bytes) == expected


def test_bytes_are_the_median_of_those_that_are_known() -> None:
    finished = [RunTime(1.0, 10), RunTime(2.0, None), RunTime(3.0, 30), RunTime(99.0, 1_000)]
    baseline = baseline_of(finished, 4, QUICK)
    assert baseline is not None
    assert baseline.input_bytes == 20


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=50), st.integers(1, 50), st.floats(0.0, 1.0))
def test_with_enough_finished_ones_no_order_matters(finished: list[float], parallelism: int, ratio: float) -> None:
    settings = SpeculativeSettings(baseline_ratio=ratio)
    found = baseline_of(times(*finished), parallelism, settings)
    assert found == baseline_of(times(*reversed(finished)), parallelism, settings)
    if found is not None:
        assert found.seconds >= settings.baseline_lower_bound
        assert found.seconds <= max(settings.baseline_lower_bound, 1.5 * max(finished))
