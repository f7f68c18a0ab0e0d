"""Spans arrive at a collector that speaks OTLP, with the context that a client has named (D-114)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.common.ids import Incarnation
from runtime.config.configuration import Configuration
from runtime.config.loading import load
from runtime.entrypoint.traces import NO_TRACING, process_tracing
from runtime.traces.span import NO_SPAN, Span, SpanEvent, TraceContext

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="pip install -r requirements/traces.txt")

from runtime.traces.otlp import otlp_exporter
from tests.kit.services.otlp_receiver import OtlpReceiver

ROOT = Path(__file__).resolve().parents[3]
ON = "traces.reporters=otlp"
PROCESS = Incarnation("b" * 32)
SPAN = Span("job x", "c" * 32, "d" * 16, "e" * 16, 1000, 2000, {"rows": 3}, (SpanEvent("takeover", 1500),), "broke")
WITHOUT_LIBRARY = """
import sys
sys.modules["opentelemetry.sdk"] = None
sys.modules["opentelemetry.exporter.otlp.proto.http.trace_exporter"] = None
from runtime.entrypoint.job_manager import main
sys.argv[1:] = ["-D", "traces.reporters=otlp"]
sys.exit(main())
"""
LOADS_NOTHING = """
import sys
import runtime.entrypoint.job_manager, jobmaster_process.entry_point
sys.exit(any(name.partition(".")[0] == "opentelemetry" for name in sys.modules))
"""


def configuration(*dynamic: str) -> Configuration:
    return load(None, environment={}, dynamic=dynamic)


def test_a_span_arrives_as_it_is() -> None:
    with OtlpReceiver().serving() as receiver:
        export = otlp_exporter(receiver.endpoint, {"service.name": "nightly"}, 5.0)
        assert export([SPAN, Span("first", "c" * 32, "f" * 16, NO_SPAN, 1, 1)])
        assert export([])
    job, first = receiver.spans
    assert (job.name, job.trace_id, job.id, job.parent_id) == (SPAN.name, SPAN.trace_id, SPAN.id, SPAN.parent_id)
    assert (job.start_nanos, job.end_nanos) == (1_000_000_000, 2_000_000_000)
    assert (job.attributes, job.events, job.error, job.service) == ({"rows": 3}, ("takeover",), "broke", "nightly")
    assert first.parent_id == ""


def test_a_collector_that_refuses_is_told() -> None:
    with OtlpReceiver().serving() as receiver:
        receiver.refuses = 400
        assert not otlp_exporter(receiver.endpoint, {}, 2.0)([SPAN])


def test_a_collector_that_is_away_is_told() -> None:
    assert not otlp_exporter("http://127.0.0.1:1/v1/traces", {}, 1.0)([SPAN])


def test_without_a_reporter_there_is_nothing() -> None:
    assert process_tracing("jobmanager", configuration(), PROCESS) is NO_TRACING
    assert process_tracing("TaskManager", configuration(ON), PROCESS) is NO_TRACING
    assert NO_TRACING.new_trace("a" * 32, f"00-{'c' * 32}-{'d' * 16}-01") == ""


def test_a_job_is_below_its_caller_or_begins_a_trace() -> None:
    tracing = process_tracing("jobmanager", configuration(ON, "traces.sample-ratio=0"), PROCESS)
    assert tracing.new_trace("a" * 32, f"00-{'c' * 32}-{'d' * 16}-01") == f"00-{'c' * 32}-{'d' * 16}-01"
    own = TraceContext.parse(tracing.new_trace("a" * 32, "nonsense"))
    assert own == TraceContext("a" * 32, NO_SPAN, is_sampled=False)


def test_nothing_of_the_library_is_loaded_without_the_option() -> None:
    assert subprocess.run([sys.executable, "-c", LOADS_NOTHING], cwd=ROOT, check=False).returncode == 0


def test_without_the_library_a_process_says_what_to_install(tmp_path: Path) -> None:
    environment = {"FLINKLIKE_RUN_DIR": str(tmp_path / "run"), "FLINKLIKE_CONF_DIR": str(tmp_path), "PATH": ""}
    (tmp_path / "config.yaml").touch()
    command = [sys.executable, "-c", WITHOUT_LIBRARY]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "pip install 'airflow-flinklike[traces]', or remove the option" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("traces.sample-ratio=0.5", "traces.sample-ratio has no effect without traces.reporters"),
        ("traces.reporter.otlp.service.name=x", "service.name has no effect without traces.reporters"),
        ("traces.reporters=jaeger", "expected a list of otlp"),
        ("traces.reporters=otlp,otlp", "otlp stands there 2 times: name it once"),
        ("traces.reporter.otlp.service.name=", "expected a name of up to 255 characters, such as nightly"),
    ],
)
def test_wrong_options(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInputError, match=sentence):
        load(None, environment={}, dynamic=[text])


SENTENCE = r"a URL without a user, such as http://collector:4318/v1/traces \(tokens: OTEL_EXPORTER_OTLP_HEADERS\)"


@pytest.mark.parametrize(
    "url",
    [
        "collector:4318",
        "ftp://collector",
        "http://name:password@collector/v1/traces",
        "http://name:a@password@collector",
    ],
)
def test_wrong_collectors(url: str) -> None:
    with pytest.raises(InvalidInputError, match=SENTENCE) as refused:
        load(None, environment={}, dynamic=[ON, f"traces.reporter.otlp.exporter.endpoint={url}"])
    assert "password" not in str(refused.value)
