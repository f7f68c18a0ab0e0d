"""The production Clock: monotonic time is the running loop's own, so that waiting and reading agree."""

from __future__ import annotations

import asyncio
import time


class LoopClock:
    """Reads the running loop's clock."""

    __slots__ = ()

    def monotonic(self) -> float:
        """Seconds on the clock of the loop that calls."""
        return asyncio.get_running_loop().time()

    def epoch_millis(self) -> int:
        """Wall-clock milliseconds, for people only."""
        return time.time_ns() // 1_000_000


class BootClock:
    """As the loop's clock, but it goes on while the host is suspended (CLOCK_BOOTTIME).

    For deadlines that another process watches, too. Timers of the loop stand still meanwhile: compare, do not wait.
    """

    __slots__ = ()

    def monotonic(self) -> float:
        """Seconds since the boot."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def epoch_millis(self) -> int:
        """Wall-clock milliseconds, for people only."""
        return time.time_ns() // 1_000_000


class SystemClock:
    """The same clock for code that has no loop (helper threads, small single-threaded processes)."""

    __slots__ = ()

    def monotonic(self) -> float:
        """Seconds on the system's monotonic clock, which is also asyncio's."""
        return time.monotonic_ns() / 1e9

    def epoch_millis(self) -> int:
        """Wall-clock milliseconds, for people only."""
        return time.time_ns() // 1_000_000
