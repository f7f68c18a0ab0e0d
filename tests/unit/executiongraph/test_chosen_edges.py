"""Edges and vertices whose number of subtasks is chosen while the job runs (R66)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runtime.common.exchange import AUTO_PARALLELISM, ExchangeMode, InputShare
from runtime.common.ids import ExecutionAttemptId, PartitionId
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.edges import ExecutionEdge
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.task import PartitionDescriptor, PartitionFile, PartitionKind
from runtime.jobgraph.forward_groups import forward_groups, known_parallelism
from runtime.jobgraph.graph import vertex_id_of
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex
from tests.kit.control_plane.job_master_driver import JOB_ID

CHOSEN: dict[str, Any] = {"parallelism": AUTO_PARALLELISM, "max_parallelism": 4}


def partition(
    producer: int, *consumers: int, kind: PartitionKind = PartitionKind.PARQUET, inline: bytes = b""
) -> PartitionDescriptor:
    files = tuple(PartitionFile(f"{producer}-{consumer}", 1, 1, consumer) for consumer in consumers)
    attempt_id = ExecutionAttemptId(JOB_ID, vertex_id_of("read"), producer, 1, 0)
    return PartitionDescriptor(PartitionId(attempt_id, 0), kind, "d", "schema", files, inline)


def paths(result: ExecutionEdge, consumer: int) -> list[list[str]]:
    return [[file.path for file in one.files] for one in result.gate(consumer).partitions]


def dynamic(*partitions: PartitionDescriptor, subpartitions: int = 4) -> ExecutionEdge:
    result = ExecutionEdge(
        edge("read", "use", ExchangeMode.HASH),
        output=0,
        source_name="read",
        parallelism=0,
        consumer_parallelism=0,
        subpartitions=subpartitions,
        is_dynamic=True,
        inline_size_max=100,
    )
    result.producers_decided(len(partitions))
    for number, one in enumerate(partitions):
        result.accept(number, one)
    return result


def test_an_edge_without_producers_is_not_complete() -> None:
    assert not dynamic().is_complete
    assert dynamic(partition(0, 0)).is_complete
    assert dynamic(partition(0, 0)).is_needed(0), "while nothing is known of its consumers"
    assert list(dynamic(partition(0, 0)).consumers_of(0)) == []


def test_rows_are_written_for_subpartitions() -> None:
    spec = dynamic().spec()
    assert (spec.is_dynamic, spec.consumer_parallelism) == (True, 4)


def test_a_share_is_a_range_of_subpartitions() -> None:
    result = dynamic(partition(0, 0, 1, 2, 3), partition(1, 3))
    result.consumers_decided(3, (InputShare(0, 2), InputShare(2, 4), InputShare(4, 4)), is_broadcast=False)
    assert paths(result, 0) == [["0-0", "0-1"]]
    assert paths(result, 1) == [["0-2", "0-3"], ["1-3"]]
    assert paths(result, 2) == [[]]
    assert result.gate(1).share == InputShare(2, 4)
    assert result.gate(1).subpartitions == 4


def test_a_file_of_several_subpartitions_is_read_by_each_share_that_has_one() -> None:
    wide = replace(partition(0), files=(PartitionFile("0-all", 1, 1, 0, span=4),))
    result = dynamic(wide, partition(1, 1))
    result.consumers_decided(2, (InputShare(0, 1), InputShare(1, 4)), is_broadcast=False)
    assert paths(result, 0) == [["0-all"]]
    assert paths(result, 1) == [["0-all"], ["1-1"]]


def test_only_the_input_that_is_split_is_read_in_parts() -> None:
    result = dynamic(partition(0, 0, 1))
    shares = (InputShare(0, 1, 0, 2, 0), InputShare(0, 1, 1, 2, 1), InputShare(1, 4))
    result.consumers_decided(3, shares, is_broadcast=False)
    assert result.gate(0).share == InputShare(0, 1, 0, 2, 0)
    assert result.gate(1).share == InputShare(0, 1)


def test_a_broadcast_input_and_json_values_are_the_same_for_all() -> None:
    result = dynamic(partition(0, 0, 1))
    result.consumers_decided(2, (InputShare(0, 1), InputShare(1, 4)), is_broadcast=True)
    assert result.gate(0) is result.gate(1)
    assert result.gate(0).share == InputShare(0, 4)
    values = dynamic(partition(0, kind=PartitionKind.JSON, inline=b"1"), partition(1, kind=PartitionKind.JSON))
    values.consumers_decided(2, (InputShare(0, 1), InputShare(1, 4)), is_broadcast=False)
    assert values.gate(0) is values.gate(1)
    assert len(values.gate(0).partitions) == 2


def test_a_vertex_has_no_subtasks_before_its_parallelism_is_decided() -> None:
    result = ExecutionGraph(JOB_ID, 1, submit_millis=0)
    hashed = edge("read", "use", ExchangeMode.HASH, key_columns=("k",))
    result.attach(graph(source("read", splits=(1, 2), **CHOSEN), vertex("use", **CHOSEN), edges=(hashed,)), 0)
    read, use = result.vertices.values()
    assert (read.parallelism, use.parallelism) == (2, AUTO_PARALLELISM)
    assert use.state is ExecutionState.CREATED
    assert not any((use.is_finished, use.is_accepted, result.is_finished))
    result.check_invariants()
    result.decide(use.id, (InputShare(0, 1), InputShare(1, 4)), (), "2 for reasons", 5)
    result.check_invariants()
    assert (use.parallelism, use.decision, result.counts[ExecutionState.CREATED]) == (2, "2 for reasons", 4)
    assert read.outputs[0].consumer_parallelism == 2


def test_a_forward_group_has_one_parallelism() -> None:
    """Sources have a subtask for each split; what forward edges join with the first of them has as many."""
    given = graph(
        source("read", splits=(1, 2, 3), **CHOSEN),
        source("other", splits=tuple(range(9)), **CHOSEN),
        vertex("clean", **CHOSEN),
        vertex("join", **CHOSEN),
        edges=(
            edge("read", "clean", ExchangeMode.FORWARD),
            edge("clean", "join", ExchangeMode.FORWARD),
            edge("other", "join", ExchangeMode.HASH, key_columns=("k",), input_index=1),
        ),
    )
    groups = forward_groups(given)
    names = {one.id: one.name for one in given.vertices}
    known = {names[one]: count for one, count in known_parallelism(given, groups).items()}
    assert known == {"read": 3, "other": 4, "clean": 3}, "at most as many as the vertex allows"
    result = ExecutionGraph(JOB_ID, 1, submit_millis=0)
    result.attach(given, 0)
    assert result.decided_with(given.vertices[3].id) == 3
    assert result.decided_with(given.vertices[1].id) == 4
