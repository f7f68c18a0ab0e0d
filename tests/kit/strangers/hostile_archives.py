"""Archives that hurt the process that unpacks them. They are small, and quick to make."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

MIB = 1 << 20


def tar_header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """One block that announces what need not follow."""
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


def compressed(path: Path, pieces: Iterator[bytes]) -> Path:
    """By what the name says."""
    if path.name.endswith("zst"):
        import pyarrow as pa

        with pa.output_stream(str(path), compression="zstd") as file:
            for piece in pieces:
                file.write(piece)
        return path
    opened = {"gz": gzip.open, "z2": bz2.open, "xz": lzma.open}.get(path.name[-2:], open)
    with opened(path, "wb") as file:  # type: ignore[operator]
        for piece in pieces:
            file.write(piece)
    return path


def large_header(path: Path, *, kind: bytes = tarfile.XHDTYPE, mebibytes: int = 800) -> Path:
    """A header that says more than all members together, one record of pax or one name."""

    def pieces() -> Iterator[bytes]:
        yield tar_header("header", mebibytes * MIB, kind)
        yield f"{mebibytes * MIB} comment=".encode().ljust(MIB, b"x")
        for _ in range(mebibytes - 1):
            yield b"x" * MIB
        yield tar_header("a", 0)

    return compressed(path, pieces())


def many_members(path: Path, count: int) -> Path:
    """Empty ones: each costs the unpacking process a file, and half a kilobyte of zeros before that."""

    def pieces() -> Iterator[bytes]:
        for number in range(count):
            yield tar_header(f"{number:07d}", 0)
        yield bytes(1024)

    return compressed(path, pieces())


def large_member(path: Path, mebibytes: int) -> Path:
    """One file of zeros."""

    def pieces() -> Iterator[bytes]:
        yield tar_header("zeros", mebibytes * MIB)
        for _ in range(mebibytes):
            yield bytes(MIB)
        yield bytes(1024)

    return compressed(path, pieces())


def header_chain(path: Path, count: int) -> Path:
    """Headers that speak of headers that speak of headers."""
    return compressed(path, iter([(tar_header("h", 512, tarfile.GNUTYPE_LONGNAME) + b"n".ljust(512, b"\0")) * count]))


def overlapping_zip(path: Path, members: int) -> Path:
    """Many members with the same data."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0", bytes(MIB))
    data = buffer.getvalue()
    at = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    entry = bytearray(data[at:end])
    entries = b""
    for number in range(members):
        entry[46:47] = b"%c" % (ord("0") + number)
        entries += entry
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, members, members, len(entries), at, 0)
    path.write_bytes(data[:at] + entries + tail)
    return path


def tar_of(path: Path, *members: tarfile.TarInfo) -> Path:
    """These, each with its name as content where it has a size."""
    with tarfile.open(path, "w") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, *, to: str = "", size: int = 0) -> tarfile.TarInfo:
    """One, a link `to` somewhere perhaps."""
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, to, size
    return made
