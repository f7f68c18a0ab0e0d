"""Judges outside of the system: each reads the history in order and says what may not be.

They know the protocol (its keys, its rules), not the code. A checker that nothing can displease is worth nothing: each
has a test with a history that it must refuse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from runtime.common.errors import InvalidInputError
from runtime.common.ids import AllocationId, ExecutionAttemptId, JobId
from runtime.common.states import ExecutionState, JobStatus
from runtime.gateways.job_master import AcknowledgeReports, DeployTasks, EndJob, OfferSlots, RegisterJob
from runtime.gateways.resource_manager import RequestSlot
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import CompareOperator, CompareTarget, WatchEvent
from runtime.highavailability.record_codec import decode_record
from runtime.highavailability.records import DoneRecord, FenceRecord, OwnerRecord, ResultRecord
from runtime.scheduler.core.job_events import AttemptFinished, SubtasksReset
from tests.kit.simulation.checker import CheckerBase as _Base
from tests.kit.simulation.checker import Reader, Replacements, Violation, conditions_that_held, job_events, subtask
from tests.kit.simulation.disposal_checkers import SavepointsGoWhenTheyMay
from tests.kit.simulation.history import (
    STARTS,
    Acknowledged,
    Applied,
    AttemptEnded,
    AttemptStarted,
    BlobDeleted,
    History,
    InContact,
    ProcessEvent,
    Received,
    Record,
    Sent,
    Shown,
)
from tests.kit.simulation.move_checkers import QueriesMove
from tests.kit.simulation.operation_checkers import (
    OperationsStay,
    QueriesGoOn,
    SavepointsAreWhole,
    StopsAreAllOrNothing,
)
from tests.kit.simulation.outcomes import JobsEndAsExpected, JobsKeepTheirSubmitters, ValuesAreRight
from tests.kit.simulation.outputs import OutputsAppear
from tests.kit.simulation.store_checkers import (
    LeadersHoldTheirLease,
    RefusedForLackOfSpace,
    SlotsGoToOwners,
    WritesNameWhatTheyReplace,
)
from tests.kit.simulation.stream_checkers import CheckpointsAreTrue, QueriesKeepApart
from tests.kit.simulation.worker_checkers import WorkersComeAndGo

_ROUNDING = 0.01

QUEUE_MAX = 2000
"""Messages that may be under way on one stream: far below what the transport refuses."""


class TokensNeverDecrease(_Base):
    """R1: every write of a job is fenced, and the fences of what takes effect only rise."""

    rule = "R1"

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._leader = 0
        self._owner: dict[JobId, int] = {}

    def see(self, record: Record) -> Iterator[str]:
        """The conditions of a transaction that changed something."""
        if not isinstance(record.what, Applied) or not record.what.events:
            return
        conditions = list(conditions_that_held(record.what))
        fences = 0
        for condition in conditions:
            if condition.operator is not CompareOperator.EQUAL or not condition.revision:
                continue
            if condition.target is CompareTarget.CREATE_REVISION and condition.key.startswith(self.keys.leaders):
                fences += 1
                if condition.revision < self._leader:
                    yield f"a write of leader term {condition.revision} after one of term {self._leader}"
                self._leader = max(self._leader, condition.revision)
            split = self.keys.split_job_key(condition.key)
            if split is not None and split[1] == "owner" and condition.target is CompareTarget.MOD_REVISION:
                fences += 1
                known = self._owner.get(split[0], 0)
                if condition.revision < known:
                    yield f"job {split[0]}: a write of epoch {condition.revision} after one of epoch {known}"
                self._owner[split[0]] = max(known, condition.revision)
        changed = [event.kv.key for event in record.what.events]
        if not fences and any(key.startswith((self.keys.jobs, self.keys.all_done)) for key in changed):
            yield f"{record.process} changed {changed[0]} without a fence"


class OneOwnerPerEpoch(_Base):
    """R5, R6: an epoch has one owner, and only that process writes and gives orders under it."""

    rule = "R5"

    hears: tuple[type, ...] = (DeployTasks,)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._owners: dict[tuple[JobId, int], str] = {}

    def see(self, record: Record) -> Iterator[str]:
        """Owners as they are assigned, then what processes do in their name."""
        for job_id, name, event in self.job_writes(record):
            if name == "owner" and not event.is_delete:
                owner = decode_record(OwnerRecord, event.kv.value, key=event.kv.key)
                self._owners[job_id, event.kv.mod_revision] = owner.address.partition(":")[0]
        if isinstance(record.what, Applied):
            yield from self._see_writes(record, record.what)
        if isinstance(record.what, Sent) and isinstance(record.what.message, DeployTasks):
            message = record.what.message
            owner_name = self._owners.get((message.job_id, message.epoch))
            if owner_name != record.process:
                yield (
                    f"{record.process} deploys tasks of job {message.job_id} under epoch {message.epoch}, "
                    f"which belongs to {owner_name}"
                )

    def _see_writes(self, record: Record, applied: Applied) -> Iterator[str]:
        changed = {name.partition("/")[0] for _, name, event in self.job_writes(record) if not event.is_delete} & {
            "events",
            "result",
        }
        for condition in conditions_that_held(applied) if changed else ():
            split = self.keys.split_job_key(condition.key)
            if split is None or split[1] != "owner" or not condition.revision:
                continue
            is_leader = any(other.key.startswith(self.keys.leaders) for other in conditions_that_held(applied))
            owner = self._owners.get((split[0], condition.revision))
            if owner != record.process and not is_leader:
                epoch = condition.revision
                yield f"{record.process} writes for job {split[0]} at epoch {epoch}, which belongs to {owner}"


class OneResult(_Base):
    """Promise 1: a job is stored once, ends once, and nothing of it changes after its end."""

    rule = "one terminal result"

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._stored: set[JobId] = set()
        self._results: dict[JobId, JobStatus] = {}

    def see(self, record: Record) -> Iterator[str]:
        """Graphs, results, events and done records."""
        if not isinstance(record.what, Applied):
            return
        for job_id, name, event in self.job_writes(record):
            if not event.is_delete:
                yield from self._see_job_write(job_id, name, event)
        for event in record.what.events:
            if event.kv.key.startswith(self.keys.all_done) and not event.is_delete:
                yield from self._see_done(event)

    def _see_job_write(self, job_id: JobId, name: str, event: WatchEvent) -> Iterator[str]:
        if job_id in self._results:
            yield f"job {job_id}: {name} is written after its result"
        if name == "graph":
            if job_id in self._stored:
                yield f"job {job_id} is stored twice"
            self._stored.add(job_id)
        elif name == "result":
            result = decode_record(ResultRecord, event.kv.value, key=event.kv.key)
            self._results.setdefault(job_id, result.status)

    def _see_done(self, event: WatchEvent) -> Iterator[str]:
        job_id = JobId(event.kv.key.removeprefix(self.keys.all_done))
        done = decode_record(DoneRecord, event.kv.value, key=event.kv.key)
        if self._results.get(job_id) is not done.status:
            yield f"job {job_id} is cleaned as {done.status.name}, its result is {self._results.get(job_id)}"


class NothingShownTooEarly(_Base):
    """R3: what a client is told is durable, and stays so."""

    rule = "R3"

    sees: tuple[type, ...] = (Applied, Acknowledged, Shown)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._stored: set[JobId] = set()
        self._wanted: set[JobId] = set()
        self._results: dict[JobId, JobStatus] = {}
        self._acknowledged: set[JobId] = set()

    def see(self, record: Record) -> Iterator[str]:
        """The store's word against what clients hear."""
        for job_id, name, event in self.job_writes(record):
            if event.is_delete:
                continue
            if name == "graph":
                self._stored.add(job_id)
            elif name == "wanted":
                self._wanted.add(job_id)
            elif name == "result":
                self._results[job_id] = decode_record(ResultRecord, event.kv.value, key=event.kv.key).status
        if isinstance(record.what, Acknowledged):
            yield from self._see_acknowledgement(record.what)
        elif isinstance(record.what, Shown):
            yield from self._see_shown(record.what.job_id, record.what.status)

    def _see_acknowledgement(self, told: Acknowledged) -> Iterator[str]:
        job_id = told.job_id
        if told.what == "submit":
            self._acknowledged.add(job_id)
            if job_id not in self._stored:
                yield f"job {job_id} is acknowledged and not stored"
        elif job_id not in self._wanted and self._results.get(job_id) is not JobStatus.CANCELED:
            yield f"the cancellation of job {job_id} is acknowledged and not stored"

    def _see_shown(self, job_id: JobId, status: JobStatus | None) -> Iterator[str]:
        if status is None:
            if job_id in self._acknowledged:
                yield f"job {job_id} was acknowledged and is not known any more"
        elif status.is_globally_terminal and self._results.get(job_id) is not status:
            yield f"job {job_id} is shown as {status.name}, its stored result is {self._results.get(job_id)}"


