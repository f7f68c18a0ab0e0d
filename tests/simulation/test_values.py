"""Values of simulated jobs: they tell what every subtask has read, and their judge refuses all others."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.common.exchange import ExchangeMode
from runtime.common.ids import AllocationId, ExecutionAttemptId, JobId, VertexId
from runtime.common.states import JobStatus
from runtime.gateways.task import (
    InputGate,
    PartitionDescriptor,
    ResultPartitionSpec,
    TaskDeploymentDescriptor,
    TaskInformation,
)
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import KeyValue, Put, Txn, TxnResult, WatchEvent
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import DoneRecord
from runtime.jobgraph.graph import OperatorKind
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex
from tests.kit.simulation.checkers import check
from tests.kit.simulation.history import Applied, Damaged, Happening, History, Returned, Submitting
from tests.kit.simulation.outcomes import ValuesAreRight
from tests.kit.simulation.values import Exchange, expected

KEYS = Keys.of_cluster("default")
JOB = JobId("1" * 32)
OBJECT = f"{'a' * 64}-{'b' * 32}"
GRAPH = graph(
    source("read", parallelism=2, splits=(1, 2, 3)),
    vertex("write", OperatorKind.SINK, parallelism=2),
    edges=(edge("read", "write"),),
)
READ, WRITE = (one.id for one in GRAPH.vertices)


def task(
    vertex_id: VertexId, index: int, *gate: PartitionDescriptor, epoch: int = 1, splits: bytes = b"[]"
) -> TaskDeploymentDescriptor:
    is_source = vertex_id == READ
    return TaskDeploymentDescriptor(
        attempt_id=ExecutionAttemptId(JOB, vertex_id, index, epoch, 0),
        allocation_id=AllocationId("e" * 32),
        ordinal=0,
        task=TaskInformation(vertex_id, "v", b"[]", (), 2, is_exclusive=not is_source),
        splits=splits,
        inputs=() if is_source else (InputGate("read", ExchangeMode.REBALANCE, (), gate),),
        outputs=(ResultPartitionSpec(0, ExchangeMode.REBALANCE, (), 2, 0),) if is_source else (),
    )


def for_consumer(partition: PartitionDescriptor, consumer: int) -> PartitionDescriptor:
    files = tuple(file for file in partition.files if file.consumer == consumer)
    return PartitionDescriptor(partition.partition_id, partition.kind, "p", "{}", files, b"")


def lived(*, reads: tuple[int, int] = (0, 1), consumer: int = 1, splits: bytes = b"[1, 3]", epoch: int = 1) -> object:
    """What the second subtask of the sink returns."""
    exchange = Exchange()
    written = [
        exchange.run(task(READ, 0, splits=splits, epoch=epoch))[1][0],
        exchange.run(task(READ, 1, splits=b"[2]"))[1][0],
    ]
    return exchange.run(task(WRITE, 1, *(for_consumer(written[one], consumer) for one in reads)))[0]


def computed() -> object:
    whole: Any = expected(JOB, GRAPH)
    return whole["write"][1]


def test_a_value_is_what_the_graph_says_whoever_ran_it() -> None:
    assert lived() == lived(epoch=7) == computed()


@pytest.mark.parametrize(
    "wrong",
    [{"reads": (0, 0)}, {"reads": (1, 0)}, {"consumer": 0}, {"splits": b"[1, 2]"}],
    ids=["one producer twice", "in another order", "files for somebody else", "other splits"],
)
def test_what_was_read_shows_in_the_value(wrong: dict[str, Any]) -> None:
    assert lived(**wrong) != computed()


def archived() -> Applied:
    """The job is cleaned, and its archive is an object."""
    done = encode_record(DoneRecord("", JobStatus.FINISHED, b"", OBJECT, 0, 0, ""))
    put = Put(KEYS.done(JOB), done)
    kv = KeyValue(put.key, done, create_revision=2, mod_revision=2, version=1, lease=0)
    return Applied(Txn((), (put,)), TxnResult(True, 2, ()), (WatchEvent(kv, is_delete=False),))


def violations(*happenings: Happening) -> list[str]:
    history = History()
    for number, what in enumerate((Submitting(JOB, JobStatus.FINISHED, "right"), *happenings)):
        history.add(float(number), "client", what)
    return [violation.what for violation in check(history, KEYS, [ValuesAreRight])]


@pytest.mark.parametrize(
    ("happenings", "is_good"),
    [
        ((Returned(JOB, "right"),), True),
        ((Returned(JOB, "wrong"),), False),
        ((Returned(JOB, None),), False),
        ((archived(), Damaged(OBJECT), Returned(JOB, None)), True),
        ((archived(), Damaged(OBJECT), Returned(JOB, "wrong")), False),
    ],
    ids=["right", "wrong", "none", "its archive is lost", "wrong from a lost archive"],
)
def test_what_a_job_returns_is_what_its_code_computes(happenings: tuple[Happening, ...], is_good: bool) -> None:
    assert (violations(*happenings) == []) is is_good
