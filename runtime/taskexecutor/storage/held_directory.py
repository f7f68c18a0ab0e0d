"""A directory that stays the same one when people rename it, or retarget links in its path (R28)."""

from __future__ import annotations

import os
import weakref

_CLOSED = "/proc/self/fd/closed"
"""Where there is nothing: the number may be that of another directory by now."""


class HeldDirectory:
    """Open until `close`, or until no thread knows it any more. Raises OSError where there is none.

    `root` is a path to it for calls of this process.
    """

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._path = path
        self._close = weakref.finalize(self, os.close, descriptor)
        self.root = f"/proc/self/fd/{descriptor}"

    def close(self) -> None:
        """No thread is at work in it any more. Idempotent."""
        self.root = _CLOSED
        self._close()

    @property
    def elsewhere(self) -> str:
        """Where it is, when its path leads to another directory by now, or to none; else ""."""
        try:
            if os.path.samestat(os.stat(self._path), os.stat(self.root)):  # noqa: PTH116 - a string stays a string
                return ""
        except OSError:
            pass  # it leads nowhere
        return os.path.realpath(self.root)

    def name(self, error: OSError) -> None:
        """Say the path that people know in the place of `root`."""
        for field in ("filename", "filename2", "strerror"):
            text = getattr(error, field, None)
            if isinstance(text, str):
                setattr(error, field, self._named(text))
        error.args = tuple(self._named(one) if isinstance(one, str) else one for one in error.args)

    def _named(self, text: str) -> str:
        return text.replace(f"{self.root}/", f"{self._path}/") if text != self.root else self._path
