"""Promise 2, judged from outside: no user code runs again for nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.states import ExecutionState
from runtime.gateways.job_master import DeployTasks, TaskReports
from runtime.scheduler.core.job_events import AttemptFinished, JobRescaled, SubtasksReset
from tests.kit.simulation.checker import CheckerBase, Reader, Replacements, subtask
from tests.kit.simulation.history import (
    AWAKE,
    CUT_OFF,
    FROZEN,
    KILLED,
    REACHED,
    READABLE,
    STARTS,
    STOPPED,
    TEMPLATE_KILLED,
    UNREADABLE,
    Applied,
    AttemptEnded,
    AttemptStarted,
    Fault,
    ProcessEvent,
    Received,
    Record,
    Sent,
    Submitting,
)


class NothingRunsTwice(CheckerBase):
    """Promise 2: user code of a subtask runs once, unless it has failed (R10) or its TaskManager has died, or could not
    be reached, or be found (R31), before that was accepted which it has done; or its job has slow tasks run again while
    they run, on another TaskManager (R67).
    """

    rule = "promise 2"

    sees: tuple[type, ...] = (AttemptStarted, AttemptEnded, Applied, Fault, ProcessEvent, Submitting, Received)
    hears: tuple[type, ...] = (DeployTasks,)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._started: dict[tuple[JobId, str, int], tuple[ExecutionAttemptId, str]] = {}
        self._accepted: set[ExecutionAttemptId] = set()
        self._replaced = Replacements()
        self._out_of_reach: dict[str, int] = defaultdict(int)
        self._speculating: set[JobId] = set()
        self._alive: dict[tuple[JobId, str, int], dict[ExecutionAttemptId, str]] = defaultdict(dict)
        self._heard: set[tuple[int, ExecutionAttemptId]] = set()
        """Attempts of which an owner, by its epoch, has heard that they have finished."""
        self._beside: set[ExecutionAttemptId] = set()
        """Attempts that were ordered while their owner did not know that another one of the subtask had finished."""
        self._late: set[ExecutionAttemptId] = set()
        """Attempts that were ordered from a TaskManager while it could not be reached: they may begin much later."""

    def see(self, record: Record) -> Iterator[str]:
        """Starts, what is accepted of them, durable resets, deaths, and who is out of reach."""
        for job_id, one in self.job_events(record):
            if isinstance(one, AttemptFinished):
                self._accepted.add(one.attempt_id)
            elif isinstance(one, SubtasksReset):
                self._replaced.reset(job_id, one)
                for index in one.subtasks:
                    self._started.pop((job_id, one.vertex_id, index), None)
            elif isinstance(one, JobRescaled):
                self._rescaled(job_id, one)
        if isinstance(record.what, Applied) and self._has_left(record.what):
            self._excuse(record.process)
        match record.what:
            case Fault(what=what) | ProcessEvent(what=what):
                self._note(record.process, what)
            case AttemptStarted():
                yield from self._see_start(record.process, record.what)
            case AttemptEnded(attempt_id=attempt_id):
                self._alive[subtask(attempt_id)].pop(attempt_id, None)
            case _:
                self._note_messages(record.what)

    def _has_left(self, applied: Applied) -> bool:
        """Has a TaskManager deleted its key? Nothing runs there, and owners have had time to take its reports (R27)."""
        before = self.keys.task_managers
        return any(
            event.is_delete and event.kv.key.startswith(before) and "/" not in event.kv.key.removeprefix(before)
            for event in applied.events
        )

    def _note_messages(self, what: object) -> None:
        match what:
            case Sent(peer=peer, message=message):
                self._replaced.note(message)
                self._note_speculation(message)
                if isinstance(message, DeployTasks) and self._out_of_reach[peer]:
                    self._late |= {task.attempt_id for task in message.tasks}
            case Submitting(job_id=job_id, speculates=True):
                self._speculating.add(job_id)
            case Received(message=TaskReports(job_id=job_id, epoch=epoch, reports=reports)):
                if job_id in self._speculating:
                    finished = (one.attempt_id for one in reports if one.state is ExecutionState.FINISHED)
                    self._heard |= {(epoch, one) for one in finished}
            case _:
                return

    def _note_speculation(self, message: object) -> None:
        if isinstance(message, DeployTasks) and message.job_id in self._speculating:
            ordered = (task.attempt_id for task in message.tasks if not task.task.is_exclusive)
            self._beside |= {one for one in ordered if (message.epoch, self._before(one)) not in self._heard}

    def _before(self, attempt_id: ExecutionAttemptId) -> ExecutionAttemptId:
        return self._started.get(subtask(attempt_id), (attempt_id, ""))[0]

    def _see_start(self, process: str, started: AttemptStarted) -> Iterator[str]:
        attempt_id, alive = started.attempt_id, self._alive[subtask(started.attempt_id)]
        if attempt_id in self._beside and not self._out_of_reach[process] and process in alive.values():
            yield f"{attempt_id} runs on {process}, where another attempt of its subtask does (R67)"
        alive[attempt_id] = process
        if attempt_id in self._replaced or attempt_id in self._beside or attempt_id in self._late:
            return
        before, host = self._started.setdefault(subtask(attempt_id), (attempt_id, process))
        if before != attempt_id and not self._out_of_reach[host]:
            yield f"{attempt_id} runs again what {before} has run"

    def _rescaled(self, job_id: JobId, event: JobRescaled) -> None:
        self._replaced.rescaled(job_id, event)
        vertices = {vertex.vertex_id for vertex in event.rescale.vertices}
        for begun in [begun for begun in self._started if begun[0] == job_id and begun[1] in vertices]:
            del self._started[begun]

    def _note(self, host: str, what: str) -> None:
        if what in {KILLED, STARTS, STOPPED, TEMPLATE_KILLED}:
            self._excuse(host)
        elif what in {FROZEN, AWAKE}:
            self._note_reach(host, is_lost=what == FROZEN)
        elif what in {UNREADABLE, READABLE}:  # R31: who has not met it yet cannot reach it
            self._note_reach(host, is_lost=what == UNREADABLE)
        elif what.startswith((CUT_OFF, REACHED)):
            is_lost = what.startswith(CUT_OFF)
            for end in (host, what.removeprefix(CUT_OFF if is_lost else REACHED).split()[0]):
                self._note_reach(end, is_lost=is_lost)

    def _note_reach(self, host: str, *, is_lost: bool) -> None:
        self._out_of_reach[host] = max(0, self._out_of_reach[host] + (1 if is_lost else -1))
        self._excuse(host)

    def _excuse(self, host: str) -> None:
        """What has begun there and is not accepted may run again."""
        self._started = {
            one: (attempt_id, where)
            for one, (attempt_id, where) in self._started.items()
            if where != host or attempt_id in self._accepted
        }


class UserFailuresStand(CheckerBase):
    """R36: exclusive user code that has failed by itself runs never again, where nobody has asked for a restart.

    Its report is not durable: a TaskManager that ends before the job has a result may take it along.
    """

    rule = "R36"

    sees: tuple[type, ...] = (AttemptStarted, AttemptEnded, Fault, ProcessEvent)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._failed: dict[tuple[JobId, str, int], tuple[ExecutionAttemptId, str]] = {}

    def see(self, record: Record) -> Iterator[str]:
        """Failures that are final, starts, and ends of TaskManagers."""
        match record.what:
            case AttemptEnded(attempt_id=attempt_id, is_users_last=True):
                self._failed[subtask(attempt_id)] = attempt_id, record.process
            case AttemptStarted(attempt_id=attempt_id) if (found := self._failed.get(subtask(attempt_id))) is not None:
                yield f"{attempt_id} runs again what has failed for good in {found[0]}"
            case Fault(what=what) | ProcessEvent(what=what) if what in {KILLED, STARTS, STOPPED}:
                self._failed = {one: where for one, where in self._failed.items() if where[1] != record.process}
            case _:
                return
