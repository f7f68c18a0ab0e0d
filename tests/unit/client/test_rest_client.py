"""Both REST clients over the real REST application: submits, refusals, lost answers, several addresses."""

import asyncio
import hashlib
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_flinklike import FlinklikeClient, JobHandle, function_job, script_job
from airflow_flinklike.api import handle as handle_module
from airflow_flinklike.api.artifacts import CHUNK_BYTES
from airflow_flinklike.client import AsyncFlinklikeClient, QueuePlace, SubmittedJob, new_job_id
from airflow_flinklike.exceptions import (
    AuthenticationError,
    ClusterUnavailableError,
    JobCanceledError,
    JobConflictError,
    JobFailedError,
    JobNotFoundError,
    JobRefusedError,
    PipelineError,
)
from runtime.common.ids import JobId
from runtime.common.spark_environments import SparkOffer
from runtime.common.states import JobStatus
from runtime.jobgraph.graph import INLINE_BYTES_MAX, JobGraph
from runtime.jobgraph.parsing import parse_job_graph
from tests.kit.control_plane.job_graphs import graph, source
from tests.kit.rest.clients import ClientBox, Fault
from tests.kit.rest.fake_cluster import fake_cluster
from tests.kit.rest.fakes import JOB

VERTEX = f"{1:032x}"


@pytest.fixture(params=["sync", "async"])
def box(request: pytest.FixtureRequest) -> Iterator[ClientBox]:
    with asyncio.Runner() as runner:
        yield ClientBox(request.param, runner)


def submit(box: ClientBox, job: JobGraph | None = None, **more: Any) -> Any:
    return box.call("submit", job or graph(source("read")), job_id=JOB, **more)


def refusal(status: int, *sentences: str, **headers: str) -> httpx.Response:
    return httpx.Response(status, json={"errors": list(sentences)}, headers=headers)


# --- submit ---------------------------------------------------------------------------------------------------


def test_submit_names_the_client_and_repeats_harmlessly(box: ClientBox) -> None:
    assert submit(box, client="a test") == SubmittedJob(JOB, is_new=True)
    assert submit(box, client="a test") == SubmittedJob(JOB, is_new=False)
    first = box.fakes.dispatcher.submitted[0]
    assert (first.job_id, first.client, first.digest) == (JOB, "a test", graph(source("read")).digest())


def test_each_content_travels_once_and_only_when_it_is_missing(box: ClientBox, tmp_path: Path) -> None:
    large, other = b"x" * (INLINE_BYTES_MAX + 1), b"y" * (INLINE_BYTES_MAX + 1)
    for name, data in {"etl.py": b"pass", "a.bin": large, "b.bin": large, "c.bin": other}.items():
        (tmp_path / name).write_bytes(data)
    box.fakes.blobs.stored[hashlib.sha256(other).hexdigest()] = other
    job = script_job(tmp_path / "etl.py", files=[tmp_path / f"{name}.bin" for name in "abc"]).build()
    submit(box, job.graph, contents=job.uploads)
    digest = hashlib.sha256(large).hexdigest()
    assert box.wire.paths() == ["POST /blobs/missing", f"PUT /blobs/{digest}", "POST /jobs"]
    sent = parse_job_graph(box.fakes.dispatcher.submitted[0].graph)
    assert [artifact.key for artifact in sent.files] == [
        f"{digest}-u1",
        f"{digest}-u1",
        f"{hashlib.sha256(other).hexdigest()}-u1",
    ]


def test_small_files_travel_inside_the_graph(box: ClientBox, tmp_path: Path) -> None:
    (tmp_path / "etl.py").write_text("pass")
    job = script_job(tmp_path / "etl.py").build()
    submit(box, job.graph, contents=job.uploads)
    assert box.wire.paths() == ["POST /jobs"]


