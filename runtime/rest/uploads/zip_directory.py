"""The directory of a zip file, by reads of its end: names, and single small members. Nothing is unpacked to a disk.

A zip file is input from outside (R52): each length in it is compared with what was read before it is used. Zip64 and
encrypted members are refused.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from runtime.common.errors import InvalidInputError

ReadRange = Callable[[int, int], Awaitable[bytes]]
"""(offset, size) -> bytes, fewer at the end of the file."""

DIRECTORY_BYTES_MAX = 16 << 20
MEMBERS_MAX = 100_000
MEMBER_BYTES_MAX = 4 << 20

_END = struct.Struct("<4sHHHHIIH")
_ENTRY = struct.Struct("<4sHHHHHHIIIHHHHHII")
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_COMMENT_MAX = 0xFFFF
_STORED, _DEFLATED = 0, 8
_IS_ENCRYPTED = 1


@dataclass(frozen=True, slots=True)
class Member:
    """One file of the archive."""

    name: str
    method: int
    flags: int
    crc: int
    packed: int
    size: int
    offset: int


def _broken(why: str) -> InvalidInputError:
    return InvalidInputError(f"the file is not a zip archive that can be read: {why}; make it again")


async def read_members(read: ReadRange, size_bytes: int) -> dict[str, Member]:
    """The members by name, in the order of the directory. Raises InvalidInputError."""
    length = min(size_bytes, _END.size + _COMMENT_MAX)
    tail = await read(size_bytes - length, length)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        raise _broken("it has no directory at its end")
    _, disk, first_disk, here, count, length, offset, _ = _END.unpack_from(tail, at)
    if disk or first_disk or here != count or offset == 0xFFFFFFFF:
        raise _broken("it is in parts, or larger than 4 GiB")
    if count > MEMBERS_MAX or length > DIRECTORY_BYTES_MAX:
        message = f"the archive has {count} files: at most {MEMBERS_MAX}, with {DIRECTORY_BYTES_MAX} bytes of names"
        raise InvalidInputError(message)
    # Bytes may stand before the archive: the directory ends where its end begins.
    begin = size_bytes - len(tail) + at - length
    if begin < offset:
        raise _broken("its directory lies outside of it")
    directory = await read(begin, length)
    # MEMBERS_MAX of them take a second.
    return await asyncio.to_thread(_parse, directory, count, begin - offset)


def _parse(directory: bytes, count: int, shift: int) -> dict[str, Member]:
    members: dict[str, Member] = {}
    at = 0
    for _ in range(count):
        if len(directory) - at < _ENTRY.size:
            raise _broken("its directory is too short")
        entry = _ENTRY.unpack_from(directory, at)
        flags, method, crc, packed, size = entry[3], entry[4], entry[7], entry[8], entry[9]
        name_end = at + _ENTRY.size + entry[10]
        if entry[0] != b"PK\x01\x02" or name_end > len(directory):
            raise _broken("its directory is damaged")
        name = directory[at + _ENTRY.size : name_end].decode("utf-8", "replace")
        members[name] = Member(name, method, flags, crc, packed, size, entry[16] + shift)
        at = name_end + entry[11] + entry[12]
    return members


async def read_member(read: ReadRange, member: Member) -> bytes:
    """The content of a small member. Raises InvalidInputError."""
    label = f"{member.name[:120]!r} of the archive"
    if max(member.size, member.packed) > MEMBER_BYTES_MAX:
        message = f"{label} has {member.size} bytes: at most {MEMBER_BYTES_MAX}; upload it as a file of its own"
        raise InvalidInputError(message)
    if member.flags & _IS_ENCRYPTED or member.method not in {_STORED, _DEFLATED}:
        message = f"{label} is encrypted, or packed by another method than deflate: pack it again"
        raise InvalidInputError(message)
    head = await read(member.offset, _LOCAL.size)
    if len(head) < _LOCAL.size or not head.startswith(b"PK\x03\x04"):
        raise _broken(f"{label} does not begin where it should")
    local = _LOCAL.unpack(head)
    packed = await read(member.offset + _LOCAL.size + local[9] + local[10], member.packed)
    content = packed if member.method == _STORED else _inflated(packed, label)
    if len(content) != member.size or zlib.crc32(content) != member.crc:
        raise _broken(f"{label} is damaged")
    return content


def _inflated(packed: bytes, label: str) -> bytes:
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, MEMBER_BYTES_MAX + 1)
    except zlib.error as error:
        raise _broken(f"{label} is damaged") from error
