"""The guard's half of the isolation deadline (R14): what is to be killed when it passes. Standard library only.

A process is held by a descriptor from the moment it is named, so that its number cannot come to mean another one; only
the main process and its descendants are ever killed. The main process names itself while it moves outputs (R27): a
thread of it that has looked whether it may, and was frozen before its next file, would go on there when it wakes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from runtime.taskexecutor.slots.linux import is_descendant, process_tree


class IsolationDeadline:
    """A deadline, the processes that do what one may do only (slots with exclusive tasks, a mover), and Spark."""

    def __init__(self, boottime: Callable[[], float]) -> None:
        self._boottime = boottime
        self._deadline: float | None = None
        self._exclusive: dict[int, int | None] = {}  # pid -> its descriptor, None when it was gone already
        self._spark: tuple[int, int] | None = None

    def hold(self, deadline: float) -> None:
        """Act at that time of CLOCK_BOOTTIME, which a suspended host counts too; never earlier than was promised."""
        self._deadline = max(deadline, self._deadline or deadline)

    def mark(self, pid: int, main: int) -> None:
        """This process, `main` or one below it, does such work. Also one that is gone: its session may be there."""
        self.unmark(pid)
        self._exclusive[pid] = _descriptor_of(pid, main)

    def unmark(self, pid: int) -> None:
        """Nothing of the task is left, in the process and in Spark."""
        _close(self._exclusive.pop(pid, None))

    def note_spark(self, pid: int, main: int) -> None:
        """Spark's host process, below `main`; the JVM and its workers are below it."""
        if self._spark is not None:
            _close(self._spark[1])
        descriptor = _descriptor_of(pid, main)
        self._spark = None if descriptor is None else (pid, descriptor)

    @property
    def due(self) -> float | None:
        """When `enforce` has something to do, on the clock of the deadline; None when there is nothing to wait for."""
        return None if self._deadline is None or not self._exclusive else self._deadline

    def enforce(self, main: int) -> bool:
        """Kill, if the deadline has passed and something exclusive runs. True if that was `main`, with all below it."""
        if self.due is None or self._boottime() < self.due:
            return False
        is_main = self._exclusive.get(main) is not None
        for pid, descriptor in self._exclusive.items():
            if descriptor is not None:
                _kill_tree(pid, descriptor)
        # The sessions of exclusive tasks are in the JVM, whose tasks would go on without their slot process.
        if self._spark is not None:
            _kill_tree(*self._spark)
        for pid in list(self._exclusive):
            self.unmark(pid)
        if self._spark is not None:
            _close(self._spark[1])
            self._spark = None
        return is_main


def _descriptor_of(pid: int, main: int) -> int | None:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return None
    if pid == main or is_descendant(pid, main):
        return descriptor
    os.close(descriptor)
    return None


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _kill_tree(pid: int, descriptor: int) -> None:
    """The process, and what it has started, which may be in sessions of their own."""
    below = process_tree(pid)[1:]
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return  # reaped, and all below it by whoever reaps
    for child in below:
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue
