"""A whole Airflow that traces, and a cluster that does: the job is below the task in one trace, in one collector."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="pip install -r requirements/traces.txt")

from airflow_flinklike.task_instance.tracing import current_traceparent
from tests.kit.airflow.pair import WITHOUT_SPARK, AirflowPair
from tests.kit.host.levels import reached
from tests.kit.services.otlp_receiver import OtlpReceiver, ReceivedSpan

DAG = Path(__file__).with_name("dag_cases") / "traced.py"


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver().serving() as made:
        yield made


@pytest.mark.process
@pytest.mark.etcd
@pytest.mark.slow
@pytest.mark.airflow
@pytest.mark.timeout(1500)
def test_the_job_is_below_the_task(receiver: OtlpReceiver, tmp_path: Path) -> None:
    options = {
        **WITHOUT_SPARK,
        "traces.reporters": "otlp",
        "traces.reporter.otlp.exporter.endpoint": receiver.endpoint,
    }
    environment = {
        "AIRFLOW__TRACES__OTEL_ON": "True",
        "OTEL_TRACES_EXPORTER": "otlp_proto_http",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": receiver.endpoint,
    }
    with AirflowPair(tmp_path, files=[DAG], options=options, environment=environment) as pair:
        pair.rest.wait_for_dag("traced")
        assert pair.rest.trigger("traced", "one").wait("success") == "success"
        job, worker = reached(lambda: parts(receiver), "spans of both")
    assert job.trace_id == worker.trace_id
    assert job.parent_id == worker.id, "the span of the task's process is the parent"
    chain = ancestors(receiver, worker)
    assert any(name.startswith("task_run") for name in chain), chain
    assert chain[-1].startswith("dag_run"), chain


def parts(receiver: OtlpReceiver) -> tuple[ReceivedSpan, ReceivedSpan] | None:
    """The span of the job and that of the worker, once Airflow has told its own: the DAG run is the last one."""
    jobs = [one for one in receiver.spans if one.attributes.get("flinklike.job.name") and one.name.startswith("job ")]
    for job in jobs:
        workers = [one for one in receiver.spans if one.id == job.parent_id and one.name.startswith("worker")]
        if workers and any(name.startswith("dag_run") for name in ancestors(receiver, workers[0])):
            return job, workers[0]
    return None


def ancestors(receiver: OtlpReceiver, span: ReceivedSpan) -> list[str]:
    """The names of the spans above, the nearest first."""
    by_id = {one.id: one for one in list(receiver.spans)}
    names = []
    while span.parent_id in by_id:
        span = by_id[span.parent_id]
        names.append(span.name)
    return names


@pytest.mark.parametrize(
    ("carrier", "found"),
    [
        (None, ""),
        ({}, ""),
        ({"traceparent": f"00-{'c' * 32}-{'d' * 16}-00"}, f"00-{'c' * 32}-{'d' * 16}-00"),
        ("nonsense", ""),
        ({"traceparent": None}, ""),
    ],
)
def test_without_a_span_of_its_own_the_task_instance_says_it(carrier: object, found: str) -> None:
    assert current_traceparent(carrier) == found


def test_the_span_of_this_thread_counts_first() -> None:
    from opentelemetry.sdk.trace import TracerProvider

    with TracerProvider().get_tracer("test").start_as_current_span("task") as span:
        context = span.get_span_context()
        expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        assert current_traceparent({"traceparent": f"00-{'c' * 32}-{'d' * 16}-00"}) == expected
