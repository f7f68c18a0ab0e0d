"""Dataclasses of `runtime.gateways` <-> protobuf, by field name.

For each dataclass one encoding and one decoding function is generated on first use, as `dataclasses` itself does, so
that a message costs a few microseconds. The codec knows no particular message; a field without a counterpart in the
`.proto` of the same name is a BugError at first use, and a test finds it before.

Text from outside may hold lone surrogates, which protobuf refuses. They travel as backslash escapes: an odd file name
in a stack trace must not end a stream that many jobs share.
"""

from __future__ import annotations

import dataclasses
import importlib
import types
import typing
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from runtime.common.errors import BugError, InvalidInputError
from runtime.rpc.messages import STREAM_MESSAGES, constant_case, once_per_type

T = TypeVar("T")

PACKAGE = "flinklike"
PROTO_MODULES = ("common", "task", "job_master", "resource_manager", "dispatcher", "task_executor", "process", "stream")

Converter = Callable[[Any], Any]
_SCALARS = (int, float, str, bytes, bool)


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    for module in PROTO_MODULES:
        importlib.import_module(f"runtime.rpc.generated.{module}_pb2")
    return descriptor_pool.Default()


@cache
def proto_class(name: str) -> type[Any]:
    """The generated class of message `name`. Raises BugError when no `.proto` has it."""
    try:
        return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))
    except KeyError as error:
        message = f"no .proto file has a message {name}"
        raise BugError(message) from error


@once_per_type
def enum_numbers(enum_type: type[Any]) -> dict[str, int]:
    """Member name -> number on the wire."""
    prefix = constant_case(enum_type.__name__)
    try:
        values = _pool().FindEnumTypeByName(f"{PACKAGE}.{enum_type.__name__}").values_by_name
        return {member.name: values[f"{prefix}_{member.name}"].number for member in enum_type}
    except KeyError as error:
        message = f"enum {enum_type.__name__} and its .proto differ"
        raise BugError(message) from error


@dataclasses.dataclass(frozen=True, slots=True)
class FieldShape:
    """A field's type without NewType, Optional and tuple around it."""

    kind: type[Any]
    is_optional: bool
    is_repeated: bool


def field_shapes(message_type: type[Any]) -> dict[str, FieldShape]:
    """The fields of a message dataclass in order. Raises BugError for a type that cannot travel."""
    hints = typing.get_type_hints(message_type)
    return {
        field.name: _shape(hints[field.name], f"{message_type.__name__}.{field.name}")
        for field in dataclasses.fields(message_type)
    }


