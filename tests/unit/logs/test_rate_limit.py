"""One line of each kind in a period, and the count of what it stands for."""

from __future__ import annotations

import logging

from runtime.logs.rate_limit import LogRateLimit, RateLimitFilter
from tests.kit.control_plane.virtual_time import ManualClock


def test_the_first_line_is_due_at_once_and_the_next_one_counts_what_came_between() -> None:
    limit = LogRateLimit(10.0)
    assert [limit.take(at) for at in (0.0, 1.0, 9.9)] == [1, 0, 0]
    assert limit.take(10.0) == 3
    assert limit.take(30.0) == 1


def test_kinds_are_counted_apart() -> None:
    limit = LogRateLimit(10.0)
    assert [limit.take(0.0, kind) for kind in ("a", "b", "a")] == [1, 1, 0]


def test_what_waits_is_told_without_a_further_occasion() -> None:
    limit = LogRateLimit(10.0)
    assert limit.take(0.0, occasions=0) == 0
    assert limit.take(0.0, occasions=2) == 2
    assert limit.take(1.0, occasions=3) == 0
    assert limit.take(11.0, occasions=0) == 3
    assert limit.take(12.0, occasions=1) == 0


def test_a_clock_that_is_set_back_silences_nothing() -> None:
    """People's clocks may go back by hours; the period is one of the system's."""
    clock = ManualClock()
    seldom = RateLimitFilter(clock)
    record = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, "Invalid HTTP request received.", (), None)
    assert seldom.filter(record)
    assert not seldom.filter(record)
    record.created -= 3600.0
    clock.advance(60.0)
    assert seldom.filter(record)
    assert not seldom.filter(record)
