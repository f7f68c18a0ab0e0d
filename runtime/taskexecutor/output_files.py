"""The storage below one base, as the commit of outputs uses it: local directories, and whatever fsspec reaches.

Names are relative to the base. All operations block, and may be repeated (R28). `put` is the step in which a file
becomes visible: a rename where the storage has one, elsewhere a copy that is looked at before its source may go.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from runtime.common.errors import InvalidInputError
from runtime.taskexecutor.partitions import RemoteFilesError, driver_errors, local_path, remote_files, tree_of

HIDDEN_ATTEMPT = ".attempt-"
HIDDEN_COMMIT = ".commit-"
SUCCESS = "_SUCCESS"
TEMPORARY = "_temporary"

_MARKERS = frozenset({SUCCESS, f".{SUCCESS}.crc"})
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK, errno.ENOSYS})
_DIGESTS = ("crc32c", "md5Hash", "content_md5")
_PIECE = 1 << 20


class OutputFiles(Protocol):
    """One base. Raises OSError, RemoteFilesError, and InvalidInputError for what no repetition can mend."""

    @property
    def base(self) -> str:
        """Its address, as messages have it."""

    def sizes(self, directory: str, /) -> Mapping[str, int]:
        """All files below a directory of the base ("" for itself), relative to it, with their sizes; hidden work of
        this and other jobs left out. Raises FileNotFoundError when it is gone, unless it is the base.
        """

    def names(self) -> list[str]:
        """What the base holds at its top."""

    def make_room(self, name: str, /) -> None:
        """Let there be a directory."""

    def put(self, source: str, target: str, size: int, /, *, may_replace: bool, is_fresh: bool) -> None:
        """Make a file visible under its final name; the source may stay. FileExistsError when the name is taken.

        `may_replace`: whatever has the name. `is_fresh`: nothing had it when the commit began.
        """

    def remove(self, name: str, /) -> None:
        """Delete a file. Idempotent."""

    def remove_tree(self, directory: str, /) -> None:
        """Delete a directory with all below it. Idempotent."""

    def read(self, name: str, /) -> bytes | None:
        """A small file; None when there is none."""

    def write(self, name: str, data: bytes, /) -> None:
        """Write a small file, to be durable and whole where the storage can do that."""


def output_files(base: str) -> OutputFiles:
    """The storage of a base. Raises InvalidInputError where this TaskManager cannot reach it."""
    local = local_path(base)
    return LocalOutputFiles(local) if local is not None else RemoteOutputFiles(base.rstrip("/"))


def is_output(name: str) -> bool:
    """False for the markers and the scratch of Spark's committer, which mean nothing outside of their directory."""
    parts = name.split("/")
    return parts[-1] not in _MARKERS and TEMPORARY not in parts


def _is_ours(name: str) -> bool:
    return name.startswith((HIDDEN_ATTEMPT, HIDDEN_COMMIT))


class LocalOutputFiles:
    """A directory of this host, or one that it has mounted."""

    def __init__(self, base: str) -> None:
        self._base = base.rstrip("/") or "/"

    @property
    def base(self) -> str:
        """Its path."""
        return self._base

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}" if name else self._base

    def sizes(self, directory: str, /) -> Mapping[str, int]:
        """All files below a directory."""
        root = self._path(directory)
        if directory:
            os.lstat(root)
        found: dict[str, int] = {}
        waiting = [""]
        while waiting:
            inner = waiting.pop()
            try:
                entries = list(os.scandir(f"{root}/{inner}" if inner else root))
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in entries:
                name = f"{inner}/{entry.name}" if inner else entry.name
                if not inner and not directory and _is_ours(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(name)
                elif is_output(name):
                    found[name] = entry.stat(follow_symlinks=False).st_size
        return found

    def names(self) -> list[str]:
        """What the base holds at its top."""
        try:
            return [entry.name for entry in os.scandir(self._base)]
        except FileNotFoundError:
            return []

    def make_room(self, name: str, /) -> None:
        """Let there be a directory."""
        Path(self._path(name)).mkdir(parents=True, exist_ok=True)

    def put(self, source: str, target: str, size: int, /, *, may_replace: bool, is_fresh: bool) -> None:
        """Rename. Without `may_replace` by a link, which fails where a rename would replace somebody's file."""
        del is_fresh
        old, new = self._path(source), self._path(target)
        try:
            if may_replace:
                Path(old).replace(new)
            else:
                self._link(old, new)
        except FileNotFoundError:
            # By an earlier mover, if it is there.
            if not os.path.lexists(new) or os.lstat(new).st_size != size:
                raise

    def _link(self, old: str, new: str) -> None:
        try:
            os.link(old, new, follow_symlinks=False)
        except FileExistsError:
            if not os.path.samestat(os.lstat(old), os.lstat(new)):
                raise
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if os.path.lexists(new):
                raise FileExistsError(new) from None
            Path(old).rename(new)
            return
        Path(old).unlink()

    def remove(self, name: str, /) -> None:
        """Delete a file, and directories that become empty by that."""
        Path(self._path(name)).unlink(missing_ok=True)
        while "/" in name:
            name = name.rpartition("/")[0]
            try:
                Path(self._path(name)).rmdir()
            except OSError:
                return  # something else is in it

    def remove_tree(self, directory: str, /) -> None:
        """Delete a directory with all below it."""
        tree, path = tree_of(self._path(directory))
        tree.delete(path)

    def read(self, name: str, /) -> bytes | None:
        """A small file."""
        try:
            return Path(self._path(name)).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes, /) -> None:
        """Written, synced, renamed (R20)."""
        path = Path(self._path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.new")
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)


