"""Python workers that run code of one session only: a process that Spark knows, and a fork of it for each session.

Spark's pool of workers does not know sessions: a worker that rests is given the next task of any session. What Spark
knows as a worker is a *keeper* here, a fork of the daemon that runs no user code. It reads the message with which each
task begins, which names the task's session, and has a fork of itself run the task: the one that has run that
session's tasks before, or a new one (R22). So what user code does to its process (environment, modules, umask, time
zone) stays in its session, and the keeper, which Spark may give to any session at any time, outlives every such fork.

The JVM names the session also to those that plan (UDTFs, data sources), before what Spark says (`jvm/SlotEnv.java`).
Each keeper leads a process group, to which its forks belong: a function that signals its group reaches itself (R23).
Standard library only, besides pyspark at run time.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from runtime.system.linux import die_with_parent
from runtime.taskexecutor.containment.leftovers import threads_left, timers_left
from runtime.taskexecutor.python_workers.task_begin import (
    LeftoversError,
    follow_in_fork,
    planner_end,
    read_begin,
    read_exactly,
)
from runtime.taskexecutor.worker_protocol import session_marks
from runtime.taskexecutor.worker_protocol.session_output import flush_output

_TASKS = "pyspark.worker"
"""The program of workers that run tasks.

Others (UDTF analysis, data sources) plan, and the JVM tells them their session.
"""
_LENGTH = struct.Struct("!q")
_NUMBER = struct.Struct("!i")
_RESTS, _ENDS = b"r", b"e"
_EVERYBODY = -1
IGNORED_BY_DAEMON = frozenset(signal.valid_signals()) - {signal.SIGCHLD}
"""A daemon ends when the JVM closes its input, which it does whenever it ends one: a signal says nothing more (R23)."""
_HUNG_UP = select.POLLHUP | select.POLLERR


def _read_text(connection: socket.socket) -> str:
    """As the JVM writes it (`jvm/SlotEnv.java`). Raises EOFError."""
    (length,) = _NUMBER.unpack(read_exactly(connection, _NUMBER.size))
    return read_exactly(connection, length).decode()


class _Fork:
    """A fork of the keeper, as the keeper sees it. `session_id`: of the tasks that it runs; empty: not known."""

    def __init__(self, pid: int, control: socket.socket, session_id: str) -> None:
        self.pid = pid
        self.session_id = session_id
        self.control = control
        self.descriptor = os.pidfd_open(pid)

    def begin(self, message: bytes) -> bool:
        """False if it has ended before: then it has not begun to run this."""
        if select.select([self.descriptor], [], [], 0)[0]:
            return False
        try:
            self.control.sendall(_LENGTH.pack(len(message)) + message)
        except OSError:  # it ended just now, with its session
            return False
        return True

    def told(self) -> bytes:
        """The last byte that the fork has sent; empty if it has ended without one."""
        try:
            return self.control.recv(1, socket.MSG_DONTWAIT)
        except (BlockingIOError, ConnectionError):
            return b""

    def end(self) -> None:
        """Kill and reap the fork."""
        os.kill(self.pid, signal.SIGKILL)  # it is not reaped yet: no other process has its pid
        os.waitpid(self.pid, 0)
        os.close(self.descriptor)
        self.control.close()


class _Broadcasts(dict[int, Any]):
    """The broadcasts of a fork. Spark counts the broadcasts that it has sent to the keeper, and so has a fork forget
    those of another session too: they are ignored here.
    """

    def pop(self, number: int, *default: Any) -> Any:
        return super().pop(number, *default or (None,))


class WorkerKeeper:
    """`serve` takes the place of pyspark's `daemon.worker`, which is `plain`, in each worker that the daemon forks.

    `begin` makes its process one of a session, by its id and the link to its directory, where the JVM has told that.
    `is_pristine`: workers find what is installed, and nothing that a job brings.
    """

    def __init__(
        self,
        plain: Callable[[socket.socket, bool], int],
        begin: Callable[[str, str], None],
        *,
        is_pristine: bool,
    ) -> None:
        self._plain = plain
        self._begin = begin
        self._is_pristine = is_pristine
        self._runs_tasks = len(sys.argv) > 1 and sys.argv[1] == _TASKS
        self._fork: _Fork | None = None
        self._control: socket.socket | None = None
        self._session_id = ""
        self._daemon = os.getpid()
        # Both of the daemon: a keeper of workers learns from it that the daemon ends them.
        self._ending, self._end = os.pipe()

    def keep_workers_of(self, daemon: Any) -> None:
        """Each first process that the daemon's copy of `os.fork` makes is a keeper."""
        fork, kill = os.fork, os.kill

        def fork_keeper() -> int:
            pid = fork()
            if pid == 0:
                os.fork, os.kill = fork, kill
                self._become_keeper()
            return pid

        def kill_and_tell(pid: int, number: int) -> None:
            if pid == 0:  # the daemon ends, and with it its group: keepers have groups of their own
                os.write(self._end, b".")
            kill(pid, number)

        os.fork, os.kill = fork_keeper, kill_and_tell
        daemon.worker = self.serve

    def _become_keeper(self) -> None:
        os.setpgid(0, 0)
        os.close(self._end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED_BY_DAEMON)
        for number in (signal.SIGHUP, signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        session_marks.rest()

    def serve(self, connection: socket.socket, is_authenticated: bool) -> int:  # noqa: FBT001 - pyspark's
        """One task. 0: the next may come. As pyspark's own."""
        if not is_authenticated and not _authenticate(connection):
            return 1
        try:
            self._wait_for_task(connection)
            if self._runs_tasks:
                self._hand_over(connection, *self._begin_of_task(connection))
            else:
                self._plan(connection, _read_text(connection), _read_text(connection))
        except (EOFError, ConnectionError):  # Spark needs this worker no more
            self._end_fork()
            os._exit(0)
        return self._end_of_task()

    def _wait_for_task(self, connection: socket.socket) -> None:
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        poll.register(self._ending, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            self._look_at_daemon(poll, ready)
            if connection.fileno() in ready:
                if not connection.recv(1, socket.MSG_PEEK):
                    raise EOFError
                return

    def _look_at_daemon(self, poll: Any, ready: dict[int, int]) -> None:
        event = ready.get(self._ending, 0)
        if event & select.POLLIN:
            os.kill(0, signal.SIGHUP)  # us too, and a process that ignores it is killed as our child
        elif event & _HUNG_UP:
            # Killed, and Spark starts another one: what runs here is wanted no more, and ends with its connection.
            poll.unregister(self._ending)

    def _begin_of_task(self, connection: socket.socket) -> tuple[bytes, str]:
        """The bytes that a task begins with, and the task's session."""
        begin = read_begin(connection)
        if self._is_pristine and begin.wants_pandas:
            # Once in the keeper instead of 0.4 s in each fork. Python's threads are none (a test says so).
            importlib.import_module("pandas")
            importlib.import_module("pyarrow")
        return begin.message, begin.session_id

    def _hand_over(self, connection: socket.socket, message: bytes, session_id: str) -> None:
        fork = self._fork
        if fork is not None and session_id and fork.session_id == session_id and fork.begin(message):
            return
        self._end_fork()
        self._fork = fork = self._start_fork(connection, session_id, self._run)
        fork.begin(message)  # if it has ended already, the wait for the end of the task sees that

    def _plan(self, connection: socket.socket, session_id: str, link: str) -> None:
        self._end_fork()
        self._fork = self._start_fork(connection, session_id, functools.partial(self._run_plan, session_id, link))

    def _start_fork(
        self, connection: socket.socket, session_id: str, run: Callable[[socket.socket, socket.socket], NoReturn]
    ) -> _Fork:
        ours, theirs = socket.socketpair()
        keeper = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                die_with_parent(keeper)
                os.close(self._ending)
                ours.close()
                self._control, self._session_id = theirs, session_id
                refuse_to_kill(self._daemon)
                run(connection, theirs)
            except BaseException:  # noqa: BLE001 - as pyspark's daemon does
                traceback.print_exc()
            finally:
                os._exit(1)
        theirs.close()
        return _Fork(pid, ours, session_id)

    def _run(self, connection: socket.socket, control: socket.socket) -> NoReturn:
        """Run one session's tasks, in the fork."""
        _forget_broadcasts_of_others()
        while not self._plain(connection, True):  # noqa: FBT003 - pyspark's
            gc.collect()
        flush_output()
        control.sendall(_ENDS)
        os._exit(0)

    def _run_plan(self, session_id: str, link: str, connection: socket.socket, control: socket.socket) -> NoReturn:
        """Run what Spark asks for while it plans, in a fork that does nothing else."""
        _forget_broadcasts_of_others()
        if session_id:
            self._begin(session_id, link)
            module = planner_end(sys.argv[1])
            send_updates = module.send_accumulator_updates

            def send_last(outfile: Any) -> None:
                send_updates(outfile)
                flush_output()
                session_marks.rest()  # user code has ended, and Spark does not know it yet

            module.send_accumulator_updates = send_last
        code = self._plain(connection, True)  # noqa: FBT003 - pyspark's
        flush_output()
        control.sendall(_ENDS if code else _RESTS)
        os._exit(0)

    def _end_of_task(self) -> int:
        fork = self._fork
        assert fork is not None
        poll = select.poll()
        for descriptor in (fork.control.fileno(), fork.descriptor, self._ending):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            self._look_at_daemon(poll, ready)
            if fork.control.fileno() not in ready and fork.descriptor not in ready:
                continue
            told = fork.told()
            if told == _RESTS:
                return 0
            if told != _ENDS:
                self._end_fork()
                os._exit(1)  # what it was asked for is lost, and Spark sees that at once
            self._end_fork()
            return 1

    def _end_fork(self) -> None:
        fork, self._fork = self._fork, None
        if fork is not None:
            fork.end()

    def follow(self, worker: Any, daemon: Any) -> None:
        """Have pyspark's `worker` run in a fork: the keeper reads how a task begins, and hears when it has ended."""
        if self._runs_tasks:
            follow_in_fork(worker, daemon, self._begin_in_fork, self._finish_in_fork)

    def _begin_in_fork(self) -> bytes:
        control = self._in_fork()
        (length,) = _LENGTH.unpack(read_exactly(control, _LENGTH.size))
        return read_exactly(control, length)

    def _finish_in_fork(self) -> None:
        # As in slots, but for processes: those carry the session's mark.
        left = [*threads_left({threading.main_thread()}, {os.getpid()}), *timers_left()]
        if left:
            whose = f"functions of session {self._session_id} have left what ends with their worker"
            sys.stderr.write(f"{whose}: {', '.join(left)}\n")
            raise LeftoversError
        flush_output()
        session_marks.rest()
        # Before Spark hears of it: from here on the keeper does without this process, which its session's
        # end may kill at any time.
        self._in_fork().sendall(_RESTS)

    def _in_fork(self) -> socket.socket:
        assert self._control is not None
        return self._control


def _forget_broadcasts_of_others() -> None:
    broadcast: Any = importlib.import_module("pyspark.core.broadcast")
    broadcast._broadcastRegistry = _Broadcasts()  # noqa: SLF001 - of pyspark


def refuse_to_kill(daemon: int) -> None:
    """R23: what a function signals by mistake is its own, as long as this process lives; a program is not asked."""

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.kill" and arguments[1] and arguments[0] in {daemon, _EVERYBODY}:
            whom = "all processes of this user" if arguments[0] == _EVERYBODY else f"process {daemon}"
            refused = (
                f"os.kill of {whom} is refused: Spark has a process there which forks the Python workers of all jobs"
            )
            raise PermissionError(refused)

    sys.addaudithook(look)


def _authenticate(connection: socket.socket) -> bool:
    """As pyspark's own."""
    (length,) = _NUMBER.unpack(read_exactly(connection, _NUMBER.size))
    is_right = read_exactly(connection, length) == os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
    answer = b"ok" if is_right else b"err"
    connection.sendall(_NUMBER.pack(len(answer)) + answer)
    if not is_right:
        connection.close()
    return is_right
