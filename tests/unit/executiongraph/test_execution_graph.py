"""Attempts, counts, edges: what the execution graph promises."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from runtime.common.exchange import ExchangeMode
from runtime.common.fsm import IllegalTransitionError
from runtime.common.ids import ExecutionAttemptId, JobId, PartitionId, VertexId
from runtime.common.states import EXECUTION_TRANSITIONS, JOB_TRANSITIONS, ExecutionState, JobStatus
from runtime.executiongraph.core.aggregate import aggregate_state
from runtime.executiongraph.core.edges import ExecutionEdge
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import INLINE_SIZE_MAX, ExecutionGraph
from runtime.gateways.task import PartitionDescriptor, PartitionFile, PartitionKind, ResultPartitionSpec
from runtime.jobgraph.graph import vertex_id_of
from tests.kit.control_plane.job_graphs import diamond, edge, graph, source, vertex
from tests.kit.control_plane.job_master_driver import allocation, location

JOB = JobId("1" * 32)
E = ExecutionState
ALL_EXECUTION_ARCS = list(itertools.product(ExecutionState, ExecutionState))
ALL_JOB_ARCS = list(itertools.product(JobStatus, JobStatus))

# The shortest way into every state that can be entered.
WAYS: dict[ExecutionState, tuple[ExecutionState, ...]] = {
    E.CREATED: (),
    E.SCHEDULED: (E.SCHEDULED,),
    E.DEPLOYING: (E.SCHEDULED, E.DEPLOYING),
    E.INITIALIZING: (E.SCHEDULED, E.DEPLOYING, E.INITIALIZING),
    E.RUNNING: (E.SCHEDULED, E.DEPLOYING, E.RUNNING),
    E.FINISHED: (E.SCHEDULED, E.DEPLOYING, E.FINISHED),
    E.CANCELING: (E.SCHEDULED, E.DEPLOYING, E.CANCELING),
    E.CANCELED: (E.CANCELED,),
    E.FAILED: (E.FAILED,),
}
JOB_WAYS: dict[JobStatus, tuple[JobStatus, ...]] = {
    JobStatus.INITIALIZING: (),
    JobStatus.CREATED: (JobStatus.CREATED,),
    JobStatus.RUNNING: (JobStatus.CREATED, JobStatus.RUNNING),
    JobStatus.FINISHED: (JobStatus.CREATED, JobStatus.RUNNING, JobStatus.FINISHED),
    JobStatus.FAILING: (JobStatus.CREATED, JobStatus.FAILING),
    JobStatus.FAILED: (JobStatus.FAILED,),
    JobStatus.CANCELLING: (JobStatus.CREATED, JobStatus.CANCELLING),
    JobStatus.CANCELED: (JobStatus.CANCELED,),
    JobStatus.RESTARTING: (JobStatus.CREATED, JobStatus.RUNNING, JobStatus.RESTARTING),
    JobStatus.SUSPENDED: (JobStatus.SUSPENDED,),
}


def attempt(vertex_name: str = "read", index: int = 0) -> ExecutionAttemptId:
    return ExecutionAttemptId(JOB, vertex_id_of(vertex_name), index, 7, 0)


def attached() -> ExecutionGraph:
    graph = ExecutionGraph(JOB, 7, submit_millis=10)
    graph.attach(diamond(), 11)
    return graph


@pytest.mark.parametrize(("source", "target"), ALL_EXECUTION_ARCS, ids=lambda state: state.name)
def test_attempt_takes_exactly_the_arcs_of_its_table(source: ExecutionState, target: ExecutionState) -> None:
    if source not in WAYS:
        assert not any(EXECUTION_TRANSITIONS.allows(state, source) for state in ExecutionState)
        return
    graph = attached()
    execution = graph.vertices[vertex_id_of("read")].executions[0]
    for state in WAYS[source]:
        graph.transition(execution, state, 20)
    if EXECUTION_TRANSITIONS.allows(source, target):
        graph.transition(execution, target, 30)
        assert execution.state is target
        assert execution.timestamps[target] == 30
    else:
        with pytest.raises(IllegalTransitionError, match=source.name):
            graph.transition(execution, target, 30)
        assert execution.state is source
    graph.check_invariants()


@pytest.mark.parametrize(("source", "target"), ALL_JOB_ARCS, ids=lambda state: state.name)
def test_job_takes_exactly_the_arcs_of_its_table(source: JobStatus, target: JobStatus) -> None:
    if source not in JOB_WAYS:
        assert not any(JOB_TRANSITIONS.allows(state, source) for state in JobStatus)
        return
    graph = ExecutionGraph(JOB, 7, submit_millis=10)
    for state in JOB_WAYS[source]:
        graph.enter(state, 20)
    if JOB_TRANSITIONS.allows(source, target):
        graph.enter(target, 30)
        assert graph.timestamps[target] == 30
    else:
        with pytest.raises(IllegalTransitionError):
            graph.enter(target, 30)
        assert graph.status is source


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({E.CREATED: 3}, E.CREATED),
        ({E.SCHEDULED: 3}, E.CREATED),
        ({E.DEPLOYING: 1, E.SCHEDULED: 2}, E.CREATED),
        ({E.RUNNING: 1, E.SCHEDULED: 2}, E.RUNNING),
        ({E.FINISHED: 1, E.SCHEDULED: 2}, E.RUNNING),
        ({E.FINISHED: 3}, E.FINISHED),
        ({E.INITIALIZING: 1, E.RUNNING: 2}, E.INITIALIZING),
        ({E.CANCELED: 1, E.INITIALIZING: 1, E.FINISHED: 1}, E.CANCELED),
        ({E.CANCELING: 1, E.CANCELED: 2}, E.CANCELING),
        ({E.FAILED: 1, E.CANCELING: 2}, E.FAILED),
    ],
)
def test_aggregated_state_is_flinks(counts: dict[ExecutionState, int], expected: ExecutionState) -> None:
    assert aggregate_state(counts, 3) is expected


def test_vertices_are_in_topological_order_and_connected() -> None:
    graph = attached()
    assert [vertex.vertex.name for vertex in graph.vertices.values()] == ["read", "left", "right", "join", "report"]
    join = graph.vertices[vertex_id_of("join")]
    assert [gate.source_name for gate in join.inputs] == ["left", "right"]
    read = graph.vertices[vertex_id_of("read")]
    assert [one.output for one in read.outputs] == [0, 1]
    assert graph.counts == {E.CREATED: 12}
    assert graph.task_counts().created == 12


def test_attempts_are_found_by_their_exact_name_only() -> None:
    graph = attached()
    assert graph.execution(attempt()) is not None
    for stranger in (
        attempt("nobody"),
        attempt("read", 2),
        attempt("read", -1),
        ExecutionAttemptId(JOB, vertex_id_of("read"), 0, 8, 0),
        ExecutionAttemptId(JOB, vertex_id_of("read"), 0, 7, 1),
        ExecutionAttemptId(JobId("2" * 32), vertex_id_of("read"), 0, 7, 0),
    ):
        assert graph.execution(stranger) is None


def test_an_attempt_has_one_place() -> None:
    execution = Execution(attempt(), 0, 1)
    execution.place(location(1), allocation(1), 3)
    assert execution.slot_index == 3
    with pytest.raises(AssertionError):
        execution.place(location(2), allocation(2))
    assert execution.location == location(1)


# --- edges -----------------------------------------------------------------------------------------------------------


def new_edge(mode: ExchangeMode, producers: int = 2, consumers: int = 3) -> ExecutionEdge:
    job_edge = edge("read", "use", mode)
    return ExecutionEdge(
        job_edge,
        output=0,
        source_name="read",
        parallelism=producers,
        consumer_parallelism=consumers,
        subpartitions=consumers,
        is_dynamic=False,
        inline_size_max=100,
    )


def partition(
    producer: int, *consumers: int, kind: PartitionKind = PartitionKind.PARQUET, inline: bytes = b""
) -> PartitionDescriptor:
    files = tuple(PartitionFile(f"{producer}-{consumer}", 1, 1, consumer) for consumer in consumers)
    return PartitionDescriptor(PartitionId(attempt("read", producer), 0), kind, "d", "schema", files, inline)


def filled(mode: ExchangeMode, *partitions: PartitionDescriptor, consumers: int = 3) -> ExecutionEdge:
    result = new_edge(mode, len(partitions), consumers)
    for number, one in enumerate(partitions):
        result.accept(number, one)
    return result


def paths(result: ExecutionEdge, consumer: int) -> list[list[str]]:
    return [[file.path for file in one.files] for one in result.gate(consumer).partitions]


def test_a_consumer_gets_the_names_of_its_own_files_only() -> None:
    result = filled(ExchangeMode.HASH, partition(0, 0, 1, 2), partition(1, 0, 2))
    assert paths(result, 0) == [["0-0"], ["1-0"]]
    assert paths(result, 1) == [["0-1"]]
    assert paths(result, 2) == [["0-2"], ["1-2"]]


def test_without_rows_one_partition_still_carries_the_schema() -> None:
    result = filled(ExchangeMode.HASH, partition(0, 0), partition(1))
    assert [(one.schema, one.files) for one in result.gate(2).partitions] == [("schema", ())]
    nothing = filled(ExchangeMode.GATHER, partition(0), partition(1), consumers=1)
    assert [one.schema for one in nothing.gate(0).partitions] == ["schema"]


def test_a_schema_travels_once() -> None:
    other = replace(partition(2, 0, 1), schema="other")
    for mode, consumer in ((ExchangeMode.HASH, 1), (ExchangeMode.BROADCAST, -1)):
        given = [partition(0, consumer), partition(1, consumer), replace(other, files=partition(2, consumer).files)]
        assert [one.schema for one in filled(mode, *given).gate(1).partitions] == ["schema", "", "other"]
    hashed = filled(ExchangeMode.HASH, partition(0, 0), partition(1, 1), partition(2, 1))
    assert [one.schema for one in hashed.gate(1).partitions] == ["schema", ""], "the first that it reads"


def test_files_for_all_consumers_are_one_shared_gate() -> None:
    result = filled(ExchangeMode.BROADCAST, partition(0, -1), partition(1, -1))
    assert result.gate(0) is result.gate(2)
    assert paths(result, 1) == [["0--1"], ["1--1"]]


def test_own_files_and_files_for_all_come_together() -> None:
    result = filled(ExchangeMode.REBALANCE, partition(0, -1), partition(1, 0, 1))
    assert paths(result, 1) == [["0--1"], ["1-1"]]
    assert paths(result, 2) == [["0--1"]]


def test_forward_reads_the_partition_of_the_same_number() -> None:
    result = filled(ExchangeMode.FORWARD, partition(0, -1), partition(1, -1), consumers=2)
    assert paths(result, 1) == [["1--1"]]
    assert result.consumer_finished(1) == (1,)
    assert result.consumer_finished(0) == (0,)


def test_inline_values_are_all_there_in_subtask_order() -> None:
    values = [partition(number, kind=PartitionKind.JSON, inline=b"%d" % number) for number in range(3)]
    result = filled(ExchangeMode.GATHER, *values, consumers=1)
    assert [one.inline for one in result.gate(0).partitions] == [b"0", b"1", b"2"]
    assert result.mixed_kinds() == ""


def test_what_a_subtask_reads_and_what_an_attempt_reports_has_room_for_every_value() -> None:
    many = [f"s{number}" for number in range(100)]
    job_graph = graph(
        source("read", parallelism=32, max_parallelism=32),
        vertex("same", parallelism=32, max_parallelism=32),
        vertex("all", parallelism=2),
        source("one"),
        *(vertex(name) for name in many),
        edges=(
            edge("read", "same", ExchangeMode.FORWARD),
            edge("read", "all", ExchangeMode.BROADCAST),
            edge("same", "all", ExchangeMode.BROADCAST, input_index=1),
            *(edge("one", name, ExchangeMode.GATHER) for name in many),
        ),
    )
    made = ExecutionGraph(JOB, 7, submit_millis=10)
    made.attach(job_graph, 11)
    limits = {
        (one.edge.source, one.edge.target): one.spec().inline_size_max
        for vertices in made.vertices.values()
        for one in vertices.outputs
    }

    def limit(producer: str, consumer: str) -> int:
        return limits[vertex_id_of(producer), vertex_id_of(consumer)]

    assert limit("read", "same") == INLINE_SIZE_MAX // 2
    assert limit("read", "all") == limit("same", "all") == INLINE_SIZE_MAX // 64
    assert limit("one", many[0]) == INLINE_SIZE_MAX // 100


def test_all_partitions_go_with_the_last_consumer() -> None:
    result = filled(ExchangeMode.HASH, partition(0, 0), partition(1, 1), consumers=2)
    assert result.consumer_finished(1) == ()
    assert result.consumer_finished(0) == (0, 1)
    released = result.release(0)
    assert released is not None
    assert released.files[0].path == "0-0"
    assert result.release(0) is None


def test_gate_before_the_last_producer_is_a_bug() -> None:
    result = new_edge(ExchangeMode.HASH)
    result.accept(0, partition(0, 0))
    assert not result.is_complete
    with pytest.raises(AssertionError):
        result.gate(0)
    with pytest.raises(AssertionError):
        result.accept(0, partition(0, 0))


def test_spec_says_what_to_write() -> None:
    spec = new_edge(ExchangeMode.HASH).spec()
    assert spec == ResultPartitionSpec(0, ExchangeMode.HASH, ("k",), 3, inline_size_max=100)
    assert new_edge(ExchangeMode.HASH).target == VertexId(vertex_id_of("use"))