def _shape(hint: Any, where: str) -> FieldShape:
    hint = _without_newtype(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    is_optional = origin in {typing.Union, types.UnionType}
    if is_optional:
        (hint,) = (_without_newtype(argument) for argument in arguments if argument is not types.NoneType)
    is_repeated = origin is tuple
    if is_repeated and len(arguments) == 2 and arguments[1] is Ellipsis:
        hint = _without_newtype(arguments[0])
    if not isinstance(hint, type) or not (hint in _SCALARS or issubclass(hint, Enum) or dataclasses.is_dataclass(hint)):
        message = f"{where}: {hint} cannot travel"
        raise BugError(message)
    return FieldShape(hint, is_optional, is_repeated)


def _without_newtype(hint: Any) -> Any:
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    return hint


# --- generated functions ------------------------------------------------------------------------------------


def _function(source: str, names: dict[str, Any]) -> Converter:
    exec(source, names)  # noqa: S102 - made of field names of our own dataclasses, as `dataclasses` does it
    function: Converter = names["convert"]
    return function


@once_per_type
def encoder(message_type: type[Any]) -> Converter:
    """Dataclass -> protobuf message."""
    proto = proto_class(message_type.__name__)
    names: dict[str, Any] = {"Proto": proto}
    arguments: list[str] = []
    for name, shape in field_shapes(message_type).items():
        if name not in proto.DESCRIPTOR.fields_by_name:
            message = f"the .proto of {message_type.__name__} has no field {name}"
            raise BugError(message)
        value = f"m.{name}"
        item = "x" if shape.is_repeated else value
        converted = item
        if issubclass(shape.kind, Enum):
            names[f"convert_{name}"] = enum_numbers(shape.kind)
            # `_name_` is a plain attribute; hashing the member or reading `.name` runs Python code.
            converted = f"convert_{name}[{item}._name_]"
        elif shape.kind not in _SCALARS:
            names[f"convert_{name}"] = encoder(shape.kind)
            converted = f"convert_{name}({item})"
        if shape.is_repeated and converted != item:
            converted = f"[{converted} for x in {value}]"
        elif shape.is_repeated:
            converted = value
        elif shape.is_optional and converted != item:
            converted = f"None if {value} is None else {converted}"
        arguments.append(f"{name}={converted}")
    return _function(f"def convert(m):\n    return Proto({', '.join(arguments)})", names)


@once_per_type
def decoder(message_type: type[Any]) -> Converter:
    """Protobuf message -> dataclass. Raises KeyError for an enum number this version does not know.

    An enum that a peer of an earlier release does not send has the default of its field, if there is one.
    """
    names: dict[str, Any] = {"Message": message_type}
    fields = dataclasses.fields(message_type)
    defaults = {one.name: {0: one.default} for one in fields if one.default is not dataclasses.MISSING}
    arguments: list[str] = []
    for name, shape in field_shapes(message_type).items():
        value = f"p.{name}"
        item = "x" if shape.is_repeated else value
        converted = item
        if issubclass(shape.kind, Enum):
            numbers = enum_numbers(shape.kind)
            names[f"convert_{name}"] = {**defaults.get(name, {}), **{numbers[one.name]: one for one in shape.kind}}
            converted = f"convert_{name}[{item}]"
        elif shape.kind not in _SCALARS:
            names[f"convert_{name}"] = decoder(shape.kind)
            converted = f"convert_{name}({item})"
        if shape.is_repeated:
            converted = f"tuple({value})" if converted == item else f"tuple([{converted} for x in {value}])"
        elif shape.is_optional:
            converted = f"{converted} if p.HasField({name!r}) else None"
        arguments.append(f"{name}={converted}")
    return _function(f"def convert(p):\n    return Message({', '.join(arguments)})", names)


# --- what the transports use --------------------------------------------------------------------------------


@once_per_type
def _bytes_encoder(message_type: type[Any]) -> Callable[[Any], bytes]:
    convert, serialize = encoder(message_type), proto_class(message_type.__name__).SerializeToString
    return lambda message: serialize(convert(message))


@once_per_type
def _bytes_decoder(message_type: type[Any]) -> Callable[[bytes], Any]:
    convert, parse = decoder(message_type), proto_class(message_type.__name__).FromString
    return lambda data: convert(parse(data))


def encode(message: Any) -> bytes:
    """The message's bytes. Raises InvalidInputError for a value that does not fit its field."""
    to_bytes = _bytes_encoder(type(message))
    try:
        return to_bytes(message)
    except UnicodeEncodeError:
        return to_bytes(_escape_surrogates(message))
    except (ValueError, TypeError) as error:
        text = f"{type(message).__name__} cannot be sent"
        raise InvalidInputError(text) from error


def decode(message_type: type[T], data: bytes) -> T:
    """The inverse of `encode`. Raises InvalidInputError for bytes that are no such message."""
    try:
        message: T = _bytes_decoder(message_type)(data)
    except (DecodeError, KeyError, ValueError, TypeError) as error:
        text = f"received bytes that are no {message_type.__name__} of this version"
        raise InvalidInputError(text) from error
    return message


def _escape_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, tuple):
        return tuple(_escape_surrogates(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {field.name: _escape_surrogates(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **changes)
    return value


@cache
def stream_tags() -> tuple[dict[type[Any], int], dict[int, type[Any]]]:
    """Type tags of the stream messages, both ways."""
    values = _pool().FindEnumTypeByName(f"{PACKAGE}.MessageType").values_by_name
    try:
        tags = {
            message_type: values[f"MESSAGE_TYPE_{constant_case(message_type.__name__)}"].number
            for message_type in STREAM_MESSAGES
        }
    except KeyError as error:
        message = f"stream.proto has no type tag {error}"
        raise BugError(message) from error
    return tags, {tag: message_type for message_type, tag in tags.items()}


def encode_tagged(message: Any) -> tuple[int, bytes]:
    """A stream message as (type tag, bytes). Raises BugError for a type that no stream carries."""
    tag = stream_tags()[0].get(type(message))
    if tag is None:
        text = f"{type(message).__name__} is not a message of any stream"
        raise BugError(text)
    return tag, encode(message)


def decode_tagged(tag: int, data: bytes) -> Any:
    """The inverse of `encode_tagged`. Raises InvalidInputError for a tag this version does not know."""
    message_type = stream_tags()[1].get(tag)
    if message_type is None:
        text = f"received a stream message with the unknown type tag {tag}"
        raise InvalidInputError(text)
    return decode(message_type, data)