def test_a_file_is_streamed_in_pieces(box: ClientBox, tmp_path: Path) -> None:
    content = b"0123456789abcdef" * (CHUNK_BYTES // 16 * 3) + b"end"
    (tmp_path / "etl.py").write_bytes(b"pass")
    (tmp_path / "big.bin").write_bytes(content)
    job = script_job(tmp_path / "etl.py", files=[tmp_path / "big.bin"]).build()
    (source_of_file,) = job.uploads.values()
    assert source_of_file.data == b"", "a file is not kept in memory"
    submit(box, job.graph, contents=job.uploads)
    assert box.fakes.blobs.stored[source_of_file.sha256] == content
    assert box.wire.largest_chunk <= CHUNK_BYTES


@pytest.mark.parametrize("change", ["content", "length", "gone"])
def test_a_file_that_changes_meanwhile_ends_the_submit(box: ClientBox, tmp_path: Path, change: str) -> None:
    path = tmp_path / "big.bin"
    path.write_bytes(b"x" * (2 * INLINE_BYTES_MAX))
    (tmp_path / "etl.py").write_bytes(b"pass")
    job = script_job(tmp_path / "etl.py", files=[path]).build()
    if change == "gone":
        path.unlink()
    else:
        path.write_bytes(b"y" * (2 if change == "content" else 3) * INLINE_BYTES_MAX)
    with pytest.raises(PipelineError, match=r"big\.bin (was changed while the job|cannot be read any more)"):
        submit(box, job.graph, contents=job.uploads)
    assert not box.fakes.dispatcher.submitted


def test_too_many_submits_wait_as_long_as_the_cluster_says(box: ClientBox) -> None:
    busy = {"retry-after": "7"}
    box.wire.faults = [refusal(429, "busy", **busy), refusal(429, "busy", **busy), refusal(429, "busy")]
    assert submit(box).is_new
    assert box.pauses == [7.0, 7.0, 1.0]


def test_a_retry_after_is_never_endless_nor_a_busy_loop(box: ClientBox) -> None:
    answers = [refusal(429, "busy", **{"retry-after": text}) for text in ("86400", "0", "soon")]
    box.wire.faults = [*answers]
    submit(box)
    assert box.pauses == [60.0, 0.05, 1.0]


# --- answers that are lost ------------------------------------------------------------------------------------


def test_a_lost_answer_is_settled_by_asking_for_the_job(box: ClientBox) -> None:
    box.fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    box.wire.faults = [Fault.LOST_AFTER]
    assert submit(box) == SubmittedJob(JOB, is_new=True)
    assert box.wire.paths() == ["POST /jobs", f"GET /jobs/{JOB}/status"]
    assert len(box.fakes.dispatcher.submitted) == 1


def test_a_lost_request_is_repeated_with_the_same_id(box: ClientBox) -> None:
    box.wire.faults = [Fault.LOST_BEFORE, Fault.NONE, Fault.LOST_BEFORE]
    assert submit(box) == SubmittedJob(JOB, is_new=True)
    assert box.wire.paths() == ["POST /jobs", f"GET /jobs/{JOB}/status"] * 2 + ["POST /jobs"]
    assert len(box.fakes.dispatcher.submitted) == 1
    assert box.pauses == sorted(box.pauses)


def test_a_connection_that_always_breaks_is_given_up(box: ClientBox) -> None:
    box.wire.faults = [Fault.LOST_BEFORE, Fault.NONE] * 6
    with pytest.raises(ClusterUnavailableError, match=f"submitting job {JOB}: the connection broke 6 times"):
        submit(box)


def test_the_question_about_a_lost_answer_rides_over_a_restart(box: ClientBox) -> None:
    box.fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    box.wire.faults = [Fault.LOST_AFTER, Fault.REFUSED, Fault.REFUSED, refusal(503, "no leader")]
    assert submit(box).is_new
    assert len(box.fakes.dispatcher.submitted) == 1


def test_a_question_whose_answer_is_lost_is_asked_again(box: ClientBox) -> None:
    box.fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    box.wire.faults = [Fault.LOST_AFTER, Fault.LOST_BEFORE]
    assert box.call("status", JOB).status is JobStatus.RUNNING


def test_a_lost_answer_is_asked_for_at_the_next_address(box: ClientBox) -> None:
    box.connect(["one:1", "two:2"])
    box.fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    box.wire.faults = [Fault.LOST_AFTER]
    assert submit(box).is_new
    assert [request.url.host for request in box.wire.seen] == ["one", "two"]


# --- addresses ------------------------------------------------------------------------------------------------


def test_another_address_is_tried_at_once_and_remembered(box: ClientBox) -> None:
    box.fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    box.wire.is_down = lambda request: request.url.host != "three"
    box.connect(["one:1", "http://two:2/", "three:3"])
    box.call("status", JOB)
    box.call("status", JOB)
    assert [request.url.host for request in box.wire.seen] == ["one", "two", "three", "three"]
    assert box.pauses == [0.0, 0.0]


def test_a_cluster_that_restarts_is_ridden_over(box: ClientBox) -> None:
    box.fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    box.wire.faults = [Fault.REFUSED] * 3 + [refusal(503, "ongoing leader election")] * 3
    assert box.call("status", JOB).status is JobStatus.RUNNING
    assert len(box.pauses) == 6
    assert all(0.05 <= pause <= 3.0 for pause in box.pauses)


_SILENT = "no JobManager answers at http://one:1, http://two:2"
_ANSWERED = "http://one:1, http://two:2 cannot do this yet"


@pytest.mark.parametrize(
    ("fault", "sentence", "reason"),
    [
        (Fault.REFUSED, _SILENT, "Connection refused"),
        (
            refusal(503, "ongoing leader election", "please refresh"),
            _ANSWERED,
            "ongoing leader election; please refresh",
        ),
        (httpx.Response(502, text="<html>\nbad gateway"), _SILENT, r"HTTP 502 \(<html> bad gateway\)"),
    ],
)
def test_a_cluster_that_stays_away_is_one_sentence(box: ClientBox, fault: Any, sentence: str, reason: str) -> None:
    box.connect(["one:1", "two:2"], retry_for=10)
    box.wire.faults = [fault] * 200
    expected = rf"^{sentence} \(tried for 10 s\): .*{reason}$"
    with pytest.raises(ClusterUnavailableError, match=expected):
        box.call("status", JOB)
    assert 10 <= sum(box.pauses) <= 13
    assert {request.url.host for request in box.wire.seen} == {"one", "two"}


def test_time_lost_in_timeouts_counts(box: ClientBox) -> None:
    box.connect(retry_for=10)
    box.wire.faults = [Fault.CONNECT_TIMEOUT] * 200
    with pytest.raises(ClusterUnavailableError, match="timed out"):
        box.call("status", JOB)
    assert len(box.wire.seen) == 2


def test_without_a_budget_each_address_is_tried_once(box: ClientBox) -> None:
    box.connect(["one:1", "two:2"], retry_for=0)
    box.wire.is_down = lambda _: True
    with pytest.raises(ClusterUnavailableError, match=r"at http://one:1, http://two:2: "):
        box.call("status", JOB)
    assert len(box.wire.seen) == 2


@pytest.mark.parametrize(
    "address", ["ftp://one", "http://", "http://one:99999", "http://one:port", "one two:1", "one:0"]
)
def test_an_address_that_cannot_be_one_is_refused_at_once(address: str) -> None:
    for kind in (FlinklikeClient, AsyncFlinklikeClient):
        with pytest.raises(JobRefusedError, match="is no address of a cluster"):
            kind([address], None)


def test_no_address_is_refused() -> None:
    with pytest.raises(JobRefusedError, match="no cluster address"):
        FlinklikeClient([" ", ""], None)


# --- refusals -------------------------------------------------------------------------------------------------


def test_the_token_is_required(box: ClientBox) -> None:
    for token in (None, "another"):
        box.connect(token=token)
        with pytest.raises(AuthenticationError, match="requires its token"):
            submit(box)


def test_a_token_that_cannot_be_one_is_refused_before_it_is_sent(box: ClientBox) -> None:
    for token in ("two\nlines", "two words", "schlüssel"):
        with pytest.raises(AuthenticationError, match="one word of ASCII"):
            box.connect(token=token)


def test_an_unknown_job(box: ClientBox) -> None:
    for method, arguments in {"status": (), "cancel": (), "wait_for_result": ()}.items():
        with pytest.raises(JobNotFoundError, match=f"Job {JOB} not found"):
            box.call(method, JOB, *arguments)


def test_another_program_under_a_taken_id(box: ClientBox) -> None:
    submit(box)
    with pytest.raises(JobConflictError, match="taken"):
        submit(box, graph(source("another")))


def test_a_refused_job_lists_all_problems(box: ClientBox) -> None:
    box.fakes.resource_manager.offers = [SparkOffer()]
    conf = {"spark.executor.memory": "4g", "spark.jars": "a.jar"}
    with pytest.raises(JobRefusedError) as caught:
        submit(box, graph(source("read", parallelism=0), spark_conf=conf))
    assert any("parallelism" in problem for problem in caught.value.problems)
    with pytest.raises(JobRefusedError) as caught:
        submit(box, graph(source("read"), spark_conf=conf))
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "spark_conf spark.executor.memory",
        "spark_conf spark.jars",
    ]


def test_a_full_store_is_one_sentence(box: ClientBox) -> None:
    box.wire.faults = [refusal(507, "etcd is at 80 % of its quota")]
    with pytest.raises(ClusterUnavailableError, match=r"^etcd is at 80 % of its quota$"):
        submit(box)


def test_another_kind_of_server_is_told_from_a_cluster(box: ClientBox) -> None:
    box.wire.faults = [httpx.Response(404, text="<html>not here"), httpx.Response(200, text="<html>hello")]
    with pytest.raises(ClusterUnavailableError, match=r"HTTP 404 \(<html>not here\): is this the address"):
        box.call("status", JOB)
    with pytest.raises(
        ClusterUnavailableError,
        match=r"^the answer of http://one:1/jobs/a+/status is not one .*not JSON",
    ):
        box.call("status", JOB)


# --- status, results, logs ------------------------------------------------------------------------------------


def test_a_long_poll_says_what_it_knows_already(box: ClientBox) -> None:
    box.fakes.dispatcher.put(JOB, JobStatus.RUNNING, modified=1000)
    state = box.call("status", JOB, wait=0.01, since=1000)
    assert (state.status, state.last_modification) == (JobStatus.RUNNING, 1000)
    assert dict(box.wire.seen[-1].url.params) == {"wait": "0.01", "since": "1000"}
    assert box.fakes.dispatcher.polls == 1
    box.call("status", JOB, wait=30, since=999)
    assert box.fakes.dispatcher.polls == 1, "a change that happened already is told at once"
    box.call("status", JOB)
    assert not box.wire.seen[-1].url.params


def test_a_result(box: ClientBox) -> None:
    box.fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    assert box.call("result_within", JOB, wait=0.01) is None
    box.fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    ended = box.call("wait_for_result", JOB)
    assert (ended.status, ended.value_or_raise()) == (JobStatus.FINISHED, {"rows": 3})


def test_a_failed_job_raises_its_root_cause(box: ClientBox) -> None:
    box.fakes.dispatcher.put(JOB, JobStatus.FAILED)
    with pytest.raises(JobFailedError) as caught:
        box.call("wait_for_result", JOB).value_or_raise()
    assert caught.value.root_cause == "ValueError: no such column"
    assert caught.value.stack_trace.startswith("Traceback")
    assert caught.value.kind == "USER"


def test_a_root_cause_has_no_module_paths() -> None:
    module = "pyspark.errors.exceptions.captured"
    wrapped = JobFailedError(
        JOB, {"class": f"{module}.PythonException", "message": "KeyError: 3 (etl.py, line 8)\nmore"}
    )
    assert wrapped.root_cause == "KeyError: 3 (etl.py, line 8)\nmore"
    assert str(JobFailedError(JOB, {"class": "a.TaskError", "message": "no"})) == f"TaskError: no\n(job {JOB} FAILED)"


def test_a_canceled_job_raises(box: ClientBox) -> None:
    box.fakes.dispatcher.put(JOB, JobStatus.CANCELED)
    with pytest.raises(JobCanceledError):
        box.call("wait_for_result", JOB).value_or_raise()


def test_a_heartbeat(box: ClientBox) -> None:
    box.fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    box.call("heartbeat", JOB, 1_767_268_800_000)
    box.call("heartbeat", JOB, 0)
    assert box.fakes.dispatcher.heartbeats == [(JOB, 1_767_268_800_000), (JOB, 0)]
    with pytest.raises(JobNotFoundError):
        box.call("heartbeat", JobId("0" * 32), 0)


def test_a_job_that_the_cluster_has_canceled_says_why(box: ClientBox) -> None:
    box.fakes.dispatcher.put_cancelled(JOB, "its client did not come back")
    with pytest.raises(JobCanceledError, match="its client did not come back") as caught:
        box.call("wait_for_result", JOB).value_or_raise()
    assert pickle.loads(pickle.dumps(caught.value)).reason == "its client did not come back"


