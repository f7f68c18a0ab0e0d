"""One life of a Spark host and its JVM, as the TaskManager drives it: launch, calls, and the end of both.

Whatever ends the host ends its JVM: parent-death signal and end of stdin. `wait_lost` returns only after both are dead,
so that a component that hears of the loss may act on it (R15).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from runtime.aio.scope import ServiceScope
from runtime.aio.watch import Watch
from runtime.common.errors import FlinklikeError
from runtime.config.log_files import cut_large
from runtime.security.file_mask import make_private
from runtime.taskexecutor.driver_jvm.command import import_path
from runtime.taskexecutor.spark.account import SparkAccount
from runtime.taskexecutor.spark.environment import JvmChange, SparkLoss, SparkLostError
from runtime.taskexecutor.spark_protocol import frames
from runtime.taskexecutor.spark_protocol.sessions import SlotSession
from runtime.taskexecutor.spark_protocol.settings import SparkSettings
from runtime.taskexecutor.task_environment import TaskEnvironment

logger = logging.getLogger(__name__)

_STOP_TIMEOUT = 15.0

T = TypeVar("T")


class SparkStartError(FlinklikeError):
    """Host or JVM did not come up. The message carries the reason, or where the logs are."""


class SparkKilledError(SparkStartError):
    """Somebody has ended host or JVM while they started: another start may succeed."""


def as_it_is(value: Any) -> Any:
    """Read an answer of any shape."""
    return value


class HostProcess:
    """One host process with its JVM, from launch to the end of both."""

    def __init__(
        self,
        settings: SparkSettings,
        on_launch: Callable[[int], None],
        sweep: Callable[[], Awaitable[str]],
        environment: TaskEnvironment,
        put_back: Watch[JvmChange | None],
        account: SparkAccount | None,
    ) -> None:
        self._account = account
        self._settings = settings
        self._environment = environment
        self._put_back = put_back
        self._on_launch = on_launch
        self._sweep = sweep
        self._scope = ServiceScope("spark-host")
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._sessions: set[str] = set()
        self._next_id = 0
        self._jvm_descriptor: int | None = None
        self._ready = asyncio.Event()
        self._lost = asyncio.Event()
        self._loss: SparkLoss | None = None
        self.jvm_pid = 0
        self.is_warm = False
        self.is_refused = False
        """True when Spark does not start with this conf."""
        self._has_failed = False
        """True when the start has failed by itself: nobody has ended the host or the JVM."""
        self.is_changed = False
        """R45: no session begins in the JVM until those that work in it have ended, or the change is put back."""

    @property
    def pid(self) -> int:
        """The host's process id."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_ready(self) -> bool:
        """True between the self-test and the loss."""
        return self._ready.is_set() and self._loss is None and not self._lost.is_set()

    @property
    def absence(self) -> str:
        """Why no session can be asked about, in words."""
        return "the JVM is not ready" if self._loss is None else self._loss.reason

    def knows(self, session: SlotSession) -> bool:
        """True for sessions opened here and not closed."""
        return session.session_id in self._sessions

    def forget(self, session: SlotSession) -> None:
        """The session is closed."""
        self._sessions.discard(session.session_id)

    async def start(self) -> None:
        """Return when the host's self-test has passed. Raises SparkStartError."""
        try:
            hello = frames.encode({"settings": self._settings.to_json()})
        except frames.FrameError as error:
            message = f"starting Spark: its settings are too large: {error}"
            raise SparkStartError(message) from error
        for directory in (self._settings.work_directory, self._settings.log_directory):
            directory.mkdir(parents=True, exist_ok=True)
        # Here, because the host and its JVM have the umask of user code. An account's is its own.
        if self._account is None and (said := make_private(self._settings.cds_directory)):
            logger.warning("%s", said)
        await self._scope.open()
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)  # noqa: FBT003 - the socket's own method
            self._process = await self._launch(theirs)
        self._on_launch(self._process.pid)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._writer.write(hello)
        self._scope.spawn("serve", self._serve(reader, self._process))
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                await self._ready_or_lost()
        except TimeoutError as error:
            message = (
                f"Spark was not ready in {self._settings.start_timeout:g} s; logs in {self._settings.log_directory}"
            )
            raise SparkStartError(message) from error
        if not self.is_ready:
            message = f"starting Spark: {self._loss}; logs in {self._settings.log_directory}"
            raise SparkStartError(message) if self._has_failed else SparkKilledError(message)

    async def _ready_or_lost(self) -> None:
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(event.wait()) for event in (self._ready, self._lost)]
            for wait in waits:
                wait.add_done_callback(lambda _: [task.cancel() for task in waits])

    async def _launch(self, theirs: socket.socket) -> asyncio.subprocess.Process:
        log_file = self._settings.log_file("host")
        cut_large([log_file])
        variables, account = dict(self._environment.variables), self._account
        command = [
            sys.executable,
            "-m",
            "runtime.taskexecutor.spark_host.host_main",
            str(theirs.fileno()),
            str(os.getpid()),
        ]
        if account is not None:
            variables = account.environment(variables, self._settings)
            command = account.command(command)
        with log_file.open("ab") as log:
            # In a session of its own: Ctrl-C in the TaskManager's terminal must reach neither host nor JVM.
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env={**variables, "PYTHONPATH": import_path(variables)},
                umask=self._environment.umask,
                start_new_session=True,
            )

    # --- frames -------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, process: asyncio.subprocess.Process) -> None:
        """Read until the host is dead, then wait until its JVM is."""
        try:
            while (message := await frames.read_frame(reader)) is not None:
                if "event" in message:
                    self._on_event(message)
                else:
                    self._on_reply(message)
        except (frames.FrameError, LookupError, ValueError, TypeError, ArithmeticError) as error:
            # It runs in one process with the driver: its end is a loss of Spark, and nothing else (R43).
            self._note(SparkLoss(f"the Spark host said what is no message of ours ({error!s:.200})"))
            process.kill()
        # The stream ends when the host dies, or just before it exits.
        await self._reap(process)
        await self._wait_jvm_dead()
        self._note(SparkLoss(f"the Spark host ended with code {process.returncode}"))
        await self._note_left_behind()
        self._fail_calls()
        self._lost.set()

    async def _reap(self, process: asyncio.subprocess.Process) -> None:
        try:
            async with asyncio.timeout(_STOP_TIMEOUT):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def _on_event(self, message: frames.Frame) -> None:
        match message["event"]:
            case "started":
                if self.jvm_pid:
                    again = "that its JVM has started, for the second time"
                    raise frames.FrameError(again)
                self.jvm_pid = int(message["jvm_pid"])
                self._jvm_descriptor = _open_process(self.jvm_pid)
                if self._account is not None and not self._account.owns(self.jvm_pid):
                    self._let_jvm_go()  # this process may signal any process, and would
                    foreign = f"that process {self.jvm_pid} is its JVM, and it is not its user's"
                    raise frames.FrameError(foreign)
            case "ready":
                self._ready.set()
            case "warm":
                self.is_warm = True
            case "changed":
                self.is_changed = bool(message["is_changed"])
                self._put_back.set(JvmChange.parse(str(message["told"])))
            case "lost":
                culprit = str(message["session_id"])
                self._note(SparkLoss(str(message["reason"]), culprit, is_deed=bool(culprit)))
            case "failed":
                self.is_refused = bool(message["is_refusal"])
                self._has_failed = not message["is_killed"]
                self._note(SparkLoss(str(message["reason"])))
            case other:
                logger.warning("the Spark host says %r, which means nothing here", other)

    def _note(self, loss: SparkLoss) -> None:
        """The first that is said of the end stays."""
        self._loss = self._loss or loss

    async def _note_left_behind(self) -> None:
        """R29: what the JVM has started ends before its loss is told, or the loss says what does not end."""
        left = await self._sweep()
        if self._account is not None:
            alive = await asyncio.to_thread(self._account.end_all, threading.Event().wait)
            left = ", ".join(part for part in (left, *map(str, alive)) if part)
        if left and self._loss is not None:
            reason = f"{self._loss.reason}; of what its JVM has started there is still alive: {left}"
            self._loss = replace(self._loss, reason=reason)

    def _on_reply(self, message: frames.Frame) -> None:
        future = self._calls.pop(int(message["id"]), None)
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(SparkLostError(str(message["error"])))
        else:
            future.set_result(message["value"])

    async def call(
        self, operation: str, arguments: dict[str, Any], timeout: float, read: Callable[[Any], Any] = as_it_is
    ) -> Any:
        """One request. Raises SparkLostError when the host is lost, fails, or is silent; silence kills it, and so does
        what `read` makes nothing of, since jobs share its user (R50, R52).
        """
        try:
            value = await self._asked(operation, arguments, timeout)
        except TimeoutError as error:
            message = f"the Spark host did not answer {operation} in {timeout:g} s"
            await self.kill(SparkLoss(message))
            raise SparkLostError(message) from error
        try:
            answer = read(value)
        except (LookupError, ValueError, TypeError, ArithmeticError) as error:
            message = f"the Spark host's answer to {operation} is none ({error!s:.200})"
            await self.kill(SparkLoss(message))
            raise SparkLostError(message) from error
        if isinstance(answer, SlotSession):
            self._sessions.add(answer.session_id)
        return answer

    async def ask(
        self, operation: str, timeout: float, read: Callable[[Any], T], arguments: dict[str, Any] | None = None
    ) -> T:
        """A question that nothing depends on: silence is an answer, and kills nobody. Raises SparkLostError.

        `read` makes something of any value.
        """
        try:
            return read(await self._asked(operation, arguments or {}, timeout))
        except TimeoutError as error:
            message = f"no answer in {timeout:g} s"
            raise SparkLostError(message) from error

    async def _asked(self, operation: str, arguments: dict[str, Any], timeout: float) -> Any:
        """The value of the answer. Raises SparkLostError and TimeoutError."""
        if not self.is_ready or self._writer is None:
            message = f"{operation}: {self._loss or 'Spark is not ready'}"
            raise SparkLostError(message)
        self._next_id += 1
        call_id = self._next_id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = future
        self._writer.write(frames.encode({"id": call_id, "operation": operation, "arguments": arguments}))
        try:
            async with asyncio.timeout(timeout):
                return await future
        finally:
            self._calls.pop(call_id, None)

    def _fail_calls(self) -> None:
        calls, self._calls = self._calls, {}
        for future in calls.values():
            if not future.done():
                future.set_exception(SparkLostError(str(self._loss)))

    # --- the end ------------------------------------------------------------------------------------------

    async def wait_lost(self) -> SparkLoss:
        """The loss, once host and JVM are dead."""
        await self._lost.wait()
        return self._loss or SparkLoss("unknown")

    async def _wait_jvm_dead(self) -> None:
        """Wait until the JVM is dead; it gets SIGKILL from the kernel when its host dies, and here once more."""
        if self._jvm_descriptor is None:
            return
        descriptor, self._jvm_descriptor = self._jvm_descriptor, None
        dead = asyncio.Event()
        loop = asyncio.get_running_loop()
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            loop.add_reader(descriptor, dead.set)
            await dead.wait()
            loop.remove_reader(descriptor)
        except ProcessLookupError:
            logger.debug("JVM %d is reaped", self.jvm_pid)
        finally:
            os.close(descriptor)

    def _let_jvm_go(self) -> None:
        if self._jvm_descriptor is not None:
            os.close(self._jvm_descriptor)
            self._jvm_descriptor = None

    async def kill(self, loss: SparkLoss) -> None:
        """End host and JVM by force; return when both are dead."""
        self._note(loss)
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        if self._writer is not None:
            await self._lost.wait()
        await self._close()

    async def stop(self) -> None:
        """Ask the host to stop; kill it when it does not. Returns when host and JVM are dead."""
        if self._writer is not None and not self._lost.is_set():
            self._note(SparkLoss("stopped"))
            self._writer.write(frames.encode({"operation": "stop"}))
            try:
                async with asyncio.timeout(_STOP_TIMEOUT):
                    await self._lost.wait()
            except TimeoutError:
                logger.warning("the Spark host does not stop, killing it")
        await self.kill(SparkLoss("stopped"))

    async def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._scope.is_open:
            await self._scope.close()


def _open_process(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:  # it has ended, or there is no such number
        return None
