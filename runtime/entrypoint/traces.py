"""The traces of a process, as its configuration asks for them."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from runtime.common.errors import InvalidInputError
from runtime.common.ids import Incarnation
from runtime.common.version import VERSION
from runtime.config.configuration import Configuration
from runtime.config.options import traces as t
from runtime.traces.reporter import NO_SPANS, QueuedSpans, SpanReporter
from runtime.traces.span import TraceContext, without_trace

logger = logging.getLogger(__name__)

_EXPORT_SECONDS = 10.0
_TELLERS = ("jobmanager", "jobmaster", "local cluster")
"""TaskManagers tell no spans: what they know of an attempt is in the execution graph."""
_LIBRARIES = ("opentelemetry", "requests")


@dataclass(frozen=True, slots=True)
class Tracing:
    """What a process has for its components, and what it runs (eternal). Without a reporter: `NO_TRACING`."""

    reporter: SpanReporter = NO_SPANS
    new_trace: Callable[[str, str], str] = without_trace
    """The context of a job's trace, from its id and the `traceparent` of its submit."""
    run: Callable[[], Coroutine[Any, Any, None]] | None = None


NO_TRACING = Tracing()


def process_tracing(name: str, configuration: Configuration, incarnation: Incarnation) -> Tracing:
    """A reporter that waits for spans; `NO_TRACING`, which loads nothing, without one.

    Raises InvalidInputError without the library.
    """
    if name not in _TELLERS or "otlp" not in configuration.get(t.TRACES_REPORTERS):
        return NO_TRACING
    try:
        from runtime.traces.otlp import otlp_exporter  # noqa: PLC0415 - an optional library
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _LIBRARIES:
            raise
        message = (
            f"{t.TRACES_REPORTERS.key}: otlp takes the packages opentelemetry-sdk and "
            f"opentelemetry-exporter-otlp-proto-http, and {error.name} is not installed here: "
            "pip install 'airflow-flinklike[traces]', or remove the option"
        )
        raise InvalidInputError(message) from error
    resource = {
        "service.name": configuration.get(t.TRACES_SERVICE),
        "service.version": VERSION,
        "service.instance.id": incarnation,
        "host.name": socket.gethostname(),
        "flinklike.process": name,
    }
    endpoint = configuration.get(t.TRACES_ENDPOINT)
    spans = QueuedSpans(otlp_exporter(endpoint, resource, _EXPORT_SECONDS))
    ratio = configuration.get(t.TRACES_RATIO)

    def new_trace(job_id: str, traceparent: str) -> str:
        return (TraceContext.from_client(traceparent) or TraceContext.of_job(job_id, ratio)).text

    logger.info("traces of jobs are sent to %s", endpoint)
    return Tracing(spans, new_trace, spans.run)
