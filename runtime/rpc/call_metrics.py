"""Counts calls between processes by method, and looks at streams when it is asked. Only where metrics are on (D-110).

A service without metrics does not have this in its way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator

from runtime.common.fencing import FencingToken
from runtime.metrics import table
from runtime.metrics.errors import error_kind
from runtime.metrics.registry import MetricRegistry, Sample
from runtime.rpc.messages import GatewayMethod
from runtime.rpc.stream import FrameStream

Serve = Callable[[str, FencingToken | None, FencingToken | None, bytes], Awaitable[bytes]]
"""`Switchboard.call`."""
Invoke = Callable[[GatewayMethod, bytes], Awaitable[bytes]]
"""Makes a call."""


def counted_serve(registry: MetricRegistry, method: GatewayMethod, serve: Serve) -> Serve:
    """`serve` for one method, counted."""
    name = _name(method)
    calls = registry.counter(table.RPC_CALLS, "served", name)

    async def counted(path: str, target: FencingToken | None, sender: FencingToken | None, request: bytes) -> bytes:
        calls.inc()
        try:
            return await serve(path, target, sender, request)
        except BaseException as error:
            registry.counter(table.RPC_ERRORS, "served", name, error_kind(error)).inc()
            raise

    return counted


def counted_invoke(registry: MetricRegistry, invoke: Invoke) -> Invoke:
    """`invoke`, counted."""

    async def counted(method: GatewayMethod, request: bytes, /) -> bytes:
        name = _name(method)
        registry.counter(table.RPC_CALLS, "made", name).inc()
        try:
            return await invoke(method, request)
        except BaseException as error:
            registry.counter(table.RPC_ERRORS, "made", name, error_kind(error)).inc()
            raise

    return counted


def _name(method: GatewayMethod) -> str:
    return f"{method.gateway}.{method.name}"


def stream_samples(streams: Iterable[FrameStream]) -> Iterator[Sample]:
    """How many there are, and what waits on them."""
    count: Counter[str] = Counter()
    messages: Counter[tuple[str, str]] = Counter()
    size: Counter[tuple[str, str]] = Counter()
    for stream in streams:
        kind = stream.hello.kind.name
        count[kind] += 1
        for queue, (waiting, waiting_bytes) in (("outbox", stream.outbox), ("inbox", stream.inbox)):
            messages[kind, queue] += waiting
            size[kind, queue] += waiting_bytes
    yield from (Sample(table.RPC_STREAMS, number, (kind,)) for kind, number in count.items())
    yield from (Sample(table.STREAM_MESSAGES, number, labels) for labels, number in messages.items())
    yield from (Sample(table.STREAM_BYTES, number, labels) for labels, number in size.items())
