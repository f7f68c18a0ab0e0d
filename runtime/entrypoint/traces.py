"""The traces of a process, as its configuration asks for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from runtime.common.ids import Incarnation
from runtime.config.configuration import Configuration
from runtime.config.options import traces as t
from runtime.entrypoint.otlp import otlp_resource, without_otlp
from runtime.metrics import table
from runtime.metrics.registry import NO_METRICS, MetricRegistry
from runtime.traces.reporter import NO_SPANS, QueuedSpans, SpanReporter
from runtime.traces.span import TraceContext, without_trace

logger = logging.getLogger(__name__)

_EXPORT_SECONDS = 10.0
_TELLERS = ("jobmanager", "jobmaster", "local cluster", "standalonejob")
"""TaskManagers tell no spans: what they know of an attempt is in the execution graph."""


@dataclass(frozen=True, slots=True)
class Tracing:
    """What a process has for its components, and what it runs (eternal). Without a reporter: `NO_TRACING`."""

    reporter: SpanReporter = NO_SPANS
    new_trace: Callable[[str, str], str] = without_trace
    """The context of a job's trace, from its id and the `traceparent` of its submit."""
    run: Callable[[], Coroutine[Any, Any, None]] | None = None


NO_TRACING = Tracing()


def process_tracing(
    name: str, configuration: Configuration, incarnation: Incarnation, metrics: MetricRegistry = NO_METRICS
) -> Tracing:
    """A reporter that waits for spans; `NO_TRACING`, which loads nothing, without one.

    Raises InvalidInputError without the library.
    """
    if name not in _TELLERS or "otlp" not in configuration.get(t.TRACES_REPORTERS):
        return NO_TRACING
    try:
        from runtime.traces.otlp import otlp_exporter  # noqa: PLC0415 - an optional library
    except ModuleNotFoundError as error:
        raise without_otlp(error, t.TRACES_REPORTERS.key) from error
    resource = otlp_resource(name, configuration.get(t.TRACES_SERVICE), incarnation)
    endpoint = configuration.get(t.TRACES_ENDPOINT)
    lost = metrics.counter(table.LOST_SPANS)
    spans = QueuedSpans(otlp_exporter(endpoint, resource, _EXPORT_SECONDS), lost.inc)
    ratio = configuration.get(t.TRACES_RATIO)

    def new_trace(job_id: str, traceparent: str) -> str:
        return (TraceContext.from_client(traceparent) or TraceContext.of_job(job_id, ratio)).text

    logger.info("traces of jobs are sent to %s", endpoint)
    return Tracing(spans, new_trace, spans.run)
