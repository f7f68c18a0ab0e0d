"""SlotProcessPool: processes that wait for work, and the attempts that run in them.

A slot has at most two processes: `current`, which ran the slot's last task and may run the next one of the same job or
reuse key, and `fresh`, which has run nothing yet. A task gets whichever suits; what does not suit any more is ended in
the background. With Spark, fresh processes are attached to a session of their own while the slot is idle.

Invariants: one attempt per slot at a time; a terminal report is given when no user code of the attempt can run any
more and Spark runs nothing for it (R15); a session serves one process only, and one job only once it has been used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from runtime.aio.scope import ScopeClosedError, ServiceScope
from runtime.aio.watch import Watch
from runtime.common.accumulators import UserAccumulator
from runtime.common.clock import Clock
from runtime.common.errors import FlinklikeError, UnavailableError
from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.spark_environments import DEFAULT_ENVIRONMENT, EnvironmentSpec
from runtime.gateways.job_master import CheckpointAnswer
from runtime.gateways.process import SlotFigures
from runtime.gateways.task import OutputDirectory, TaskExecutionReport
from runtime.system.linux import is_alive
from runtime.taskexecutor.containment.users import open_to_spark
from runtime.taskexecutor.slot_protocol.wire import TaskOutcome
from runtime.taskexecutor.slots import jvm_changes
from runtime.taskexecutor.slots.attempt_views import AttemptViews
from runtime.taskexecutor.slots.exclusive_marks import ExclusiveMarks
from runtime.taskexecutor.slots.monitor import AttemptMonitor
from runtime.taskexecutor.slots.running_attempt import RunningAttempt
from runtime.taskexecutor.slots.sessions import SlotSessions
from runtime.taskexecutor.slots.slot import Slot
from runtime.taskexecutor.slots.slot_handle import Attachment, SlotProcess
from runtime.taskexecutor.slots.spark_users import SparkUsers
from runtime.taskexecutor.slots.spark_wishes import is_script, spark_wish
from runtime.taskexecutor.slots.stacks import stacks_of
from runtime.taskexecutor.slots.stream_positions import positions_of
from runtime.taskexecutor.slots.stream_queries import StreamQueries
from runtime.taskexecutor.slots.template_handle import ProcessExit
from runtime.taskexecutor.slots.templates import RESTART_PAUSE, Templates
from runtime.taskexecutor.slots.work import (
    ONE_SLOT,
    OrphanReaper,
    ProcessGuard,
    ProcessRoom,
    SlotListener,
    SlotSettings,
    SlotWork,
)
from runtime.taskexecutor.spark.environment import SparkEnvironment
from runtime.taskexecutor.spark.environments import SparkEnvironments

logger = logging.getLogger(__name__)

_DEATH_TIMEOUT = 5.0
_DEAD_POLL = 0.002
_RENEWED = "it is replaced for jobs of another namespace"
_WAITS_FOR_TEMPLATE = "waits until the TaskManager can start processes again: its template process was lost"


class SlotProcessPool:
    """All slots of a TaskManager. Every method belongs to one event loop, on the main thread."""

    def __init__(
        self,
        settings: SlotSettings,
        spark: SparkEnvironment | None,
        clock: Clock,
        guard: ProcessGuard | None = None,
        reaper: OrphanReaper | None = None,
        environments: SparkEnvironments | None = None,
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._clock = clock
        self._templates = Templates(
            settings, clock, has_spark=spark is not None, prepare=self._fill, note_changed=self._note_readiness
        )
        self._scope = ServiceScope("slots")
        self._slots = [Slot(index) for index in range(settings.slots)]
        self._environments = environments
        self._sessions = SlotSessions(settings, spark, environments, self._scope)
        self._monitor = AttemptMonitor(
            settings, clock, self._running_attempts, self._kept_attempts, lambda: self._templates.current
        )
        self.views = AttemptViews(self._running_attempts, clock, environments)
        self.queries = StreamQueries(self._running_attempts, stop_timeout=settings.stop_timeout)
        self._spark_users = None
        if spark is not None:
            self._spark_users = SparkUsers(
                spark,
                self._slots,
                self._sessions,
                clock,
                self._note_readiness,
                attach_idle_delay=settings.attach_idle_delay,
            )
            if environments is not None:
                environments.on_loss = self._spark_users.fail_users
                environments.on_change = self._spark_users.tell_change
                environments.is_default_idle = self._is_default_idle
        self._marks = ExclusiveMarks(guard)
        self._reaper = reaper
        self._is_stopping = False
        self.readiness: Watch[bool] = Watch(False)  # noqa: FBT003 - a Watch has one argument
        """True while slots can take tasks."""

    @classmethod
    def of_task_manager(
        cls,
        settings: SlotSettings,
        environments: SparkEnvironments | None,
        clock: Clock,
        guard: ProcessGuard | None,
        reaper: OrphanReaper,
    ) -> SlotProcessPool:
        """The slots of a TaskManager that starts Spark environments on demand."""
        spark = None if environments is None else environments.default
        return cls(settings, spark, clock, guard, reaper, environments)

    # --- life -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Template process, then one idle process per slot. Call it before Spark is started: children of a process
        that holds the JVM's stdin would keep the JVM alive.
        """
        await self._scope.open()
        await self._templates.start()
        self._scope.spawn_eternal("watch resources", self._monitor.watch_resources())
        self._scope.spawn_eternal("watch template", self._templates.watch())
        if self._spark_users is not None:
            self._scope.spawn_eternal("watch Spark progress", self._monitor.watch_spark())
            self._scope.spawn_eternal("watch Spark", self._spark_users.watch_losses())
            self._scope.spawn_eternal("watch its JVM", self._spark_users.watch_changes())

    async def renew(self) -> None:
        """R50: replace the template, all slot processes and Spark; returns when new ones can take tasks.

        Then no old process, and no process that an old one has started, is left. No attempt may run.
        """
        assert not self._running_attempts(), "an attempt runs"
        with self._templates.renewal():
            begun = self._templates.starts.generation
            if (spark := self._environments or self._spark) is not None:
                await spark.give_up(_RENEWED)
            await self._templates.end_current()
            await self._end_what_is_left()
            await self._templates.starts.wait_changed(begun)
            await self.readiness.wait_until(bool)

    async def _end_what_is_left(self) -> None:
        told = ""
        while self._reaper is not None and (left := await self._reaper.sweep()):
            if left != told:
                logger.error(
                    "what jobs of a namespace have left here does not end, no others begin meanwhile: %s", left
                )
            told = left
            await asyncio.sleep(RESTART_PAUSE)

    async def end_job(self, job_id: JobId) -> None:
        """R50: end the processes of a job that has left, but those that other jobs may use; returns when they are
        reaped.

        Idempotent. No attempt of the job runs.
        """
        for slot in self._slots:
            current = slot.current
            if slot.attempt is None and current is not None and _is_only_of(current, job_id, has_user=bool(slot.used)):
                slot.current = None
                self._retire(current)
            for process in slot.used:
                if _is_only_of(process, job_id, has_user=True):
                    process.kill()
                    await process.wait_exited()

    async def _fill(self) -> None:
        for slot in self._slots:
            slot.fresh = await self._fork(slot)

    async def _fork(self, slot: Slot, room: ProcessRoom = ONE_SLOT) -> SlotProcess:
        return await SlotProcess.fork_into(self._settings.cgroups, slot.index, self._templates.current, self, room)

    async def stop(self) -> None:
        """End all processes and everything below them. Idempotent. Attempts that run get their terminal reports."""
        self._is_stopping = True
        self._templates.begin_stop()
        self._note_readiness()
        for slot in self._slots:
            if slot.expiry is not None:
                slot.expiry.cancel()
        for attempt in self._running_attempts():
            attempt.kill(attempt.system_failure("the TaskManager stops"))
        await self._templates.end_current()
        await self._scope.close()
        if self._settings.cgroups is not None:
            await asyncio.to_thread(self._settings.cgroups.remove)

    def give_split(self, attempt_id: ExecutionAttemptId, split: int) -> None:
        """Tell a running attempt the number of its next split (R12)."""
        for attempt in self._running_attempts():
            if attempt.attempt_id == attempt_id:
                attempt.give_split(split)

    async def positions(self, attempts: Sequence[ExecutionAttemptId]) -> tuple[CheckpointAnswer, ...]:
        """How far the queries of these attempts have come for good, one answer for each."""
        return await positions_of(attempts, self._running_attempts())

    @property
    def template_pid(self) -> int:
        """The template process. All slot processes, and all processes that they have started, are its descendants."""
        return self._templates.current.pid

    def stacks(self) -> AsyncIterator[tuple[str, str]]:
        """(name, stack) of each Python thread of all slot processes."""
        return stacks_of([one for slot in self._slots for one in _living(slot)])

    def _note_readiness(self) -> None:
        is_spark_ready = self._spark is None or self._spark.is_ready
        is_ready = self._templates.current.is_alive and is_spark_ready and not self._is_stopping
        if is_ready != self.readiness.value:
            self.readiness.set(is_ready)

    # --- running an attempt ---------------------------------------------------------------------------------

    async def run(self, slot_index: int, work: SlotWork, listener: SlotListener) -> None:
        """Run one attempt, to its terminal report. The slot must not be running another one."""
        slot = self._slots[slot_index]
        assert slot.attempt is None, f"slot {slot_index} runs an attempt already"
        attempt = slot.attempt = RunningAttempt(
            work,
            listener,
            self._clock,
            self._spec_of(work),
            checkpoint_directory=self._settings.checkpoint_directory,
        )
        attempt.may_move = self._settings.moves_scripts and self._environments is not None and is_script(work)
        self._monitor.wake()
        try:
            report = await self._run(slot, attempt)
        except UnavailableError as error:
            report = attempt.failed(attempt.system_failure(str(error)))
        finally:
            if attempt.process is not None:
                self._sessions.release(attempt.process)
                if slot.current is attempt.process:
                    self._marks.remove(attempt.process.pid)
                else:
                    self._retire(attempt.process)
            slot.attempt = None
            self._refill(slot)
        attempt.tell_terminal(report)

    def _is_default_idle(self) -> bool:
        return not any(attempt.spec.is_default for attempt in self._running_attempts())

    def _spec_of(self, work: SlotWork) -> EnvironmentSpec:
        return DEFAULT_ENVIRONMENT if self._environments is None else self._environments.spec_of(spark_wish(work))

    async def _run(self, slot: Slot, attempt: RunningAttempt) -> TaskExecutionReport:
        if self._settings.spark_cluster and attempt.is_exclusive_rerun:
            return attempt.failed(attempt.rerun_refused(self._settings.spark_cluster))
        if self._settings.cgroups is not None:
            await asyncio.to_thread(self._settings.cgroups.scale, slot.index, attempt.work.shares)
        process = attempt.process = await self._take_process(slot, attempt)
        if process is None:
            return attempt.failed(attempt.kill_failure)
        if attempt.is_over_before_it_runs:
            self._keep(slot, process, attempt)
            return attempt.failed(attempt.kill_failure)
        if attempt.work.user is not None:
            slot.used = [process]
        self._marks.note_start(process.pid, is_exclusive=attempt.work.task.task.is_exclusive)
        attempt.ending = process.hand_over(attempt.begin(), attempt.reuse_key)
        attempt.tell_handed_over()
        ending = await attempt.ending
        if self._spark_users is not None:
            await self._spark_users.name_loss(attempt, process, ending)
        if await self._has_moved(attempt, process, ending):
            return await self._run(slot, attempt)
        return await self._ended(slot, attempt, process, ending)

    async def _ended(
        self, slot: Slot, attempt: RunningAttempt, process: SlotProcess, ending: TaskOutcome | ProcessExit
    ) -> TaskExecutionReport:
        """The terminal report, once nothing of the attempt is left. A process that may run another task is kept."""
        attempt.spark_work = await self.views.work_at_end(attempt)
        if isinstance(ending, TaskOutcome) and await self._has_ended(attempt, process, ending):
            if ending.is_reusable and self._settings.is_reuse_enabled and attempt.kill_failure is None:
                self._keep(slot, process, attempt)
            return attempt.report_of(ending)
        await self._end_process(process)
        if process.left_behind:
            attempt.note_left_behind(process.left_behind)
        if process.jvm_change is not None:
            jvm_changes.tell(attempt.work, process.jvm_change)
        return attempt.report_of(ending)

    async def _has_moved(
        self, attempt: RunningAttempt, process: SlotProcess, ending: TaskOutcome | ProcessExit
    ) -> bool:
        """R53: True for a script that is to begin again in another environment; nothing of it is left then (R15)."""
        if self._environments is None or not isinstance(ending, TaskOutcome) or not ending.needed_conf:
            return False
        if not attempt.may_move or attempt.is_over_before_it_runs:
            return False
        wish = spark_wish(attempt.work)
        attempt.move(self._environments.spec_of(replace(wish, script={**wish.script, **ending.needed_conf})))
        await self._end_process(process)
        self._sessions.release(process)
        if process.left_behind:
            attempt.note_left_behind(process.left_behind)
        return True

    async def _has_ended(self, attempt: RunningAttempt, process: SlotProcess, outcome: TaskOutcome) -> bool:
        """R29: False if something of the attempt may live. It ends with its slot process, before the report."""
        if attempt.is_cancelled or not outcome.is_clean:
            return False
        if strays := await process.strays():
            logger.warning("%s", strays)
        return not strays and not attempt.is_cancelled

    async def _take_process(self, slot: Slot, attempt: RunningAttempt) -> SlotProcess | None:
        """None when the attempt was ended while there was no template: it holds its slot no longer than it must."""
        current, slot.current = slot.current, None
        if slot.expiry is not None:
            slot.expiry.cancel()
        if current is not None:
            if current.is_idle and self._may_run(current, attempt) and self._sessions.suits(current, attempt.spec):
                return current
            self._retire(current)
        await self._end_namesakes(slot)
        if attempt.spec.is_application or attempt.work.shares > 1:  # no process that is made ahead has such limits
            return await self._fork_for(slot, attempt)
        if slot.refill is not None and slot.fresh is None:
            await asyncio.wait([slot.refill])
        fresh, slot.fresh = slot.fresh, None
        if fresh is not None and fresh.is_idle:
            if self._sessions.suits(fresh, attempt.spec):
                return fresh
            self._retire(fresh)
        return await self._fork_for(slot, attempt)

    async def _fork_for(self, slot: Slot, attempt: RunningAttempt) -> SlotProcess | None:
        await self._wait_template(attempt)
        if attempt.is_over_before_it_runs:
            return None
        jvm_bytes = attempt.spec.memory_bytes if attempt.spec.is_application else 0
        return await self._fork(slot, ProcessRoom(attempt.work.shares, jvm_bytes))

    async def _end_namesakes(self, slot: Slot) -> None:
        """R50: what ran before in the slot has the same user: it is reaped with all below it, before others run."""
        for process in slot.used:
            process.kill()
            await process.wait_exited()
        slot.used = []

    async def _wait_template(self, attempt: RunningAttempt) -> None:
        """Wait for a template: its loss is no fault of this task. Returns at once when the attempt, or the TaskManager,
        is to end.
        """
        is_waiting = False
        while not (self._templates.current.is_alive or self._is_stopping or attempt.is_over_before_it_runs):
            if not is_waiting:
                attempt.tell_reported_progress(0.0, _WAITS_FOR_TEMPLATE)
                is_waiting = True
            await self._templates.starts.wait_changed(self._templates.starts.generation)
        if is_waiting:
            attempt.tell_reported_progress(0.0, "")

    def _keep(self, slot: Slot, process: SlotProcess, attempt: RunningAttempt) -> None:
        if not process.may_use_spark:
            return
        slot.current, slot.kept = process, attempt
        loop = asyncio.get_running_loop()
        slot.expiry = loop.call_later(self._settings.keep_idle, self._expire, slot, process)

    def _expire(self, slot: Slot, process: SlotProcess) -> None:
        """Nothing has come that could run in it; what its task has left in memory is of no more use."""
        if slot.attempt is None and slot.current is process:
            slot.current = None
            self._retire(process)

    def _may_run(self, process: SlotProcess, attempt: RunningAttempt) -> bool:
        if process.room.shares != attempt.work.shares:
            return False
        last, wanted = process.reuse_key, attempt.reuse_key
        if last is None or last.job_id == wanted.job_id:
            return True
        if attempt.work.user is not None:  # R50: it has the group of another job, for ever
            return False
        return wanted.may_follow(last) and not process.has_used_session

    async def _end_process(self, process: SlotProcess) -> None:
        process.kill()
        exit_ = await process.wait_exited()
        orphans = await self._end_orphans(process.pid) if exit_.lost_reason else ""
        closed = await self._sessions.end(process)
        process.left_behind = ", ".join(part for part in (process.left_behind, orphans, closed.left) if part)
        process.jvm_change = closed.change
        self._marks.remove(process.pid)

    async def _end_orphans(self, pid: int) -> str:
        """A process whose template is lost dies by its parent-death signal; what it has started does not (R29)."""
        if self._reaper is not None:
            return await self._reaper.sweep()
        await _wait_dead(pid)
        return ""

    # --- cancel ---------------------------------------------------------------------------------------------

    async def cancel(self, slot_index: int, attempt_id: ExecutionAttemptId) -> None:
        """Cancel an attempt: softly, then by force. Returns when user code has ended or is killed. Idempotent; does
        nothing for an attempt that is not in this slot.
        """
        attempt = self._slots[slot_index].attempt
        if attempt is None or attempt.attempt_id != attempt_id or attempt.is_cancelled:
            return
        attempt.is_cancelled = True
        process, ending = attempt.process, attempt.ending
        if process is None or ending is None:
            self._templates.starts.set(None)  # it may wait for that
            return
        process.cancel_softly()
        try:
            async with asyncio.timeout(self._settings.cancellation_timeout):
                await self._sessions.cancel_jobs(process)
                await asyncio.wait([ending])
        except TimeoutError:
            process.kill()

    # --- processes in the background ------------------------------------------------------------------------

    def _retire(self, process: SlotProcess) -> None:
        if process.exit.value is not None and process.session is None:
            return
        process.kill()
        self._spawn("retire process", self._end_process(process))

    def _refill(self, slot: Slot) -> None:
        if slot.refill is None and not self._is_stopping and self._scope.is_open and self._templates.current.is_alive:
            slot.refill = self._scope.start("refill slot", self._do_refill(slot))

    async def _do_refill(self, slot: Slot) -> None:
        try:
            if slot.fresh is None or not slot.fresh.is_idle:
                slot.fresh = None
                slot.fresh = await self._fork(slot)
        except FlinklikeError as error:
            if not self._is_stopping:
                logger.warning("slot %s has no idle process: %s", slot.index, error)
            return
        finally:
            slot.refill = None
        if self._sessions.can_attach_ahead and slot.fresh.attachment.value is Attachment.NONE:
            self._spawn("attach idle", self._attach_when_idle(slot, slot.fresh))

    async def _attach_when_idle(self, slot: Slot, process: SlotProcess) -> None:
        """Attaching costs 50 ms of CPU, so a slot that gets one task after the other is left alone."""
        await asyncio.sleep(self._settings.attach_idle_delay)
        if slot.attempt is None and slot.fresh is process and process.is_idle and self._sessions.can_attach_ahead:
            self._sessions.give(slot.index, process)

    def _spawn(self, what: str, coroutine: object) -> None:
        try:
            self._scope.spawn(what, coroutine)  # type: ignore[arg-type]  # a coroutine object
        except ScopeClosedError:
            return

    def memory_bytes(self) -> dict[int, int]:
        """The memory of what runs in each slot, as it was measured last; 0 where nothing runs."""
        return {slot.index: 0 if slot.attempt is None else slot.attempt.memory_bytes for slot in self._slots}

    def figures(self) -> tuple[SlotFigures, ...]:
        """What runs in each slot, and its memory against its limit."""
        limit, memory = self._settings.memory_bytes_max, self.memory_bytes()
        attempts = {slot.index: "" if slot.attempt is None else str(slot.attempt.attempt_id) for slot in self._slots}
        shares = {slot.index: 1 if slot.attempt is None else slot.attempt.work.shares for slot in self._slots}
        return tuple(
            SlotFigures(index, attempt, memory[index], limit * shares[index]) for index, attempt in attempts.items()
        )

    def _running_attempts(self) -> list[RunningAttempt]:
        return [slot.attempt for slot in self._slots if slot.attempt is not None]

    def _kept_attempts(self) -> list[RunningAttempt]:
        """R43: attempts that have ended by the statement of their processes, which are kept."""
        return [
            slot.kept
            for slot in self._slots
            if slot.kept is not None and slot.attempt is None and slot.current is slot.kept.process
        ]

    def _attempt_of(self, process: SlotProcess) -> tuple[Slot, RunningAttempt] | None:
        for slot in self._slots:
            if slot.attempt is not None and slot.attempt.process is process:
                return slot, slot.attempt
        return None

    # --- SlotProcessListener --------------------------------------------------------------------------------

    def spark_needed(self, process: SlotProcess) -> None:
        """User code waits for a session."""
        if (found := self._attempt_of(process)) is not None:
            self._sessions.give(found[0].index, process, found[1].spec, found[1].tell_waiting)

    def spark_used(self, process: SlotProcess) -> None:
        """From now on the attempt fails with the Spark environment."""
        if process.environment is not None and (found := self._attempt_of(process)) is not None:
            process.environment.note_use(found[1].attempt_id.job_id)
            if (user := found[1].work.user) is not None:
                open_to_spark(user)  # R50: the task waits for it

    def progress_reported(self, process: SlotProcess, fraction: float, text: str) -> None:
        """User code has called report_progress()."""
        if (found := self._attempt_of(process)) is not None:
            found[1].tell_reported_progress(fraction, text)

    def accumulated(self, process: SlotProcess, accumulators: tuple[UserAccumulator, ...]) -> None:
        """User code has counted."""
        if (found := self._attempt_of(process)) is not None:
            found[1].tell_accumulators(accumulators)

    def split_wanted(self, process: SlotProcess) -> None:
        """User code waits for its next split."""
        if (found := self._attempt_of(process)) is not None:
            found[1].want_split()

    def output_announced(self, process: SlotProcess, output: OutputDirectory) -> None:
        """The attempt's report will name it, however the attempt ends."""
        if (found := self._attempt_of(process)) is not None and (wrong := found[1].announce(output)):
            process.refuse(wrong)

    def attach_failed(self, process: SlotProcess) -> None:
        """An idle process is replaced, after a pause: its JVM may be about to be found lost."""
        for slot in self._slots:
            if slot.fresh is process:
                slot.fresh = None
                self._retire(process)
                self._spawn("refill slot later", self._refill_later(slot))

    async def _refill_later(self, slot: Slot) -> None:
        await asyncio.sleep(RESTART_PAUSE)
        self._refill(slot)

    def process_exited(self, process: SlotProcess) -> None:
        """An idle process that ends by itself is replaced; a running one's attempt sees it itself."""
        if (groups := self._settings.cgroups) is not None:
            process.is_above_its_group = groups.has_ended(process.groups)
            self._spawn("remove group", asyncio.to_thread(groups.close, process.groups))
        for slot in self._slots:
            if process in slot.processes():
                slot.current = None if slot.current is process else slot.current
                slot.fresh = None if slot.fresh is process else slot.fresh
                self._spawn("end session", self._sessions.end(process))
                if slot.attempt is None:
                    # After a pause: what ends an idle process may end the next one as well.
                    self._spawn("refill slot later", self._refill_later(slot))


def _living(slot: Slot) -> list[tuple[str, SlotProcess]]:
    """The processes of a slot by name, that of a running attempt with the id of the attempt."""
    name, attempt = f"slot {slot.index}", slot.attempt
    running = None if attempt is None else attempt.process
    found = [(name, process) for process in slot.processes() if process is not running]
    if attempt is not None and running is not None:
        found.insert(0, (f"{name} attempt {attempt.attempt_id}", running))
    return found


def _is_only_of(process: SlotProcess, job_id: JobId, *, has_user: bool) -> bool:
    key = process.reuse_key
    return key is not None and key.job_id == job_id and (has_user or key.is_of_one_job)


async def _wait_dead(pid: int) -> None:
    """A process that dies by its parent-death signal is reaped by others: see it go."""
    try:
        async with asyncio.timeout(_DEATH_TIMEOUT):
            while is_alive(pid):  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(_DEAD_POLL)
    except TimeoutError:
        logger.error("slot process %s does not die", pid)  # noqa: TRY400 - the sentence is enough