def test_cancel(box: ClientBox) -> None:
    box.fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    box.call("cancel", JOB)
    box.fakes.dispatcher.put(JOB, JobStatus.CANCELED)
    box.call("cancel", JOB)
    assert box.fakes.dispatcher.cancelled == [JOB]
    box.fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    with pytest.raises(JobConflictError, match="already reached another terminal state"):
        box.call("cancel", JOB)


def test_logs_are_read_from_an_offset(box: ClientBox) -> None:
    box.fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    text = b"hello from the task\n"
    first = box.call("log", JOB, VERTEX, 0, 0, stream="stdout", offset=0, limit=5)
    assert (first.data, first.next_offset, first.size_bytes, first.is_truncated) == (b"hello", 5, len(text), False)
    rest = box.call("log", JOB, VERTEX, 0, 0, stream="stdout", offset=first.next_offset)
    assert first.data + rest.data == text
    assert box.call("log", JOB, VERTEX, 0, 0, stream="stdout", offset=-5).data == text[-5:]
    assert box.call("log", JOB, VERTEX, 0, 0, stream="stderr", offset=0).data == b""
    with pytest.raises(JobNotFoundError, match="attempt 3"):
        box.call("log", JOB, VERTEX, 0, 3, stream="stdout", offset=0)


def test_any_other_path(box: ClientBox) -> None:
    assert box.call("get", "/overview")["slots-total"] == 2
    box.fakes.dispatcher.put(JOB, JobStatus.FAILED)
    history = box.call("get", f"/jobs/{JOB}/exceptions", maxExceptions="1")["exceptionHistory"]
    assert [entry["exceptionName"] for entry in history["entries"]] == ["ValueError"]


@pytest.mark.asyncio
async def test_a_change_ends_a_long_poll_while_other_calls_go_on() -> None:
    loop_box = ClientBox("async", asyncio.Runner())
    client = loop_box.connect()
    assert isinstance(client, AsyncFlinklikeClient)
    dispatcher = loop_box.fakes.dispatcher
    dispatcher.put(JOB, JobStatus.RUNNING, modified=1000)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(client.status(JOB, wait=5, since=1000))
        while not dispatcher.polls:
            assert (await client.status(JOB)).status is JobStatus.RUNNING
            await asyncio.sleep(0)
        dispatcher.put(JOB, JobStatus.FINISHED, modified=2000)
    assert (waiting.result().status, waiting.result().last_modification) == (JobStatus.FINISHED, 2000)


def test_ids_are_fresh_job_ids() -> None:
    ids = {new_job_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(one) == 32 for one in ids)


def test_clients_close_their_connections(box: ClientBox) -> None:
    box.fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    if box.kind == "sync":
        with FlinklikeClient(["one:1"], None) as client:
            assert client.addresses == ("http://one:1",)
    else:

        async def use() -> tuple[str, ...]:
            async with AsyncFlinklikeClient(["one:1"], None) as client:
                return client.addresses

        assert asyncio.run(use()) == ("http://one:1",)


@pytest.mark.parametrize("box", ["sync"], indirect=True)
def test_a_handle_waits_for_the_value_and_cancels(box: ClientBox) -> None:
    client = box.connect()
    assert isinstance(client, FlinklikeClient)
    submitted = function_job(lambda: 5, name="five").build()
    client.submit(submitted.graph, job_id=JOB, place=QueuePlace("etl", -5))
    (asked,) = box.fakes.dispatcher.submitted
    assert (asked.queue, asked.priority) == ("etl", -5)
    box.fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    handle = JobHandle(client, JobId(JOB))
    assert (handle.status().status, handle.result()) == (JobStatus.FINISHED, {"rows": 3})
    assert [vertex["name"] for vertex in handle.details()["vertices"]] == ["read", "write <b>"]
    with pytest.raises(JobConflictError):
        handle.cancel()


def test_a_refused_submit_leaves_no_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    class Noting(FlinklikeClient):
        def close(self) -> None:
            super().close()
            closed.append(True)

    monkeypatch.setattr(handle_module, "FlinklikeClient", Noting)
    with fake_cluster() as cluster, pytest.raises(AuthenticationError):
        function_job(lambda: 5).submit(cluster.url, token="wrong", detached=True)
    assert closed == [True]
