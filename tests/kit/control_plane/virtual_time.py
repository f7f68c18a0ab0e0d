"""Time in the hands of the test: a clock that is set by hand, and a loop whose time passes only when all wait.

`run_virtual(main())` runs plain asyncio code; a sleep of an hour takes no time. Threads and sockets do not work there.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class ManualClock:
    """A Clock that stands still until it is moved."""

    def __init__(self, *, monotonic: float = 1000.0, epoch_millis: int = 1_750_000_000_000) -> None:
        self.now = monotonic
        self.millis = epoch_millis

    def monotonic(self) -> float:
        """What was set."""
        return self.now

    def epoch_millis(self) -> int:
        """What was set."""
        return self.millis

    def advance(self, seconds: float) -> None:
        """Move both clocks."""
        self.now += seconds
        self.millis += int(seconds * 1000)


class SimulationStalledError(Exception):
    """Everything waits and no timer is armed: nothing can ever happen again."""


class _NoWaitSelector(selectors.BaseSelector):
    """Selects nothing; instead of waiting it moves the loop's time."""

    def __init__(self) -> None:
        self._keys: dict[Any, selectors.SelectorKey] = {}
        self.loop: VirtualTimeLoop | None = None

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert self.loop is not None
        if timeout is None:
            raise SimulationStalledError
        self.loop.pass_time(max(timeout, 0.0))
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[fileobj]


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """asyncio's loop on virtual time."""

    def __init__(self) -> None:
        self._virtual_now = 1000.0
        selector = _NoWaitSelector()
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual_now

    def pass_time(self, seconds: float) -> None:
        """Also how a test freezes a process: time goes by and nothing runs."""
        self._virtual_now += seconds


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """asyncio.run on virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def freeze(seconds: float) -> None:
    """This whole process stands still: no task runs, no timer fires, time passes."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.pass_time(seconds)