class Attempts(_Base):
    """R9, R16: ids are never used twice, exclusive code never runs twice at once, nothing runs after the result."""

    rule = "R9"

    sees: tuple[type, ...] = (Applied, AttemptStarted, AttemptEnded)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._used: set[ExecutionAttemptId] = set()
        self._alive: dict[ExecutionAttemptId, AttemptStarted] = {}
        self._slots: dict[tuple[str, int], ExecutionAttemptId] = {}
        self._results: set[JobId] = set()

    def see(self, record: Record) -> Iterator[str]:
        """Starts and ends of user code, and results."""
        for job_id, name, event in self.job_writes(record):
            if name == "result" and not event.is_delete:
                self._results.add(job_id)
                for attempt_id, started in self._alive.items():
                    if attempt_id.job_id == job_id and started.is_exclusive:
                        yield f"the result of job {job_id} is written while exclusive {attempt_id} runs (R16)"
        if isinstance(record.what, AttemptStarted):
            yield from self._see_start(record, record.what)
            self._alive[record.what.attempt_id] = record.what
        elif isinstance(record.what, AttemptEnded):
            self._alive.pop(record.what.attempt_id, None)

    def _see_start(self, record: Record, started: AttemptStarted) -> Iterator[str]:
        new = started.attempt_id
        if new in self._used:
            yield f"attempt {new} is started twice"
        self._used.add(new)
        if new.job_id in self._results and started.is_exclusive:
            yield f"exclusive attempt {new} starts after the result of its job (R16)"
        for other, before in self._alive.items():
            if before.is_exclusive and subtask(other) == subtask(new):
                yield f"exclusive attempts {other} and {new} of one subtask run at once"
        in_slot = self._slots.get((record.process, started.slot_index))
        if in_slot in self._alive:
            yield f"slot {started.slot_index} of {record.process} runs {in_slot} and {new} at once"
        self._slots[record.process, started.slot_index] = new


