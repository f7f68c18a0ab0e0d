"""The runs a day that a schedule means, as a mean over the years."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any

from airflow_flinklike.migrate.model import Computed, Schedule

_DAYS_OF_YEAR = 365.25
_PRESETS = {
    "@once": 0.0,
    "@hourly": 24.0,
    "@daily": 1.0,
    "@midnight": 1.0,
    "@weekly": 1 / 7,
    "@monthly": 12 / _DAYS_OF_YEAR,
    "@quarterly": 4 / _DAYS_OF_YEAR,
    "@yearly": 1 / _DAYS_OF_YEAR,
    "@annually": 1 / _DAYS_OF_YEAR,
}
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS: tuple[tuple[int, int, list[str]], ...] = (
    (0, 59, []),
    (0, 23, []),
    (1, 31, []),
    (1, 12, _MONTHS),
    (0, 7, _WEEKDAYS),
)
_FOUR_YEARS = [date(2024, 1, 1) + timedelta(days=day) for day in range(1461)]
_PART = re.compile(r"(\*|\w+)(?:-(\w+))?(?:/(\d+))?\Z")

UNKNOWN = "known when it runs"


def schedule_of(value: Any) -> Schedule:
    """The schedule that a DAG's `schedule` means."""
    match value:
        case None:
            return Schedule("none", 0.0)
        case str(text):
            return Schedule(text, _PRESETS[text] if text in _PRESETS else cron_runs_per_day(text))
        case timedelta() if value > timedelta(0):
            return Schedule(f"every {value}", timedelta(days=1) / value)
        case Computed(text):
            return Schedule(text, None)
        case _:
            return Schedule("assets" if isinstance(value, list) else UNKNOWN, None)


def cron_runs_per_day(text: str) -> float | None:
    """The mean runs a day of a cron expression with five fields; None for what is none, or has words such as L or #."""
    fields = text.lower().split()
    if len(fields) != 5:
        return None
    found = [_numbers(one, low, high, names) for one, (low, high, names) in zip(fields, _FIELDS, strict=True)]
    if any(numbers is None for numbers in found):
        return None
    minutes, hours, days, months, weekdays = (frozenset(numbers or ()) for numbers in found)
    weekdays = frozenset(day % 7 for day in weekdays)
    # As cron has it: of two restricted fields of days, one has to match.
    is_either = not fields[2].startswith(("*", "?")) and not fields[4].startswith(("*", "?"))

    def runs_on(day: date) -> bool:
        of_month, of_week = day.day in days, day.isoweekday() % 7 in weekdays
        return day.month in months and (of_month or of_week if is_either else of_month and of_week)

    return len(minutes) * len(hours) * sum(map(runs_on, _FOUR_YEARS)) / len(_FOUR_YEARS)


def _numbers(field: str, low: int, high: int, names: list[str]) -> set[int] | None:
    found: set[int] = set()
    for part in field.replace("?", "*").split(","):
        match = _PART.match(part)
        if match is None:
            return None
        first, last, step = match.groups()
        start, end = (low, high) if first == "*" else (_number(first, names), _number(last or first, names))
        if step and first != "*" and last is None:
            end = high
        if start is None or end is None or not low <= start <= end <= high or step == "0":
            return None
        found |= {*range(start, end + 1, int(step or 1))}
    return found


def _number(text: str, names: list[str]) -> int | None:
    if text in names:
        return names.index(text) + (1 if names is _MONTHS else 0)
    return int(text) if text.isdecimal() else None
