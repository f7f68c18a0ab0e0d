"""The archived form: complete, stable as JSON, and enough for every REST body."""

from __future__ import annotations

import json

import pytest

from runtime.common.errors import InvalidInputError
from runtime.common.states import ExecutionState, JobStatus, JobType
from runtime.executiongraph.archived import ARCHIVE_SCHEMA_VERSION, ArchivedExecution, ArchivedExecutionGraph
from runtime.executiongraph.core import archive
from runtime.gateways.task import TaskMetrics, TaskProgress
from runtime.jobgraph.graph import FunctionReference, Operator, OperatorKind, vertex_id_of
from tests.kit.control_plane.job_graphs import diamond, edge, graph, source, vertex
from tests.kit.control_plane.job_master_driver import JobMasterDriver, user_failure
from tests.kit.control_plane.streaming_jobs import PROGRESS, streaming_job

E = ExecutionState


def execution(**timestamps: int) -> ArchivedExecution:
    entered = {ExecutionState[name]: at for name, at in timestamps.items()}
    return ArchivedExecution(0, "id", list(entered)[-1], entered, "host:1", "tm-1", None, TaskMetrics(), None)


def finished_diamond() -> ArchivedExecutionGraph:
    job = JobMasterDriver(diamond())
    job.offer(1, 2)
    job.finish_all()
    job.result_durable()
    return job.core.archived()


def test_json_round_trip_of_a_finished_and_a_failed_job() -> None:
    archived = finished_diamond()
    assert ArchivedExecutionGraph.from_json(archived.to_json()) == archived
    job = JobMasterDriver(diamond())
    job.offer(1, 2)
    progress = TaskProgress(job.running()[0], 0.25, "reading", 1, 2, 3, 4)
    job.progresses(progress)
    for attempt_id in job.running():
        job.report(attempt_id, E.FAILED, failure=user_failure("grün \x00 \u2028"))
    job.result_durable()
    failed = job.core.archived()
    assert failed.exceptions[0].concurrent
    assert ArchivedExecutionGraph.from_json(failed.to_json()) == failed


def test_archive_of_another_schema_is_refused_by_version() -> None:
    document = json.loads(finished_diamond().to_json())
    document["schema_version"] = ARCHIVE_SCHEMA_VERSION + 1
    with pytest.raises(InvalidInputError, match=f"schema {ARCHIVE_SCHEMA_VERSION + 1}"):
        ArchivedExecutionGraph.from_json(json.dumps(document).encode())
    with pytest.raises(InvalidInputError, match="unknown"):
        ArchivedExecutionGraph.from_json(b"[]")
    with pytest.raises(InvalidInputError):
        ArchivedExecutionGraph.from_json(b"\xff")


def test_noop_archive_stays_far_below_the_inline_limit() -> None:
    job = JobMasterDriver(graph(vertex("noop", OperatorKind.FUNCTION)))
    job.offer(1)
    job.report(job.running()[0])
    job.result_durable()
    assert len(job.core.archived().to_json()) < 2048


def test_times_of_attempt_vertex_and_job() -> None:
    job = JobMasterDriver(graph(vertex("two", OperatorKind.FUNCTION, parallelism=2)))
    job.now = 1.0
    job.offer(1)
    live = job.core.archived().vertices[0]
    assert (live.start_millis, live.end_millis) == (2000, -1)
    assert live.subtasks[1].current.start_millis == -1
    job.now = 2.0
    job.report(job.running()[0])
    job.now = 3.0
    job.report(job.running()[0])
    job.now = 4.0
    job.result_durable()
    archived = job.core.archived()
    (one,) = archived.vertices
    assert (one.start_millis, one.end_millis, one.state) == (2000, 4000, E.FINISHED)
    assert one.counts() == {E.FINISHED: 2}
    assert (archived.start_millis, archived.end_millis) == (1000, 4000)
    assert archived.timestamps == {
        JobStatus.INITIALIZING: 1000,
        JobStatus.CREATED: 1000,
        JobStatus.RUNNING: 2000,
        JobStatus.FINISHED: 4000,
    }


