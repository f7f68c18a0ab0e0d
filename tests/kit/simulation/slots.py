"""A model of slots: user code that takes virtual time, in processes of its own beside the TaskManager's.

As with the real pool, what runs in a slot goes on while the TaskManager's main process is frozen, and its report waits.
When the main process dies, the guard kills and reaps what runs (R13), a moment later: until then it is alive.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from runtime.aio.entropy import SeededEntropy
from runtime.aio.watch import Watch
from runtime.common.clock import Clock
from runtime.common.ids import ExecutionAttemptId, JobId, PartitionId, VertexId
from runtime.common.states import ExecutionState
from runtime.common.stream_progress import StreamProgress
from runtime.gateways.job_master import CheckpointAnswer
from runtime.gateways.process import SlotFigures
from runtime.gateways.task import (
    FailureInfo,
    Fault,
    OutputDirectory,
    PartitionDescriptor,
    TaskDeploymentDescriptor,
    TaskExecutionReport,
    TaskMetrics,
    TaskProgress,
)
from runtime.taskexecutor.slots.work import SlotListener, SlotWork
from tests.kit.simulation.history import AttemptEnded, AttemptStarted, Happening, History
from tests.kit.simulation.processes import Handle, SimulatedLoop, SimulatedProcess, current_process
from tests.kit.simulation.queries import Directories, Query
from tests.kit.simulation.savepoints import SimulatedQueries
from tests.kit.simulation.split_queries import SplitQueries
from tests.kit.simulation.split_readers import OnDemandReader
from tests.kit.simulation.storage import OUTPUTS, SimulatedFileSystem
from tests.kit.simulation.user_code import UserCode
from tests.kit.simulation.values import Exchange

GUARD_DELAY = 0.05
_DAEMON_MAX = 0.3
_CANCEL_MAX = 0.5
_SLOW_CANCEL_MAX = 5.0
_LONG = 3600.0
_SLOW_CANCELS = 0.3
"""So many attempts take long to end, until they are killed and Spark is done with them: longer than to the next read
of the TaskManager's keys."""


@dataclass
class Programs:
    """The user code of all jobs."""

    directories: Directories
    by_vertex: dict[tuple[JobId, VertexId], UserCode] = field(default_factory=dict)
    exchange: Exchange = field(default_factory=Exchange)
    _begun: set[tuple[JobId, VertexId]] = field(default_factory=set)

    def of(self, attempt_id: ExecutionAttemptId) -> UserCode:
        """What this attempt does."""
        return self.by_vertex.get((attempt_id.job_id, attempt_id.vertex_id), UserCode())

    def lost_input(self, task: TaskDeploymentDescriptor) -> tuple[PartitionId, ...]:
        """What an attempt that begins now will not be able to read."""
        vertex = (task.attempt_id.job_id, task.attempt_id.vertex_id)
        is_first = vertex not in self._begun
        self._begun.add(vertex)
        if not is_first or not task.inputs or not self.of(task.attempt_id).is_short_of_input:
            return ()
        return (task.inputs[0].partitions[0].partition_id,)


_NOT_HERE = "no query of it runs here"


