"""What processes of earlier releases send: every form of every message, byte by byte, is read by this release.

`message_forms.txt` has a line for each form that a release has ever sent: the message's name, its bytes, and what is in
them. A line is never changed. After a message has got a field, RECORD_MESSAGE_FORMS=1 adds the line of its new form.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import defaultdict
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from runtime.common.fencing import FencingToken
from runtime.common.version import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, speaks
from runtime.rpc import codec
from runtime.rpc.frames import ChunkRequest, ErrorDetails
from runtime.rpc.messages import GATEWAYS, STREAM_MESSAGES, gateway_methods
from runtime.rpc.service import StreamHello

FORMS = Path(__file__).with_name("message_forms.txt")
GIVEN_UP = frozenset({"max_parallelism"})
"""Fields that earlier releases sent and that are `reserved` now: nothing reads them."""
MESSAGES: dict[str, type[Any]] = {
    message.__name__: message
    for message in (
        *STREAM_MESSAGES,
        StreamHello,
        ErrorDetails,
        ChunkRequest,
        FencingToken,
        *(
            message
            for gateway in GATEWAYS
            for method in gateway_methods(gateway).values()
            for message in (method.request_type, method.response_type)
        ),
    )
}


def sample(message_type: type[Any]) -> Any:
    """A message without a field that has the value of one that is not there."""
    return message_type(**{name: _value(name, shape) for name, shape in codec.field_shapes(message_type).items()})


def _value(name: str, shape: codec.FieldShape) -> Any:
    scalars: dict[type[Any], Any] = {str: f"the {name}", bytes: name.encode(), int: len(name), float: 0.5, bool: True}
    if shape.kind in scalars:
        value = scalars[shape.kind]
    elif issubclass(shape.kind, Enum):
        value = next(iter(shape.kind))
    else:
        value = sample(shape.kind)
    return (value,) if shape.is_repeated else value


def facts(value: Any) -> Any:
    """What is in a message, as JSON can say it."""
    if dataclasses.is_dataclass(value):
        return {field.name: facts(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [facts(item) for item in value]
    if isinstance(value, Enum):
        return value.name
    return value.hex() if isinstance(value, bytes) else value


def missing(expected: Any, found: Any, where: str) -> list[str]:
    """What is expected and not found; more may be found."""
    if isinstance(expected, dict):
        read = [name for name in expected if name not in GIVEN_UP]
        return [line for name in read for line in missing(expected[name], found.get(name), f"{where}.{name}")]
    if isinstance(expected, list):
        pairs = zip(expected, found, strict=True)
        return [line for number, pair in enumerate(pairs) for line in missing(*pair, f"{where}[{number}]")]
    return [] if expected == found else [f"{where}: {expected!r} has become {found!r}"]


def recorded() -> dict[str, list[tuple[bytes, Any]]]:
    forms: dict[str, list[tuple[bytes, Any]]] = defaultdict(list)
    for line in FORMS.read_text(encoding="utf-8").splitlines():
        name, data, what = line.split(" ", 2)
        forms[name].append((bytes.fromhex(data), json.loads(what)))
    return forms


def record_new_forms() -> None:
    known = FORMS.read_text(encoding="utf-8").splitlines() if FORMS.exists() else []
    samples = {name: sample(kind) for name, kind in MESSAGES.items()}
    lines = [f"{name} {codec.encode(one).hex()} {json.dumps(facts(one))}" for name, one in samples.items()]
    FORMS.write_text("".join(f"{line}\n" for line in [*known, *(one for one in lines if one not in known)]))


if os.environ.get("RECORD_MESSAGE_FORMS"):
    record_new_forms()


def test_every_message_is_here() -> None:
    """Messages that are given up stay: processes of earlier releases may send them for a while."""
    assert set(MESSAGES) <= set(recorded())


@pytest.mark.parametrize("name", MESSAGES)
def test_what_every_release_has_sent_is_read(name: str) -> None:
    for data, expected in recorded()[name]:
        assert missing(expected, facts(codec.decode(MESSAGES[name], data)), name) == []


@pytest.mark.parametrize("name", MESSAGES)
def test_a_new_form_is_recorded(name: str) -> None:
    data, _ = recorded()[name][-1]
    assert data == codec.encode(sample(MESSAGES[name])), "run this test with RECORD_MESSAGE_FORMS=1"


def test_the_comparison_finds_what_is_lost() -> None:
    assert missing({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}], "d": 3}, "m") == []
    assert missing({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, "m") == ["m.a[0].b: 1 has become 2"]
    assert missing({"a": 1}, {}, "m") == ["m.a: 1 has become None"]


@pytest.mark.parametrize(
    ("version", "is_spoken"),
    [
        (1, False),  # it commits the outputs of each sink by itself (D-047)
        (OLDEST_PROTOCOL_VERSION - 1, False),
        (OLDEST_PROTOCOL_VERSION, True),
        (PROTOCOL_VERSION, True),
        (PROTOCOL_VERSION + 1, False),
    ],
)
def test_which_protocols_are_spoken(version: int, is_spoken: bool) -> None:
    assert speaks(version) is is_spoken
