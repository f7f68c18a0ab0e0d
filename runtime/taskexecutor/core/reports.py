"""What this TaskManager knows of attempts, and the reports that their owners have not acknowledged yet.

Invariants: an attempt has one terminal report, the first; it is kept until it is acknowledged or the job has left
(R10); an attempt once seen is known until its job leaves (R11), so that no command takes effect twice. The number and
bytes of kept reports are bounded by `has_room`: without room no further attempt is started, nothing is ever dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from runtime.common.accumulators import UserAccumulator
from runtime.common.fsm import IllegalTransitionError, TransitionTable
from runtime.common.ids import AllocationId, ExecutionAttemptId, JobId
from runtime.common.states import ExecutionState
from runtime.gateways.job_master import HeldAttempt
from runtime.gateways.task import TaskExecutionReport, TaskProgress

_Told = TypeVar("_Told", TaskExecutionReport, TaskProgress)

MESSAGE_SIZE_BYTES_MAX = 1 << 20
"""Reports are split into messages of about this size: a quarter of the transport's default limit."""

REPORT_OVERHEAD_BYTES = 512

NEVER_DEPLOYED = -1
"""The ordinal of an attempt that was cancelled before its deployment came."""


class AttemptState(Enum):
    """WAITING in a queue, STARTED, CANCELING because its owner said so, REPORTED terminal and kept, ACKNOWLEDGED and
    only remembered.
    """

    WAITING = "WAITING"
    STARTED = "STARTED"
    CANCELING = "CANCELING"
    REPORTED = "REPORTED"
    ACKNOWLEDGED = "ACKNOWLEDGED"


ATTEMPT_TRANSITIONS = TransitionTable(
    {
        AttemptState.WAITING: frozenset({AttemptState.STARTED, AttemptState.REPORTED}),
        AttemptState.STARTED: frozenset({AttemptState.CANCELING, AttemptState.REPORTED}),
        AttemptState.CANCELING: frozenset({AttemptState.REPORTED}),
        AttemptState.REPORTED: frozenset({AttemptState.ACKNOWLEDGED}),
        AttemptState.ACKNOWLEDGED: frozenset(),
    }
)


_NOT_REPORTED = {
    AttemptState.WAITING: ExecutionState.DEPLOYING,
    AttemptState.STARTED: ExecutionState.RUNNING,
    AttemptState.CANCELING: ExecutionState.CANCELING,
}


@dataclass(slots=True)
class _Facts:
    """What a later owner wants to know of an attempt."""

    ordinal: int
    deployed_millis: int
    running_millis: int = 0
    hold: str = ""


