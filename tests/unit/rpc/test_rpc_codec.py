"""The schema on the wire: same messages and fields as the gateways, stable numbers, fresh code, lossless copies."""

from __future__ import annotations

import dataclasses
import os
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor, FileDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.common.errors import BugError, InvalidInputError
from runtime.common.fencing import FencingToken
from runtime.common.ids import ExecutionAttemptId, JobId, VertexId
from runtime.common.states import JobStatus
from runtime.gateways.dispatcher import Empty, JobRequest, SubmitJobResponse, SubmitOutcome
from runtime.gateways.job_master import Heartbeat
from runtime.gateways.task import FailureInfo
from runtime.rpc import codec
from runtime.rpc.frames import ChunkRequest, ErrorDetails
from runtime.rpc.generate import GENERATED_DIRECTORY, generate
from runtime.rpc.messages import GATEWAYS, STREAM_MESSAGES, camel_case, constant_case, gateway_methods
from runtime.rpc.service import StreamHello

GOLDEN = Path(__file__).parent / "proto_numbers.txt"
TRANSPORT_ONLY = {"Frame"}

ROOTS: list[type[Any]] = [StreamHello, ErrorDetails, ChunkRequest, FencingToken, *STREAM_MESSAGES]
ROOTS += [
    message
    for gateway in GATEWAYS
    for method in gateway_methods(gateway).values()
    for message in (method.request_type, method.response_type)
]


def _reachable() -> tuple[dict[str, type[Any]], dict[str, type[Enum]]]:
    messages: dict[str, type[Any]] = {}
    enums: dict[str, type[Enum]] = {}
    waiting = list(ROOTS)
    while waiting:
        message = waiting.pop()
        if message.__name__ in messages:
            continue
        messages[message.__name__] = message
        for shape in codec.field_shapes(message).values():
            if issubclass(shape.kind, Enum):
                enums[shape.kind.__name__] = shape.kind
            elif dataclasses.is_dataclass(shape.kind):
                waiting.append(shape.kind)
    return messages, enums


MESSAGES, ENUMS = _reachable()


def _files() -> list[FileDescriptor]:
    codec.proto_class("Frame")
    pool = descriptor_pool.Default()
    return [pool.FindFileByName(f"runtime/rpc/generated/{name}.proto") for name in codec.PROTO_MODULES]


_SCALAR_TYPES = {
    str: FieldDescriptor.TYPE_STRING,
    bytes: FieldDescriptor.TYPE_BYTES,
    int: FieldDescriptor.TYPE_INT64,
    float: FieldDescriptor.TYPE_DOUBLE,
    bool: FieldDescriptor.TYPE_BOOL,
}


@pytest.mark.parametrize("message_type", MESSAGES.values(), ids=MESSAGES)
def test_message_and_proto_have_the_same_fields(message_type: type[Any]) -> None:
    descriptor = codec.proto_class(message_type.__name__).DESCRIPTOR
    shapes = codec.field_shapes(message_type)
    assert set(descriptor.fields_by_name) == set(shapes), "edit the .proto and run python -m runtime.rpc.generate"
    for name, shape in shapes.items():
        field = descriptor.fields_by_name[name]
        assert field.is_repeated == shape.is_repeated, name
        assert not shape.is_optional or field.has_presence, name
        if shape.kind in _SCALAR_TYPES:
            assert field.type == _SCALAR_TYPES[shape.kind], name
            assert shape.is_optional or shape.is_repeated or not field.has_presence, name
        elif issubclass(shape.kind, Enum):
            assert field.enum_type.name == shape.kind.__name__
        else:
            assert field.message_type.name == shape.kind.__name__


def test_no_proto_without_its_dataclass() -> None:
    named = {name for file in _files() for name in file.message_types_by_name}
    assert named - TRANSPORT_ONLY == set(MESSAGES)


def test_enums_are_the_same_on_both_sides() -> None:
    found = {name: enum for file in _files() for name, enum in file.enum_types_by_name.items()}
    assert set(found) - {"MessageType"} == set(ENUMS)
    for name, enum_type in ENUMS.items():
        expected = {f"{constant_case(name)}_{member.name}" for member in enum_type}
        assert set(found[name].values_by_name) == expected | {f"{constant_case(name)}_UNSPECIFIED"}


def test_services_are_the_gateways() -> None:
    services = {name: service for file in _files() for name, service in file.services_by_name.items()}
    assert set(services) == {gateway.__name__ for gateway in GATEWAYS}
    for gateway in GATEWAYS:
        service = services[gateway.__name__]
        expected = {
            (camel_case(method.name), method.request_type.__name__, method.response_type.__name__)
            for method in gateway_methods(gateway).values()
        }
        assert {(m.name, m.input_type.name, m.output_type.name) for m in service.methods} == expected