class Acceptance(_Base):
    """R10: what is acknowledged or consumed is an event first, one per subtask, of an attempt that did finish."""

    rule = "R10"

    sees: tuple[type, ...] = (Applied, AttemptEnded)
    hears: tuple[type, ...] = (AcknowledgeReports, DeployTasks)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._finished: dict[ExecutionAttemptId, str] = {}
        self._fenced_off: set[ExecutionAttemptId] = set()
        self._replaced = Replacements()
        self._accepted: dict[tuple[JobId, str, int], ExecutionAttemptId] = {}
        self._once_accepted: set[ExecutionAttemptId] = set()
        self._epochs: dict[JobId, int] = {}
        self._results: set[JobId] = set()

    def see(self, record: Record) -> Iterator[str]:
        """Events, then the messages that rest on them."""
        if isinstance(record.what, AttemptEnded) and record.what.state is ExecutionState.FINISHED:
            self._finished[record.what.attempt_id] = record.process
        if isinstance(record.what, Applied):
            self._see_fences(record.process, record.what)
        for job_id, name, event in self.job_writes(record):
            if name == "result" and not event.is_delete:
                self._results.add(job_id)
            elif name == "owner":
                self._epochs[job_id] = event.kv.mod_revision
            elif name.startswith("events/") and not event.is_delete:
                yield from self._see_events(job_id, event)
        if isinstance(record.what, Sent):
            yield from self._see_message(record.process, record.what.message)

    def _see_fences(self, process: str, applied: Applied) -> None:
        """Where a fence is confirmed (R14), its owner takes nothing over of what earlier owners have started there."""
        for event in applied.events:
            key = event.kv.key
            if event.is_delete or not key.startswith(self.keys.task_managers) or "/fences/" not in key:
                continue
            fence = decode_record(FenceRecord, event.kv.value, key=key)
            if fence.confirmed_revision:
                job_id = key.rpartition("/")[2]
                self._fenced_off |= {
                    one
                    for one, where in self._finished.items()
                    if where == process and one.job_id == job_id and one.epoch < fence.epoch
                }

    def _see_events(self, job_id: JobId, event: WatchEvent) -> Iterator[str]:
        is_first = event.kv.key not in self._logged
        if not self.is_news(event):
            return
        if not is_first:
            yield f"{event.kv.key} is written again, and says something else"
        try:
            events = job_events(event)
        except InvalidInputError as error:
            yield f"{event.kv.key} cannot be read: {error}"
            return
        for one in events:
            if isinstance(one, SubtasksReset):
                self._replaced.reset(job_id, one)
                for index in one.subtasks:
                    self._accepted.pop((job_id, one.vertex_id, index), None)
            if not isinstance(one, AttemptFinished):
                continue
            self._once_accepted.add(one.attempt_id)
            before = self._accepted.setdefault(subtask(one.attempt_id), one.attempt_id)
            if before != one.attempt_id:
                yield f"both {before} and {one.attempt_id} take effect"
            if one.attempt_id not in self._finished:
                yield f"{one.attempt_id} is accepted and has not finished"

    def _see_message(self, process: str, message: object) -> Iterator[str]:
        self._replaced.note(message)
        if isinstance(message, AcknowledgeReports) and message.job_id not in self._results:
            for attempt_id in message.attempts:
                is_over = attempt_id in self._replaced or attempt_id in self._fenced_off or self._is_outrun(attempt_id)
                if attempt_id in self._finished and not is_over and not self._is_accepted(attempt_id):
                    yield f"{process} acknowledges the report of {attempt_id} before its event"
        elif isinstance(message, DeployTasks):
            for task in message.tasks:
                for gate in task.inputs:
                    for partition in gate.partitions:
                        if not self._may_read(message, partition.partition_id.producer):
                            yield f"{process} deploys {task.attempt_id} on {partition.partition_id} before its event"

    def _is_outrun(self, attempt_id: ExecutionAttemptId) -> bool:
        """R67: another attempt of the subtask was started while this one ran."""
        return self._replaced.has_another(attempt_id)

    def _may_read(self, message: DeployTasks, producer: ExecutionAttemptId) -> bool:
        """An owner that has been replaced knows nothing of later resets, and is refused (R1)."""
        is_over = message.epoch < self._epochs.get(message.job_id, 0)
        return self._is_accepted(producer) or (is_over and producer in self._once_accepted)

    def _is_accepted(self, attempt_id: ExecutionAttemptId) -> bool:
        return self._accepted.get(subtask(attempt_id)) == attempt_id