class AttemptLedger:
    """Attempts of all jobs by state, with the last report of each one that is not acknowledged."""

    def __init__(self, *, reports_max: int, bytes_max: int) -> None:
        self._reports_max = reports_max
        self._bytes_max = bytes_max
        self._states: dict[JobId, dict[ExecutionAttemptId, AttemptState]] = {}
        self._facts: dict[JobId, dict[ExecutionAttemptId, _Facts]] = {}
        self._reports: dict[JobId, dict[ExecutionAttemptId, TaskExecutionReport]] = {}
        self._progress: dict[JobId, dict[ExecutionAttemptId, TaskProgress]] = {}
        self._kept = 0
        self._kept_bytes = 0

    @property
    def has_room(self) -> bool:
        """True while further attempts may be started."""
        return self._kept < self._reports_max and self._kept_bytes < self._bytes_max

    @property
    def kept(self) -> int:
        """How many terminal reports wait for their acknowledgement."""
        return self._kept

    def state(self, attempt_id: ExecutionAttemptId) -> AttemptState | None:
        """What is known of an attempt."""
        return self._states.get(attempt_id.job_id, {}).get(attempt_id)

    def is_empty(self, job_id: JobId) -> bool:
        """True when no attempt of the job was ever seen."""
        return job_id not in self._states

    def add(self, attempt_id: ExecutionAttemptId, ordinal: int = NEVER_DEPLOYED, deployed_millis: int = 0) -> bool:
        """Remember a new attempt as WAITING. False when it is known: the command was repeated."""
        states = self._states.setdefault(attempt_id.job_id, {})
        if attempt_id in states:
            return False
        states[attempt_id] = AttemptState.WAITING
        self._facts.setdefault(attempt_id.job_id, {})[attempt_id] = _Facts(ordinal, deployed_millis)
        return True

    def start(self, attempt_id: ExecutionAttemptId) -> None:
        """WAITING -> STARTED."""
        self._move(attempt_id, AttemptState.STARTED)

    def cancel(self, attempt_id: ExecutionAttemptId) -> None:
        """STARTED -> CANCELING."""
        self._move(attempt_id, AttemptState.CANCELING)

    def hold(self, attempt_id: ExecutionAttemptId, operation: str) -> None:
        """Its query is held for this operation, or is about to be; "": the word of its owner has come (R61)."""
        if (fact := self._facts.get(attempt_id.job_id, {}).get(attempt_id)) is not None:
            fact.hold = operation

    def is_held(self, attempt_id: ExecutionAttemptId) -> bool:
        """True for an attempt whose query is held for an operation of its owner, or is about to be (R61)."""
        fact = self._facts.get(attempt_id.job_id, {}).get(attempt_id)
        return fact is not None and bool(fact.hold)

    def record(self, report: TaskExecutionReport) -> bool:
        """Keep a report. False when it says nothing new: the attempt is unknown, or has had its terminal report."""
        attempt_id = report.attempt_id
        if self.state(attempt_id) not in _NOT_REPORTED:
            return False
        self._reports.setdefault(attempt_id.job_id, {})[attempt_id] = report
        if report.state is ExecutionState.RUNNING:
            self._facts[attempt_id.job_id][attempt_id].running_millis = report.timestamp_millis
        if report.state.is_terminal:
            self._move(attempt_id, AttemptState.REPORTED)
            self._progress.get(attempt_id.job_id, {}).pop(attempt_id, None)
            self._kept += 1
            self._kept_bytes += report_size_bytes(report)
        return True

    def note_progress(self, progress: TaskProgress) -> bool:
        """Keep the latest progress of an attempt. False when it is not running."""
        attempt_id = progress.attempt_id
        if self.state(attempt_id) is not AttemptState.STARTED:
            return False
        self._progress.setdefault(attempt_id.job_id, {})[attempt_id] = progress
        return True

    def progress(self, job_id: JobId) -> Sequence[TaskProgress]:
        """What a new stream to the owner goes on with: how far the attempts are that run."""
        return tuple(self._progress.get(job_id, {}).values())

    def acknowledge(self, attempt_id: ExecutionAttemptId) -> bool:
        """REPORTED -> ACKNOWLEDGED. False when there is nothing to acknowledge (any more)."""
        if self.state(attempt_id) is not AttemptState.REPORTED:
            return False
        self._move(attempt_id, AttemptState.ACKNOWLEDGED)
        self._drop(self._reports[attempt_id.job_id].pop(attempt_id))
        return True

    def unacknowledged(
        self, job_id: JobId, places: Mapping[ExecutionAttemptId | None, AllocationId | None]
    ) -> Iterator[HeldAttempt]:
        """The attempts of a job that wait (DEPLOYING), run (RUNNING), are being cancelled (CANCELING), or have ended
        and wait for an acknowledgement; `places` says in which slot.
        """
        reports, facts = self._reports.get(job_id, {}), self._facts.get(job_id, {})
        for attempt_id, state in self._states.get(job_id, {}).items():
            if state is AttemptState.ACKNOWLEDGED:
                continue
            shown = _NOT_REPORTED.get(state) or reports[attempt_id].state
            fact, place = facts[attempt_id], places.get(attempt_id)
            hold = fact.hold if state is AttemptState.STARTED else ""
            yield HeldAttempt(attempt_id, fact.ordinal, shown, place, fact.deployed_millis, fact.running_millis, hold)

    def pending(self, job_id: JobId) -> Sequence[TaskExecutionReport]:
        """What a new stream to the owner begins with: last news of every attempt that is not acknowledged."""
        return tuple(self._reports.get(job_id, {}).values())

    def end_job(self, job_id: JobId) -> None:
        """Forget a job and its reports. Idempotent."""
        for report in self._reports.pop(job_id, {}).values():
            if report.state.is_terminal:
                self._drop(report)
        self._states.pop(job_id, None)
        self._facts.pop(job_id, None)
        self._progress.pop(job_id, None)

    def _drop(self, report: TaskExecutionReport) -> None:
        self._kept -= 1
        self._kept_bytes -= report_size_bytes(report)

    def _move(self, attempt_id: ExecutionAttemptId, target: AttemptState) -> None:
        states = self._states.get(attempt_id.job_id, {})
        state = states.get(attempt_id)
        if state is None or not ATTEMPT_TRANSITIONS.allows(state, target):
            message = f"attempt {attempt_id}: illegal transition {state.name if state else 'unknown'} -> {target.name}"
            raise IllegalTransitionError(message)
        states[attempt_id] = target

    def check_invariants(self) -> None:
        """Raises AssertionError when the ledger contradicts itself."""
        kept = [report for reports in self._reports.values() for report in reports.values() if report.state.is_terminal]
        assert len(kept) == self._kept, (len(kept), self._kept)
        assert sum(map(report_size_bytes, kept)) == self._kept_bytes, self._kept_bytes
        for report in kept:
            assert self.state(report.attempt_id) is AttemptState.REPORTED, report.attempt_id


