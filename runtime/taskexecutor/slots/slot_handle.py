"""One slot process, seen from the TaskManager: its socket, its session, its state, and its end."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import asdict, dataclass
from enum import Enum
from functools import partial
from typing import Any, Protocol

from runtime.aio.watch import Watch
from runtime.common.accumulators import UserAccumulator
from runtime.common.fsm import StateMachine, TransitionTable
from runtime.common.ids import JobId
from runtime.gateways.task import OutputDirectory
from runtime.system.linux import is_ending
from runtime.taskexecutor.containment.cgroups import SlotCgroups
from runtime.taskexecutor.slot_protocol.template_config import STACKS_SIGNAL
from runtime.taskexecutor.slot_protocol.wire import (
    OUTCOME_BYTES_MAX,
    Frame,
    FrameDecoder,
    FrameError,
    FrameKind,
    TaskOutcome,
    encode_fields,
)
from runtime.taskexecutor.slots import slot_message_checks as said
from runtime.taskexecutor.slots.stacks import StackFile
from runtime.taskexecutor.slots.template_handle import ProcessExit, TemplateProcess
from runtime.taskexecutor.slots.work import ONE_SLOT, ProcessRoom
from runtime.taskexecutor.spark.environment import JvmChange, SparkEnvironment
from runtime.taskexecutor.spark.environment_room import Lease
from runtime.taskexecutor.spark_protocol.sessions import SlotSession

logger = logging.getLogger(__name__)

_READ_BYTES = 64 * 1024
_PROGRESS_MAX = 100
_FRAMES_MAX = 10_000
"""In a second. A task's own progress comes ten times a second at most, and waits in the socket until it is read."""
_TOLD_AT_INTERVALS = frozenset({FrameKind.PROGRESS, FrameKind.ACCUMULATORS})
_LAST_WORDS = frozenset({FrameKind.SIGNAL, FrameKind.SPARK_USED, FrameKind.OUTPUT})
"""Frames that count also from a process that has ended: they say what ended it, and what it leaves behind."""


class SlotProcessState(Enum):
    """IDLE: waits for work. RUNNING: user code runs. KILLED: told to end. EXITED: reaped with all below it."""

    IDLE = "IDLE"
    RUNNING = "RUNNING"
    KILLED = "KILLED"
    EXITED = "EXITED"


_S = SlotProcessState
SLOT_PROCESS_TRANSITIONS = TransitionTable(
    {
        _S.IDLE: frozenset({_S.RUNNING, _S.KILLED, _S.EXITED}),
        _S.RUNNING: frozenset({_S.IDLE, _S.KILLED, _S.EXITED}),
        _S.KILLED: frozenset({_S.EXITED}),
        _S.EXITED: frozenset(),
    }
)


class Attachment(Enum):
    """How far the process is with its Spark session."""

    NONE = "NONE"
    OPENING = "OPENING"
    SENT = "SENT"
    ATTACHED = "ATTACHED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class ReuseKey:
    """The use of a process so far: the last job, the key of jobs that may follow, and whether that job has secrets."""

    job_id: JobId
    key: str
    has_secrets: bool

    @property
    def is_of_one_job(self) -> bool:
        """True if the process runs tasks of one job only: no other job may follow, or come before.

        R52: code that has run in a process may have changed the code that reads the next order, and can fake all that
        is seen of the process from outside. So a process that another job has used is told no secret; and a process
        that was told one is used by no other job, which might find the secret in its memory.
        """
        return self.has_secrets or not self.key

    def may_follow(self, last: ReuseKey) -> bool:
        """True if this may run behind `last` in one process."""
        if last.job_id == self.job_id:
            return True
        return self.key == last.key and not self.is_of_one_job and not last.is_of_one_job