class RemoteOutputFiles:
    """Any fsspec URL. No rename is asked for: object stores have none."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._files = remote_files(base)
        self._root = str(self._files._strip_protocol(base)).rstrip("/")  # noqa: SLF001 (fsspec has no public name)

    @property
    def base(self) -> str:
        """Its URL."""
        return self._base

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def sizes(self, directory: str, /) -> Mapping[str, int]:
        """All files below a directory."""
        root = self._path(directory)
        with driver_errors(self._base):
            self._files.invalidate_cache()
            try:
                found = self._files.find(root, detail=True)
            except FileNotFoundError:
                found = {}
            if directory and not found and not self._files.exists(root):
                raise FileNotFoundError(root)
        named = {str(path)[len(root) + 1 :]: int(info.get("size") or 0) for path, info in sorted(found.items())}
        return {name: size for name, size in named.items() if is_output(name) and (directory or not _is_ours(name))}

    def names(self) -> list[str]:
        """What the base holds at its top."""
        with driver_errors(self._base):
            self._files.invalidate_cache()
        tree, _ = tree_of(self._base)
        return list(tree.names(self._base))

    def make_room(self, name: str, /) -> None:
        """Nothing: a directory is what the names of files say; where it is more, `put` makes it."""

    def put(self, source: str, target: str, size: int, /, *, may_replace: bool, is_fresh: bool) -> None:
        """Copy, unless an earlier mover has. The copy is proved by its size, and its digest where both have one.

        There is no write that refuses to replace: what is in the way is looked at just before.
        """
        old, new = self._path(source), self._path(target)
        with driver_errors(self._base):
            before = self._info(new)
            if before is not None and is_fresh:
                is_ours = self._begins(old, new, before)
                if is_ours and before.get("size") == size:
                    return
                if not is_ours and not may_replace:
                    raise FileExistsError(new)
            self._files.makedirs(new.rpartition("/")[0], exist_ok=True)
            self._files.cp_file(old, new)
            origin, copy = self._info(old), self._info(new)
        if origin is None:
            raise FileNotFoundError(old)
        if copy is None or copy.get("size") != size or any(_differ(origin, copy, key) for key in _DIGESTS):
            message = f"the copy {new} is not what {old} is"
            raise RemoteFilesError(message)

    def _begins(self, old: str, new: str, before: Mapping[str, Any]) -> bool:
        """True if `new` is a copy of `old`, perhaps one that was cut short. By digests, else byte by byte."""
        origin = self._info(old)
        if origin is None:
            return True  # sources go last: there has been a copy
        if origin.get("size") == before.get("size") and (keys := [key for key in _DIGESTS if origin.get(key)]):
            told = [key for key in keys if before.get(key)]
            if told:
                return not any(_differ(origin, before, key) for key in told)
        with self._files.open(old, "rb") as source, self._files.open(new, "rb") as copy:
            while piece := copy.read(_PIECE):
                if source.read(len(piece)) != piece:
                    return False
        return True

    def _info(self, path: str) -> Mapping[str, Any] | None:
        self._files.invalidate_cache(path)
        try:
            info: Mapping[str, Any] = self._files.info(path)
        except FileNotFoundError:
            return None
        return info if info.get("type") != "directory" else None

    def remove(self, name: str, /) -> None:
        """Delete a file."""
        with driver_errors(self._base):
            try:
                self._files.rm_file(self._path(name))
            except FileNotFoundError:
                return

    def remove_tree(self, directory: str, /) -> None:
        """Delete a directory with all below it."""
        tree, path = tree_of(f"{self._base}/{directory}")
        tree.delete(path)

    def read(self, name: str, /) -> bytes | None:
        """A small file."""
        with driver_errors(self._base):
            try:
                self._files.invalidate_cache()
                return bytes(self._files.cat_file(self._path(name)))
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes, /) -> None:
        """One object."""
        with driver_errors(self._base):
            path = self._path(name)
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._files.pipe_file(path, data)


def _differ(one: Mapping[str, Any], other: Mapping[str, Any], key: str) -> bool:
    return bool(one.get(key)) and bool(other.get(key)) and one[key] != other[key]


def within(base: str, directory: str) -> str:
    """A directory of an attempt, relative to its base. Raises InvalidInputError when it is not within."""
    spelled = (local_path(base) or base).rstrip("/")
    inner = (local_path(directory) or directory).rstrip("/")
    name = inner.removeprefix(f"{spelled}/")
    if name == inner or not name.startswith("."):
        message = f"{directory} is no hidden directory below {base}"
        raise InvalidInputError(message)
    return name
