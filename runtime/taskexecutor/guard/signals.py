"""Signals of a guard and its watcher: noted while they come, handled when it suits. Standard library only."""

from __future__ import annotations

import signal
import socket
from collections.abc import Collection

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The main process decides what they mean."""
END_AT_ONCE = signal.SIGQUIT
"""Kill the main process, and end what it leaves: for a caller that has waited long enough.

Never kill a guard instead.
"""
_MAY_BE_IGNORED = frozenset({signal.SIGHUP, signal.SIGINT})
"""By `nohup`, and by a shell that starts something in the background. It ignores SIGQUIT too, which we need."""
HANDLED = (*FORWARDED, END_AT_ONCE, signal.SIGCHLD)
_BYTES_MAX = 4096


def block_signals() -> Collection[int]:
    """Block handled signals until `noted_signals`, or `unblock_signals` in a child. Returns the mask from before."""
    return signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)


def unblock_signals(mask: Collection[int]) -> None:
    """Restore the mask that `block_signals` has returned."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def noted_signals(mask: Collection[int]) -> socket.socket:
    """Unblock signals, and note each as one byte to read; signals that came while they were blocked come first."""
    reader, writer = socket.socketpair()
    reader.settimeout(0)
    writer.settimeout(0)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    for number in HANDLED:
        if signal.getsignal(number) is not signal.SIG_IGN or number not in _MAY_BE_IGNORED:
            signal.signal(number, lambda *_: None)
    unblock_signals(mask)
    return reader


def read_signals(reader: socket.socket) -> list[int]:
    """The signals that wait to be handled, without SIGCHLD."""
    return [number for number in reader.recv(_BYTES_MAX) if number != signal.SIGCHLD]
