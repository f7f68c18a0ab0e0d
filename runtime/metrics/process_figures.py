"""Figures of this very process, read from the kernel at each scrape."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runtime.common.clock import Clock
from runtime.common.version import VERSION
from runtime.metrics import table
from runtime.metrics.registry import MetricRegistry, Sample

LAG_PERIOD = 0.5
"""Seconds between two looks at the event loop: often enough for a p99 of a minute, and next to nothing to pay."""

_PAGE_BYTES = resource.getpagesize()
_STATM = Path("/proc/self/statm")
_DESCRIPTORS = Path("/proc/self/fd")
_THREADS = Path("/proc/self/task")


@dataclass(frozen=True, slots=True)
class OwnFigures:
    """CPU time since the start, without children; resident memory; threads; open descriptors."""

    cpu_seconds: float
    resident_bytes: int
    threads: int
    open_files: int


def own_figures() -> OwnFigures:
    """Of this process, now."""
    times = os.times()
    return OwnFigures(
        times.user + times.system,
        int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE_BYTES,
        sum(1 for _ in _THREADS.iterdir()),
        sum(1 for _ in _DESCRIPTORS.iterdir()) - 1,  # without that of this look
    )


class ProcessFigures:
    """A reader. `component`: the kind of this process."""

    def __init__(self, component: str, clock: Clock) -> None:
        self._component = component
        self._start_seconds = clock.epoch_millis() / 1000

    def __call__(self) -> Iterator[Sample]:
        """CPU, memory, descriptors and threads now."""
        own = own_figures()
        yield Sample(table.BUILD_INFO, 1, (VERSION, self._component))
        yield Sample(table.START_TIME, self._start_seconds)
        yield Sample(table.CPU_SECONDS, own.cpu_seconds)
        yield Sample(table.RESIDENT_BYTES, own.resident_bytes)
        yield Sample(table.OPEN_FDS, own.open_files)
        yield Sample(table.MAX_FDS, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        yield Sample(table.THREADS, own.threads)


async def watch_loop_lag(registry: MetricRegistry, clock: Clock, *, period: float = LAG_PERIOD) -> None:
    """Measure how late the loop wakes a timer. Eternal."""
    lag = registry.histogram(table.EVENT_LOOP_LAG)
    while True:
        due = clock.monotonic() + period
        await asyncio.sleep(period)
        lag.observe(max(0.0, clock.monotonic() - due))
