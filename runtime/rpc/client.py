"""Typed clients: an object with the methods of a gateway Protocol, over one `invoke` function of a transport."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from runtime.rpc import codec
from runtime.rpc.messages import GatewayMethod, gateway_methods, once_per_type
from runtime.rpc.switchboard import check_size


class Invoke(Protocol):
    """Send an encoded request and return the encoded response. Raises as `RpcService.connect` says (R2)."""

    def __call__(self, method: GatewayMethod, request: bytes, /) -> Awaitable[bytes]:
        """One call."""


class _Client:
    """Base of the generated client classes."""

    __slots__ = ("_invoke", "_message_size_max")

    def __init__(self, invoke: Invoke, message_size_max: int) -> None:
        self._invoke = invoke
        self._message_size_max = message_size_max

    async def call(self, method: GatewayMethod, request: Any) -> Any:
        """Encode and check the request, invoke, decode the response."""
        data = codec.encode(request)
        check_size(type(request).__name__, len(data), self._message_size_max)
        return codec.decode(method.response_type, await self._invoke(method, data))


def _client_method(method: GatewayMethod) -> Callable[[_Client, Any], Awaitable[Any]]:
    def call(self: _Client, request: Any, /) -> Awaitable[Any]:
        return self.call(method, request)

    return call


@once_per_type
def _client_class(gateway_type: type[Any]) -> type[_Client]:
    methods = {name: _client_method(method) for name, method in gateway_methods(gateway_type).items()}
    return type(f"{gateway_type.__name__}Client", (_Client,), {"__slots__": (), **methods})


def make_client(gateway_type: type[Any], invoke: Invoke, *, message_size_max: int) -> Any:
    """A client of `gateway_type`."""
    return _client_class(gateway_type)(invoke, message_size_max)
