"""The guard's half of the isolation deadline (R14): the processes that are killed when it passes. Standard library
only.

A process is held by a descriptor from the moment it is named, so that its number cannot come to mean another one. Only
the main process and its descendants are ever killed, and processes that these have left to the guard. The main process
names itself while it moves outputs (R27): a thread of it that has looked whether it may move, and was frozen before its
next file, would go on there when it wakes.

A daemon is not below the process that has started it. A daemon of a slot is below the slot process, which is a
subreaper: so the slot process is stopped first, and killed when nothing below it is left. A daemon of Spark (started by
a Python function, or a program of the JVM) is the guard's own child, and no other child of the guard is meant to live
but the main process. Children of the main process become the guard's too, so the main process is killed at once: if it
hangs in the kernel, where no signal counts, it would leave threads that another process may continue.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable

from runtime.system.linux import is_alive, is_descendant, process_tree
from runtime.taskexecutor.guard.reaping import kill, kill_orphans

_SCANS_MAX = 20


class IsolationDeadline:
    """A deadline, the processes that do exclusive work (slots with exclusive tasks, a mover), and Spark."""

    def __init__(self, boottime: Callable[[], float]) -> None:
        self._boottime = boottime
        self._deadline: float | None = None
        self._exclusive: dict[int, int | None] = {}  # pid -> its descriptor, None when it had ended already
        self._spark: dict[int, int] = {}  # pid -> its descriptor
        self._ending: dict[int, int] = {}  # pid -> its descriptor
        self.is_ending = False
        """True from the deadline until nothing is left of what it has ended: `kill_round` is to be called."""

    def hold(self, deadline: float) -> None:
        """Act at that time of CLOCK_BOOTTIME, which a suspended host counts too; never earlier than was promised."""
        self._deadline = max(deadline, self._deadline or deadline)

    @property
    def deadline(self) -> float | None:
        """The latest deadline that was given, whether or not it has passed; None before the first."""
        return self._deadline

    def mark(self, pid: int, main: int) -> None:
        """Name a process that does exclusive work: `main`, or one below it. It may have ended: its session may be in
        Spark.
        """
        self.unmark(pid)
        self._exclusive[pid] = _descriptor_of(pid, main)

    def unmark(self, pid: int) -> None:
        """Forget a process when nothing of its task is left, in the process and in Spark."""
        _close(self._exclusive.pop(pid, None))

    def note_spark(self, pid: int, main: int) -> None:
        """Name a host process of Spark, below `main`; its JVM and its workers are below the host."""
        for known, descriptor in [*self._spark.items()]:
            if known == pid or select.select([descriptor], [], [], 0)[0]:  # that has ended
                _close(self._spark.pop(known))
        if (named := _descriptor_of(pid, main)) is not None:
            self._spark[pid] = named

    @property
    def due(self) -> float | None:
        """When `enforce` has something to do, on the clock of the deadline; None when there is nothing to wait for."""
        return None if self._deadline is None or not self._exclusive else self._deadline

    def enforce(self, main: int) -> bool:
        """Kill, if the deadline has passed and something exclusive runs. True if that was `main`, with all below it."""
        if self.due is None or self._boottime() < self.due:
            return False
        is_main = self._exclusive.get(main) is not None
        # The sessions of exclusive tasks are in the JVM, whose tasks would go on without their slot process.
        for pid, descriptor in [*self._exclusive.items(), *self._spark.items()]:
            if descriptor is not None:
                self._ending[pid] = descriptor
                # A slot's starts nothing more, and adopts what it has started.
                _send(descriptor, signal.SIGKILL if pid == main else signal.SIGSTOP)
        self._exclusive.clear()
        self._spark.clear()
        self.is_ending = True
        self.kill_round(main)
        return is_main

    def kill_round(self, main: int) -> None:
        """Kill as many of the named processes and their descendants as can be killed now."""
        for pid, descriptor in list(self._ending.items()):
            if select.select([descriptor], [], [], 0)[0]:
                os.close(self._ending.pop(pid))
            elif not _kill_below(pid):
                _send(descriptor, signal.SIGKILL)
        # Last: those above have become the guard's children by now.
        self.is_ending = bool(kill_orphans(main) or self._ending)


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


def _send(descriptor: int, number: int) -> None:
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return


def _kill_below(pid: int) -> bool:
    """Kill the descendants of a process, which may be in sessions of their own. True while some may be left."""
    for _ in range(_SCANS_MAX):
        alive = [child for child in process_tree(pid)[1:] if is_alive(child)]
        if not alive:
            return False
        for child in alive:
            kill(child)
    return True