class SlotMachine:
    """The slots of one host, whichever TaskManager process they belong to now."""

    def __init__(
        self, loop: SimulatedLoop, name: str, programs: Programs, history: History, entropy: SeededEntropy
    ) -> None:
        self.loop = loop
        self.programs = programs
        self.entropy = entropy
        self._name = name
        self._history = history
        self._alive: dict[ExecutionAttemptId, _RunningAttempt] = {}
        self.cancel_max = _CANCEL_MAX
        """Seconds that user code takes to stop at most."""
        self.slowness = 1.0
        """How many times longer user code takes here than elsewhere."""
        self._deadline = math.inf
        self._timer: Handle | None = None

    def hold(self, deadline: float) -> None:
        """The guard's promise to the TaskManager that lives now (R14)."""
        self._deadline = deadline
        if self._timer is None or deadline < self._timer.when():
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.outside_at(self._deadline, self._isolate)

    def _isolate(self) -> None:
        """No later deadline came: exclusive tasks end, also when the main process is frozen."""
        if self.loop.time() < self._deadline:
            self._set_timer()
            return
        self._timer = None
        for attempt in list(self._alive.values()):
            if attempt.is_exclusive:
                attempt.end_by_guard()

    def record(self, what: Happening) -> None:
        """Into the history."""
        self._history.add(self.loop.time(), self._name, what)

    @property
    def alive(self) -> list[ExecutionAttemptId]:
        """Attempts whose user code runs now."""
        return list(self._alive)

    @property
    def has_endless_queries(self) -> bool:
        """Does a query run here that does not end by itself?"""
        return any(attempt.query is not None and attempt.query.is_endless for attempt in self._alive.values())

    @property
    def has_held_queries(self) -> bool:
        """Does one wait for a word?"""
        return any(attempt.query is not None and attempt.query.is_held for attempt in self._alive.values())

    @property
    def exclusive_until(self) -> float:
        """When the last exclusive attempt that runs now will have ended by itself."""
        return max((attempt.ends_at for attempt in self._alive.values() if attempt.is_exclusive), default=0.0)

    def start(self, attempt: _RunningAttempt) -> None:
        """User code begins."""
        self._alive[attempt.attempt_id] = attempt

    def end(self, attempt_id: ExecutionAttemptId, state: ExecutionState | None, *, is_users_last: bool = False) -> None:
        """It has ended."""
        if self._alive.pop(attempt_id, None) is not None:
            self.record(AttemptEnded(attempt_id, state, is_users_last))

    def main_process_died(self, all_reaped: Callable[[], None]) -> None:
        """The guard sees it, ends everything, and then itself."""
        for attempt in list(self._alive.values()):
            self.loop.outside_later(self.entropy.uniform(0.001, GUARD_DELAY), attempt.kill)
        self.loop.outside_later(GUARD_DELAY, all_reaped)

    def guards_died(self) -> None:
        """With the main process: slot processes die by their parent-death signals, what they have started lives on."""
        self._deadline = math.inf
        for attempt in list(self._alive.values()):
            if not attempt.leaves_daemon:
                self.loop.outside_later(self.entropy.uniform(0.001, GUARD_DELAY), attempt.kill)

    def reap_leftovers(self) -> None:
        """The next life on this host, before anything else of it runs (R30)."""
        for attempt in list(self._alive.values()):
            attempt.kill()

    def template_died(self) -> None:
        """All slot processes die with it; what they have started ends before anybody is told (R29)."""
        for attempt in list(self._alive.values()):
            attempt.end_by_template(self.entropy.uniform(0.01, _DAEMON_MAX))


