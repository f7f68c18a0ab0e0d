"""Slot pool, deployment, durable events, requirements: the parts that the core is made of."""

from __future__ import annotations

import json

import pytest

from runtime.common.errors import InvalidInputError
from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.graph import ExecutionGraph, ExecutionJobVertex
from runtime.gateways.job_master import SlotOffer
from runtime.gateways.resource_manager import ResourceRequirement
from runtime.gateways.task import DEFAULT_PROFILE, OutputDirectory, ResourceProfile, TaskMetrics
from runtime.jobgraph.graph import (
    AUTO_PARALLELISM,
    Artifact,
    BlobCode,
    JobGraph,
    JobVertex,
    Operator,
    OperatorKind,
    PickledCode,
    ScriptCode,
    parse_operators,
    vertex_id_of,
)
from runtime.jobmaster.core.declared_requirements import DeclaredRequirements, spark_needs
from runtime.scheduler.core.job_events import (
    AttemptFinished,
    PartitionsReleased,
    decode_events,
    encode_events,
)
from runtime.scheduler.core.slots.deployment import DeploymentFactory, job_information, reuse_key, splits_of
from runtime.scheduler.core.slots.slot_pool import AHEAD_MAX, SlotKind, SlotPool, ahead_for
from tests.kit.control_plane.job_graphs import diamond, graph, lone, source, vertex
from tests.kit.control_plane.job_master_driver import JOB_ID, JobMasterDriver, allocation, location, parquet

BIG = ResourceProfile(memory_bytes=1 << 30)
KIND = SlotKind(DEFAULT_PROFILE, "default")


def attempt(index: int, vertex_name: str = "a") -> ExecutionAttemptId:
    return ExecutionAttemptId(JOB_ID, vertex_id_of(vertex_name), index, 7, 0)


def pool_of(*numbers: int, profile: ResourceProfile = DEFAULT_PROFILE) -> SlotPool:
    pool = SlotPool()
    for number in numbers:
        pool.accept(SlotOffer(allocation(number), number, profile), location())
    return pool


# --- slots -----------------------------------------------------------------------------------------------------------


def test_room_is_one_until_short_tasks_were_seen() -> None:
    pool = pool_of(1)
    (slot,) = pool.idle()
    assert pool.room(slot) == 1
    pool.assign(slot, attempt(0), KIND, 0.0)
    assert (pool.room(slot), pool.idle(), pool.busy) == (0, [], 1)
    assert pool.ended(attempt(0), 0.001) is slot
    pool.assign(slot, attempt(1), KIND, 0.001)
    assert pool.room(slot) == AHEAD_MAX
    pool.check_invariants()


def test_nothing_waits_behind_a_streaming_query_however_soon_one_has_failed() -> None:
    pool = pool_of(1)
    (slot,) = pool.idle()
    pool.assign(slot, attempt(0), KIND, 0.0)
    pool.ended(attempt(0), 0.001, is_endless=True)
    pool.assign(slot, attempt(1), KIND, 0.001)
    assert pool.room(slot) == 0


@pytest.mark.parametrize(
    ("seconds", "ahead"), [(0.0, 8), (0.001, 8), (0.0025, 8), (0.005, 4), (0.015, 1), (0.021, 0), (60.0, 0)]
)
def test_deploy_ahead_is_20_milliseconds_of_work(seconds: float, ahead: int) -> None:
    assert ahead_for(seconds) == ahead


def test_slot_serves_one_group_from_its_first_attempt_on() -> None:
    pool = pool_of(1)
    (slot,) = pool.idle()
    other = SlotKind(DEFAULT_PROFILE, "other")
    assert slot.fits(KIND)
    assert slot.fits(other)
    pool.assign(slot, attempt(0), KIND, 0.0)
    pool.ended(attempt(0), 1.0)
    assert not slot.fits(other)
    with pytest.raises(AssertionError):
        pool.assign(slot, attempt(1), other, 1.0)


def test_slot_never_mixes_vertices() -> None:
    pool = pool_of(1)
    (slot,) = pool.idle()
    pool.assign(slot, attempt(0), KIND, 0.0)
    with pytest.raises(AssertionError):
        pool.assign(slot, attempt(0, "b"), KIND, 0.0)


def test_slot_of_a_profile_fits_that_profile_only() -> None:
    (slot,) = pool_of(1, profile=BIG).idle()
    assert slot.fits(SlotKind(BIG, "default"))
    assert not slot.fits(KIND)


def test_a_slot_of_anywhere_is_none_for_a_task_with_labels() -> None:
    labelled = SlotKind(ResourceProfile(labels=("gpu=a100",)), "default")
    (anywhere,) = pool_of(1).idle()
    assert not anywhere.fits(labelled)
    (there,) = pool_of(1, profile=labelled.profile).idle()
    assert there.fits(labelled)
    assert not there.fits(KIND)


