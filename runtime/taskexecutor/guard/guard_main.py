"""The guard process (R13): starts the TaskManager's main process and outlives every process that comes from it.

Invariants: single-threaded, standard library only, no user code. The liveness socket answers "<incarnation> <boot id>"
from the moment its address is known until every descendant of the main process is killed and reaped; so *refused, or
another answer, at an address once dialled* proves that nothing of this TaskManager is left. It is bound without
SO_REUSEPORT (nobody else can answer beside it) and never inherited (nobody else can keep it open).

It holds the isolation deadline (R14): unless the main process gives it a later one in time, it kills the slot processes
of exclusive tasks and, because their sessions live there, Spark. So a main process that is frozen cannot outlive it.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from runtime.taskexecutor.guard.channel import (
    CONTROL_VARIABLE,
    EXCLUSIVE,
    EXIT_START_AGAIN,
    HELD,
    HOLD,
    INCARNATION_VARIABLE,
    LINE_BYTES_MAX,
    LISTEN,
    LISTENING,
    REFUSED,
    SHARED,
    SPARK,
)
from runtime.taskexecutor.guard.isolation import IsolationDeadline
from runtime.taskexecutor.slots.linux import become_subreaper, die_with_parent, process_tree, set_process_name

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_HANDLED = (*_FORWARDED, signal.SIGCHLD)
_BACKLOG = 64
_KILL_ROUND_SECONDS = 0.05
EXIT_CODE_OF_SIGNAL = 128


def boot_id() -> str:
    """Identity of this boot of this host: an answer from after a reboot is another one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class Guard:
    """Owns the main process, the liveness socket and all that the main process leaves behind."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = list(command)
        self._environment = dict(environment)
        self._incarnation = secrets.token_hex(16)
        self._answer = f"{self._incarnation} {boot_id()}\n".encode()
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self._main = 0
        self._main_status: int | None = None
        self.was_told_to_stop = False
        """True once a signal has asked for the end of all this."""
        self._request = b""
        self._isolation = IsolationDeadline(time.monotonic)  # noqa: TID251 - the guard loads no clock of ours

    def run(self) -> int:
        """Run the main process to its end, then end everything it has left. Its exit code (128 + n for signal n)."""
        become_subreaper()
        wakeup, control = self._start()
        self._selector.register(wakeup, selectors.EVENT_READ, self._on_signal)
        self._selector.register(control, selectors.EVENT_READ, self._on_control)
        while self._main_status is None:
            # What the main process has said counts before the deadline does.
            if not self._serve(self._isolation.patience()):
                self._isolation.enforce()
        while self._has_children():
            for pid in process_tree(os.getpid())[1:]:
                _kill(pid, signal.SIGKILL)
            self._serve(_KILL_ROUND_SECONDS)
        return os.waitstatus_to_exitcode(self._main_status)

    def _start(self) -> tuple[socket.socket, socket.socket]:
        """Fork the main process. Signals that arrive meanwhile are forwarded to it once it exists."""
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        wakeup, wakeup_writer = socket.socketpair()
        control, child_control = socket.socketpair()
        for end in (wakeup, wakeup_writer, control):
            end.settimeout(0)
        guard = os.getpid()
        self._main = os.fork()
        if self._main == 0:
            self._become_main(guard, child_control, blocked)
        child_control.close()
        signal.set_wakeup_fd(wakeup_writer.detach(), warn_on_full_buffer=False)
        for number in _HANDLED:
            # nohup's SIG_IGN for SIGHUP stays.
            if signal.getsignal(number) is not signal.SIG_IGN or number is signal.SIGCHLD:
                signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        set_process_name("tm-guard")
        return wakeup, control

    def _become_main(self, guard: int, control: socket.socket, blocked: set[int | signal.Signals]) -> NoReturn:
        try:
            die_with_parent(guard)
            # Ctrl-C reaches a terminal's foreground group: the guard alone, which forwards it once.
            os.setpgid(0, 0)
            os.set_inheritable(control.fileno(), True)  # noqa: FBT003 (positional only)
            environment = {
                **self._environment,
                CONTROL_VARIABLE: str(control.fileno()),
                INCARNATION_VARIABLE: self._incarnation,
            }
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            os.execve(self._command[0], self._command, environment)  # noqa: S606 (the point of a guard)
        except OSError as error:
            os.write(2, f"the TaskManager's main process cannot be started: {error}\n".encode())
        finally:
            os._exit(1)

    def _serve(self, timeout: float | None) -> bool:
        """Handle what is there. True when the main process has said something: there may be more."""
        ready = [key for key, _ in self._selector.select(timeout)]
        for key in ready:
            key.data(key.fileobj)
        self._reap()
        return any(key.data == self._on_control for key in ready)

    def _on_signal(self, wakeup: socket.socket) -> None:
        for number in wakeup.recv(4096):
            if number in _FORWARDED:
                self.was_told_to_stop = True
                if self._main_status is None:
                    _kill(self._main, number)

    def _reap(self) -> None:
        """Collect every child that has ended: the main process, and orphans that were handed to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._main:
                self._main_status = status

    def _has_children(self) -> bool:
        self._reap()
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def _on_control(self, control: socket.socket) -> None:
        try:
            received = control.recv(LINE_BYTES_MAX)
        except OSError:
            received = b""
        if not received or len(self._request) > LINE_BYTES_MAX:
            self._selector.unregister(control)
            return
        *lines, self._request = (self._request + received).split(b"\n")
        for line in lines:
            words = line.decode(errors="replace").split()
            try:
                answer = self._obey(words)
            except ValueError:
                answer = _refusal(words)
            if answer:
                control.send(answer.encode() + b"\n")

    def _obey(self, words: Sequence[str]) -> str:
        """The answer to one request, "" for one that has none."""
        match words:
            case [command, host] if command == LISTEN and self._listener is None:
                return self._listen(host)
            case [command, deadline] if command == HOLD:
                self._isolation.hold(float(deadline))
                return f"{HELD} {deadline}"
            case [command, pid] if command == EXCLUSIVE:
                self._isolation.mark(int(pid), self._main)
            case [command, pid] if command == SHARED:
                self._isolation.unmark(int(pid))
            case [command, pid] if command == SPARK:
                self._isolation.note_spark(int(pid), self._main)
            case _:
                return _refusal(words)
        return ""

    def _listen(self, host: str) -> str:
        try:
            # Plain bind: create_server would set SO_REUSEADDR, and nobody may ever bind beside us.
            family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
            listener = socket.socket(family, kind, protocol)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            return f"{REFUSED} the guard cannot listen on {host}: {error}"
        listener.settimeout(0)
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ, self._on_dial)
        return f"{LISTENING} {listener.getsockname()[1]}"

    def _on_dial(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # the dialler has gone already
        with connection:
            try:
                connection.settimeout(0)
                connection.send(self._answer)
            except OSError:
                return  # likewise


def _refusal(words: Sequence[str]) -> str:
    return f"{REFUSED} {' '.join(words)[:200]} is no request of a TaskManager"


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def run_guard(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Become the guard of `command`. Ends this process with the command's exit code.

    Or begins again, as a new program with a new incarnation: the liveness socket of the old one is closed by that.
    """
    guard = Guard(command, environment)
    code = guard.run()
    if code == EXIT_START_AGAIN and not guard.was_told_to_stop:
        os.execve(command[0], list(command), dict(environment))  # noqa: S606 (a new life, not a shell)
    sys.exit(EXIT_CODE_OF_SIGNAL - code if code < 0 else code)