def test_every_stream_message_has_a_tag_of_its_own() -> None:
    tags, types = codec.stream_tags()
    assert set(tags) == set(STREAM_MESSAGES)
    assert set(types.values()) == set(STREAM_MESSAGES)


def _numbers() -> list[str]:
    lines = []
    for file in _files():
        for name, message in sorted(file.message_types_by_name.items()):
            lines += [f"{name}.{field.name} = {field.number} {field.type}" for field in message.fields]
        for name, enum in sorted(file.enum_types_by_name.items()):
            assert isinstance(enum, EnumDescriptor)
            lines += [f"{name}.{value.name} = {value.number}" for value in enum.values]
    return lines


def test_recorded_numbers_never_change() -> None:
    """New lines are recorded by RECORD_PROTO_NUMBERS=1; a recorded line stays, also when its field is given up."""
    present = _numbers()
    recorded = GOLDEN.read_text().splitlines() if GOLDEN.exists() else []
    if os.environ.get("RECORD_PROTO_NUMBERS"):
        GOLDEN.write_text("\n".join(recorded + [line for line in present if line not in recorded]) + "\n")
        recorded = GOLDEN.read_text().splitlines()
    names = {line.split(" = ")[0]: line for line in recorded}
    changed = [f"{names[name]} -> {line}" for line in present if (name := line.split(" = ")[0]) in names
               and names[name] != line]  # fmt: skip
    assert changed == []
    assert [line for line in present if line not in recorded] == [], "run this test with RECORD_PROTO_NUMBERS=1"
    users: dict[str, set[str]] = {}
    for line in recorded:
        name, rest = line.split(" = ")
        users.setdefault(f"{name.split('.')[0]}={rest.split()[0]}", set()).add(name)
    assert [sorted(names) for names in users.values() if len(names) > 1] == [], "a number was used again"


def test_generated_code_is_fresh(tmp_path: Path) -> None:
    generate(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.glob("*.py")}
    kept = {path.name: path.read_text() for path in GENERATED_DIRECTORY.glob("*.py")}
    assert made == kept, "run python -m runtime.rpc.generate"


def _values(shape: codec.FieldShape) -> st.SearchStrategy[Any]:
    scalars: dict[type[Any], st.SearchStrategy[Any]] = {
        str: st.text(max_size=20),
        bytes: st.binary(max_size=20),
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(allow_nan=False),
        bool: st.booleans(),
    }
    if shape.kind in scalars:
        value = scalars[shape.kind]
    elif issubclass(shape.kind, Enum):
        value = st.sampled_from(list(shape.kind))
    else:
        value = _messages(shape.kind)
    if shape.is_repeated:
        value = st.lists(value, max_size=3).map(tuple)
    return st.none() | value if shape.is_optional else value


def _messages(message_type: type[Any]) -> st.SearchStrategy[Any]:
    return st.builds(message_type, **{name: _values(shape) for name, shape in codec.field_shapes(message_type).items()})


@pytest.mark.parametrize("message_type", MESSAGES.values(), ids=MESSAGES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_round_trip(message_type: type[Any], data: st.DataObject) -> None:
    message = data.draw(_messages(message_type))
    assert codec.decode(message_type, codec.encode(message)) == message


def test_lone_surrogates_travel_as_escapes() -> None:
    failure = FailureInfo("ValueError", "file \udcff.txt", "trace \ud800", "USER", False, 1)
    copy = codec.decode(FailureInfo, codec.encode(failure))
    assert copy.message == "file \\udcff.txt"
    assert copy.stack_trace == "trace \\ud800"


@pytest.mark.parametrize(
    "message",
    [ExecutionAttemptId(JobId("a"), VertexId("b"), 2**63, 0, 0), JobRequest(5)],  # type: ignore[arg-type] # wrong on purpose
)
def test_values_that_do_not_fit_are_refused(message: Any) -> None:
    with pytest.raises(InvalidInputError, match=type(message).__name__):
        codec.encode(message)


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="JobRequest"):
        codec.decode(JobRequest, b"\xff\xff\xff")
    with pytest.raises(InvalidInputError, match="StreamHello"):
        codec.decode(StreamHello, b"")
    with pytest.raises(InvalidInputError, match="999"):
        codec.decode_tagged(999, b"")
    with pytest.raises(BugError, match="Empty"):
        codec.encode_tagged(Empty())
    assert codec.decode_tagged(*codec.encode_tagged(Heartbeat(3))) == Heartbeat(3)


def test_a_number_of_a_later_release_is_refused_in_a_sentence() -> None:
    """An enum may have more members there (R52)."""
    right = codec.encode(SubmitJobResponse(SubmitOutcome.ALREADY_SUBMITTED, JobStatus.RUNNING))
    for place in (1, 3):
        wrong = bytearray(right)
        wrong[place] = 0x6F
        with pytest.raises(InvalidInputError, match="received bytes that are no SubmitJobResponse of this version"):
            codec.decode(SubmitJobResponse, bytes(wrong))
