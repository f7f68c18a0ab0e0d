"""The TaskManager's handle on its template process: start it, fork slot processes from it, learn of their ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runtime.aio.watch import Watch
from runtime.common.errors import UnavailableError
from runtime.system.linux import children_of, name_of
from runtime.taskexecutor.slot_protocol.template_config import MESSAGE_BYTES_MAX, SINGLE_THREADED, TemplateConfig
from runtime.taskexecutor.slot_protocol.wire import decode_fields, encode_fields
from runtime.taskexecutor.task_environment import TaskEnvironment

logger = logging.getLogger(__name__)

AS_SPARK_SUBMIT = {"PYTHONHASHSEED": "0"}
"""PySpark's estimators take their default seeds from a hash: what a script learns must not differ from run to run."""

# Without a PYTHONPATH, which the processes that user code starts would inherit.
_BOOTSTRAP = (
    f"import sys; sys.path.append({str(Path(__file__).resolve().parents[3])!r}); "
    "from runtime.taskexecutor.template.template_main import main; main(sys.argv[1:])"
)


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """The end of a slot process and of everything below it. `code` is negative for a signal.

    `lost_reason` is set when the template process was lost: then the slot process dies by its parent-death signal.
    """

    code: int
    cpu_millis: int
    memory_bytes: int
    lost_reason: str = ""


ExitListener = Callable[[ProcessExit], None]


@dataclass(frozen=True, slots=True)
class ForkedProcess:
    """A slot process, alive at least when it was forked. `connection` is our end of its socket.

    `stacks`: the descriptor of the file into which it writes its stacks (`slots.stacks`).
    """

    number: int
    pid: int
    connection: socket.socket
    stacks: int


