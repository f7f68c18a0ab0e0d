"""The storage below a base that fsspec reaches. Without a rename: copies are proved, then sources go (R28)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runtime.gateways.task import one_spelling, outer_bases
from runtime.taskexecutor.storage.core.output_plan import Identity, Present, Written
from runtime.taskexecutor.storage.directory_tree import RemoteFilesError, driver_errors, remote_files, tree_of
from runtime.taskexecutor.storage.output_names import is_hidden_work, is_inner_marker, is_output

_DIGESTS = ("crc32c", "md5Hash", "content_md5")
_PIECE = 1 << 20


class RemoteOutputFiles:
    """Any fsspec URL."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._files = remote_files(base)
        self._root = str(self._files._strip_protocol(base)).rstrip("/")  # noqa: SLF001 (fsspec has no public name)

    @property
    def base(self) -> str:
        """The URL of the base."""
        return self._base

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def hold(self) -> None:
        """Nothing: a URL leads to one place."""

    def release(self) -> None:
        """Nothing is held."""

    @property
    def elsewhere(self) -> str:
        """Always "": a URL leads to one place."""
        return ""

    def name(self, error: OSError, /) -> None:
        """Nothing to do: the error has the URL already."""

    @property
    def place(self) -> str:
        """The URL of the base, in one spelling."""
        return one_spelling(self._base)

    @property
    def outer_places(self) -> Sequence[str]:
        """The URLs that the base lies in."""
        return list(outer_bases(self.place))

    def written(self, directory: str, /) -> Mapping[str, Written]:
        """All files below a directory."""
        return {name: Written(size) for name, size in self._find(directory).items() if is_output(name)}

    def present(self) -> Present:
        """The visible content of the base."""
        found = self._find("")
        shown = {name: size for name, size in found.items() if not any(map(is_hidden_work, name.split("/")))}
        files = {name: size for name, size in shown.items() if is_output(name)}
        return Present(files, markers=frozenset(filter(is_inner_marker, shown)))

    def _find(self, directory: str) -> Mapping[str, int]:
        root = self._path(directory)
        with driver_errors(self._base):
            self._files.invalidate_cache()
            try:
                found = self._files.find(root, detail=True)
            except FileNotFoundError:
                found = {}
            if directory and not found and not self._files.exists(root):
                raise FileNotFoundError(root)
        return {str(path)[len(root) + 1 :]: int(info.get("size") or 0) for path, info in sorted(found.items())}

    def names(self) -> list[str]:
        """The names at the top of the base."""
        with driver_errors(self._base):
            self._files.invalidate_cache()
        tree, _ = tree_of(self._base)
        return list(tree.names(self._base))

    def make_room(self, name: str, /) -> None:
        """Nothing: a directory is what the names of files say; where it is more, `put` makes it."""

    def put(
        self,
        source: str,
        target: str,
        size: int,
        /,
        *,
        may_replace: bool,
        is_fresh: bool,
        identity: Identity | None = None,
    ) -> None:
        """Copy the file, unless an earlier mover has. The copy is proved by its size, and by its digest where both have
        one.

        No write of these storages refuses to replace, so a file of that name is looked at just before. No mover moves a
        source: a missing source was deleted, and proves nothing.
        """
        del identity
        old, new = self._path(source), self._path(target)
        with driver_errors(self._base):
            before = self._info(new)
            if before is not None and is_fresh:
                is_ours = self._begins(old, new, before)
                if is_ours and before.get("size") == size:
                    return
                if not is_ours and not may_replace:
                    raise FileExistsError(new)
            self._copy(old, new, size)

    def _copy(self, old: str, new: str, size: int) -> None:
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
            raise FileNotFoundError(old)
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

    def remove_tree(self, name: str, /) -> None:
        """Delete a directory with all below it, or a file."""
        tree, path = tree_of(f"{self._base}/{name}")
        tree.delete(path)

    def set_aside(self, name: str, aside: str, /, *, is_directory: bool) -> None:
        """Copied, proved, deleted. Where files and directories of one name live side by side that does no harm."""
        with driver_errors(self._base):
            self._files.invalidate_cache()
            if is_directory and self._files.isdir(self._path(name)):
                for inner, size in self._find(name).items():
                    self._copy(self._path(f"{name}/{inner}"), self._path(f"{aside}/{inner}"), size)
                self._files.rm(self._path(name), recursive=True)
            elif not is_directory and (info := self._info(self._path(name))) is not None:
                self._copy(self._path(name), self._path(aside), int(info.get("size") or 0))
                self._files.rm_file(self._path(name))

    def read(self, name: str, /) -> bytes | None:
        """A small file."""
        with driver_errors(self._base):
            try:
                self._files.invalidate_cache()
                return bytes(self._files.cat_file(self._path(name)))
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes, /) -> None:
        """Write the bytes as one object."""
        with driver_errors(self._base):
            path = self._path(name)
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._files.pipe_file(path, data)


def _differ(one: Mapping[str, Any], other: Mapping[str, Any], key: str) -> bool:
    return bool(one.get(key)) and bool(other.get(key)) and one[key] != other[key]