def report_size_bytes(report: TaskExecutionReport) -> int:
    """What a report takes on the wire, at most (R52: one that takes more than was counted ends its sender)."""
    size = REPORT_OVERHEAD_BYTES + len(report.value)
    failure = report.failure
    if failure is not None:
        size += sum(map(_size, (failure.class_name, failure.kind, failure.message, failure.stack_trace)))
        size += len(failure.lost_partitions) * _ID_BYTES
    for partition in report.partitions:
        size += _ID_BYTES + len(partition.inline) + _size(partition.schema) + _size(partition.directory)
        size += sum(_size(file.path) + _FILE_BYTES for file in partition.files)
    size += _accumulators_size(report.accumulators)
    if report.spark_work is not None:
        size += _STAGE_BYTES + sum(_size(one.name) + _STAGE_BYTES for one in report.spark_work.stages)
    return size + sum(_size(one.base) + _size(one.directory) + _size(one.mode) + 16 for one in report.outputs)


def _accumulators_size(accumulators: tuple[UserAccumulator, ...]) -> int:
    return sum(_size(one.name) + _ACCUMULATOR_BYTES for one in accumulators)


_ID_BYTES = 160
_FILE_BYTES = 48
_ACCUMULATOR_BYTES = 48
_STAGE_BYTES = 280
_STREAM_BYTES = 160
_PHASE_BYTES = 16


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "backslashreplace"))


def progress_size_bytes(progress: TaskProgress) -> int:
    """What a progress takes on the wire, at most."""
    size = REPORT_OVERHEAD_BYTES + _size(progress.text) + _accumulators_size(progress.accumulators)
    for stream in progress.streams:
        size += _STREAM_BYTES + _size(stream.query_id) + _size(stream.run_id)
        size += sum(_size(phase.name) + _PHASE_BYTES for phase in stream.phases)
    return size


def messages_of(told: Iterable[_Told], size_of: Callable[[_Told], int]) -> Iterator[tuple[_Told, ...]]:
    """Split reports, or progress, into message-sized groups, in order."""
    group: list[_Told] = []
    size = 0
    for one in told:
        own_size = size_of(one)
        if group and size + own_size > MESSAGE_SIZE_BYTES_MAX:
            yield tuple(group)
            group, size = [], 0
        group.append(one)
        size += own_size
    if group:
        yield tuple(group)