def test_removed_slot_gives_back_its_attempts() -> None:
    pool = pool_of(1, 2)
    slot = pool.idle()[0]
    pool.assign(slot, attempt(0), KIND, 0.0)
    assert pool.remove(allocation(1)) == (attempt(0),)
    assert pool.remove(allocation(1)) == ()
    assert pool.ended(attempt(0), 1.0) is None
    assert pool.of_task_manager(location().incarnation) == [allocation(2)]
    assert len(pool) == 1
    pool.check_invariants()


# --- requirements ----------------------------------------------------------------------------------------------------


NO_GRAPH = ExecutionGraph(JOB_ID, 1, submit_millis=0)


@pytest.mark.parametrize(
    ("before", "now", "slots", "is_due"),
    [
        (0, 1, 0, True),
        (5, 5, 0, False),
        (5, 4, 0, True),
        (8, 7, 0, True),
        (9, 8, 0, False),
        (9, 8, 8, True),
        (500, 438, 2, False),
        (500, 437, 2, True),
        (500, 501, 2, True),
        (1, 0, 0, True),
    ],
)
def test_requirements_rise_at_once_and_fall_by_eighths(before: int, now: int, slots: int, *, is_due: bool) -> None:
    declared = DeclaredRequirements()
    declared.declare(NO_GRAPH, (ResourceRequirement(DEFAULT_PROFILE, before),) if before else ())
    wanted = (ResourceRequirement(DEFAULT_PROFILE, now),) if now else ()
    assert declared.is_due(wanted, slots_held=slots) is is_due


def test_another_profile_is_told_at_once() -> None:
    declared = DeclaredRequirements()
    declared.declare(NO_GRAPH, (ResourceRequirement(DEFAULT_PROFILE, 100), ResourceRequirement(BIG, 1)))
    assert declared.is_due((ResourceRequirement(DEFAULT_PROFILE, 100),), slots_held=0)


def test_who_cannot_be_reached_is_told_at_once() -> None:  # R7
    declared = DeclaredRequirements()
    needed = (ResourceRequirement(DEFAULT_PROFILE, 1),)
    assert not declared.is_due((), slots_held=0, unreachable=(location(1).incarnation,))
    declared.declare(NO_GRAPH, needed)
    assert declared.is_due(needed, slots_held=0, unreachable=(location(1).incarnation,))
    told = declared.declare(NO_GRAPH, needed, (location(1).incarnation,))
    assert told.unreachable == (location(1).incarnation,)
    assert not declared.is_due(needed, slots_held=0, unreachable=(location(1).incarnation,))
    assert declared.is_due(needed, slots_held=0)


# --- deployment ------------------------------------------------------------------------------------------------------


def artifact(name: str, content: bytes, upload: str = "u1") -> Artifact:
    inline = Artifact.of_bytes(name, content)
    if upload == "inline":
        return inline
    return Artifact(name=name, sha256=inline.sha256, size_bytes=len(content), key=f"{inline.sha256}-{upload}")


def with_code(*codes: PickledCode | BlobCode | ScriptCode) -> JobVertex:
    operators = tuple(
        Operator(name=f"op{number}", kind=OperatorKind.APPLY, code=code) for number, code in enumerate(codes)
    )
    return vertex("a", operators=operators)


def in_graph(one: JobVertex) -> ExecutionJobVertex:
    found = ExecutionGraph(JOB_ID, 1, submit_millis=0)
    found.attach(graph(one), 0)
    return found.vertices[one.id]


@pytest.mark.parametrize("parallelism", [2, AUTO_PARALLELISM])
def test_splits_are_every_pth_one(parallelism: int) -> None:
    one = in_graph(source("a", parallelism=parallelism, max_parallelism=2, splits=(1, 2, 3)))
    assert [json.loads(splits_of(one, index)) for index in range(2)] == [[1, 3], [2]]
    assert splits_of(in_graph(source("a")), 0) == b"[]"
    assert splits_of(in_graph(source("a", parallelism=4, splits=(1,))), 3) == b"[]"


def test_job_information_is_canonical_and_carries_files() -> None:
    job = graph(
        vertex("a"),
        params={"b": 1, "a": [None]},
        py_files=(artifact("lib.py", b"x"),),
        files=(artifact("small.txt", b"hello", "inline"),),
    )
    information = job_information(job, JOB_ID, 7, "team-a")
    assert information.namespace == "team-a"
    assert information.params == b'{"a":[null],"b":1}'
    (py_file,) = information.py_files
    assert (py_file.key, py_file.inline) == (f"{py_file.sha256}-u1", b"")
    (small,) = information.files
    assert (small.key, small.inline, small.name) == ("", b"hello", "small.txt")


