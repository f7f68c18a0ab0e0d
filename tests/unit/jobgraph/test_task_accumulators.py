"""What users' code counts: its bounds, and how attempts add up."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import airflow_flinklike
from runtime.common.accumulators import (
    ACCUMULATORS_MAX,
    COUNT_MAX,
    AccumulatorKind,
    UserAccumulator,
    merged,
    problem_of,
)
from runtime.jobgraph.task_accumulators import TaskAccumulators, enter_task

COUNTER, GAUGE, HISTOGRAM = AccumulatorKind.COUNTER, AccumulatorKind.GAUGE, AccumulatorKind.HISTOGRAM


def test_each_kind_keeps_what_adds_up() -> None:
    counted = TaskAccumulators()
    counted.counter("rows").add(3)
    counted.counter("rows").add()
    counted.counter("never")
    counted.gauge("accuracy").set(0.5)
    counted.gauge("accuracy").set(0.25)
    counted.gauge("not set")
    for value in (4, -2.5, 1):
        counted.histogram("seconds").record(value)
    assert counted.counter("rows").value == 4
    assert counted.snapshot() == (
        UserAccumulator("rows", COUNTER, 4),
        UserAccumulator("never", COUNTER, 0),
        UserAccumulator("accuracy", GAUGE, 1, 0.25, 0.25, 0.25),
        UserAccumulator("seconds", HISTOGRAM, 3, 2.5, -2.5, 4.0),
    )


REFUSED: dict[str, tuple[Callable[[TaskAccumulators], object], str]] = {
    "a negative number": (lambda one: one.counter("x").add(-1), "whole numbers from 0 on; a gauge or a histogram"),
    "a fraction": (lambda one: one.counter("x").add(0.5), "whole numbers from 0 on"),  # type: ignore[arg-type]
    "a flag": (lambda one: one.counter("x").add(True), "whole numbers from 0 on"),
    "too much": (lambda one: one.counter("x").add(COUNT_MAX + 1), "would be above"),
    "an endless number": (lambda one: one.gauge("x").set(10**5000), "no finite number"),
    "an endless negative number": (lambda one: one.counter("x").add(-(10**5000)), "a int cannot be added"),
    "no number": (lambda one: one.gauge("x").set("0.5"), "no finite number"),  # type: ignore[arg-type]
    "not a number": (lambda one: one.gauge("x").set(math.nan), "no finite number"),
    "infinity": (lambda one: one.histogram("x").record(math.inf), "no finite number"),
    "no name": (lambda one: one.counter(""), "1 to 100 printable characters"),
    "a long name": (lambda one: one.counter("x" * 101), "1 to 100 printable characters"),
    "two lines": (lambda one: one.counter("a\nb"), "1 to 100 printable characters"),
    "a number for a name": (lambda one: one.counter(7), "1 to 100 printable characters"),  # type: ignore[arg-type]
    "two kinds": (lambda one: (one.gauge("x"), one.counter("x")), "is a gauge of this task already"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_counted_is_refused_where_it_is_given(case: str) -> None:
    does, words = REFUSED[case]
    counted = TaskAccumulators()
    with pytest.raises(ValueError, match=words):
        does(counted)
    assert problem_of(counted.snapshot()) == ""


def test_whole_numbers_of_numpy_are_counted() -> None:
    counted = TaskAccumulators()
    counted.counter("rows").add(np.int64(5))  # type: ignore[arg-type]
    counted.gauge("share").set(np.float32(0.5))  # type: ignore[arg-type]
    assert [(one.name, one.count, one.total) for one in counted.snapshot()] == [("rows", 5, 0.0), ("share", 1, 0.5)]


def test_names_are_bounded_and_the_refusal_says_what_to_do() -> None:
    counted = TaskAccumulators()
    for number in range(ACCUMULATORS_MAX):
        counted.counter(f"rows of {number}").add(1)
    with pytest.raises(ValueError, match="leave ids and dates out of names"):
        counted.gauge("one more")
    counted.counter("rows of 3").add(1)
    assert len(counted.snapshot()) == ACCUMULATORS_MAX


def test_a_sum_of_values_stays_finite() -> None:
    counted = TaskAccumulators()
    counted.histogram("x").record(1e308)
    with pytest.raises(ValueError, match="would not be finite"):
        counted.histogram("x").record(1e308)
    (one,) = counted.snapshot()
    assert one.count == 1
    assert math.isfinite(one.plus(one).total)


def test_threads_lose_nothing() -> None:
    counted = TaskAccumulators()

    def count() -> None:
        for _ in range(2000):
            counted.counter("rows").add()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted.counter("rows").value == 8000


def test_scripts_count_in_the_task_that_runs() -> None:
    first, second = TaskAccumulators(), TaskAccumulators()
    enter_task(first)
    airflow_flinklike.task_counter("rows").add(2)
    airflow_flinklike.task_gauge("g").set(1)
    enter_task(second)
    airflow_flinklike.task_counter("rows").add(3)
    airflow_flinklike.task_histogram("h").record(1)
    assert [(one.name, one.count) for one in first.snapshot()] == [("rows", 2), ("g", 1)]
    assert [(one.name, one.count) for one in second.snapshot()] == [("rows", 3), ("h", 1)]
    enter_task(TaskAccumulators())


_NAMES = st.sampled_from(["rows", "files", "ü"])
_COUNTERS = st.builds(UserAccumulator, _NAMES, st.just(COUNTER), st.integers(0, COUNT_MAX))
_ATTEMPTS = st.lists(
    st.lists(_COUNTERS, max_size=3, unique_by=lambda one: one.name).map(tuple),
    max_size=6,
)


@given(_ATTEMPTS)
def test_counters_add_up_in_any_order(attempts: list[tuple[UserAccumulator, ...]]) -> None:
    found = {one.name: one.count for one in merged(attempts)}
    assert found == {one.name: one.count for one in merged(reversed(attempts))}
    for name, count in found.items():
        assert count == sum(one.count for attempt in attempts for one in attempt if one.name == name)


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5), min_size=1, max_size=5))
def test_histograms_of_attempts_are_those_of_all_values(attempts: list[list[float]]) -> None:
    told = []
    for values in attempts:
        counted = TaskAccumulators()
        for value in values:
            counted.histogram("x").record(value)
        told.append(counted.snapshot())
    (one,) = merged(told)
    everything = [value for values in attempts for value in values]
    assert (one.count, one.least, one.most) == (len(everything), min(everything), max(everything))
    assert one.total == pytest.approx(sum(everything), abs=1e-3)


def test_one_name_of_two_kinds_stays_two() -> None:
    both = merged([(UserAccumulator("x", COUNTER, 1),), (UserAccumulator("x", GAUGE, 1, 2.0, 2.0, 2.0),)])
    assert [one.kind for one in both] == [COUNTER, GAUGE]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ((UserAccumulator("x", COUNTER, 1), UserAccumulator("x", GAUGE, 1)), "one name"),
        ((UserAccumulator("a\tb", COUNTER, 1),), "printable"),
        ((UserAccumulator("x", COUNTER, -1),), "cannot be counted"),
        ((UserAccumulator("x", COUNTER, COUNT_MAX + 1),), "cannot be counted"),
        ((UserAccumulator("x", HISTOGRAM, 0),), "cannot be counted"),
        ((UserAccumulator("x", GAUGE, 1, math.nan),), "cannot be counted"),
        (tuple(UserAccumulator(str(n), COUNTER, 1) for n in range(ACCUMULATORS_MAX + 1)), "are the most"),
    ],
)
def test_a_process_cannot_say_what_no_attempt_can_have_counted(wrong: tuple[UserAccumulator, ...], words: str) -> None:
    assert words in problem_of(wrong)
