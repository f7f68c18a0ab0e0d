"""An error as Flink's Java clients deserialize it: a SerializedThrowable in Java's object serialization.

Layout: the stream header, one object, its class descriptor chain (SerializedThrowable, Exception, Throwable), then the
field values from the top class down. Nothing else of the Java protocol is needed, and nothing is ever read.
"""

from __future__ import annotations

import base64
import struct

_HEADER = b"\xac\xed\x00\x05"
_NULL, _OBJECT, _CLASS, _STRING, _LONG_STRING, _END = b"\x70", b"\x73", b"\x72", b"\x74", b"\x7c", b"\x78"
_SERIALIZABLE, _WITH_WRITE_METHOD = 2, 3
_STRING_TYPE = "Ljava/lang/String;"


def serialized_throwable(class_name: str, message: str, stack_trace: str) -> str:
    """Base64 of a SerializedThrowable without cause and frames; the stack trace travels as text."""
    throwable = _class(
        "java.lang.Throwable",
        0xD5C635273977B8CB,
        _WITH_WRITE_METHOD,
        [
            ("cause", "Ljava/lang/Throwable;"),
            ("detailMessage", _STRING_TYPE),
            ("stackTrace", "[Ljava/lang/StackTraceElement;"),
            ("suppressedExceptions", "Ljava/util/List;"),
        ],
        _NULL,
    )
    exception = _class("java.lang.Exception", 0xD0FD1F3E1A3B1CC4, _SERIALIZABLE, [], throwable)
    serialized = _class(
        "org.apache.flink.util.SerializedThrowable",
        0x65169DF51FA713F3,
        _SERIALIZABLE,
        [
            ("fullStringifiedStackTrace", _STRING_TYPE),
            ("originalErrorClassName", _STRING_TYPE),
            ("serializedException", "[B"),
        ],
        exception,
    )
    throwable_values = _NULL + _string(message) + _NULL + _NULL + _END
    values = throwable_values + _string(stack_trace) + _string(class_name) + _NULL
    return base64.b64encode(_HEADER + _OBJECT + serialized + values).decode()


def _class(name: str, uid: int, flags: int, fields: list[tuple[str, str]], parent: bytes) -> bytes:
    head = _CLASS + _text(name) + struct.pack(">QBH", uid, flags, len(fields))
    described = b"".join(kind[0].encode() + _text(field) + _string(kind) for field, kind in fields)
    return head + described + _END + parent


def _text(text: str) -> bytes:
    data = _modified_utf8(text)
    return struct.pack(">H", len(data)) + data


def _string(text: str) -> bytes:
    data = _modified_utf8(text)
    if len(data) > 0xFFFF:
        return _LONG_STRING + struct.pack(">Q", len(data)) + data
    return _STRING + struct.pack(">H", len(data)) + data


def _modified_utf8(text: str) -> bytes:
    """Java's form of UTF-8: NUL as two bytes, characters above U+FFFF as two surrogates of three bytes."""
    if text.isascii() and "\0" not in text:
        return text.encode()
    units = text.encode("utf-16-be", "surrogatepass")
    return b"".join(_unit(units[at] << 8 | units[at + 1]) for at in range(0, len(units), 2))


def _unit(unit: int) -> bytes:
    if 0 < unit < 0x80:
        return bytes([unit])
    if unit < 0x800:
        return bytes([0xC0 | unit >> 6, 0x80 | unit & 0x3F])
    return bytes([0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F])