def test_task_information_names_the_code_that_is_not_in_it() -> None:
    code = (
        PickledCode.of_bytes(b"f"),
        BlobCode(blob=artifact("f.pkl", b"big"), python="3.11"),
        ScriptCode(script=artifact("etl.py", b"print()", "inline")),
    )
    execution_graph = ExecutionGraph(JOB_ID, 7, submit_millis=0)
    execution_graph.attach(graph(with_code(*code)), 0)
    factory = DeploymentFactory(execution_graph)
    (execution,) = execution_graph.executions()
    task = factory.descriptor(execution, allocation(1)).task
    assert [one.name for one in task.code_blobs] == ["f.pkl", "etl.py"]
    assert task.code_blobs[1].inline == b"print()"
    assert [operator.name for operator in parse_operators(task.operators)] == ["op0", "op1", "op2"]
    assert task.is_exclusive
    assert factory.descriptor(execution, allocation(1)).task is task


def test_reuse_key_is_that_of_the_program_not_of_the_run() -> None:
    def key(**fields: object) -> str:
        return reuse_key(JobGraph.model_validate({**dict(base), **fields}))

    base = graph(with_code(BlobCode(blob=artifact("f.pkl", b"big"), python="3.11")), files=(artifact("x", b"1"),))
    same = reuse_key(base)
    assert reuse_key(base, "team-a") != same
    assert key(name="other", params={"day": 2}, execution_timeout_seconds=3.0) == same
    assert key(files=(artifact("x", b"1", "u2"),)) == same
    for fields in (
        {"files": (artifact("x", b"2"),)},
        {"files": (), "archives": (artifact("x", b"1"),)},
        {"spark_conf": {"a": "b"}},
        {"environment": {"A": "b"}},
        {"secrets": ("A",)},
        {"vertices": (with_code(PickledCode.of_bytes(b"g")),)},
        {"vertices": (with_code(ScriptCode(script=artifact("s.py", b"1"))),)},
    ):
        assert key(**fields) != same


# --- durable events --------------------------------------------------------------------------------------------------


def test_events_round_trip_through_their_stored_form() -> None:
    job = JobMasterDriver(diamond())
    job.offer(1)
    (attempt_id,) = job.running()
    spec = job.deployed[attempt_id].outputs[0]
    partition = parquet(attempt_id, spec)
    finished = AttemptFinished(
        attempt_id=attempt_id,
        ordinal=2,
        location=location(),
        timestamps={ExecutionState.CREATED: 1, ExecutionState.FINISHED: 9},
        value='{"grün": 1}'.encode(),
        partitions=(partition,),
        outputs=(OutputDirectory("base", "hidden"),),
        metrics=TaskMetrics(read_bytes=1),
    )
    events = (finished, PartitionsReleased((partition.partition_id,)))
    assert decode_events(encode_events(events)) == events


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"version":9,"events":[]}', b'{"version":1,"events":[{"type":"unheard-of"}]}', b"\xff"]
)
def test_other_events_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidInputError):
        decode_events(data)


def test_noop_job_has_no_splits_inputs_or_outputs() -> None:
    job = JobMasterDriver(lone())
    job.offer(1)
    (task,) = job.deployed.values()
    assert (task.splits, task.inputs, task.outputs, task.ordinal) == (b"[]", (), (), 0)
    assert task.attempt_id.job_id == JobId(JOB_ID)


def test_what_a_job_asks_of_spark() -> None:
    assert spark_needs(lone()).needs_spark is False
    assert spark_needs(diamond()).needs_spark is True
    conf = {"spark.executor.memory": "1g", "spark.sql.shuffle.partitions": "3"}
    needs = spark_needs(lone().model_copy(update={"spark_conf": conf}))
    assert (json.loads(needs.static_conf), needs.needs_spark) == ({"spark.executor.memory": "1g"}, True)
    assert needs.script_conf == b""


def test_what_a_script_sets_itself_is_declared_apart() -> None:
    artifact = Artifact(name="etl.py", sha256="a" * 64, size_bytes=1, key="k")
    code = ScriptCode(script=artifact, builder_conf={"spark.serializer": "kryo", "spark.sql.shuffle.partitions": "3"})
    plain = lone()
    (operator,) = plain.vertices[0].operators
    script = operator.model_copy(update={"kind": OperatorKind.SCRIPT, "code": code})
    vertices = (plain.vertices[0].model_copy(update={"operators": (script,)}),)
    needs = spark_needs(plain.model_copy(update={"vertices": vertices}))
    assert (needs.static_conf, json.loads(needs.script_conf)) == (b"", {"spark.serializer": "kryo"})