class FinishedStands(_Base):
    """R17: an exclusive subtask that has finished is never reset."""

    rule = "R17"

    sees: tuple[type, ...] = (Applied, AttemptStarted)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._exclusive: set[ExecutionAttemptId] = set()
        self._finished: dict[tuple[JobId, str, int], ExecutionAttemptId] = {}

    def see(self, record: Record) -> Iterator[str]:
        """Starts, then events."""
        if isinstance(record.what, AttemptStarted) and record.what.is_exclusive:
            self._exclusive.add(record.what.attempt_id)
        for job_id, one in self.job_events(record):
            if isinstance(one, AttemptFinished) and one.attempt_id in self._exclusive:
                self._finished[subtask(one.attempt_id)] = one.attempt_id
            elif isinstance(one, SubtasksReset):
                for index in one.subtasks:
                    if (reset := (job_id, one.vertex_id, index)) in self._finished:
                        yield f"{self._finished[reset]} has finished, is exclusive, and is reset"


class StopsWithoutContact(_Base):
    """R14: no exclusive code runs on a TaskManager that has been out of contact for the isolation timeout."""

    rule = "R14"

    sees: tuple[type, ...] = (AttemptStarted, AttemptEnded, InContact)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._contact: dict[str, float] = {}
        self._alive: dict[ExecutionAttemptId, str] = {}

    def see(self, record: Record) -> Iterator[str]:
        """Contacts, and what was alive until then."""
        match record.what:
            case AttemptStarted(attempt_id=attempt_id, is_exclusive=True):
                self._alive[attempt_id] = record.process
            case _:
                pass
        silence = record.at - self._contact.get(record.process, record.at)
        if silence > self.reader.isolation_seconds + _ROUNDING:
            for attempt_id, host in self._alive.items():
                if host == record.process:
                    yield f"{attempt_id} runs on {host}, which was last in contact {silence:.2f} s ago"
        if isinstance(record.what, AttemptEnded):
            self._alive.pop(record.what.attempt_id, None)
        elif isinstance(record.what, InContact):
            self._contact[record.process] = record.at


