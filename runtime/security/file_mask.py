"""Files of the cluster are private to its user (R41): the umask of its processes, and the mode of its directories.

The umask is for files of the cluster itself. Tasks and Spark get the umask with which the cluster was started, as with
spark-submit. Standard library only, because the guard loads this module.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import BinaryIO

PRIVATE_UMASK = 0o077
PRIVATE_MODE = 0o700
TASK_UMASK_VARIABLE = "FLINKLIKE_TASK_UMASK"
SHOWS = 0o066
"""Bits that let other users read or write. Passing through a directory is allowed: slot users need it (R50)."""
UNCHANGED = -1
"""subprocess.Popen's value for "leave the umask"."""

_OCTAL = re.compile(r"[0-7]{1,4}\Z")


def keep_files_private(environment: MutableMapping[str, str]) -> None:
    """Set the umask of this process and its children, and keep the present one in `environment`, for tasks."""
    before = os.umask(PRIVATE_UMASK)
    environment.setdefault(TASK_UMASK_VARIABLE, f"{before:04o}")


def task_umask(environment: Mapping[str, str]) -> int:
    """The umask with which the cluster was started; UNCHANGED when `environment` has none."""
    text = environment.get(TASK_UMASK_VARIABLE, "")
    return int(text, 8) & 0o777 if _OCTAL.match(text) else UNCHANGED


def make_private(directory: Path) -> str:
    """Make a directory, or deny other users access to it. Returns a sentence about a changed mode, "" without a change.

    Raises PermissionError, with a sentence, when the directory is another user's or for all users.
    """
    directory.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
    found = directory.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid():
        whose = f"{directory} is of another user (uid {found.st_uid})"
        message = f"{whose}, who may read and replace its files: name a directory of this user"
        raise PermissionError(message)
    if not mode & SHOWS:
        return ""
    if mode & stat.S_ISVTX:
        message = f"{directory} is a directory for all (mode {mode:04o}): name one below it"
        raise PermissionError(message)
    directory.chmod(PRIVATE_MODE)
    return f"others could read {directory} (mode {mode:04o}): it has the mode {PRIVATE_MODE:04o} now"


def append_private(path: Path) -> BinaryIO:
    """Open a file to append. A new file is for this user only, whatever the umask is."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), "ab")


def make_shared(directory: Path, umask: int) -> None:
    """Make a directory for files of tasks, with missing parents, with the modes that this umask gives."""
    if directory.is_dir():
        return
    make_shared(directory.parent, umask)
    try:
        directory.mkdir()
    except FileExistsError:
        if not directory.is_dir():
            raise
        return  # another process has made it, and decides about its mode
    if umask != UNCHANGED:
        directory.chmod(0o777 & ~umask)