class _RunningAttempt:
    """One attempt's user code, outside of the TaskManager's main process."""

    def __init__(
        self, machine: SlotMachine, process: SimulatedProcess, work: SlotWork, listener: SlotListener, clock: Clock
    ) -> None:
        self._machine = machine
        self._process = process
        self._listener = listener
        self._clock = clock
        self._task: TaskDeploymentDescriptor = work.task
        self._is_over = False
        self._is_stopping = False
        self._is_killed = False
        self.ends_at = 0.0
        self.is_exclusive = self._task.task.is_exclusive
        self.leaves_daemon = machine.programs.of(work.task.attempt_id).leaves_daemon
        self._lost_input = machine.programs.lost_input(work.task)
        self._code = machine.programs.of(work.task.attempt_id)
        self.query: Query | SplitQueries | None = None
        if work.task.queries:
            self.query = SplitQueries(machine.programs.directories, work, self, machine.entropy)
        elif work.task.task.stream_uid:
            self.query = Query(machine.programs.directories, work, self, machine.entropy, self._code.batches)
        self.reader: OnDemandReader | None = None
        if work.task.task.splits_on_demand:
            self.reader = OnDemandReader(self._want_split, self._read_split, self._finish_reading)
        base = f"{OUTPUTS}/{work.task.attempt_id.job_id}"
        written = OutputDirectory(base, f"{base}/.attempt-{work.task.attempt_id}", self._code.mode)
        self._outputs = (written,) if self._code.files else ()
        self.attempt_id = work.task.attempt_id
        self.reaped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, slot_index: int) -> None:
        """Run for as long as the program says."""
        machine, code = self._machine, self._machine.programs.of(self.attempt_id)
        machine.start(self)
        machine.record(AttemptStarted(self.attempt_id, slot_index, self.is_exclusive))
        if self.query is not None:
            self._listener.task_state_changed(self._report(ExecutionState.INITIALIZING))
            self.ends_at = machine.loop.time() + _LONG
            self.query.begin()
            return
        self._listener.task_state_changed(self._report(ExecutionState.RUNNING))
        if self.reader is not None:
            self.ends_at = machine.loop.time() + _LONG
            self.reader.go_on()
            return
        seconds = machine.entropy.child(str(self.attempt_id)).uniform(code.seconds_low, code.seconds_high)
        seconds *= machine.slowness if code.is_slower_there else 1.0
        state = ExecutionState.FAILED if code.fails or self._lost_input else ExecutionState.FINISHED
        self.ends_at = machine.loop.time() + seconds
        machine.loop.outside_later(max(seconds, 0.001), self._finish, state)

    def _want_split(self, sequence: int) -> None:
        if self.is_alive:
            self._process.post(self._listener.split_wanted, self.attempt_id, sequence)

    def _read_split(self) -> None:
        assert self.reader is not None, self.attempt_id
        seconds = self._machine.entropy.uniform(self._code.seconds_low, self._code.seconds_high)
        self._machine.loop.outside_later(max(seconds, 0.001), self.reader.go_on)

    def _finish_reading(self) -> None:
        state = ExecutionState.FAILED if self._code.fails or self._lost_input else ExecutionState.FINISHED
        self._machine.loop.outside_later(0.001, self._finish, state)

    @property
    def loop(self) -> SimulatedLoop:
        """Of the query."""
        return self._machine.loop

    @property
    def is_alive(self) -> bool:
        """Does its process still run?"""
        return not self._is_over and self.attempt_id in self._machine.alive

    def record(self, what: Happening) -> None:
        """Of the query."""
        self._machine.record(what)

    def query_begun(self) -> None:
        """The query works on a directory of its own."""
        self._process.post(self._tell_query)

    def _tell_query(self) -> None:
        if not self.reaped.done():
            told = StreamProgress(f"{self.attempt_id}", f"{self.attempt_id}")
            self._listener.task_progressed(TaskProgress(self.attempt_id, -1.0, "", 0, 0, 0, 0, streams=(told,)))

    def batch_made(self) -> None:
        """The first batch of the query: only now it is said to run."""
        self._process.post(self._tell_running)

    def finish(self, state: ExecutionState) -> None:
        """The query has ended."""
        self._finish(state)

    def _tell_running(self) -> None:
        if not self.reaped.done():
            self._listener.task_state_changed(self._report(ExecutionState.RUNNING))

    def answer(self) -> CheckpointAnswer:
        """What a checkpoint is told of its queries."""
        if self.query is None or self.attempt_id not in self._machine.alive:
            return CheckpointAnswer(self.attempt_id, None, _NOT_HERE)
        if isinstance(self.query, SplitQueries):
            return CheckpointAnswer(self.attempt_id, None, queries=self.query.positions())
        return CheckpointAnswer(self.attempt_id, self.query.position())

    def cancel(self) -> None:
        """Softly, then by force: it takes a moment."""
        self._is_stopping = True
        delay = self._machine.entropy.uniform(0.01, self._machine.cancel_max)
        draw = self._machine.entropy.child(f"end of {self.attempt_id}").uniform
        if draw(0.0, 1.0) < _SLOW_CANCELS:
            delay = draw(_CANCEL_MAX, _SLOW_CANCEL_MAX)
        self._machine.loop.outside_later(delay, self._finish, ExecutionState.CANCELED)

    def kill(self) -> None:
        """By the guard: nobody is told."""
        self._is_over = True
        self._machine.end(self.attempt_id, None)

    def end_by_guard(self) -> None:
        """Its slot process is killed, and all below it; the main process learns of it, when it wakes."""
        if self.attempt_id in self._machine.alive:
            self._is_killed = True
            self.kill()
            self._process.post(self._tell, ExecutionState.FAILED)

    def end_by_template(self, delay: float) -> None:
        """Its slot process is gone; its daemon, if it has one, a moment later."""
        if not self._is_over:
            self._is_over = self._is_killed = True
            if self.leaves_daemon:
                self._machine.loop.outside_later(delay, self._ended, ExecutionState.FAILED)
            else:
                self._ended(ExecutionState.FAILED)

    def _finish(self, state: ExecutionState) -> None:
        if not self._is_over:
            self._is_over = True
            self._write(is_whole=state is ExecutionState.FINISHED)
            if self.leaves_daemon:
                delay = self._machine.entropy.uniform(0.001, _DAEMON_MAX)
                self._machine.loop.outside_later(delay, self._ended, state)
            else:
                self._ended(state)

    def _ended(self, state: ExecutionState) -> None:
        """Nothing that it has started is left."""
        if self.attempt_id in self._machine.alive:
            self._machine.end(self.attempt_id, state, is_users_last=self._is_users_last(state))
            self._process.post(self._tell, state)

    def _write(self, *, is_whole: bool) -> None:
        for output in self._outputs:
            for number in range(self._code.files if is_whole else 1):
                name = f"part-{self.attempt_id.vertex_id[:6]}-{self.attempt_id.subtask_index}-{number}"
                SimulatedFileSystem.task_writes(f"{output.directory}/{name}", f"{self.attempt_id}".encode())

    def _is_users_last(self, state: ExecutionState) -> bool:
        """R36: its code has failed, by itself, where nobody has asked for a restart, and is no query (R59)."""
        code = self._machine.programs.of(self.attempt_id)
        is_own = (
            state is ExecutionState.FAILED and not self._is_stopping and not self._is_killed and not self._lost_input
        )
        return is_own and self.is_exclusive and not code.is_restarted and self.query is None

    def _tell(self, state: ExecutionState) -> None:
        self._listener.task_state_changed(self._report(state))
        if not self.reaped.done():
            self.reaped.set_result(None)

    def _report(self, state: ExecutionState) -> TaskExecutionReport:
        now = self._clock.epoch_millis()
        value, partitions = "", tuple[PartitionDescriptor, ...]()
        if state is ExecutionState.FINISHED:
            splits = None if self.reader is None else self.reader.splits
            value, partitions = self._machine.programs.exchange.run(self._task, splits)
        failure = None
        if state is ExecutionState.FAILED:
            failure = FailureInfo(
                "ValueError",
                "of the program",
                "",
                "USER",
                is_recoverable=True,
                timestamp_millis=now,
                lost_partitions=self._lost_input,
                fault=Fault.SYSTEM if self._is_killed or self._lost_input else Fault.USER,
            )
        return TaskExecutionReport(
            attempt_id=self.attempt_id,
            state=state,
            timestamp_millis=now,
            failure=failure,
            value=json.dumps(value).encode() if value else b"",
            partitions=partitions,
            outputs=self._outputs,
            metrics=TaskMetrics(),
        )


