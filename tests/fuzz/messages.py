"""Messages between processes: each decoder, frames of streams, and the errors that travel with a refused call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runtime.common.errors import InvalidInputError
from runtime.rpc import codec
from runtime.rpc.frames import decode_frame, encode_frame
from runtime.rpc.messages import GATEWAYS, STREAM_MESSAGES, gateway_methods
from tests.fuzz.surface import Surface

_FORMS = Path(__file__).parents[1] / "unit" / "rpc" / "message_forms.txt"


def _kinds() -> dict[str, type[Any]]:
    methods = [method for gateway in GATEWAYS for method in gateway_methods(gateway).values()]
    kinds = [*STREAM_MESSAGES, *(kind for one in methods for kind in (one.request_type, one.response_type))]
    return {kind.__name__: kind for kind in kinds}


def _begin() -> Callable[[bytes], object]:
    kinds = list(_kinds().values())

    def feed(data: bytes) -> object:
        if data[:1] == b"\xff":
            return decode_frame(data[1:])
        kind = kinds[data[0] % len(kinds)] if data else kinds[0]
        message = codec.decode(kind, data[1:])
        encoded = codec.encode(message)
        assert codec.encode(codec.decode(kind, encoded)) == encoded, "it is another one when it is sent on"
        return message

    return feed


def _seeds() -> Sequence[bytes]:
    kinds = list(_kinds())
    tags = {kind.__name__: tag for kind, tag in codec.stream_tags()[0].items()}
    seeds, types, bodies = [], [], []
    for line in _FORMS.read_text(encoding="utf-8").splitlines():
        name, packed, _ = line.split(" ", 2)
        data = bytes.fromhex(packed)
        if name in kinds:
            seeds.append(bytes([kinds.index(name)]) + data)
        if name in tags:
            types.append(tags[name])
            bodies.append(data)
    return [*seeds, b"\xff" + encode_frame(types, bodies), b"\xff" + encode_frame(types[:1], bodies[:1])]


SURFACES = (
    Surface(
        "messages", _begin, _seeds, (InvalidInputError,), prefix=1, tokens=(b"\x0a\x80\x80\x80\x80\x08", b"\x0b" * 200)
    ),
)