class SlotsBelongToOne(_Base):
    """An allocation is one slot of one TaskManager, for one job."""

    rule = "slots"

    sees: tuple[type, ...] = ()
    hears: tuple[type, ...] = (OfferSlots,)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._allocations: dict[AllocationId, tuple[str, int, JobId]] = {}

    def see(self, record: Record) -> Iterator[str]:
        """Offers."""
        if isinstance(record.what, Sent) and isinstance(record.what.message, OfferSlots):
            message = record.what.message
            for offer in message.offers:
                place = (record.process, offer.slot_index, message.job_id)
                known = self._allocations.setdefault(offer.allocation_id, place)
                if known != place:
                    yield f"allocation {offer.allocation_id} is {known} and {place}"


class EndedJobsGetNoSlots(_Base):
    """R7: a TaskManager on which a job has ended takes no slot request for it any more that is not of a newer owner."""

    rule = "R7"

    sees: tuple[type, ...] = (Received, ProcessEvent)
    hears: tuple[type, ...] = (OfferSlots,)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._here: dict[str, dict[JobId, int]] = defaultdict(dict)
        self._ended: dict[str, dict[JobId, int]] = defaultdict(dict)
        self._late: set[tuple[str, AllocationId]] = set()

    def see(self, record: Record) -> Iterator[str]:
        """What TaskManagers hear, and the slots that they offer."""
        host = record.process
        if isinstance(record.what, ProcessEvent) and record.what.what == STARTS:
            self._here.pop(host, None)
            self._ended.pop(host, None)
        elif isinstance(record.what, Received):
            self._hear(host, record.what.message)
        elif isinstance(record.what, Sent) and isinstance(record.what.message, OfferSlots):
            for offer in record.what.message.offers:
                if (host, offer.allocation_id) in self._late:
                    yield f"{host} offers a slot for job {record.what.message.job_id}, which has ended there"

    def _hear(self, host: str, message: object) -> None:
        if isinstance(message, RegisterJob):
            self._here[host][message.job.job_id] = message.job.epoch
        elif isinstance(message, EndJob):
            if self._here[host].get(message.job_id) == message.epoch:
                self._ended[host][message.job_id] = message.epoch
        elif isinstance(message, RequestSlot) and message.epoch <= self._ended[host].get(message.job_id, 0):
            self._late.add((host, message.allocation_id))


