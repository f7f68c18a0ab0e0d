"""Threads, timers, signals and processes that user code has left when it has returned (R29).

The kernel's lists are read: Python knows neither threads that were started below `threading`, nor timers, nor the
parent that a process has now. The TaskManager finds processes that have left the slot process for the template
(`template`).
"""

from __future__ import annotations

import os
import signal
import threading

# Those of `signal` make enums of all numbers, which takes longer than all else here.
from _signal import getsignal, pthread_sigmask  # type: ignore[import-not-found]
from collections.abc import Collection
from typing import NamedTuple

from runtime.system import linux

_VALID = signal.valid_signals()
_SIGNALS = sorted(_VALID)
"""Without those that threads of the C library are made with."""
_OF_USERS = sum(1 << number - 1 for number in _SIGNALS)
_CHILD = 1 << (signal.SIGCHLD - 1)
_TIMERS = {
    "ITIMER_REAL": signal.ITIMER_REAL,
    "ITIMER_VIRTUAL": signal.ITIMER_VIRTUAL,
    "ITIMER_PROF": signal.ITIMER_PROF,
}
_PAUSES = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
"""A thread that was joined ends some microseconds later, and one of a pool goes to rest. Together 0.26 s, because
others may have the processors; without a busy thread nothing waits."""


_Handling = tuple[list[object], int, int]


_HELPERS = (b"from multiprocessing.forkserver import main", b"resource_tracker import main")
"""In the command lines of processes that Python's multiprocessing, and loky, start once and keep for later: they end
when the process has ended that started them."""


class Left(NamedTuple):
    """One leftover in words. `is_kept`: a helper that Python itself keeps, and no slip of the user's code.

    `is_thread`: a thread, of Python or below it.
    """

    words: str
    is_kept: bool = False
    is_thread: bool = False


class Leftovers:
    """Made before user code begins, in the main thread, and asked there when it has returned."""

    def __init__(self) -> None:
        self._python_threads = set(threading.enumerate())
        self._threads = linux.thread_ids()
        self._blocked = pthread_sigmask(signal.SIG_BLOCK, ())
        self._handling, _ = _signal_handling()

    def found(self, ours: Collection[threading.Thread] = ()) -> list[Left]:
        """The leftovers; empty if nothing that user code has started can run any more. `ours`: threads of the
        runtime.

        No signal is delivered during the look: a handler could start a thread of a kind that was already looked for.
        Threads are looked for first, and processes last, because a thread could start a process.
        """
        blocked = pthread_sigmask(signal.SIG_BLOCK, _VALID)
        try:
            threads = threads_left({*self._python_threads, *ours}, self._threads)
            acting = [Left(words) for words in (*timers_left(), *self._signals_changed(blocked))]
            return [*(Left(words, is_thread=True) for words in threads), *acting, *_processes_left()]
        finally:
            pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _signals_changed(self, blocked: Collection[int]) -> list[str]:
        handling, pending = _signal_handling()
        found = []
        if handling != self._handling or blocked != self._blocked:
            changed = set(blocked) ^ set(self._blocked)
            then, now = _by_signal(self._handling), _by_signal(handling)
            changed |= {number for number in _VALID if then[number] != now[number]}
            found = [f"another handling of {_name(number)}" for number in sorted(changed)]
        if pending:
            found.append("a signal that is pending")
        if not linux.is_subreaper():
            found.append("PR_SET_CHILD_SUBREAPER off")
        return found


def threads_left(python: Collection[threading.Thread], native: Collection[int]) -> list[str]:
    """Threads that Python knows, except `python`, and all other threads that may act by themselves, except `native`.

    A thread that only this process can wake does nothing by itself.
    """
    known = threading.enumerate()  # once: a thread that these start meanwhile is one of the others
    named = [f"thread {thread.name}" for thread in known if thread not in python]
    quiet = threading.Event()  # never set
    own = {*native, *(thread.native_id for thread in known if thread.native_id is not None)}
    left = _busy_threads(own)
    for pause in _PAUSES:
        if not left:
            break
        quiet.wait(pause)
        left = _busy_threads(own)
    return [*named, *(f"thread {number} (not one of Python's threading)" for number in sorted(left))]


def _busy_threads(own: Collection[int]) -> set[int]:
    left = linux.thread_ids() - set(own)
    if not left:
        return left
    # Seen twice without having run in between: so all of them waited at once, and none can have woken another one.
    waits = {number: linux.waits_for_own_process(number) for number in left}
    again = linux.thread_ids() - set(own)
    return {
        number for number in again if not (wait := waits.get(number)) or linux.waits_for_own_process(number) != wait
    }


def timers_left() -> list[str]:
    """The timers that would send a signal."""
    found = [f"timer {name}" for name, number in _TIMERS.items() if signal.getitimer(number)[0]]
    return [*found, "a POSIX timer"] if linux.has_posix_timers() else found


def _processes_left() -> list[Left]:
    """The living descendants of this process.

    A living descendant is a child of this process, or lies below a living child: the children of a process that ends
    become ours before that process is a zombie. So if all of one list are zombies, and the next list has no new
    process, no descendant lives.
    """
    seen: set[int] = set()
    while new := set(linux.children_of(os.getpid())) - seen:
        if alive := [pid for pid in new if linux.is_alive(pid)]:
            return [Left(f"process {pid} ({linux.name_of(pid)})", is_kept=_is_helper(pid)) for pid in alive]
        seen |= new
    return []


def _is_helper(pid: int) -> bool:
    command = linux.command_line(pid)
    return any(helper in command for helper in _HELPERS)


def _signal_handling() -> tuple[_Handling, int]:
    """Handlers that Python knows, the signals that the kernel ignores or catches, and the pending signals."""
    ignored, caught, pending = linux.signal_masks()
    return (list(map(getsignal, _SIGNALS)), ignored & _OF_USERS, caught & _OF_USERS), pending & _OF_USERS & ~_CHILD


def _by_signal(handling: _Handling) -> dict[int, tuple[object, int, int]]:
    handlers, ignored, caught = handling
    return {
        number: (handler, ignored >> number - 1 & 1, caught >> number - 1 & 1)
        for number, handler in zip(_SIGNALS, handlers, strict=True)
    }


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