class SimulatedSlotPool:
    """StartableSlotPool of one TaskManager process."""

    def __init__(self, machine: SlotMachine, clock: Clock) -> None:
        self._machine = machine
        self._clock = clock
        self._process = current_process()
        self._slots: dict[int, _RunningAttempt] = {}
        self.readiness: Watch[bool] = Watch(False)
        self.queries = SimulatedQueries(self._queries, machine.loop, machine.entropy.child("looks"))

    def _queries(self) -> dict[ExecutionAttemptId, Query | SplitQueries]:
        return {one.attempt_id: one.query for one in self._slots.values() if one.query is not None and one.is_alive}

    async def start(self) -> None:
        """The template process comes up."""
        await asyncio.sleep(self._machine.entropy.uniform(0.05, 0.3))
        self.readiness.set(True)

    async def stacks(self) -> AsyncIterator[tuple[str, str]]:
        """There are no processes."""
        for nothing in list[tuple[str, str]]():
            yield nothing

    views = None

    def figures(self) -> tuple[SlotFigures, ...]:
        """Nobody looks."""
        return ()

    async def positions(self, attempts: Sequence[ExecutionAttemptId], /) -> tuple[CheckpointAnswer, ...]:
        """How far the queries are that run here."""
        running = {one.attempt_id: one.answer() for one in self._slots.values()}
        return tuple(running.get(one, CheckpointAnswer(one, None, _NOT_HERE)) for one in attempts)

    def give_split(self, attempt_id: ExecutionAttemptId, split: int, /) -> None:
        """Tell an attempt its next split."""
        for attempt in self._slots.values():
            if attempt.attempt_id == attempt_id and attempt.reader is not None and attempt.is_alive:
                attempt.reader.give(split)

    def memory_bytes(self) -> dict[int, int]:
        """Nothing is measured."""
        return {}

    async def renew(self) -> None:
        """Others come up."""
        self.readiness.set(False)
        await self.start()

    async def stop(self) -> None:
        """All of them reaped."""
        self.readiness.set(False)
        for attempt in list(self._slots.values()):
            attempt.cancel()
            await attempt.reaped

    async def run(self, slot_index: int, work: SlotWork, listener: SlotListener, /) -> None:
        """Run one attempt to its terminal report."""
        assert slot_index not in self._slots, f"slot {slot_index} is taken"
        attempt = self._slots[slot_index] = _RunningAttempt(self._machine, self._process, work, listener, self._clock)
        attempt.begin(slot_index)
        try:
            await attempt.reaped
        finally:
            del self._slots[slot_index]

    async def end_job(self, job_id: JobId, /) -> None:
        """No process outlives its task here."""

    async def cancel(self, slot_index: int, attempt_id: ExecutionAttemptId, /) -> None:
        """Cancel an attempt."""
        attempt = self._slots.get(slot_index)
        if attempt is not None and attempt.attempt_id == attempt_id:
            attempt.cancel()
