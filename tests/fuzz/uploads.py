"""What a client uploads to have it run (R54): the form around it, and the directory of an archive."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator, Callable, Sequence

from runtime.common.errors import InvalidInputError
from runtime.rest.uploads.multipart import FilePart
from runtime.rest.uploads.zip_directory import MEMBER_BYTES_MAX, read_member, read_members
from tests.fuzz.surface import Surface

_PIECE = 100


def _of_archives() -> Callable[[bytes], object]:
    async def look(data: bytes) -> object:
        async def read(offset: int, size_bytes: int) -> bytes:
            assert offset >= 0, offset
            return data[offset : offset + size_bytes]

        members = await read_members(read, len(data))
        for member in [*members.values()][:5]:
            try:
                assert len(await read_member(read, member)) <= MEMBER_BYTES_MAX
            except InvalidInputError:
                continue
        return f"{min(len(members), 5)} members"

    return lambda data: asyncio.run(look(data))


def _of_forms() -> Callable[[bytes], object]:
    async def look(data: bytes) -> object:
        kind, _, body = data.partition(b"\n")

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(body), _PIECE):
                yield body[start : start + _PIECE]

        part = FilePart(kind.decode("latin-1").replace("\r", ""), pieces())
        await part.begin()
        size = 0
        async for chunk in part.chunks():
            size += len(chunk)
        assert size <= len(body)
        return "a file" if size else "an empty file"

    return lambda data: asyncio.run(look(data))


def _archives() -> Sequence[bytes]:
    seeds = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", method) as archive:
            archive.comment = b"a comment"
            archive.writestr("jobs/etl.py", "print(1)\n" * 20)
            archive.writestr("META-INF/MANIFEST.MF", "Main-Class: A\n")
        seeds.append(b"#!before\n" + made.getvalue())
    return seeds


def _forms() -> Sequence[bytes]:
    head = b"multipart/form-data; boundary=x1\n"
    field = b'--x1\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
    file = b'--x1\r\ncontent-disposition: form-data; name="jarfile"; filename="a.py"\r\n\r\nprint(1)\r\n--x1--\r\n'
    return [head + file, head + field + file, head + b"--x1--\r\n"]


SURFACES = (
    Surface(
        "uploaded-archives",
        _of_archives,
        _archives,
        (InvalidInputError,),
        tokens=(b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"\xff\xff\xff\xff", b"\x00\x00"),
    ),
    Surface(
        "uploaded-forms",
        _of_forms,
        _forms,
        (InvalidInputError,),
        tokens=(b"\r\n--x1", b"--\r\n", b"\r\n\r\n", b'filename="', b"filename*=utf-8''%41"),
    ),
)
