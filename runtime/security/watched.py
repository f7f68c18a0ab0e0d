"""Files that change while a process runs: certificates, keys, tokens (R47).

Whoever uses a value asks for it each time, and no more often than every LOOK_SECONDS the files are looked at then: no
thread, no timer, and nobody who holds an old value for longer than he uses it. What cannot be used is told once, and
the value before stays; each later look tries it again, since the reason may pass while the files stay as they are.
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
    """What some files hold. Any thread may ask for it."""

    def __init__(self, what: str, paths: Sequence[Path], read: Callable[[], T], clock: Clock) -> None:
        """Reads them. `read` raises InvalidInputError for what cannot be used, here too."""
        self._what = what
        self._paths = tuple(dict.fromkeys(paths))
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        # Before reading: what changes in between is found by the next look.
        self._state = self._look()
        self._value = read()
        self._told: tuple[_State, str] | None = None
        """What could not be used at the last look, and why."""
        self._next_look = clock.monotonic() + LOOK_SECONDS

    @property
    def value(self) -> T:
        """The same object until the files hold another one."""
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
            # The boundary of whoever reads: what is in the files is not ours.
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
