"""States the end of a life at the address of its guard: a statement that all of it is reaped is a proof (R13, R30).

A refused connection proves nothing, because a killed guard refuses too. So the guard or watcher that has reaped
everything leaves a process behind, which tells this to every process that dials, until the life's record is deleted
from the run directory, or the time is over. Standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from pathlib import Path

from runtime.system.linux import set_process_name
from runtime.taskexecutor.guard.records import LifeRecord

_LOOK_SECONDS = 0.5
REAPED = "reaped"


def leave_statement(listener: socket.socket, identity: str, record: LifeRecord, seconds: float) -> None:
    """Fork the process that states the end. It keeps nothing of the caller open but the listening socket."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            record.note_stated_by_this()
            _detach(listener)
            _state(listener, f"{identity} {REAPED}\n".encode(), record.path, seconds)
            code = 0
        finally:
            os._exit(code)


def _detach(listener: socket.socket) -> None:
    """Detach this process from all that may wait for it: readers of its parents' output, a terminal, its group."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    set_process_name("tm-statement")
    os.chdir("/")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    kept = listener.fileno()
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def _state(listener: socket.socket, answer: bytes, record: Path, seconds: float) -> None:
    listener.settimeout(0)
    deadline = time.monotonic() + seconds  # noqa: TID251 - a guard loads no clock of ours
    while record.exists() and time.monotonic() < deadline:  # noqa: TID251
        if select.select([listener], [], [], _LOOK_SECONDS)[0]:
            say(listener, answer)


def say(listener: socket.socket, answer: bytes) -> None:
    """Answer one dialler, which may have hung up already."""
    try:
        connection, _ = listener.accept()
    except OSError:
        return
    with connection:
        try:
            connection.settimeout(0)
            connection.send(answer)
        except OSError:
            return
