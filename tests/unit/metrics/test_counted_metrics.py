"""CountedMetrics: counts, distributions, readers, and their bound; without a reporter nothing is there."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import pytest

from runtime.common.errors import UnavailableError
from runtime.metrics import table
from runtime.metrics.counted import CountedMetrics
from runtime.metrics.metric import Metric
from runtime.metrics.registry import NO_METRICS, Sample


def values(metrics: CountedMetrics, metric: Metric) -> Mapping[tuple[str, ...], float]:
    return next((dict(one.values) for one in metrics.families() if one.metric is metric), {})


def test_a_counter_is_bound_once() -> None:
    metrics = CountedMetrics(100)
    bound = metrics.counter(table.RPC_CALLS, "made", "G.m")
    bound.inc()
    bound.inc(2)
    metrics.counter(table.RPC_CALLS, "made", "G.m").inc()
    assert values(metrics, table.RPC_CALLS) == {("made", "G.m"): 4}


@pytest.mark.parametrize(
    ("value", "bucket"), [(0.0, 0.001), (0.001, 0.001), (0.0011, 0.0025), (10.0, 10.0), (11.0, float("inf"))]
)
def test_a_value_counts_in_the_buckets_that_hold_it(value: float, bucket: float) -> None:
    metrics = CountedMetrics(100)
    metrics.histogram(table.EVENT_LOOP_LAG).observe(value)
    (family,) = metrics.families()
    (series,) = family.distributions
    assert [bound for bound, count in series.buckets if count] == [
        bound for bound, _ in series.buckets if bound >= bucket
    ]
    assert series.total == value


def test_what_has_no_place_is_counted() -> None:
    metrics = CountedMetrics(2)
    for number in range(5):
        metrics.counter(table.RPC_CALLS, "made", f"G.m{number}").inc()
    metrics.read("many", lambda: [Sample(table.SLOT_MEMORY, 1, (str(slot),)) for slot in range(3)])
    assert len(values(metrics, table.RPC_CALLS)) == 2
    assert len(values(metrics, table.SLOT_MEMORY)) == 2
    dropped = values(metrics, table.DROPPED_SAMPLES)
    assert dropped[table.RPC_CALLS.name,] == 3
    assert dropped[table.SLOT_MEMORY.name,] == 3, "one at each of three scrapes"


def test_histograms_are_bounded_too() -> None:
    metrics = CountedMetrics(1)
    for kind in ("graph", "owner"):
        metrics.histogram(table.STORE_SECONDS, kind).observe(1)
    (family,) = [one for one in metrics.families() if one.metric is table.STORE_SECONDS]
    assert [one.labels for one in family.distributions] == [("graph",)]
    assert values(metrics, table.DROPPED_SAMPLES) == {(table.STORE_SECONDS.name,): 1}


def test_a_later_reader_takes_the_place_of_its_name() -> None:
    metrics = CountedMetrics(100)
    metrics.read("jobmaster", lambda: [Sample(table.OWNED_JOBS, 1)])
    metrics.read("jobmaster", lambda: [Sample(table.OWNED_JOBS, 2)])
    assert values(metrics, table.OWNED_JOBS) == {(): 2}


def test_a_reader_that_fails_hides_its_own_samples_only(caplog: pytest.LogCaptureFixture) -> None:
    metrics = CountedMetrics(100)

    def broken() -> Iterable[Sample]:
        yield Sample(table.OWNED_JOBS, 1)
        raise ZeroDivisionError

    def away() -> Iterable[Sample]:
        message = "this dispatcher does not lead"
        raise UnavailableError(message)

    metrics.read("broken", broken)
    metrics.read("away", away)
    metrics.read("whole", lambda: [Sample(table.THREADS, 3)])
    with caplog.at_level(logging.ERROR):
        assert [one.metric for one in metrics.families()] == [table.THREADS, table.READER_FAILURES]
        assert values(metrics, table.READER_FAILURES) == {("broken",): 2}
    assert len(caplog.records) == 1, "told once"


def test_without_a_reporter_nothing_is_counted_and_nothing_is_read() -> None:
    def reader() -> Iterable[Sample]:
        raise AssertionError

    NO_METRICS.read("never", reader)
    assert not NO_METRICS.is_on
    counters = {NO_METRICS.counter(table.RPC_CALLS, "made", f"G.m{number}") for number in range(3)}
    assert len(counters) == 1, "no object for each"
    counters.pop().inc()
    NO_METRICS.histogram(table.EVENT_LOOP_LAG).observe(1)
