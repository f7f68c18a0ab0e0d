"""Histories that are written by hand, for the tests of checkers."""

from __future__ import annotations

from runtime.common.ids import AllocationId, ExecutionAttemptId, Incarnation, JobId, PartitionId, VertexId
from runtime.common.states import ExecutionState, JobStatus
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.gateways.job_master import DeployTasks
from runtime.gateways.task import (
    InputGate,
    PartitionDescriptor,
    PartitionKind,
    TaskDeploymentDescriptor,
    TaskInformation,
    TaskMetrics,
)
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import LeaderTerm, absent, leads, unchanged
from runtime.highavailability.kv.core.mvcc import MvccStore
from runtime.highavailability.kv.key_value_store import Compare, Delete, Op, Put, Txn
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import (
    DoneRecord,
    EventsRecord,
    OwnerRecord,
    Payload,
    ResultRecord,
)
from runtime.jobgraph.graph import ExchangeMode
from runtime.scheduler.core.job_events import AttemptFinished, JobEvent, encode_events
from tests.kit.simulation.checkers import ALWAYS, check
from tests.kit.simulation.history import (
    Acknowledged,
    Applied,
    AttemptEnded,
    AttemptStarted,
    Happening,
    History,
    Submitting,
)
from tests.kit.simulation.reruns import NothingRunsTwice, UserFailuresStand

KEYS = Keys.of_cluster("default")
JOB = JobId("1" * 32)
OTHER_JOB = JobId("2" * 32)
VERTEX = VertexId("a" * 32)
EVERY = (*ALWAYS, NothingRunsTwice, UserFailuresStand)


def attempt(counter: int = 0, *, subtask: int = 0, epoch: int = 5) -> ExecutionAttemptId:
    return ExecutionAttemptId(JOB, VERTEX, subtask, epoch, counter)


class Past:
    """Writes a history: its transactions run on the model of etcd."""

    def __init__(self) -> None:
        self.history = History()
        self._store = MvccStore(quota_bytes=1 << 30)
        self.term = self._elect(1)
        self.epoch = 0

    def _elect(self, lease: int) -> LeaderTerm:
        key = KEYS.leader(lease)
        return LeaderTerm(key, self.write("jm-1", Put(key, b""), conditions=()))

    def new_leader(self) -> LeaderTerm:
        return self._elect(2)

    def add(self, process: str, what: Happening) -> None:
        self.history.add(float(len(self.history.records)), process, what)

    def write(self, process: str, *ops: Op, conditions: tuple[Compare, ...]) -> int:
        """A transaction that names what it replaces; its revision."""
        puts = [op.key for op in ops if isinstance(op, Put)]
        named = tuple(unchanged(key, self._store.prefix_state(key).mod_revision) for key in puts)
        return self.write_blindly(process, *ops, conditions=(*conditions, *named))

    def write_blindly(self, process: str, *ops: Op, conditions: tuple[Compare, ...]) -> int:
        """A transaction; its revision."""
        txn, before = Txn(conditions, ops), self._store.revision
        result = self._store.txn(txn, leases={})
        events = tuple(event for batch in self._store.changes("", before + 1) for event in batch.events)
        self.add(process, Applied(txn, result, events))
        return result.revision

    def submit(self, job: JobId = JOB) -> None:
        self.add("client", Submitting(job, JobStatus.FINISHED))
        conditions = (leads(self.term), absent(KEYS.graph(job)))
        self.epoch = self.write("jm-1", Put(KEYS.graph(job), b""), owner("master-1", job), conditions=conditions)
        self.add("client", Acknowledged(job, "submit"))

    @property
    def owned(self) -> tuple[Compare, ...]:
        return (unchanged(KEYS.owner(JOB), self.epoch),)

    def run(self, attempt_id: ExecutionAttemptId, *, accept: bool = True) -> None:
        self.start(attempt_id)
        self.end(attempt_id)
        if accept:
            self.accept(attempt_id)

    def start(self, attempt_id: ExecutionAttemptId, *, slot: int = 0, exclusive: bool = True, tm: str = "tm-1") -> None:
        self.add(tm, AttemptStarted(attempt_id, slot, exclusive))

    def end(self, attempt_id: ExecutionAttemptId, state: ExecutionState | None = ExecutionState.FINISHED) -> None:
        self.add("tm-1", AttemptEnded(attempt_id, state))

    def accept(self, attempt_id: ExecutionAttemptId, number: int = 0) -> None:
        place = TaskManagerLocation(Incarnation("c" * 32), "tm-1", "tm-1:1")
        event = AttemptFinished(attempt_id, 0, place, {}, b"1", (), (), TaskMetrics())
        self.write_event(event, number)

    def write_event(self, event: JobEvent, number: int = 0) -> None:
        record = encode_record(EventsRecord(Payload("", encode_events((event,)), "")))
        self.write("master-1", Put(KEYS.event(JOB, number), record), conditions=self.owned)

    def finish(self, status: JobStatus = JobStatus.FINISHED, process: str = "master-1") -> None:
        conditions = (*self.owned, absent(KEYS.result(JOB)))
        self.write(process, result(status), conditions=conditions)

    def clean(self, status: JobStatus = JobStatus.FINISHED) -> None:
        done = DoneRecord("", status, b"", "", 0, 0, "")
        ops = (Delete(KEYS.job(JOB), is_prefix=True), Put(KEYS.done(JOB), encode_record(done)))
        self.write("jm-1", *ops, conditions=(leads(self.term),))

    def violations(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for violation in check(self.history, KEYS, EVERY):
            found.setdefault(violation.rule, []).append(violation.what)
        return found


def owner(process: str, job: JobId = JOB) -> Put:
    return Put(KEYS.owner(job), encode_record(OwnerRecord(Incarnation("b" * 32), f"{process}:6124")))


def result(status: JobStatus) -> Put:
    return Put(KEYS.result(JOB), encode_record(ResultRecord(status, b"", Payload("", b"", ""))))


def deployment(attempt_id: ExecutionAttemptId, *producers: ExecutionAttemptId) -> DeployTasks:
    partitions = tuple(
        PartitionDescriptor(PartitionId(one, 0), PartitionKind.JSON, "", "", (), b"1") for one in producers
    )
    task = TaskDeploymentDescriptor(
        attempt_id=attempt_id,
        allocation_id=AllocationId("e" * 32),
        ordinal=0,
        task=TaskInformation(VERTEX, "v", b"[]", (), 1, is_exclusive=True),
        splits=b"",
        inputs=(InputGate("v", ExchangeMode.GATHER, (), partitions),),
        outputs=(),
    )
    return DeployTasks(attempt_id.job_id, attempt_id.epoch, (task,))
