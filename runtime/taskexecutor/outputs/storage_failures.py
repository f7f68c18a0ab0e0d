"""Errors of a storage that no repeat changes (R28), and the advice for each."""

from __future__ import annotations

import errno

_NEVER = (PermissionError, FileExistsError, NotADirectoryError, IsADirectoryError, FileNotFoundError)

_WHAT_TO_DO = {
    errno.ENAMETOOLONG: "a name in it, or the whole of it, is longer than the storage takes: use shorter names",
    errno.EROFS: "the file system is mounted read-only: mount it for writing, or use another directory",
    errno.ELOOP: "links in it lead around in a circle: delete them, or use another directory",
    errno.EISDIR: "there is a directory where a file has to be: move it away, or use another name",
    errno.ENOTDIR: "there is a file where a directory has to be: move it away, or use another directory",
    errno.EILSEQ: "the storage takes no such characters in names: use other names",
    errno.EFBIG: "the file is larger than the storage takes: write more files, which are smaller",
    errno.EOPNOTSUPP: "the storage cannot do this: use another directory",
    errno.ENOSYS: "the storage cannot do this: use another directory",
}
_MAY_PASS = frozenset({errno.EROFS})
"""An operator mounts it for writing again, and nothing is lost: waited for as a disk that is full."""

_FINAL = frozenset({*_WHAT_TO_DO, errno.EXDEV, errno.EMLINK}) - _MAY_PASS


def is_final(error: Exception) -> bool:
    """True for an error that no repeat changes."""
    return isinstance(error, _NEVER) or (isinstance(error, OSError) and error.errno in _FINAL)


def in_words(error: Exception) -> str:
    """The error, and what to do about it where that is known."""
    advice = _WHAT_TO_DO.get(error.errno or 0) if isinstance(error, OSError) else None
    return f"{error}: {advice}" if advice is not None else str(error)
