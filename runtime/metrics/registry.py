"""MetricRegistry: where components count, and where their state is read when somebody asks.

A component is handed the registry, and binds its counters once. What it has anyway (a table of jobs, a queue) is read
at a scrape, by a reader, and costs nothing between scrapes. Without a reporter the registry is `NO_METRICS`.

Invariant: all of it happens on the loop of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from runtime.metrics.metric import Metric


class Counter(Protocol):
    """One series that only rises."""

    def inc(self, by: float = 1, /) -> None:
        """Add `by`, at least 0."""


class Gauge(Protocol):
    """One series whose value is set, or changed by a difference."""

    def inc(self, by: float = 1, /) -> None:
        """Add `by`."""

    def set(self, value: float, /) -> None:
        """Replace the value."""


class Histogram(Protocol):
    """One series of measured values."""

    def observe(self, value: float, /) -> None:
        """Count a value, in the unit of the metric's name."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of one series of a counter or gauge now. `labels`: values in the order of the metric's labels."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


Reader = Callable[[], Iterable[Sample]]
"""Reads state that a component has anyway. Raises FlinklikeError when there is none now."""


class MetricRegistry(Protocol):
    """The metrics of one process."""

    @property
    def is_on(self) -> bool:
        """False when nothing is counted: a component may leave out what it would do to count."""

    def counter(self, metric: Metric, /, *labels: str) -> Counter:
        """The series with these values of the metric's labels, in their order."""

    def gauge(self, metric: Metric, /, *labels: str) -> Gauge:
        """The same of a gauge that no component reads from its state."""

    def histogram(self, metric: Metric, /, *labels: str) -> Histogram:
        """The same of a histogram."""

    def read(self, name: str, reader: Reader, /) -> None:
        """Have `reader` asked at each scrape from now on, in place of the reader of that name."""


class _Nothing:
    __slots__ = ()

    def inc(self, by: float = 1, /) -> None:
        """Count nothing."""

    def set(self, value: float, /) -> None:
        """Count nothing."""

    def observe(self, value: float, /) -> None:
        """Count nothing."""


_NOTHING = _Nothing()
NO_COUNTER: Counter = _NOTHING
NO_GAUGE: Gauge = _NOTHING
NO_HISTOGRAM: Histogram = _NOTHING


class NoMetrics:
    """Implements `MetricRegistry`: nothing is counted, nothing is read."""

    __slots__ = ()

    @property
    def is_on(self) -> bool:
        """Never."""
        return False

    def counter(self, _metric: Metric, /, *_labels: str) -> Counter:
        """One that counts nothing."""
        return NO_COUNTER

    def gauge(self, _metric: Metric, /, *_labels: str) -> Gauge:
        """One that counts nothing."""
        return NO_GAUGE

    def histogram(self, _metric: Metric, /, *_labels: str) -> Histogram:
        """One that counts nothing."""
        return NO_HISTOGRAM

    def read(self, _name: str, _reader: Reader, /) -> None:
        """No effect."""


NO_METRICS: MetricRegistry = NoMetrics()
