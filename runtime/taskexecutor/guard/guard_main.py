"""The guard process (R13): starts the TaskManager's main process and outlives every process that comes from it.

Invariants: single-threaded, standard library only, no user code. The liveness socket answers "<incarnation> <boot id>"
from the moment its address is known until everything of the main process is killed and reaped, and from then on the
same and "reaped": that, and nothing else, is the proof. It is bound without SO_REUSEPORT (no other process can answer
beside it) and never inherited (no other process can keep it open); the watcher, its parent, holds it too and reaps in
its place (R30).

It holds the isolation deadline (R14): unless the main process gives it a later one in time, it kills the slot processes
of exclusive tasks and, because their sessions live there, Spark. So a main process that is frozen cannot outlive it.
A main process that moves outputs (R27) is killed itself, and begins again as another one when nothing of it is left.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from runtime.system.linux import BootTimer, become_subreaper, boottime, die_with_parent, set_process_name
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
    RECORDS_VARIABLE,
    REFUSED,
    SHARED,
    SPARK,
    STATE_END,
    STATING,
    SWEEP,
    SWEPT,
)
from runtime.taskexecutor.guard.isolation import IsolationDeadline
from runtime.taskexecutor.guard.life import GuardedLife, print_if_read
from runtime.taskexecutor.guard.reaping import KILL_ROUND_SECONDS, kill, reap_children
from runtime.taskexecutor.guard.signals import END_AT_ONCE, noted_signals, read_signals, unblock_signals
from runtime.taskexecutor.guard.statement import say
from runtime.taskexecutor.guard.sweep import Sweep

_BACKLOG = 64
_SECONDS_MAX = 1e9
_PID_MAX = 2**22
_ISOLATED = (
    "the TaskManager was ended by its guard, and begins again as another one: it was moving outputs, and for"
    " taskmanager.isolation-timeout it has been frozen or without etcd\n"
)


class Guard:
    """Owns the main process, the liveness socket and all that the main process leaves behind.

    `link` leads to the watcher. The guard tells the watcher all that it needs to go on alone: the listening socket, for
    how long the end is to be stated, and the end; when asked, also the isolation deadline. The link ends with the
    watcher: then this life is over.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], life: GuardedLife, link: socket.socket
    ) -> None:
        self._command = list(command)
        self._environment = dict(environment)
        self._life = life
        self._link = link
        link.settimeout(0)  # a watcher that stands still holds up no deadline: it asks again
        self._answer = f"{life.identity}\n".encode()
        self._selector = selectors.DefaultSelector()
        self._main = 0
        self._main_status: int | None = None
        self._request = b""
        self._isolation = IsolationDeadline(boottime)
        self._is_isolated = False
        self._sweep = Sweep(time.monotonic)  # noqa: TID251 - the guard loads no clock of ours
        self._timer = BootTimer()
        self._control: socket.socket | None = None

    def run(self, mask: Collection[int]) -> None:
        """Run the main process to its end, then end everything it has left, and tell the watcher its exit code."""
        become_subreaper()
        signals, control = self._start(mask)
        self._control = control
        self._selector.register(signals, selectors.EVENT_READ, self._on_signal)
        self._selector.register(control, selectors.EVENT_READ, self._on_control)
        self._selector.register(self._link, selectors.EVENT_READ, self._on_watcher)
        self._selector.register(self._timer, selectors.EVENT_READ, self._on_timer)
        while self._main_status is None:
            self._timer.set(self._isolation.due)
            # What the main process has said counts before the deadline does.
            is_killing = self._sweep.is_wanted or self._isolation.is_ending
            if not self._serve(KILL_ROUND_SECONDS if is_killing else None):
                self._enforce()
            if self._isolation.is_ending:
                self._isolation.kill_round(self._main)
            for number, left in self._sweep.kill_round(self._main).items():
                self._reply(f"{SWEPT} {number} {left}")
        self._timer.set(None)
        self._life.end(self._serve)
        code = EXIT_START_AGAIN if self._is_isolated else os.waitstatus_to_exitcode(self._main_status)
        self._tell_watcher(f"{ENDED} {code}")

    def _enforce(self) -> None:
        if self._isolation.enforce(self._main):
            self._is_isolated = True
            print_if_read(_ISOLATED)

    def _start(self, mask: Collection[int]) -> tuple[socket.socket, socket.socket]:
        """Fork the main process. Signals that arrive meanwhile are forwarded to it once it exists."""
        control, child_control = socket.socketpair()
        control.settimeout(0)
        guard = os.getpid()
        self._main = os.fork()
        if self._main == 0:
            self._become_main(guard, child_control, mask)
        child_control.close()
        signals = noted_signals(mask)
        set_process_name("tm-guard")
        return signals, control

    def _become_main(self, guard: int, control: socket.socket, mask: Collection[int]) -> NoReturn:
        try:
            die_with_parent(guard)
            self._life.enter()
            os.setpgid(0, 0)
            os.set_inheritable(control.fileno(), True)  # noqa: FBT003 (positional only)
            environment = {
                **self._environment,
                CONTROL_VARIABLE: str(control.fileno()),
                INCARNATION_VARIABLE: self._life.incarnation,
                RECORDS_VARIABLE: str(self._life.record.path.parent),
            }
            unblock_signals(mask)
            os.execve(self._command[0], self._command, environment)  # noqa: S606 (the point of a guard)
        except (OSError, ValueError) as error:
            os.write(2, f"the TaskManager's main process cannot be started: {error}\n".encode())
        finally:
            os._exit(1)

    def _serve(self, timeout: float | None) -> bool:
        """Handle all ready descriptors. True when the main process has sent something: there may be more."""
        ready = [key for key, _ in self._selector.select(timeout)]
        for key in ready:
            key.data(key.fileobj)
        reap_children(self._note_end)
        return any(key.data == self._on_control for key in ready)

    def _note_end(self, pid: int, status: int) -> None:
        if pid == self._main:
            self._main_status = status

    def _on_signal(self, signals: socket.socket) -> None:
        for number in read_signals(signals):
            self._tell_watcher(TOLD)
            if self._main_status is None:
                kill(self._main, 9 if number == END_AT_ONCE else number)

    def _on_timer(self, _: BootTimer) -> None:
        """Nothing to do here: the deadline is enforced, or the timer set again, before the next wait."""

    def _on_watcher(self, link: socket.socket) -> None:
        """The watcher asks whether the guard lives, or has ended: then the guard stops everything (R30)."""
        try:
            is_asking = bool(link.recv(LINE_BYTES_MAX, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return
        except OSError:
            is_asking = False
        if is_asking:
            self._tell_deadline()
            return
        self._selector.unregister(link)
        if self._main_status is None:
            kill(self._main)

    def _tell_watcher(self, message: str, *descriptors: int) -> None:
        try:
            socket.send_fds(self._link, [message.encode()], list(descriptors))
        except OSError:
            return  # it has ended, which the next read finds

    def _tell_deadline(self) -> None:
        self._tell_watcher(f"{HOLDS} {self._isolation.deadline!r}")

    # --- requests of the main process -----------------------------------------------------------------------

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
                self._reply(answer)

    def _reply(self, answer: str) -> None:
        assert self._control is not None
        try:
            self._control.send(answer.encode()[: LINE_BYTES_MAX - 1] + b"\n")
        except OSError:
            return  # its end is on its way

    def _obey(self, words: Sequence[str]) -> str:
        """The answer to one request; "" for a request without an answer, or whose answer comes later."""
        match words:
            case [command, host] if command == LISTEN and self._life.listener is None:
                return self._listen(host)
            case [command, deadline] if command == HOLD:
                is_first = self._isolation.deadline is None
                self._isolation.hold(_seconds(deadline))
                if is_first:
                    self._tell_deadline()
                return f"{HELD} {deadline}"
            case [command, number] if command == SWEEP:
                self._sweep.ask(int(number))
            case [command, seconds] if command == STATE_END:
                self._life.states_for = max(0.0, _seconds(seconds))
                self._tell_watcher(f"{STATES} {self._life.states_for!r}")
                return f"{STATING} {seconds}"
            case [command, pid] if command == EXCLUSIVE:
                self._isolation.mark(_pid(pid), self._main)
            case [command, pid] if command == SHARED:
                self._isolation.unmark(_pid(pid))
            case [command, pid] if command == SPARK:
                self._isolation.note_spark(_pid(pid), self._main)
            case _:
                return _refusal(words)
        return ""

    def _listen(self, host: str) -> str:
        try:
            # Plain bind: create_server would set SO_REUSEADDR, and no other process may ever bind beside us.
            family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
            listener = socket.socket(family, kind, protocol)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            return f"{REFUSED} the guard cannot listen on {host}: {error}"
        listener.settimeout(0)
        self._life.listener = listener
        self._tell_watcher(LISTENS, listener.fileno())
        self._selector.register(listener, selectors.EVENT_READ, self._on_dial)
        return f"{LISTENING} {listener.getsockname()[1]}"

    def _on_dial(self, listener: socket.socket) -> None:
        say(listener, self._answer)


ENDED = "ended"
HOLDS = "holds"
LISTENS = "listens"
STATES = "states"
TOLD = "told"
"""What a guard tells its watcher."""


def _seconds(text: str) -> float:
    """Raises ValueError, also for what no timer takes."""
    seconds = float(text)
    if not abs(seconds) < _SECONDS_MAX:
        raise ValueError(text)
    return seconds


def _pid(text: str) -> int:
    """Raises ValueError, also for what the kernel takes for no pid."""
    pid = int(text)
    if not 0 < pid <= _PID_MAX:
        raise ValueError(text)
    return pid


def _refusal(words: Sequence[str]) -> str:
    return f"{REFUSED} {' '.join(words)[:200]} is no request of a TaskManager"