class SlotProcessListener(Protocol):
    """Hears what a process says. Called on the loop; calls never block."""

    def spark_needed(self, process: SlotProcess, /) -> None:
        """User code has touched Spark and waits for a session."""

    def spark_used(self, process: SlotProcess, /) -> None:
        """User code has touched Spark for the first time in this attempt."""

    def progress_reported(self, process: SlotProcess, fraction: float, text: str, /) -> None:
        """User code has called report_progress()."""

    def accumulated(self, process: SlotProcess, accumulators: tuple[UserAccumulator, ...], /) -> None:
        """User code has counted."""

    def split_wanted(self, process: SlotProcess, /) -> None:
        """User code has read its splits, and waits for the next one."""

    def output_announced(self, process: SlotProcess, output: OutputDirectory, /) -> None:
        """User code has called output_path()."""

    def attach_failed(self, process: SlotProcess, /) -> None:
        """The process could not connect to its session, and never will."""

    def process_exited(self, process: SlotProcess, /) -> None:
        """The process is reaped."""


class SlotProcess(asyncio.Protocol):
    """Made by `fork`. Ends once, with `exit` set."""

    _stacks: StackFile | None = None

    def __init__(self, template: TemplateProcess, listener: SlotProcessListener) -> None:
        self._template = template
        self._listener = listener
        self._decoder = FrameDecoder(OUTCOME_BYTES_MAX)
        self._second, self._heard = 0.0, 0.0
        self._frames, self._progress, self._progress_max = 0, 0, 0
        self._transport: asyncio.Transport | None = None
        self._machine = StateMachine("slot process", SLOT_PROCESS_TRANSITIONS, SlotProcessState.IDLE)
        self._number = 0
        self._ending: asyncio.Future[TaskOutcome | ProcessExit] | None = None
        self.pid = 0
        self.room = ONE_SLOT
        self.exit: Watch[ProcessExit | None] = Watch(None)
        self.attachment: Watch[Attachment] = Watch(Attachment.NONE)
        self.session: SlotSession | None = None
        self.environment: SparkEnvironment | None = None
        """Whose session it has, or had."""
        self.environment_key = ""
        """The environment that it is, or will be, attached to; "" for the default one."""
        self.acquiring: asyncio.Task[Any] | None = None
        """Waits for that environment."""
        self.lease: Lease | None = None
        """What it has, or had, of that environment; None for the default one."""
        self.is_user = False
        """True while its attempt counts as a user of that environment."""
        self.has_used_session = False
        self.uses_spark = False
        self.refusal = ""
        """What it has said that no slot process says, and was killed for."""
        self.left_behind = ""
        """Processes that it has started and that do not die, by name and pid."""
        self.jvm_change: JvmChange | None = None
        """What it may have changed for all users of its JVM (R45)."""
        self.reuse_key: ReuseKey | None = None
        self.own_signals: set[int] = set()
        """What the code of this attempt has sent to it, as far as it was seen."""
        self.has_signalled_template = False
        self.groups: tuple[str, ...] = ()
        self.is_above_its_group = False
        """The limit of its control groups has ended it, or what it has started."""
        self._socket: socket.socket | None = None

    @classmethod
    async def fork(
        cls,
        template: TemplateProcess,
        listener: SlotProcessListener,
        groups: tuple[str, ...] = (),
        *,
        room: ProcessRoom = ONE_SLOT,
    ) -> SlotProcess:
        """A new, idle process. Raises UnavailableError when the template cannot fork."""
        process = cls(template, listener)
        process.groups, process.room = groups, room
        forked = await template.fork(process._note_exit, groups, has_jvm=room.jvm_bytes > 0, shares=room.shares)
        process._number, process.pid = forked.number, forked.pid
        process._socket = forked.connection
        process._stacks = StackFile(forked.stacks)
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: process, sock=forked.connection)
        if process.state is SlotProcessState.EXITED and process._transport is not None:
            process._transport.abort()
            process._stacks.close()
        return process

    @classmethod
    async def fork_into(
        cls,
        cgroups: SlotCgroups | None,
        slot_index: int,
        template: TemplateProcess,
        listener: SlotProcessListener,
        room: ProcessRoom = ONE_SLOT,
    ) -> SlotProcess:
        """`fork`, with groups of a slot where there are any. Raises UnavailableError."""
        if cgroups is None:
            return await cls.fork(template, listener, room=room)
        groups = await asyncio.to_thread(cgroups.open, slot_index, room.jvm_bytes, room.shares)
        try:
            return await cls.fork(template, listener, groups, room=room)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(cgroups.close, groups))
            raise

    @property
    def state(self) -> SlotProcessState:
        """The state of the process."""
        return self._machine.state

    @property
    def is_idle(self) -> bool:
        """True if it can take work."""
        return self.state is SlotProcessState.IDLE

    @property
    def may_use_spark(self) -> bool:
        """False when its session is lost, or could not be reached: a process attaches once in its life."""
        match self.attachment.value:
            case Attachment.NONE | Attachment.OPENING:
                return True
            case Attachment.SENT | Attachment.ATTACHED:
                return self.session is not None
            case Attachment.FAILED:
                return False

    def hand_over(self, order: bytes, reuse_key: ReuseKey) -> asyncio.Future[TaskOutcome | ProcessExit]:
        """Run an encoded WorkOrder. The future is done when user code, or the process, has ended."""
        self._machine.to(SlotProcessState.RUNNING)
        self.reuse_key = reuse_key
        self.uses_spark = False
        self.own_signals, self.has_signalled_template = set(), False
        loop = asyncio.get_running_loop()
        self._heard = loop.time()
        self._ending = loop.create_future()
        self._write(Frame(FrameKind.RUN, order))
        return self._ending

    def attach(self, session: SlotSession) -> None:
        """Give it the session that was made for it."""
        self.session = session
        self.attachment.set(Attachment.SENT)
        self._write(Frame(FrameKind.ATTACH, encode_fields(**asdict(session))))

    def refuse_spark(self, reason: str, *, is_refused: bool = False) -> None:
        """Answer its wish for Spark with why there is none. `is_refused`: for the conf of its job."""
        self.attachment.set(Attachment.NONE)
        self._write(Frame(FrameKind.NO_SPARK, encode_fields(reason=reason, is_refused=is_refused)))

    async def stacks(self) -> str:
        """The stacks of its Python threads, or why there are none. It goes on meanwhile."""
        if self._stacks is None or self.state not in {SlotProcessState.IDLE, SlotProcessState.RUNNING}:
            return "it ends"
        return await self._stacks.read(self.pid, partial(self._template.kill, self._number, STACKS_SIGNAL))

    def cancel_softly(self) -> None:
        """Set the task's `cancelled`."""
        self._write(Frame(FrameKind.CANCEL))

    def release(self, hold: str, *, finishes: bool) -> None:
        """Tell it that the query which it holds has to end, or goes on (R61)."""
        self._write(Frame(FrameKind.RELEASE, encode_fields(hold=hold, finishes=finishes)))

    def give_split(self, split: int) -> None:
        """Tell it the number of its next split, NO_SPLIT when none is left (R12)."""
        self._write(Frame(FrameKind.SPLIT, encode_fields(split=split)))

    async def strays(self) -> str:
        """R29: a sentence about what has left this process, or another slot's, and is not reaped; or about its end."""
        return await self._template.strays(self.pid)

    def kill(self) -> None:
        """End it and everything below it at once. Idempotent; `exit` says when that has happened."""
        if self.state in {SlotProcessState.IDLE, SlotProcessState.RUNNING}:
            self._machine.to(SlotProcessState.KILLED)
            self._template.kill(self._number)

    async def wait_exited(self) -> ProcessExit:
        """Returns when the process and all below it are reaped."""
        ended = await self.exit.wait_until(lambda value: value is not None)
        assert ended is not None
        return ended

    def _write(self, frame: Frame) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame.encode())

    # --- asyncio.Protocol -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is ours."""
        assert isinstance(transport, asyncio.Transport), transport
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Frames from the process. A process that sends other bytes is killed: user code may write anything."""
        if self.refusal:
            return
        self._count_anew()
        try:
            for frame in self._decoder.feed(data):
                self._count(frame)
                self._handle(frame)
        except FrameError as error:
            self.refuse(str(error))

    def refuse(self, what: str) -> None:
        """Kill the process, and read no more of it: it has sent a message that no slot process sends (R52)."""
        logger.warning("slot process %s has sent what no slot process sends, and is killed: %s", self.pid, what)
        self.refusal = self.refusal or what
        self.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        """The process has closed its socket: it ends, or user code has closed it. In both cases it is used no more."""
        if self.state is SlotProcessState.RUNNING and not is_ending(self.pid):
            self.refuse("its end, while the process goes on: os.closerange, for instance, closes it")  # R43
        self.kill()

    def _count_anew(self) -> None:
        """Begin a new count each second. Messages sent while this TaskManager stood still count for the time that it
        stood.
        """
        now = asyncio.get_running_loop().time()
        unheard, self._heard = now - self._heard, now
        if now - self._second >= 1:
            self._second, self._frames, self._progress = now, 0, 0
            self._progress_max = min(_FRAMES_MAX, int(_PROGRESS_MAX * max(1.0, unheard)))

    def _count(self, frame: Frame) -> None:
        """R43: each message is read by the process that all tasks here depend on. Raises FrameError for a flood."""
        self._frames += 1
        self._progress += frame.kind in _TOLD_AT_INTERVALS
        if self._frames > _FRAMES_MAX or self._progress > self._progress_max:
            message = f"{self._frames} messages in a second, {self._progress} of them about its progress"
            raise FrameError(message)

    def _handle(self, frame: Frame) -> None:
        match frame.kind:
            case FrameKind.DONE:
                self._note_done(said.outcome(frame.payload))
            case FrameKind.PROGRESS | FrameKind.ACCUMULATORS | FrameKind.OUTPUT | FrameKind.NEXT_SPLIT:
                self._handle_work(frame)
            case FrameKind.NEED_SPARK:
                self._listener.spark_needed(self)
            case FrameKind.SPARK_USED:
                self.uses_spark = self.has_used_session = True
                self._listener.spark_used(self)
            case FrameKind.SIGNAL:
                self._note_signal(frame)
            case FrameKind.ATTACHED:
                self.attachment.set(Attachment.ATTACHED)
            case FrameKind.ATTACH_FAILED:
                logger.warning("slot process %s cannot attach: %s", self.pid, said.why_not_attached(frame.payload))
                self.attachment.set(Attachment.FAILED)
                self._listener.attach_failed(self)
            case _:
                message = f"frame {frame.kind.name} is not for the TaskManager"
                raise FrameError(message)

    def _handle_work(self, frame: Frame) -> None:
        """What user code does beside Spark."""
        match frame.kind:
            case FrameKind.PROGRESS:
                progress = said.progress(frame.payload)
                self._listener.progress_reported(self, progress.fraction, progress.text)
            case FrameKind.ACCUMULATORS:
                self._listener.accumulated(self, said.accumulators(frame.payload))
            case FrameKind.OUTPUT:
                self._listener.output_announced(self, said.output(frame.payload))
            case _:
                self._listener.split_wanted(self)

    def _note_done(self, outcome: TaskOutcome) -> None:
        if self.state is SlotProcessState.RUNNING and self._ending is not None:
            self._machine.to(SlotProcessState.IDLE)
            self._end(outcome)

    def _note_signal(self, frame: Frame) -> None:
        signal = said.sent_signal(frame.payload)
        if signal.to_template:
            self.has_signalled_template = True
        else:
            self.own_signals.add(signal.number)

    def _take_last_words(self) -> None:
        """Read the last messages of a process whose end came by another socket.

        At most as many bytes as an attempt may send: the socket may have been handed to a process that goes on writing
        (R43).
        """
        if self._socket is None:
            return  # it is told before `fork` has returned: it has run nothing
        heard = frames = 0
        try:
            while heard < OUTCOME_BYTES_MAX and (data := self._socket.recv(_READ_BYTES)):
                heard += len(data)
                for frame in self._decoder.feed(data):
                    frames += 1
                    if frames > _FRAMES_MAX:
                        return
                    if frame.kind in _LAST_WORDS:
                        self._handle(frame)
        except (OSError, FrameError):
            return  # nothing is left to read, or nothing that could be understood

    def _note_exit(self, exit_: ProcessExit) -> None:
        self._machine.to(SlotProcessState.EXITED)
        self._take_last_words()
        if self._transport is not None:
            self._transport.abort()
        if self._stacks is not None:
            self._stacks.close()
        self.exit.set(exit_)
        self._end(exit_)
        if self.acquiring is not None:
            self.acquiring.cancel()
        self._listener.process_exited(self)

    def _end(self, ending: TaskOutcome | ProcessExit) -> None:
        ending_future, self._ending = self._ending, None
        if ending_future is not None and not ending_future.done():
            ending_future.set_result(ending)
