"""Waiting for child processes of a script: daemons that start, commands on other hosts. The first failure ends it."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterable, Sequence
from typing import Protocol

from runtime.aio.clock import SystemClock
from runtime.common.clock import Deadline
from runtime.common.errors import FlinklikeError

_CLOCK = SystemClock()
_POLL = 0.05


class DaemonError(FlinklikeError):
    """A daemon did not start or stop; the message is for the person at the terminal."""


class Pending(Protocol):
    """A child process whose success is awaited."""

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The child."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    def is_done(self) -> bool:
        """True after its success. Raises DaemonError after its failure."""


def wait_all(pending: Iterable[Pending], timeout: float) -> None:
    """Return when all are done. Raises DaemonError at the first that fails, or when `timeout` seconds are over."""
    deadline = Deadline.after(_CLOCK, timeout)
    waiting = list(pending)
    while waiting := [one for one in waiting if not one.is_done()]:
        if deadline.has_passed(_CLOCK):
            message = f"Not ready after {timeout:.0f} s: {', '.join(one.name for one in waiting)}."
            raise DaemonError(message)
        _pause([one.process for one in waiting])


def _pause(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait a moment, or until a process ends."""
    descriptors = [os.pidfd_open(process.pid) for process in processes if process.returncode is None]
    try:
        select.select(descriptors, [], [], _POLL)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
