"""Partitions of tasks that got no split (R12): they tell neither rows nor columns, unless all are like that."""

from __future__ import annotations

import pytest

from runtime.common.exchange import ExchangeMode, InputShare
from runtime.common.ids import ExecutionAttemptId, JobId, PartitionId, VertexId
from runtime.executiongraph.core.edges import ExecutionEdge
from runtime.gateways.task import PartitionDescriptor, PartitionFile, PartitionKind
from tests.kit.control_plane.job_graphs import edge

PARQUET, JSON, NOTHING = PartitionKind.PARQUET, PartitionKind.JSON, PartitionKind.NOTHING


def partition(producer: int, kind: PartitionKind, consumer: int = 0) -> PartitionDescriptor:
    attempt_id = ExecutionAttemptId(JobId("1" * 32), VertexId("a" * 32), producer, 1, 0)
    files = (PartitionFile(f"p/{producer}", 10, 1, consumer),) if kind is PARQUET else ()
    schema = "columns" if kind is PARQUET else ""
    partition_id, inline = PartitionId(attempt_id, 0), b"[1]" if kind is JSON else b""
    return PartitionDescriptor(partition_id, kind, "p" if files else "", schema, files, inline)


def joined(*kinds: PartitionKind, mode: ExchangeMode = ExchangeMode.HASH, is_dynamic: bool = False) -> ExecutionEdge:
    made = ExecutionEdge(
        edge("read", "write", mode),
        output=0,
        source_name="read",
        parallelism=len(kinds),
        consumer_parallelism=2,
        subpartitions=2,
        is_dynamic=is_dynamic,
        inline_size_max=1,
    )
    if is_dynamic:
        made.consumers_decided(2, (InputShare(0, 1), InputShare(1, 2)), is_broadcast=False)
    for producer, kind in enumerate(kinds):
        made.accept(producer, partition(producer, kind))
    return made


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_consumer_without_rows_has_the_columns_of_who_knows_them(*, is_dynamic: bool) -> None:
    """The first producer got no split: its partition would be the one that stays for the columns."""
    made = joined(NOTHING, PARQUET, NOTHING, is_dynamic=is_dynamic)
    for consumer in range(2):
        (found,) = made.gate(consumer).partitions
        assert (found.kind, found.schema) == (PARQUET, "columns")


def test_values_are_those_of_the_others() -> None:
    found = joined(NOTHING, JSON, mode=ExchangeMode.GATHER).gate(0).partitions
    assert [one.kind for one in found] == [JSON]


def test_they_are_of_the_kind_of_the_others() -> None:
    assert joined(NOTHING, PARQUET).mixed_kinds() == ""
    assert joined(NOTHING, JSON).mixed_kinds() == ""
    assert "DataFrames and JSON values" in joined(NOTHING, PARQUET, JSON).mixed_kinds()


@pytest.mark.parametrize("mode", [ExchangeMode.HASH, ExchangeMode.GATHER])
def test_where_nobody_knows_more_one_of_them_says_so(mode: ExchangeMode) -> None:
    (found,) = joined(NOTHING, NOTHING, mode=mode).gate(0).partitions
    assert found.kind is NOTHING
