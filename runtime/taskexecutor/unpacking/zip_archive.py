"""Zip archives, and wheels, which are zip archives (R42)."""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from runtime.common.errors import InvalidInputError
from runtime.taskexecutor.unpacking.limits import Budget, not_within, shown
from runtime.taskexecutor.unpacking.tree import UnpackedTree

_LOCAL_HEADER_BYTES = 30
_LIBRARIES = frozenset({"purelib", "platlib"})


def unpack_zip(source: IO[bytes], name: str, root: Path, budget: Budget) -> None:
    """Unpack a zip archive. Raises InvalidInputError, and all errors that readers of damaged data raise."""
    _unpack(source, name, root, budget, lambda member: member)


def unpack_wheel(source: IO[bytes], name: str, root: Path, budget: Budget) -> None:
    """So that `root` can stand in sys.path: purelib and platlib of its data come to the top."""
    _unpack(source, name, root, budget, _in_sys_path)


def _unpack(source: IO[bytes], name: str, root: Path, budget: Budget, place: Callable[[str], str]) -> None:
    tree = UnpackedTree(root, name, budget)
    with zipfile.ZipFile(source) as opened:
        members = opened.infolist()
        budget.check(name, len(members), sum(member.file_size for member in members))
        _check_overlaps(name, members)
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)
            if "\\" in member.filename:
                raise not_within(name, member.filename)
            if kind == stat.S_IFLNK:
                message = f"archive {name} has the symbolic link {shown(member.filename)}: use a tar archive for links"
                raise InvalidInputError(message)
            if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
                message = f"archive {name} has the member {shown(member.filename)}, which is neither file nor directory"
                raise InvalidInputError(message)
            if member.is_dir():
                tree.add_directory(place(member.filename))
                continue
            with opened.open(member) as data:
                tree.add_file(place(member.filename), data, mode=member.external_attr >> 16)


def _check_overlaps(name: str, members: Sequence[zipfile.ZipInfo]) -> None:
    """Members that share their data make much of little."""
    end = 0
    for member in sorted(members, key=lambda member: member.header_offset):
        if member.header_offset < end:
            message = f"archive {name} has members that overlap, as {shown(member.filename)} does"
            raise InvalidInputError(message)
        end = member.header_offset + _LOCAL_HEADER_BYTES + member.compress_size


def _in_sys_path(member: str) -> str:
    data, _, rest = member.partition("/")
    library, _, path = rest.partition("/")
    return path or "." if data.endswith(".data") and library in _LIBRARIES else member
