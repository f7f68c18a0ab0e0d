"""Makes the processes of a TaskManager slow: they are stopped for nine tenths of the time."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.kit.host.process_tree import tree

_PULSE = 0.5
_SHARE = 0.1


@contextmanager
def slowed(pid: int) -> Iterator[None]:
    """A process and all below it run for a tenth of each half second."""
    is_over = threading.Event()
    thread = threading.Thread(target=_pulse, args=(pid, is_over), name="pulses", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _pulse(pid: int, is_over: threading.Event) -> None:
    while not is_over.is_set():
        stopped = [one.pid for one in tree(pid)]
        try:
            _signal(stopped, signal.SIGSTOP)
            is_over.wait(_PULSE * (1 - _SHARE))
        finally:
            _signal(stopped, signal.SIGCONT)
        is_over.wait(_PULSE * _SHARE)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
