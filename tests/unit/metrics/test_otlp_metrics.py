"""Metrics in a collector that speaks OTLP: counters, gauges and histograms as the table has them (D-110)."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="pip install -r requirements/traces.txt")

from runtime.aio.clock import LoopClock, SystemClock
from runtime.aio.scope import Scope
from runtime.common.errors import InvalidInputError
from runtime.common.ids import Incarnation
from runtime.config.loading import load
from runtime.entrypoint.metrics import process_reporting
from runtime.entrypoint.traces import process_tracing
from runtime.metrics import table
from runtime.metrics.counted import CountedMetrics
from runtime.metrics.metric import Metric
from runtime.metrics.otlp import OtlpMetrics
from runtime.metrics.registry import Sample
from runtime.traces.span import NO_SPAN, Span
from tests.kit.services.otlp_receiver import OtlpReceiver

PROCESS = Incarnation("b" * 32)
ROOT = Path(__file__).resolve().parents[3]


def reporter(registry: CountedMetrics, receiver: OtlpReceiver) -> OtlpMetrics:
    return OtlpMetrics(
        registry.families,
        SystemClock(),
        endpoint=f"{receiver.address}/v1/metrics",
        interval=0.01,
        resource={"service.name": "nightly", "flinklike.process": "jobmanager"},
    )


def counted() -> CountedMetrics:
    registry = CountedMetrics(100)
    registry.counter(table.JOBS_ENDED, "FINISHED").inc(3)
    for seconds in (0.001, 0.02, 1e9):
        registry.histogram(table.SUBMIT_SECONDS).observe(seconds)
    registry.read("slots", lambda: [Sample(table.TASK_SLOTS, 8)])
    return registry


def test_each_kind_arrives_as_it_is() -> None:
    with OtlpReceiver().serving() as receiver:
        made = reporter(counted(), receiver)
        assert made._send(made.data())

    def of(metric: Metric) -> Any:
        return receiver.metrics["jobmanager", metric.name]

    (ended,) = of(table.JOBS_ENDED).sum.data_points
    assert (ended.as_double, ended.attributes[0].value.string_value) == (3, "FINISHED")
    assert (of(table.JOBS_ENDED).sum.is_monotonic, of(table.JOBS_ENDED).sum.aggregation_temporality) == (True, 2)
    assert of(table.JOBS_ENDED).description == table.JOBS_ENDED.meaning
    (slots,) = of(table.TASK_SLOTS).gauge.data_points
    assert slots.as_double == 8
    (submits,) = of(table.SUBMIT_SECONDS).histogram.data_points
    assert (submits.count, sum(submits.bucket_counts), submits.bucket_counts[-1]) == (3, 3, 1)
    assert not submits.HasField("min")
    assert not submits.HasField("max")
    assert len(submits.bucket_counts) == len(submits.explicit_bounds) + 1
    assert tuple(submits.explicit_bounds) == tuple(table.SUBMIT_SECONDS.buckets)


@pytest.mark.asyncio
async def test_a_collector_that_is_away_is_told_once_and_its_return_too(caplog: pytest.LogCaptureFixture) -> None:
    with OtlpReceiver().serving() as receiver:
        receiver.refuses = 400
        running = asyncio.ensure_future(reporter(counted(), receiver).run())
        with caplog.at_level(logging.WARNING, "runtime.metrics.otlp"):
            async with asyncio.timeout(60):
                while len(receiver.headers) < 3:
                    await asyncio.sleep(0.01)
                receiver.refuses = 200
                while not any("takes them again" in one.message for one in caplog.records):
                    await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    told = [one.message for one in caplog.records if one.name == "runtime.metrics.otlp"]
    assert told == ["the collector of metrics does not take them", "the collector of metrics takes them again"]


def test_a_process_sends_its_own_figures() -> None:
    with OtlpReceiver().serving() as receiver:
        options = ["metrics.reporters=otlp", f"metrics.reporter.otlp.exporter.endpoint={receiver.address}/v1/metrics"]
        reporting = process_reporting("TaskManager", load(None, environment={}, dynamic=options), PROCESS)
        assert (reporting.registry.is_on, reporting.exposition, reporting.port) == (True, None, 0)
        assert reporting.address("host") == ""
        assert reporting.run is not None
    reporting.close()


@pytest.mark.asyncio
async def test_a_process_is_one_instance_in_its_metrics_and_traces() -> None:
    with OtlpReceiver().serving() as receiver:
        options = ["metrics.reporters=otlp", f"metrics.reporter.otlp.exporter.endpoint={receiver.address}/v1/metrics",
                   "metrics.reporter.otlp.interval=1 s", "traces.reporters=otlp",
                   f"traces.reporter.otlp.exporter.endpoint={receiver.endpoint}"]  # fmt: skip
        configuration = load(None, environment={}, dynamic=options)
        reporting = process_reporting("local cluster", configuration, PROCESS)
        tracing = process_tracing("local cluster", configuration, PROCESS, reporting.registry)
        assert reporting.run is not None
        assert tracing.run is not None
        tracing.reporter.tell(lambda: (Span("a", "c" * 32, "d" * 16, NO_SPAN, 1, 2),))
        async with Scope("test") as scope:
            scope.spawn("metrics", reporting.run(LoopClock()))
            scope.spawn("traces", tracing.run())
            async with asyncio.timeout(60):
                while len(receiver.senders) < 2:
                    await asyncio.sleep(0.01)
            scope.cancel_all()
        reporting.close()
    metrics, traces = (receiver.senders[path] for path in ("/v1/metrics", "/v1/traces"))
    assert metrics == traces
    assert (metrics["service.instance.id"], metrics["flinklike.process"]) == (PROCESS, "local")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["metrics.reporter.otlp.interval=5 s"], "interval has no effect without metrics.reporters: otlp"),
        (["metrics.reporters=otlp", "metrics.prometheus.port=9250"], "no effect without metrics.reporters: prometheus"),
        (["metrics.reporters=prometheus", "metrics.reporter.otlp.service.name=x"], "without metrics.reporters: otlp"),
        (["metrics.reporters=otlp", "metrics.reporter.otlp.service.name= "], "expected a name of up to 255 characters"),
        (["metrics.reporters=otlp,otlp"], "otlp stands there 2 times: name it once"),
    ],
)
def test_options_of_another_reporter_have_no_effect(options: list[str], sentence: str) -> None:
    with pytest.raises(InvalidInputError, match=sentence):
        load(None, environment={}, dynamic=options)


def test_both_at_once() -> None:
    pytest.importorskip("prometheus_client", reason="pip install -r requirements/metrics.txt")
    reporting = process_reporting(
        "jobmanager", load(None, environment={}, dynamic=["metrics.reporters=prometheus,otlp"]), PROCESS
    )
    assert reporting.exposition is not None
    assert reporting.port > 0
    reporting.close()
