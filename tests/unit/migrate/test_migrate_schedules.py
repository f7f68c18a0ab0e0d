"""Runs a day of schedules."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_flinklike.migrate.model import Computed
from airflow_flinklike.migrate.schedules import cron_runs_per_day, schedule_of


@pytest.mark.parametrize(
    ("schedule", "runs"),
    [
        (None, 0),
        ("@once", 0),
        ("@daily", 1),
        ("@hourly", 24),
        ("@weekly", 1 / 7),
        ("@monthly", 12 / 365.25),
        (timedelta(hours=8), 3),
        (timedelta(days=2), 0.5),
        ("0 2 * * *", 1),
        ("*/15 * * * *", 96),
        ("0,30 8-17 * * *", 20),
        ("5/20 * * * *", 72),
        ("0 0 * JAN *", 124 / 1461),
        ("0 0 ? * MON-FRI", 1044 / 1461),
        ("0 0 * * 7", 208 / 1461),
        ("0 0 * * 0", 208 / 1461),
    ],
)
def test_the_runs_of_a_day(schedule: Any, runs: float) -> None:
    found = schedule_of(schedule).runs_per_day
    assert found == pytest.approx(runs, rel=0.01)


def test_of_two_fields_of_days_one_has_to_match() -> None:
    both = cron_runs_per_day("0 0 1 * 1")
    first, monday = cron_runs_per_day("0 0 1 * *"), cron_runs_per_day("0 0 * * 1")
    assert both is not None
    assert first is not None
    assert monday is not None
    assert max(first, monday) < both < first + monday


@pytest.mark.parametrize(
    "schedule",
    ["@continuous", "0 0 L * *", "0 0 * * 1#2", "61 0 * * *", "0 0 0 * *", "*/0 * * * *", "0 5-2 * * *", "0 0 * *", "",
     "{{ var }}", Computed("SCHEDULE"), ["asset"], timedelta(0), 5],
)  # fmt: skip
def test_what_is_not_known_is_said_so(schedule: Any) -> None:
    assert schedule_of(schedule).runs_per_day is None
