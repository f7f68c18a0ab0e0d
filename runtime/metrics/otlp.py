"""The OTLP reporter: metrics to an OpenTelemetry collector, by its libraries. Loaded only where it is on.

Names are those of Prometheus' text, as `table` has them; counters and histograms are cumulative since the process has
started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import pairwise

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from runtime.common.clock import Clock
from runtime.metrics.counted import Distribution, Family
from runtime.metrics.metric import MetricKind

logger = logging.getLogger(__name__)

_NANOS = 1_000_000
_CUMULATIVE = export.AggregationTemporality.CUMULATIVE
_EXPORT_SECONDS = 10.0


class OtlpMetrics:
    """Sends the metrics of a process every `interval` seconds. `families` is called on the loop of the process."""

    def __init__(
        self,
        families: Callable[[], Sequence[Family]],
        clock: Clock,
        *,
        endpoint: str,
        interval: float,
        resource: dict[str, str],
    ) -> None:
        self._families = families
        self._clock = clock
        self._interval = interval
        self._resource = Resource(dict(resource))
        self._scope = InstrumentationScope("flinklike", resource.get("service.version", ""))
        self._exporter = OTLPMetricExporter(endpoint=endpoint, timeout=_EXPORT_SECONDS)
        self._since = clock.epoch_millis() * _NANOS
        self._is_lost = False

    async def run(self) -> None:
        """Send until cancelled. A collector that takes nothing is told once, until it takes again. Eternal."""
        while True:
            await asyncio.sleep(self._interval)
            data = self.data()
            is_taken = await asyncio.to_thread(self._send, data)
            if is_taken == self._is_lost:
                self._is_lost = not is_taken
                logger.warning("the collector of metrics %s", "takes them again" if is_taken else "does not take them")

    def _send(self, data: MetricsData) -> bool:
        try:
            return self._exporter.export(data, timeout_millis=_EXPORT_SECONDS * 1000) is MetricExportResult.SUCCESS
        except Exception:  # the boundary of the reporter: metrics that cannot be told end nothing
            logger.debug("metrics could not be sent", exc_info=True)
            return False

    def data(self) -> MetricsData:
        """All metrics now."""
        now = self._clock.epoch_millis() * _NANOS
        metrics = [self._metric(family, now) for family in self._families()]
        scope = export.ScopeMetrics(scope=self._scope, metrics=metrics, schema_url="")
        resource = export.ResourceMetrics(resource=self._resource, scope_metrics=[scope], schema_url="")
        return MetricsData(resource_metrics=[resource])

    def _metric(self, family: Family, now: int) -> export.Metric:
        metric = family.metric
        data: export.Sum | export.Gauge | export.Histogram
        if metric.kind is MetricKind.HISTOGRAM:
            data = export.Histogram([self._distribution(family, one, now) for one in family.distributions], _CUMULATIVE)
        else:
            points = [
                export.NumberDataPoint(_labels(family, labels), self._since, now, float(value))
                for labels, value in family.values.items()
            ]
            is_counter = metric.kind is MetricKind.COUNTER
            data = export.Sum(points, _CUMULATIVE, is_monotonic=True) if is_counter else export.Gauge(points)
        return export.Metric(name=metric.name, description=metric.meaning, unit="", data=data)

    def _distribution(self, family: Family, one: Distribution, now: int) -> export.HistogramDataPoint:
        counts = [one.buckets[0][1], *(later - before for (_, before), (_, later) in pairwise(one.buckets))]
        bounds = [bound for bound, _ in one.buckets if bound != float("inf")]
        return export.HistogramDataPoint(
            _labels(family, one.labels),
            self._since,
            now,
            count=one.buckets[-1][1],
            sum=one.total,
            bucket_counts=counts,
            explicit_bounds=bounds,
            min=None,  # type: ignore[arg-type]  # nobody keeps it: the message then says none, and not 0
            max=None,  # type: ignore[arg-type]
        )


def _labels(family: Family, values: Sequence[str]) -> dict[str, str]:
    return {label.name: value for label, value in zip(family.metric.labels, values, strict=True)}
