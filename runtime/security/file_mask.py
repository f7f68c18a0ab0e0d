"""What the cluster writes is nobody else's (R41): the mask of new files, and the directories that hold them.

The mask is for what the cluster itself writes. Files of user code are the user's: tasks and Spark get back the mask
with which the cluster was started, as spark-submit would have it. Standard library only, as the guard loads it.
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
"""Who may only go through a directory is shown nothing of it: slots with users of their own may (R50)."""
UNCHANGED = -1
"""As subprocess.Popen has it."""

_OCTAL = re.compile(r"[0-7]{1,4}\Z")


def keep_files_private(environment: MutableMapping[str, str]) -> None:
    """From now on this process and what it starts make files for this user only; tells those what tasks get."""
    before = os.umask(PRIVATE_UMASK)
    environment.setdefault(TASK_UMASK_VARIABLE, f"{before:04o}")


def task_umask(environment: Mapping[str, str]) -> int:
    """What whoever started the cluster had; UNCHANGED where nobody has changed it."""
    text = environment.get(TASK_UMASK_VARIABLE, "")
    return int(text, 8) & 0o777 if _OCTAL.match(text) else UNCHANGED


def make_private(directory: Path) -> str:
    """Make a directory, or take from others what they may do there; the sentence that says so, "" if it was private.

    Raises PermissionError with a sentence where that is not ours to change.
    """
    directory.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
    found = directory.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid():
        whose = f"{directory} is of another user (uid {found.st_uid})"
        message = f"{whose}, who may read and replace what is in it: name one of this user"
        raise PermissionError(message)
    if not mode & SHOWS:
        return ""
    if mode & stat.S_ISVTX:
        message = f"{directory} is a directory for all (mode {mode:04o}): name one below it"
        raise PermissionError(message)
    directory.chmod(PRIVATE_MODE)
    return f"others could read {directory} (mode {mode:04o}): it has the mode {PRIVATE_MODE:04o} now"


def append_private(path: Path) -> BinaryIO:
    """Open a file to append. One that it makes is for this user only, whatever the umask of this process."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), "ab")


def make_shared(directory: Path, umask: int) -> None:
    """Make a directory of the user's, with the parents that are missing, as a process with this umask would."""
    if directory.is_dir():
        return
    make_shared(directory.parent, umask)
    try:
        directory.mkdir()
    except FileExistsError:
        if not directory.is_dir():
            raise
        return  # by somebody else, who says who may read it
    if umask != UNCHANGED:
        directory.chmod(0o777 & ~umask)
