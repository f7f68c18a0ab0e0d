"""Files that change while a process runs: certificates, keys, tokens (R47).

The user of a value asks for it at each use, and that question looks at the files, at most every LOOK_SECONDS: there is
no thread and no timer. A state of the files that cannot be used is logged once; the value before stays in use, and each
later look tries again, since the reason may pass while the files stay as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from runtime.common.errors import InvalidInputError

LOOK_SECONDS = 2.0

T = TypeVar("T")
FileState = tuple[int, ...]


class Log(Protocol):
    """The logger of the component that watches."""

    def info(self, message: str, /, *args: object) -> None:
        """A value was renewed."""

    def warning(self, message: str, /, *args: object) -> None:
        """The files cannot be used."""

    def exception(self, message: str, /, *args: object) -> None:
        """`read` has failed with an error that it does not promise."""


class Watched(Generic[T]):
    """The value that some files hold. Any thread may ask for it."""

    def __init__(
        self,
        what: str,
        paths: Sequence[Path],
        read: Callable[[], T],
        *,
        now: Callable[[], float],
        log: Log,
        expected: type[Exception] = InvalidInputError,
    ) -> None:
        """Read the files. `read` raises `expected` for files that cannot be used, out of this constructor too.

        `now` is a monotonic clock in seconds; `what` names the value in log lines.
        """
        self._what = what
        self._paths = tuple(dict.fromkeys(paths))
        self._read = read
        self._now = now
        self._log = log
        self._expected = expected
        self._lock = threading.Lock()
        # Before reading: the next look finds what changes in between.
        self._state = self._look()
        self._value = read()
        self._refused: tuple[tuple[FileState, ...], str] | None = None
        """The last state that could not be used, and why."""
        self._next_look = now() + LOOK_SECONDS

    @property
    def value(self) -> T:
        """The same object until the files hold another value."""
        if self._now() >= self._next_look:
            with self._lock:
                self._look_again()
        return self._value

    def _look_again(self) -> None:
        now = self._now()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        state = self._look()
        if state == self._state:
            return
        try:
            value = self._read()
        except Exception as error:  # noqa: BLE001 - a boundary: the content of the files is not ours
            if self._refused != (state, str(error)):
                if not isinstance(error, self._expected):
                    self._log.exception("reading the %s failed", self._what)
                self._log.warning("the %s cannot be renewed, what was read before stays in use: %s", self._what, error)
            self._refused = (state, str(error))
            return
        self._state, self._refused = state, None
        if value != self._value:
            self._value = value
            self._log.info("the %s was renewed", self._what)

    def _look(self) -> tuple[FileState, ...]:
        return tuple(file_state(path) for path in self._paths)


def file_state(path: Path) -> FileState:
    """A value that differs after each change of the file; for a file that cannot be looked at, the system's error."""
    try:
        found = path.stat()
    except OSError as error:
        return (error.errno or 0,)
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
