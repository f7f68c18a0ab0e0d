"""Tar archives, read once from beginning to end (R42).

`tarfile` reads what headers announce at once and remembers every member: behind a `_Stream` no read is larger than a
header may be, none goes back, and members are forgotten.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tarfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import IO, Any, cast

from runtime.common.errors import InvalidInputError
from runtime.taskexecutor.unpacking.limits import HEADER_BYTES_MAX, Budget, shown
from runtime.taskexecutor.unpacking.tree import UnpackedTree

_MAGIC_BYTES = 6
_SKIP_BYTES = 256 << 10
_BLOCK_BYTES = 512


class _Stream:
    """The stream that tarfile reads headers from: forward only, counted, and never much at once."""

    def __init__(self, source: IO[bytes], archive: str, budget: Budget) -> None:
        self._source = source
        self._archive = archive
        self._budget = budget
        self._position = 0
        self._last = b""
        self._again = 0
        self.last_block = b""

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= HEADER_BYTES_MAX:
            message = f"archive {self._archive} has a header of {size} bytes: expected 0 to {HEADER_BYTES_MAX}"
            raise InvalidInputError(message)
        again = min(self._again, size)
        data = self._last[-again:] if again else b""
        self._again -= again
        data += self._forward(size - again)
        if size == _BLOCK_BYTES:
            self.last_block = data
        return data

    def _forward(self, size: int) -> bytes:
        pieces: list[bytes] = []
        while size > 0 and (piece := self._source.read(size)):
            self._budget.take_stream(self._archive, len(piece))
            self._position += len(piece)
            size -= len(piece)
            pieces.append(piece)
        data = b"".join(pieces)
        self._last = data[-1:] or self._last
        return data

    def tell(self) -> int:
        return self._position - self._again

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        assert whence == os.SEEK_SET, whence
        self._again = 0
        if position == self._position - 1 and self._last:
            self._again = 1  # tarfile looks whether what it has skipped was there, by its last byte
        elif position < self._position:
            message = f"archive {self._archive} cannot be unpacked: a member begins before the one in front of it"
            raise InvalidInputError(message)
        while self._position < position and self._forward(min(_SKIP_BYTES, position - self._position)):
            pass
        return self.tell()


class _Data:
    """The data of one member."""

    def __init__(self, stream: _Stream, size: int) -> None:
        self._stream = stream
        self._left = size

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(min(size, self._left))
        if not data and self._left:
            message = "unexpected end of data"
            raise tarfile.ReadError(message)
        self._left -= len(data)
        return data


def unpack_tar(source: IO[bytes], name: str, root: Path, budget: Budget) -> None:
    """Unpack a tar archive. Raises InvalidInputError, and all errors that readers of damaged data raise."""
    tree = UnpackedTree(root, name, budget)
    with ExitStack() as opened:
        stream = _Stream(opened.enter_context(_decompressed(source)), name, budget)
        tar = opened.enter_context(tarfile.TarFile(fileobj=cast("Any", stream), mode="r", errorlevel=1))
        while member := tar.next():
            budget.take_member(name)
            _add(tree, tar, member, stream, name)
            cast("Any", tar).members = []
        if stream.last_block.strip(b"\0") or 0 < len(stream.last_block) < _BLOCK_BYTES:
            # tarfile takes what it does not understand for the end.
            message = f"archive {name} is damaged or cut off: what follows its last member is no header"
            raise InvalidInputError(message)


def _add(tree: UnpackedTree, tar: tarfile.TarFile, member: tarfile.TarInfo, stream: _Stream, name: str) -> None:
    if member.isdir():
        tree.add_directory(member.name)
    elif member.issym():
        tree.add_symbolic_link(member.name, member.linkname)
    elif member.islnk():
        tree.add_hard_link(member.name, member.linkname)
    elif member.isreg():
        source = tar.extractfile(member) if member.issparse() else None
        mode, mtime = member.mode, float(member.mtime)
        tree.add_file(member.name, source or _Data(stream, member.size), mode=mode, mtime=mtime)
    else:
        message = f"archive {name} has the member {shown(member.name)}, which is neither file, directory nor link"
        raise InvalidInputError(message)


def _decompressed(source: IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    """The caller closes `source`."""
    magic = source.read(_MAGIC_BYTES)
    source.seek(0)
    opener = next((found for start, found in _OPENERS if magic.startswith(start)), None)
    return nullcontext(source) if opener is None else cast("IO[bytes]", opener(source))


def _open_zstd(source: IO[bytes]) -> IO[bytes]:
    """By pyarrow, which Spark needs anyway: Python has no reader of its own yet."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # each would reserve more than the limit of memory
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    import pyarrow as pa

    return cast("IO[bytes]", pa.input_stream(source, compression="zstd"))


_OPENERS: tuple[tuple[bytes, Callable[[Any], Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\0", lzma.open),
    (b"\x5d\0\0", lzma.open),
    (b"\x28\xb5\x2f\xfd", _open_zstd),
)
