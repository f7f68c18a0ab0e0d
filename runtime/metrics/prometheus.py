"""The Prometheus reporter: metrics in its text format, by the library `prometheus-client`. Loaded only where it is on.

The format is the library's concern; what is counted, and how often, is `counted`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from runtime.common.clock import Clock
from runtime.metrics.counted import Family
from runtime.metrics.metric import MetricKind

CONTENT_TYPE: str = CONTENT_TYPE_LATEST
"""Of the text format."""

FRESH_SECONDS = 1.0
"""A text is given again for so long: whoever asks all the time costs no more than one who asks once a second."""


class PrometheusText:
    """The text of a process, made when it is asked for. Called on the loop of the process only."""

    def __init__(self, families: Callable[[], Sequence[Family]], clock: Clock) -> None:
        self._families = families
        self._clock = clock
        self._text = b""
        self._made_at: float | None = None

    def __call__(self) -> bytes:
        """All metrics, as of at most a second ago."""
        now = self._clock.monotonic()
        if self._made_at is None or now - self._made_at >= FRESH_SECONDS:
            self._text = text_of(self._families())
            self._made_at = now
        return self._text


def text_of(families: Sequence[Family]) -> bytes:
    """The text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(families))  # type: ignore[arg-type,unused-ignore]  # what its base asks for it has
    text: bytes = generate_latest(registry)
    return text


class _Collected:
    def __init__(self, families: Sequence[Family]) -> None:
        self._collected = families

    def collect(self) -> Iterator[Metric]:
        """As the library's Collector."""
        return map(_family, self._collected)


def _family(family: Family) -> Metric:
    metric = family.metric
    names = [label.name for label in metric.labels]
    if metric.kind is MetricKind.HISTOGRAM:
        return _histogram(family, names)
    make = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    made: CounterMetricFamily | GaugeMetricFamily = make(metric.name, metric.meaning, labels=names)
    for labels, value in family.values.items():
        made.add_metric(labels, value)
    return made


def _histogram(family: Family, names: Sequence[str]) -> Metric:
    made = HistogramMetricFamily(family.metric.name, family.metric.meaning, labels=names)
    for one in family.distributions:
        buckets = [("+Inf" if bound == float("inf") else str(bound), float(count)) for bound, count in one.buckets]
        made.add_metric(one.labels, buckets, one.total)
    return made
