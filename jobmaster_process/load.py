"""The load of this process, which it reports and registers."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from jobmaster_process.secondary_dispatcher import ProcessLoad
from runtime.common.clock import Clock

_PAGE_BYTES = resource.getpagesize()
_STATM = Path("/proc/self/statm")


class OwnProcessLoad:
    """Implements `LoadProbe`: CPU since the last sample, resident memory now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
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
        return ProcessLoad(fraction, _resident_bytes())


def _resident_bytes() -> int:
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
