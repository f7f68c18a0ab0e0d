"""The storage below a base that is a directory of this host, or one that it has mounted.

Links that lead to directories are the user's: they are followed where that gives each file one name, and kept (R28).
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from runtime.common.errors import InvalidInputError
from runtime.gateways.task import outer_bases
from runtime.security.file_mask import make_shared, task_umask
from runtime.taskexecutor.storage.core.output_plan import Identity, Present, Written
from runtime.taskexecutor.storage.directory_tree import tree_of
from runtime.taskexecutor.storage.held_directory import HeldDirectory
from runtime.taskexecutor.storage.output_names import (
    HIDDEN_ATTEMPT,
    HIDDEN_COMMIT,
    digest_of,
    is_hidden_work,
    is_inner_marker,
    is_output,
)

_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})

_NOWHERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
"""What is said of a link that leads to nothing, or to itself: it stays so however often it is asked."""

_Inode = tuple[int, int]


def _entries(root: str, inner: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    try:
        entries = list(os.scandir(f"{root}/{inner}" if inner else root))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        yield f"{inner}/{entry.name}" if inner else entry.name, entry


def _is_copy(old: str, new: str) -> bool:
    return Path(new).is_file() and filecmp.cmp(old, new, shallow=False)


class _Walk:
    """One look at a base. Each directory is looked at once, under its own name before names that links give it."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._files: dict[str, int] = {}
        self._directories: set[str] = set()
        self._aliases: dict[str, str] = {}
        self._markers: set[str] = set()
        self._seen: set[_Inode] = set()
        self._links: list[str] = []

    def present(self) -> Present:
        self._walk("")
        while self._links:
            self._links.sort(reverse=True)
            self._follow(self._links.pop())
        return Present(self._files, frozenset(self._directories), self._aliases, frozenset(self._markers))

    def _walk(self, top: str) -> None:
        waiting = [top]
        while waiting:
            inner = waiting.pop()
            inode = _inode(f"{self._base}/{inner}")
            if inode is None:
                continue
            if inode in self._seen:
                self._alias(inner)
                continue
            self._seen.add(inode)
            for name, entry in _entries(self._base, inner):
                if is_hidden_work(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    self._directories.add(name)
                    waiting.append(name)
                elif entry.is_symlink() and not _leads_to_file(entry):
                    self._links.append(name)
                elif is_output(name):
                    self._files[name] = entry.stat(follow_symlinks=False).st_size
                elif is_inner_marker(name):
                    self._markers.add(name)

    def _follow(self, name: str) -> None:
        """A link to a directory, or to nothing."""
        path = f"{self._base}/{name}"
        holds_base = f"{os.path.realpath(self._base)}/".startswith(f"{os.path.realpath(path).rstrip('/')}/")
        inode = _inode(path)
        if holds_base or inode is None or inode in self._seen:
            self._alias(name)
        else:
            self._directories.add(name)
            self._walk(name)

    def _alias(self, name: str) -> None:
        self._aliases[name] = os.path.realpath(f"{self._base}/{name}")


def _inode(path: str) -> _Inode | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a string stays a string
    except OSError as error:
        if error.errno not in _NOWHERE:
            raise
        return None
    return found.st_dev, found.st_ino


def _place(path: str) -> str:
    inode = _inode(path)
    return os.path.realpath(path) if inode is None else f"{inode[0]}:{inode[1]}"


def _leads_to_file(link: os.DirEntry[str]) -> bool:
    try:
        return link.is_file()
    except OSError as error:
        if error.errno not in _NOWHERE:
            raise
        return False


def _check_link(name: str, link: os.DirEntry[str]) -> None:
    """Raises InvalidInputError for a link into the directory of an attempt, which is deleted behind the commit."""
    target = str(Path(link).readlink())
    ways = [target]
    if target.startswith("/"):
        ways += [os.path.realpath(target), os.path.realpath(target.rpartition("/")[0])]
    if any(part.startswith(HIDDEN_ATTEMPT) for way in ways for part in way.split("/")):
        message = (
            f"{name} is a link to {target}, in the hidden directory of an attempt, which is gone when the commit is"
            " over: link to the file's place behind the commit, or by a path relative to the link"
        )
        raise InvalidInputError(message)


def _is_moved(new: str, size: int, identity: Identity | None, *, is_fresh: bool) -> bool:
    """R28: True if the file at `new`, whose source is missing, is that source: an earlier mover has moved it.

    Where an old file had the name, the inode tells the two apart, since a user may set the time of both. Elsewhere only
    the time counts, since some mounts have other inode numbers on each host. A copy to another disk keeps the time.
    """
    if not os.path.lexists(new):
        return False
    found = os.lstat(new)
    if identity is None or found.st_size != size:
        return found.st_size == size
    inode, modified = identity
    return found.st_mtime_ns == modified and (is_fresh or found.st_ino == inode)


class LocalOutputFiles:
    """A base that is a directory of this host, or one that it has mounted."""

    def __init__(self, base: str) -> None:
        self._base = base.rstrip("/") or "/"
        self._held: HeldDirectory | None = None

    @property
    def base(self) -> str:
        """The path of the base."""
        return self._base

    def hold(self) -> None:
        """Hold the directory to which the path leads now."""
        self._held = HeldDirectory(self._base)

    def release(self) -> None:
        """Let go of the directory."""
        if self._held is not None:
            self._held.close()

    @property
    def elsewhere(self) -> str:
        """The path of the held directory now, when the path of the base leads to another directory; else ""."""
        return self._held.elsewhere if self._held is not None else ""

    def name(self, error: OSError) -> None:
        """Put the path that people know into an error."""
        if self._held is not None:
            self._held.name(error)

    @property
    def _root(self) -> str:
        return self._held.root if self._held is not None else self._base

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    @property
    def place(self) -> str:
        """The identity of the directory, the same through all links and mounts."""
        return _place(self._root)

    @property
    def outer_places(self) -> Sequence[str]:
        """The directories that the base lies in."""
        return [_place(outer) for outer in outer_bases(os.path.realpath(self._root))]

    def written(self, directory: str, /) -> Mapping[str, Written]:
        """All files below a directory. Links in it are what the attempt wrote, and are not followed."""
        root = self._path(directory)
        os.lstat(root)
        found: dict[str, Written] = {}
        waiting = [""]
        while waiting:
            inner = waiting.pop()
            for name, entry in _entries(root, inner):
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(name)
                elif is_output(name):
                    if entry.is_symlink():
                        _check_link(f"{self._base}/{directory}/{name}", entry)
                    file = entry.stat(follow_symlinks=False)
                    found[name] = Written(file.st_size, (file.st_ino, file.st_mtime_ns))
        return found

    def present(self) -> Present:
        """The visible content of the base."""
        return _Walk(self._root).present()

    def names(self) -> list[str]:
        """The names at the top of the base."""
        try:
            return [entry.name for entry in os.scandir(self._root)]
        except FileNotFoundError:
            return []

    def make_room(self, name: str, /) -> None:
        """Let there be a directory."""
        make_shared(Path(self._path(name)), task_umask(os.environ))

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
        """Rename. Without `may_replace` by a link, which fails where a rename would replace another file.

        To another disk, behind a link of the user's: a copy, which gets its name when it is whole.
        """
        old, new = self._path(source), self._path(target)
        try:
            if may_replace:
                os.replace(old, new)  # noqa: PTH105 - a string stays a string, for each of many files
            else:
                self._link(old, new)
        except FileNotFoundError:
            if not _is_moved(new, size, identity, is_fresh=is_fresh):
                raise
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._copy(old, new, size, may_replace=may_replace)

    def _copy(self, old: str, new: str, size: int, *, may_replace: bool) -> None:
        if not may_replace and os.path.lexists(new):
            if _is_copy(old, new):
                return
            raise FileExistsError(new)
        directory, _, name = new.rpartition("/")
        copy = Path(f"{directory}/{HIDDEN_COMMIT}copy.{digest_of(name)}")
        copy.unlink(missing_ok=True)
        shutil.copy2(old, copy, follow_symlinks=False)
        if not copy.is_symlink():
            with copy.open("rb") as file:
                os.fsync(file.fileno())
        if os.lstat(copy).st_size != size:
            raise OSError(errno.EIO, f"the copy {copy} is not what {old} is")
        if may_replace:
            copy.replace(new)
        else:
            self._link(str(copy), new)

    def _link(self, old: str, new: str) -> None:
        try:
            os.link(old, new, follow_symlinks=False)
        except FileExistsError:
            before, after = os.lstat(old), os.lstat(new)
            if before.st_dev != after.st_dev and _is_copy(old, new):
                return  # by an earlier mover
            if not os.path.samestat(before, after):
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
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(name))  # noqa: PTH108 - a string stays a string, for each of many files
        while "/" in name:
            name = name.rpartition("/")[0]
            try:
                Path(self._path(name)).rmdir()
            except OSError:
                return  # something else is in it

    def remove_tree(self, name: str, /) -> None:
        """Delete a directory with all below it; of a link, the link."""
        path = Path(self._path(name))
        if path.is_symlink() or path.is_file():
            path.unlink(missing_ok=True)
            return
        tree, _ = tree_of(str(path))
        tree.delete(str(path))

    def set_aside(self, name: str, aside: str, /, *, is_directory: bool) -> None:
        """One rename. When `aside` exists already, a file with the old name is new, and stays."""
        del is_directory
        if not os.path.lexists(self._path(aside)):
            with contextlib.suppress(FileNotFoundError):  # it is deleted already
                Path(self._path(name)).rename(self._path(aside))

    def read(self, name: str, /) -> bytes | None:
        """A small file."""
        try:
            return Path(self._path(name)).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes, /) -> None:
        """Written, synced, renamed (R20). Several may write one name at once: the last has it (R27)."""
        path = Path(self._path(name))
        make_shared(path.parent, task_umask(os.environ))
        new = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
        try:
            with new.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