class TemplateProcess:
    """One life of a template process. When it is lost, `lost` says why, and all its slot processes are dead too."""

    def __init__(self, config: TemplateConfig, environment: TaskEnvironment) -> None:
        self._config = config
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._outbox: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._forks: dict[int, asyncio.Future[int]] = {}
        self._listeners: dict[int, ExitListener] = {}
        self._pids: dict[int, int] = {}
        self._count = 0
        self.state: Watch[str] = Watch("starting")
        self.lost_reason = ""

    @property
    def pid(self) -> int:
        """The process id of the template, 0 before the start."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_alive(self) -> bool:
        """True from ready to lost."""
        return self.state.value == "ready"

    async def start(self, *, timeout: float) -> None:
        """Start it and wait until it can fork. Must be called on the process's main thread."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-P", "-c", _BOOTSTRAP, str(theirs.fileno()), self._config.to_json()]
            self._process = subprocess.Popen(  # noqa: ASYNC220 - vfork and exec: about a millisecond
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**AS_SPARK_SUBMIT, **self._environment.variables, **SINGLE_THREADED},
                umask=self._environment.umask,
                start_new_session=True,
            )
        ours.settimeout(0)
        self._control = ours
        asyncio.get_running_loop().add_reader(ours, self._on_readable)
        async with asyncio.timeout(timeout):
            state = await self.state.wait_until(lambda value: value != "starting")
        if state != "ready":
            message = f"template process did not start: {self.lost_reason}"
            raise UnavailableError(message)

    async def fork(
        self, listener: ExitListener, groups: tuple[str, ...] = (), *, has_jvm: bool = False, shares: int = 1
    ) -> ForkedProcess:
        """A new slot process, in these control groups (R50), with so many slots' memory. `has_jvm`: it starts a JVM, so
        no addresses are limited.

        `listener` is called once, on the loop, after it and all below it are reaped.
        """
        if not self.is_alive:
            message = f"no slot process can be forked: {self.lost_reason or 'the template process is not ready'}"
            raise UnavailableError(message)
        self._count += 1
        number = self._count
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        stacks = os.memfd_create("stacks")
        forked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._forks[number] = forked
        self._listeners[number] = listener
        request = encode_fields(op="fork", number=number, groups=groups, has_jvm=has_jvm, shares=shares)
        self._send(request, theirs.detach(), os.dup(stacks))
        try:
            pid = await forked
        except BaseException:
            ours.close()  # the child, if there is one, ends at the end of its socket
            os.close(stacks)
            raise
        finally:
            self._forks.pop(number, None)
        ours.settimeout(0)
        return ForkedProcess(number, pid, ours, stacks)

    def kill(self, number: int, signal_number: int = signal.SIGKILL) -> None:
        """Signal a slot process, unless it is reaped already: only the template can tell, so it sends the signal."""
        if self.is_alive and number in self._listeners:
            self._send(encode_fields(op="signal", number=number, signal=int(signal_number)))

    def stray_pids(self) -> set[int]:
        """Processes that have left a slot process, as `strays` finds them; none while one is being forked."""
        if self._forks or not self.is_alive:
            return set()
        return self._children().difference(self._pids.values())

    async def strays(self, slot: int) -> str:
        """What has left a slot process and is not reaped yet, by name and pid, in a sentence: children of the template
        that are no slot processes. Or that the slot process `slot` has ended. "" if there is none, while it lives.

        R29: no descendant of a slot gets further (`clone` with CLONE_PARENT, PR_SET_CHILD_SUBREAPER off), because the
        template is a subreaper. They stand in one small file: the template is not asked.
        """
        found = self._children()
        if self._forks and self.is_alive and found.difference(self._pids.values()):
            # A slot process that is being forked is there before its pid is told.
            await asyncio.wait(set(self._forks.values()))
            found &= self._children()
        if slot not in found:
            return f"slot process {slot} has ended, and what it has left ends now"
        strays = sorted(found.difference(self._pids.values()))
        names = ", ".join(f"{name_of(pid)} ({pid})" for pid in strays)
        return f"a process of this TaskManager has left its slot, and ends now: {names}" if strays else ""

    def _children(self) -> set[int]:
        last, found = None, children_of(self.pid)
        while found != last:  # while one of them is reaped, the kernel may leave out the one behind it
            last, found = found, children_of(self.pid)
        return set(found)

    async def stop(self, *, timeout: float) -> None:
        """End it and everything below it. Idempotent."""
        process, control = self._process, self._control
        if process is None or control is None:
            return
        if control.fileno() >= 0:
            control.shutdown(socket.SHUT_WR)
        try:
            async with asyncio.timeout(timeout):
                await self.state.wait_until(lambda value: value == "lost")
        except TimeoutError:
            logger.warning("template process %s did not end in time and is killed", process.pid)
            process.kill()
            await self.state.wait_until(lambda value: value == "lost")

    def _send(self, message: bytes, *descriptors: int) -> None:
        """Send the message with these descriptors, and close them."""
        self._outbox.append((message, descriptors))
        if len(self._outbox) == 1:
            self._flush()

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        control = self._control
        if control is None or control.fileno() < 0:
            return
        while self._outbox:
            message, descriptors = self._outbox[0]
            try:
                if descriptors:
                    socket.send_fds(control, [message], descriptors)
                else:
                    control.send(message)
            except BlockingIOError:
                loop.add_writer(control, self._flush)
                return
            except OSError:
                return  # its end is noticed, and named, by the reader
            for descriptor in descriptors:
                os.close(descriptor)
            self._outbox.popleft()
        loop.remove_writer(control)

    def _on_readable(self) -> None:
        control = self._control
        assert control is not None
        while True:
            try:
                data = control.recv(MESSAGE_BYTES_MAX)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._note_lost(control)
                return
            self._handle(decode_fields(data))

    def _handle(self, event: dict[str, object]) -> None:
        number = int(str(event.get("number", 0)))
        match event["event"]:
            case "ready":
                if int(str(event["threads"])) > 1:
                    logger.warning("template process has %s threads, expected one", event["threads"])
                self.state.set("ready")
            case "forked" | "failed":
                self._note_forked(number, event)
            case "exited":
                code, cpu, memory = (int(str(event[name])) for name in ("code", "cpu_millis", "memory_bytes"))
                self._pids.pop(number, None)
                if listener := self._listeners.pop(number, None):
                    listener(ProcessExit(code, cpu, memory))
            case other:
                logger.error("template process said %r", other)

    def _note_forked(self, number: int, event: dict[str, object]) -> None:
        if event["event"] == "failed":
            self._listeners.pop(number, None)
        else:
            self._pids[number] = int(str(event["pid"]))
        future = self._forks.get(number)
        if future is None or future.done():
            return
        if event["event"] == "forked":
            future.set_result(self._pids[number])
        else:
            message = f"no slot process can be forked: {event['error']}"
            future.set_exception(UnavailableError(message))

    def _note_lost(self, control: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(control)
        loop.remove_writer(control)
        control.close()
        assert self._process is not None
        # Its socket closes while it dies, so this waits for microseconds; parent-death signals end the rest.
        code = self._process.wait()
        self.lost_reason = f"the template process {self._process.pid} has ended with {code}"
        for _, descriptors in self._outbox:
            for descriptor in descriptors:
                os.close(descriptor)
        self._outbox.clear()
        self.state.set("lost")
        for future in self._forks.values():
            if not future.done():
                future.set_exception(UnavailableError(self.lost_reason))
        listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            listener(ProcessExit(-signal.SIGKILL, 0, 0, self.lost_reason))
