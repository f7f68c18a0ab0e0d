"""Spans by OTLP over HTTP: the one module that knows OpenTelemetry's library."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from runtime.traces.span import NO_SPAN, Span

_NANOS = 1_000_000
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def otlp_exporter(endpoint: str, resource: dict[str, str], timeout: float) -> Callable[[Sequence[Span]], bool]:
    """Sends spans to a collector; True when it has taken them. Blocks for `timeout` seconds at most, retries included.

    Headers, certificates and compression are those of OTEL_EXPORTER_OTLP_* in the environment.
    """
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=timeout)
    about = Resource(dict(resource))
    scope = InstrumentationScope("flinklike", resource.get("service.version", ""))

    def export(spans: Sequence[Span]) -> bool:
        made = [_readable(span, about, scope) for span in spans]
        return not made or exporter.export(made) is SpanExportResult.SUCCESS

    return export


def _readable(span: Span, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    parent = None if span.parent_id == NO_SPAN else _context(span.trace_id, span.parent_id, is_remote=True)
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.id, is_remote=False),
        parent=parent,
        resource=resource,
        attributes=dict(span.attributes),
        events=[Event(one.name, dict(one.attributes), one.millis * _NANOS) for one in span.events],
        kind=SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
        start_time=span.start_millis * _NANOS,
        end_time=max(span.start_millis, span.end_millis) * _NANOS,
        instrumentation_scope=scope,
    )


def _context(trace_id: str, span: str, *, is_remote: bool) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span, 16), is_remote, _SAMPLED)