def test_durations_by_state_leave_out_terminal_ones() -> None:
    ended = execution(CREATED=10, SCHEDULED=11, DEPLOYING=13, RUNNING=16, FINISHED=26)
    assert ended.status_durations(99) == {E.CREATED: 1, E.SCHEDULED: 2, E.DEPLOYING: 3, E.RUNNING: 10}
    assert ended.is_complete
    running = execution(CREATED=10, SCHEDULED=11, DEPLOYING=13, RUNNING=16)
    assert running.status_durations(20) == {E.CREATED: 1, E.SCHEDULED: 2, E.DEPLOYING: 3, E.RUNNING: 4}
    at_once = execution(CREATED=10, SCHEDULED=10, DEPLOYING=10, FINISHED=10)
    assert at_once.status_durations(20) == {E.CREATED: 0, E.SCHEDULED: 0, E.DEPLOYING: 0}


def test_plan_edges_and_config() -> None:
    archived = finished_diamond()
    join = vertex_id_of("join")
    assert [one.source for one in archived.inputs(join)] == [vertex_id_of("left"), vertex_id_of("right")]
    assert archived.vertex(join) is not None
    assert archived.vertex("nobody") is None
    assert archived.vertices[0].subtasks[0].attempt(0) is archived.vertices[0].subtasks[0].current
    assert archived.vertices[0].subtasks[0].attempt(1) is None
    assert archived.config.parallelism == 4
    assert archived.failure is None


def test_description_shows_the_chain_and_config_hides_values_of_the_environment() -> None:
    chain = tuple(
        Operator(name=name, kind=OperatorKind.MAP, code=FunctionReference(target="m:f")) for name in ("clean", "count")
    )
    job = JobMasterDriver(
        graph(
            source("read", operators=(Operator(name="read", kind=OperatorKind.SOURCE, code=chain[0].code), *chain)),
            vertex("use"),
            edges=(edge("read", "use"),),
            params={"day": 1},
            environment={"PASSWORD": "hidden"},
            spark_conf={"spark.sql.shuffle.partitions": "2"},
        )
    )
    archived = job.core.archived()
    assert archived.vertices[0].description == "read<br/>+- clean<br/>+- count<br/>"
    assert json.loads(archived.config.params) == {"day": 1}
    assert archived.config.environment == ("PASSWORD",)
    assert b"hidden" not in archived.to_json()


def test_metrics_of_a_vertex_are_sums_and_the_highest_peak() -> None:
    archived = finished_diamond()
    assert archived.vertices[0].metrics() == TaskMetrics()


def streaming(*uids: str) -> JobMasterDriver:
    job = JobMasterDriver(streaming_job(*uids))
    job.offer(*range(1, len(uids) + 1))
    for attempt_id in job.running():
        job.progresses(TaskProgress(attempt_id, 0.0, "", 0, 0, 0, 0, streams=(PROGRESS,)))
    return job


def test_what_queries_tell_is_kept_with_their_attempts() -> None:
    job = streaming("orders")
    live = job.core.archived()
    (one,) = live.vertices
    assert (live.job_type, job.core.summary().job_type) == (JobType.STREAMING, JobType.STREAMING)
    assert (one.stream_uid, one.has_streams, one.subtasks[0].current.streams) == ("orders", True, (PROGRESS,))
    assert ArchivedExecutionGraph.from_json(live.to_json()) == live
    job.report(job.running()[0], E.FAILED, failure=user_failure())
    job.result_durable()
    ended = job.core.archived()
    assert ended.status is JobStatus.FAILED
    assert ended.vertices[0].subtasks[0].current.streams == (PROGRESS,), "the last word of a query stays"


def test_of_very_many_queries_no_phases_are_archived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "PHASES_MAX", 3)
    (query,) = streaming("one").core.archived().vertices[0].subtasks[0].current.streams
    assert len(query.phases) == 2
    first, second = streaming("one", "two").core.archived().vertices
    assert [one.subtasks[0].current.streams[0].phases for one in (first, second)] == [(), ()]
    assert first.subtasks[0].current.streams[0].rows == PROGRESS.rows


def test_archives_of_releases_without_streams_are_read() -> None:
    archived = streaming("orders").core.archived()
    document = json.loads(archived.to_json())
    for vertex_of_it in document["vertices"]:
        del vertex_of_it["stream_uid"]
        for subtask in vertex_of_it["subtasks"]:
            del subtask["current"]["streams"]
    read = ArchivedExecutionGraph.from_json(json.dumps(document).encode())
    assert (read.vertices[0].stream_uid, read.vertices[0].has_streams) == ("", False)
