"""Files that only their owner may read: made once or replaced as a whole, and refused when others may read them."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.common.errors import InvalidInputError

_ROOT = 0


def read_private(path: Path, what: str, *, size_max: int, is_own: bool = False) -> bytes:
    """The content, at most `size_max` + 1 bytes.

    Raises InvalidInputError when the file is missing, when others may read it, and, with `is_own`, when it belongs to a
    user other than this one and root. Programs that renew certificates and tokens may run as another user.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        message = f"cannot read the {what} file {path}: {error.strerror}"
        raise InvalidInputError(message) from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        message = f"the {what} file {path} is no regular file"
        raise InvalidInputError(message)
    with os.fdopen(descriptor, "rb") as file:
        if is_own and found.st_uid not in {os.geteuid(), _ROOT}:
            message = (
                f"the {what} file {path} belongs to another user (uid {found.st_uid}), who can read it: replace it"
            )
            raise InvalidInputError(message)
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o077:
            message = f"the {what} file {path} can be read by others (mode {mode:04o}): chmod 600 it or replace it"
            raise InvalidInputError(message)
        return file.read(size_max + 1)


def create_private(path: Path, data: bytes) -> None:
    """Make a file unless it exists. Of processes that call this at the same time, one makes it, whole and synced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _draft(path, data) as draft:
        try:
            # A link fails if the name exists, a rename would replace what another process is already using.
            os.link(draft, path)
        except FileExistsError:
            return


def replace_private(path: Path, data: bytes) -> None:
    """Make or replace a file. No reader ever sees a part of it."""
    with _draft(path, data) as draft:
        draft.replace(path)


def replace_public(path: Path, data: bytes) -> None:
    """Make or replace a file that all users may read, whatever the umask is."""
    with _draft(path, data, mode=0o644) as draft:
        draft.replace(path)


@contextmanager
def _draft(path: Path, data: bytes, *, mode: int = 0o600) -> Iterator[Path]:
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)
