"""Watched: the content of files that change while a process runs, such as certificates, keys and tokens (R47).

Users read `value` for each use. A read looks at the files, at most every LOOK_SECONDS, so there is no thread and no
timer. Unusable content is logged once, and the value before stays; each later look tries again, because the reason may
pass while the files stay as they are.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0

T = TypeVar("T")
_State = tuple[tuple[int, ...], ...]


class Watched(Generic[T]):
    """The content of some files. Thread-safe."""

    def __init__(self, what: str, paths: Sequence[Path], read: Callable[[], T], clock: Clock) -> None:
        """Reads the files. Raises what `read` raises, which is InvalidInputError for unusable content."""
        self._what = what
        self._paths = tuple(dict.fromkeys(paths))
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        # Before reading: the next look finds a change in between.
        self._state = self._look()
        self._value = read()
        self._told: tuple[_State, str] | None = None
        """The unusable state at the last look, and the error, which was logged."""
        self._next_look = clock.monotonic() + LOOK_SECONDS

    @property
    def value(self) -> T:
        """The present value. The same object until the files change."""
        if self._clock.monotonic() >= self._next_look:
            with self._lock:
                self._look_again()
        return self._value

    def _look_again(self) -> None:
        now = self._clock.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        state = self._look()
        if state == self._state:
            return
        try:
            value = self._read()
        except Exception as error:
            # The boundary of `read`, which parses files of others.
            if self._told != (state, str(error)):
                if not isinstance(error, InvalidInputError):
                    logger.exception("reading the %s failed", self._what)
                logger.warning("the %s cannot be renewed, what was read before stays in use: %s", self._what, error)
            self._told = (state, str(error))
            return
        self._state, self._told = state, None
        if value != self._value:
            self._value = value
            logger.info("the %s was renewed", self._what)

    def _look(self) -> _State:
        return tuple(_state(path) for path in self._paths)


def _state(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError as error:
        return (error.errno or 0,)
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
