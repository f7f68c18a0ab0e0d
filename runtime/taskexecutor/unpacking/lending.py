"""Directories that root lends to the user that unpacks, and takes back (R42). Blocking, as root.

A process that hostile bytes have taken over may do anything in a lent directory, and may have handed descriptors of it
to other processes. Root walks nothing that another user can still change: from the top downwards each directory becomes
root's, and closed, before root looks at its entries.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from runtime.common.errors import InvalidInputError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CLOSED, _PASSABLE = 0o700, 0o710
_ACCESS_LISTS = ("system.posix_acl_access", "system.posix_acl_default")
_NO_LISTS = frozenset({errno.ENODATA, errno.ENOTSUP})
_TOO_DEEP = frozenset({errno.ENAMETOOLONG, errno.ELOOP})


def lend(building: Path, roots: Iterable[Path], number: int) -> None:
    """Make each of `roots`, empty, for the user and group `number`, which may also pass through the directories from
    `building` down to it.
    """
    for root in roots:
        root.mkdir(parents=True)
        for above in root.relative_to(building).parents:
            os.chown(building / above, 0, number)
            (building / above).chmod(_PASSABLE)
        os.chown(root, number, number)
        root.chmod(_CLOSED)


def take_back(roots: Iterable[Path], number: int) -> None:
    """Make everything below `roots` root's, for root alone. No process of that user runs any more.

    Raises InvalidInputError for an entry of another owner, which would be a link to another user's file, and for an
    entry that is neither file, directory nor symbolic link.
    """
    taken: set[tuple[int, int]] = set()
    left = [str(root) for root in roots]
    try:
        while left:
            left += _take_directory(left.pop(), number, taken)
    except OSError as error:
        if error.errno not in _TOO_DEEP:
            raise
        raise _unusable("something whose name is too long") from error


def _take_directory(path: str, number: int, taken: set[tuple[int, int]]) -> list[str]:
    """Take one directory; returns the directories in it. All directories above it are root's, so its path leads nowhere
    else.
    """
    descriptor = os.open(path, _DIRECTORY)
    try:
        _take(descriptor, number, taken)
        with os.scandir(descriptor) as entries:
            names = [entry.name for entry in entries]
        below: list[str] = []
        for name in names:
            mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                below.append(f"{path}/{name}")
            elif stat.S_ISREG(mode):
                _take_file(descriptor, name, number, taken)
            elif stat.S_ISLNK(mode):
                os.chown(name, 0, 0, dir_fd=descriptor, follow_symlinks=False)
            else:
                raise _unusable("something that is neither file, directory nor link")
        return below
    finally:
        os.close(descriptor)


def _take_file(directory: int, name: str, number: int, taken: set[tuple[int, int]]) -> None:
    descriptor = os.open(name, _FILE, dir_fd=directory)
    try:
        _take(descriptor, number, taken)
    finally:
        os.close(descriptor)


def _take(descriptor: int, number: int, taken: set[tuple[int, int]]) -> None:
    status = os.fstat(descriptor)
    identity = status.st_dev, status.st_ino
    if identity in taken:
        return  # another name of it
    if status.st_uid != number:
        raise _unusable("a link to a file that is not its own")
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & _CLOSED)
    os.fchown(descriptor, 0, 0)
    for name in _ACCESS_LISTS:
        try:
            os.removexattr(descriptor, name)
        except OSError as error:
            if error.errno not in _NO_LISTS:
                raise
    if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
        taken.add(identity)


def _unusable(what: str) -> InvalidInputError:
    return InvalidInputError(f"an archive of this job is damaged: what should unpack it has left {what}")
