"""A collector of OpenTelemetry for tests: it takes spans and metrics by OTLP over HTTP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue


@dataclass(frozen=True)
class ReceivedSpan:
    """One span as it has arrived. `parent_id` is "" for the first one of a trace."""

    name: str
    trace_id: str
    id: str
    parent_id: str
    start_nanos: int
    end_nanos: int
    attributes: dict[str, Any]
    events: tuple[str, ...]
    error: str
    service: str


class OtlpReceiver:
    """`spans` are all that have arrived, in their order. `refuses`: the status of its answers, 200: it takes them."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.metrics: dict[tuple[str, str], Any] = {}
        """By the attribute `flinklike.process` and the name of the metric: its latest state, as OTLP has it."""
        self.refuses = 200
        self.headers: list[dict[str, str]] = []
        self.senders: dict[str, dict[str, Any]] = {}
        """By the path: who has sent last, by the attributes of its resource."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.headers.append(dict(self.headers))
                plain = gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body
                if receiver.refuses == 200 and self.path == "/v1/traces":
                    receiver.take(plain)
                if receiver.refuses == 200 and self.path == "/v1/metrics":
                    receiver.take_metrics(plain)
                self.send_response(receiver.refuses)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.endpoint = f"{self.address}/v1/traces"

    def take(self, body: bytes) -> None:
        """The spans of one request."""
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            about = {one.key: _value(one.value) for one in resource.resource.attributes}
            self.senders["/v1/traces"] = about
            for scope in resource.scope_spans:
                self.spans += [_span(one, str(about.get("service.name", ""))) for one in scope.spans]

    def take_metrics(self, body: bytes) -> None:
        """The metrics of one request."""
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            about = {one.key: _value(one.value) for one in resource.resource.attributes}
            self.senders["/v1/metrics"] = about
            for scope in resource.scope_metrics:
                self.metrics.update({(about["flinklike.process"], one.name): one for one in scope.metrics})

    def named(self, name: str) -> list[ReceivedSpan]:
        """Those of a name."""
        return [one for one in list(self.spans) if one.name == name]

    @contextmanager
    def serving(self) -> Iterator[OtlpReceiver]:
        """Answer within the block."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


def _span(one: Any, service: str) -> ReceivedSpan:
    return ReceivedSpan(
        one.name,
        one.trace_id.hex(),
        one.span_id.hex(),
        one.parent_span_id.hex(),
        one.start_time_unix_nano,
        one.end_time_unix_nano,
        {attribute.key: _value(attribute.value) for attribute in one.attributes},
        tuple(event.name for event in one.events),
        one.status.message,
        service,
    )


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return None if kind is None else getattr(value, kind)
