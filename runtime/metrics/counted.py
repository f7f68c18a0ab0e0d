"""CountedMetrics: the registry of a process with a reporter.

Invariants: a metric has at most `series_max` series; what would be one more is counted as dropped, by metric, and not
stored. A reader that fails is counted, and leaves out its own samples only.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from runtime.common.errors import FlinklikeError
from runtime.metrics import table
from runtime.metrics.metric import Metric, MetricKind
from runtime.metrics.registry import NO_COUNTER, NO_GAUGE, NO_HISTOGRAM, Counter, Gauge, Histogram, Reader, Sample

logger = logging.getLogger(__name__)

Labels = tuple[str, ...]


class _Count:
    """Implements `Counter` and `Gauge`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, by: float = 1, /) -> None:
        """Add `by`."""
        self.value += by

    def set(self, value: float, /) -> None:
        """Replace the value."""
        self.value = value


class _Distribution:
    """Implements `Histogram`."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, /) -> None:
        """Count a value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def cumulated(self) -> tuple[tuple[float, int], ...]:
        """(upper bound, how many values are at most that), infinity at the end."""
        return tuple(zip((*self._bounds, float("inf")), accumulate(self.counts), strict=True))


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram's series: `buckets` cumulated, the last one for infinity."""

    labels: Labels
    buckets: tuple[tuple[float, int], ...]
    total: float


@dataclass(slots=True)
class Family:
    """All series of one metric at one scrape."""

    metric: Metric
    values: dict[Labels, float] = field(default_factory=dict)
    distributions: list[Distribution] = field(default_factory=list)


class CountedMetrics:
    """Implements `MetricRegistry`."""

    def __init__(self, series_max: int) -> None:
        assert series_max > 0, series_max
        self._series_max = series_max
        self._counts: dict[Metric, dict[Labels, _Count]] = {}
        self._distributions: dict[Metric, dict[Labels, _Distribution]] = {}
        self._readers: dict[str, Reader] = {}
        self._failed: set[str] = set()

    @property
    def is_on(self) -> bool:
        """Always."""
        return True

    def counter(self, metric: Metric, /, *labels: str) -> Counter:
        """The series with these label values, made at its first use."""
        assert metric.kind is MetricKind.COUNTER, metric.name
        return self._count(metric, labels) or NO_COUNTER

    def gauge(self, metric: Metric, /, *labels: str) -> Gauge:
        """The same of a gauge."""
        assert metric.kind is MetricKind.GAUGE, metric.name
        return self._count(metric, labels) or NO_GAUGE

    def _count(self, metric: Metric, labels: Labels) -> _Count | None:
        assert len(labels) == len(metric.labels), metric.name
        series = self._counts.setdefault(metric, {})
        found = series.get(labels)
        if found is None:
            if len(series) >= self._series_max:
                self._drop(metric)
                return None
            found = series[labels] = _Count()
        return found

    def histogram(self, metric: Metric, /, *labels: str) -> Histogram:
        """The same of a histogram."""
        assert metric.kind is MetricKind.HISTOGRAM, metric.name
        assert len(labels) == len(metric.labels), metric.name
        series = self._distributions.setdefault(metric, {})
        found = series.get(labels)
        if found is None:
            if len(series) >= self._series_max:
                self._drop(metric)
                return NO_HISTOGRAM
            found = series[labels] = _Distribution(metric.buckets)
        return found

    def read(self, name: str, reader: Reader, /) -> None:
        """Ask `reader` at each scrape, in place of the one of that name."""
        self._readers[name] = reader

    def families(self) -> list[Family]:
        """Everything as it is now, in the order of the table; metrics without a series are left out."""
        found: dict[Metric, Family] = {}
        for sample in self._samples():
            self._take(found, sample)
        for metric, distributions in self._distributions.items():
            family = found.setdefault(metric, Family(metric))
            family.distributions = [
                Distribution(labels, one.cumulated(), one.total) for labels, one in distributions.items()
            ]
        # Last: what was dropped, or has failed, at this scrape counts in it.
        for metric, counts in self._counts.items():
            family = found.setdefault(metric, Family(metric))
            family.values.update({labels: one.value for labels, one in counts.items()})
        return [found[metric] for metric in table.TABLE if metric in found]

    def _take(self, found: dict[Metric, Family], sample: Sample) -> None:
        metric = sample.metric
        assert len(sample.labels) == len(metric.labels), metric.name
        values = found.setdefault(metric, Family(metric)).values
        if sample.labels not in values and len(values) >= self._series_max:
            self._drop(metric)
            return
        values[sample.labels] = sample.value

    def _samples(self) -> Iterator[Sample]:
        for name, reader in list(self._readers.items()):
            yield from self._asked(name, reader)

    def _asked(self, name: str, reader: Reader) -> Iterable[Sample]:
        try:
            samples = list(reader())
        except FlinklikeError as error:
            logger.debug("no %s metrics this time: %s", name, error)
            return ()
        except Exception:  # the boundary of a reader: its mistake must not hide the metrics of others
            if name not in self._failed:
                logger.exception("the %s metrics cannot be read", name)
            self._failed.add(name)
            self.counter(table.READER_FAILURES, name).inc()
            return ()
        return samples

    def _drop(self, metric: Metric) -> None:
        if metric is not table.DROPPED_SAMPLES:
            self.counter(table.DROPPED_SAMPLES, metric.name).inc()
