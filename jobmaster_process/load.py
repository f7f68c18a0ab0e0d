"""The load of this process, which it reports and registers."""

from __future__ import annotations

import asyncio
import os
import resource
from collections import deque
from pathlib import Path

from jobmaster_process.secondary_dispatcher import ProcessLoad
from runtime.common.clock import Clock

LAG_PERIOD = 0.5
"""Seconds between two looks at the event loop."""

_PAGE_BYTES = resource.getpagesize()
_STATM = Path("/proc/self/statm")


class LoopLag:
    """How late the event loop wakes a timer: the mean over the last looks, so that one long step is no overload."""

    LOOKS = 10

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looks: deque[float] = deque(maxlen=self.LOOKS)

    @property
    def mean(self) -> float:
        """In seconds; 0.0 before the first look."""
        return sum(self._looks) / len(self._looks) if self._looks else 0.0

    async def watch(self, period: float = LAG_PERIOD) -> None:
        """Look every `period` seconds. Eternal."""
        while True:
            due = self._clock.monotonic() + period
            await asyncio.sleep(period)
            self._looks.append(max(0.0, self._clock.monotonic() - due))


class OwnProcessLoad:
    """Implements `LoadProbe`: CPU since the last sample, resident memory and the lag of the event loop now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lag = LoopLag(clock)
        self._at = clock.monotonic()
        self._cpu = self._cpu_seconds()

    @staticmethod
    def _cpu_seconds() -> float:
        times = os.times()
        return times.user + times.system

    def sample(self) -> ProcessLoad:
        """The load since the last sample; 1.0 is one core."""
        now, cpu = self._clock.monotonic(), self._cpu_seconds()
        elapsed = now - self._at
        fraction = (cpu - self._cpu) / elapsed if elapsed > 0 else 0.0
        self._at, self._cpu = now, cpu
        return ProcessLoad(fraction, _resident_bytes(), self._lag.mean)

    async def watch(self) -> None:
        """Look how late the event loop is. Eternal."""
        await self._lag.watch()


def _resident_bytes() -> int:
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
