"""How much slower than an idle machine this one is for now, so that a bound in seconds can be honest."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_BURST = 0.005
_PAUSE = 0.045


class Slowdown:
    """`factor` is the wall time of short bursts of work by their CPU time: 1 on an idle machine."""

    def __init__(self) -> None:
        self._wall = self._cpu = 0.0

    @property
    def factor(self) -> float:
        return max(self._wall / self._cpu, 1.0) if self._cpu else 1.0

    def burst(self) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        while time.thread_time() - cpu < _BURST:
            continue
        self._wall += time.perf_counter() - wall
        self._cpu += time.thread_time() - cpu


@contextmanager
def slowdown() -> Iterator[Slowdown]:
    """Measure while the block runs, with a tenth of a core."""
    measured, is_over = Slowdown(), threading.Event()

    def measure() -> None:
        while not is_over.wait(_PAUSE):
            measured.burst()

    thread = threading.Thread(target=measure, daemon=True)
    thread.start()
    try:
        yield measured
    finally:
        is_over.set()
        thread.join()