_EVENTS = "/cluster-events/"
"""Sentences for people, who may read the name of a file in one (D-114): no pointers."""


class BlobsStay(_Base):
    """R19: what the store refers to is never deleted."""

    rule = "R19"

    sees: tuple[type, ...] = (Applied, BlobDeleted)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._values: dict[str, bytes] = {}

    def see(self, record: Record) -> Iterator[str]:
        """Values that may hold a pointer, and objects that go."""
        if isinstance(record.what, Applied):
            for event in record.what.events:
                if event.is_delete:
                    self._values.pop(event.kv.key, None)
                elif _EVENTS not in event.kv.key:
                    self._values[event.kv.key] = event.kv.value
        elif isinstance(record.what, BlobDeleted):
            for key, value in self._values.items():
                if record.what.key.encode() in value:
                    yield f"object {record.what.key} is deleted, {key} refers to it"


class QueuesAreBounded(_Base):
    """What is under way on a stream stays few."""

    rule = "limits"

    sees: tuple[type, ...] = (Sent, Received)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._under_way: dict[tuple[str, str], int] = defaultdict(int)

    def see(self, record: Record) -> Iterator[str]:
        """Messages in and out."""
        if isinstance(record.what, Sent):
            pair = (record.process, record.what.peer)
            self._under_way[pair] += 1
            if self._under_way[pair] == QUEUE_MAX:
                yield f"{QUEUE_MAX} messages wait between {pair[0]} and {pair[1]}"
        elif isinstance(record.what, Received):
            self._under_way[record.what.peer, record.process] -= 1


ALWAYS: tuple[type[_Base], ...] = (
    TokensNeverDecrease,
    OneOwnerPerEpoch,
    OneResult,
    NothingShownTooEarly,
    Attempts,
    Acceptance,
    FinishedStands,
    StopsWithoutContact,
    SlotsBelongToOne,
    EndedJobsGetNoSlots,
    JobsEndAsExpected,
    JobsKeepTheirSubmitters,
    ValuesAreRight,
    BlobsStay,
    QueuesAreBounded,
    WritesNameWhatTheyReplace,
    RefusedForLackOfSpace,
    SlotsGoToOwners,
    LeadersHoldTheirLease,
    OutputsAppear,
    QueriesKeepApart,
    CheckpointsAreTrue,
    SavepointsAreWhole,
    StopsAreAllOrNothing,
    OperationsStay,
    QueriesGoOn,
    QueriesMove,
    SavepointsGoWhenTheyMay,
    WorkersComeAndGo,
)
"""What every history must satisfy, whatever fate did."""


def check(history: History, keys: Keys, checkers: Iterable[type[_Base]] = ALWAYS) -> list[Violation]:
    """Everything that is wrong with a history."""
    reader = Reader(keys, history.isolation_seconds)
    judges = [make(reader) for make in checkers]
    by_kind: dict[type, list[_Base]] = defaultdict(list)
    for judge in judges:
        for kind in (*judge.sees, *judge.hears):
            by_kind[kind].append(judge)
    found = []
    for record in history.records:
        shown_to = by_kind[type(record.what)]
        if isinstance(record.what, Sent) and (heard_by := by_kind.get(type(record.what.message))):
            shown_to = shown_to + heard_by
        for judge in shown_to:
            found += [Violation(_rule(judge), what, record.at) for what in judge.see(record)]
    end = history.records[-1].at if history.records else 0.0
    for judge in judges:
        found += [Violation(_rule(judge), what, end) for what in judge.finish()]
    return found


def _rule(judge: _Base) -> str:
    rule: str = getattr(judge, "rule", type(judge).__name__)
    return rule
