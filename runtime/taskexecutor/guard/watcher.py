"""The watcher: the guard's parent, and the process that scripts and supervisors know. It reaps if the guard dies (R30).

It forks the guard, forwards signals to it and ends with the main process's exit code. Each of the two notices the end
of the other one, ends the main process and everything that ever came of it, and states that; so one of them may be
killed at any time. Both at once prove nothing: then the next start in the same run directory ends what they have left.

A guard that is frozen holds no isolation deadline (R14): then the watcher kills it, which ends everything as above, and
begins again as another one.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NoReturn

from runtime.system.linux import BootTimer, become_subreaper, boottime, set_process_name
from runtime.taskexecutor.guard.channel import EXIT_START_AGAIN, LINE_BYTES_MAX
from runtime.taskexecutor.guard.guard_main import ENDED, HOLDS, LISTENS, STATES, TOLD, Guard
from runtime.taskexecutor.guard.held_guard import PATIENCE, HeldGuard
from runtime.taskexecutor.guard.life import GuardedLife, print_if_read
from runtime.taskexecutor.guard.reaping import kill, reap_children, reap_leftovers
from runtime.taskexecutor.guard.records import records_directory
from runtime.taskexecutor.guard.signals import block_signals, noted_signals, read_signals
from runtime.taskexecutor.guard.statement import say

EXIT_CODE_OF_SIGNAL = 128
_ASK = b"deadline"
_FROZEN = (
    "guard: it said nothing for {:g} s when its isolation deadline had passed, so it is frozen, and the TaskManager"
    " ends and begins again as another one\n"
)


class Watcher:
    """Owns the guard process, and what is left of a life whose guard was killed."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], life: GuardedLife) -> None:
        self._command = list(command)
        self._environment = dict(environment)
        self._life = life
        self._selector = selectors.DefaultSelector()
        self._guard = 0
        self._is_guard_alive = True
        self._code: int | None = None
        self._held = HeldGuard(boottime)
        self._timer = BootTimer()
        self._is_frozen = False
        self.was_told_to_stop = False
        """True once a signal has asked for the end of all this."""

    def run(self) -> int:
        """The main process's exit code, negative for a signal, when nothing is left of it. Or that it begins again."""
        become_subreaper()
        mask = block_signals()
        link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._guard = os.fork()
        if self._guard == 0:
            link.close()
            self._become_guard(theirs, mask)
        theirs.close()
        link.settimeout(0)
        set_process_name("tm-watcher")
        self._selector.register(noted_signals(mask), selectors.EVENT_READ, self._on_signal)
        self._selector.register(link, selectors.EVENT_READ, self._on_link)
        self._selector.register(self._timer, selectors.EVENT_READ, self._on_timer)
        while self._is_guard_alive:
            self._timer.set(self._held.due)
            self._serve(None)
            self._look_at_guard(link)
        self._timer.set(None)
        self._read_link(link)
        if self._code is not None:
            return self._code
        # It was killed: everything below it is ours now, and the parent-death signal ends the main process.
        if self._life.listener is not None:
            self._selector.register(self._life.listener, selectors.EVENT_READ, self._on_dial)
        self._life.end(self._serve)
        return EXIT_START_AGAIN if self._is_frozen else -signal.SIGKILL

    def _look_at_guard(self, link: socket.socket) -> None:
        """What it has said counts before what it has not."""
        if self._held.take_for_frozen() and not self._is_frozen:
            self._is_frozen = True
            kill(self._guard)
            print_if_read(_FROZEN.format(PATIENCE))
        elif self._held.begin_to_ask():
            try:
                link.send(_ASK)
            except OSError:
                return  # its end is on its way, or it does not read: then it is frozen

    def _on_timer(self, _: BootTimer) -> None:
        """The guard is looked at after every wait."""

    def _become_guard(self, link: socket.socket, mask: Collection[int]) -> NoReturn:
        code = 1
        try:
            # Ctrl-C, and a signal to our process group, reach this process alone.
            os.setsid()
            Guard(self._command, self._environment, self._life, link).run(mask)
            code = 0
        except BaseException:  # noqa: BLE001 - the boundary of a forked child: it must not run its parent's loop
            traceback.print_exc()
        finally:
            os._exit(code)

    def _serve(self, timeout: float | None) -> None:
        for key, _ in self._selector.select(timeout):
            key.data(key.fileobj)
        reap_children(self._note_end)

    def _note_end(self, pid: int, _: int) -> None:
        if pid == self._guard:
            self._is_guard_alive = False

    def _on_signal(self, signals: socket.socket) -> None:
        for number in read_signals(signals):
            self.was_told_to_stop = True
            if self._is_guard_alive:
                kill(self._guard, number)

    def _on_link(self, link: socket.socket) -> None:
        if not self._read_link(link):
            self._selector.unregister(link)

    def _read_link(self, link: socket.socket) -> bool:
        """Hear all that the guard has said. False when it will say nothing more."""
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(link, LINE_BYTES_MAX, 1)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            word, _, rest = data.decode().partition(" ")
            match word:
                case _ if word == LISTENS and descriptors:
                    os.set_inheritable(descriptors[0], False)  # noqa: FBT003 (positional only)
                    self._life.listener = socket.socket(fileno=descriptors[0])
                case _ if word == HOLDS:
                    self._held.note_deadline(float(rest))
                case _ if word == STATES:
                    self._life.states_for = float(rest)
                case _ if word == TOLD:
                    self.was_told_to_stop = True
                case _ if word == ENDED:
                    self._code = int(rest)

    def _on_dial(self, listener: socket.socket) -> None:
        say(listener, f"{self._life.identity}\n".encode())


def run_guard(
    command: Sequence[str], environment: Mapping[str, str], at_end: Callable[[], None] = lambda: None
) -> NoReturn:
    """Become the watcher of a guard of `command`. Ends this process with the command's exit code.

    Or begins again, as a new program with a new incarnation. First it ends what killed guards have left here (R30).
    `at_end` is called when nothing runs any more.
    """
    records = records_directory(environment)
    try:
        reap_leftovers(records)
        life = GuardedLife.begin(records)
    except OSError as error:
        sys.stderr.write(f"the run directory of the TaskManager's guard cannot be used: {error}\n")
        sys.exit(1)
    watcher = Watcher(command, environment, life)
    code = watcher.run()
    if code == EXIT_START_AGAIN and not watcher.was_told_to_stop:
        os.execve(command[0], list(command), dict(environment))  # noqa: S606 (a new life, not a shell)
    at_end()
    sys.exit(EXIT_CODE_OF_SIGNAL - code if code < 0 else code)
