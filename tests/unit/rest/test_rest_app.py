"""The REST application over fakes: Flink's shapes, every refusal, long polls, hostile input."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from airflow_flinklike import script_job
from runtime.common.errors import (
    BackpressureError,
    MessageTooLargeError,
    OutcomeUnknownError,
    PermanentError,
    StaleTokenError,
    StorageExhaustedError,
    UnavailableError,
)
from runtime.common.ids import JobId
from runtime.common.spark_environments import SparkOffer
from runtime.common.states import JobStatus
from runtime.jobgraph.graph import FunctionReference, JobGraph, JobVertex, Operator, OperatorKind, vertex_id_of
from runtime.rest.app import create_app
from runtime.rest.routes.submission import verify_graph
from tests.kit.rest.fakes import JOB, RestFakes, shown

TOKEN = "secret"
JSON = {"content-type": "application/json"}


@pytest.fixture
def fakes() -> RestFakes:
    return RestFakes()


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


def graph(**more: Any) -> dict[str, Any]:
    operator = Operator(name="f", kind=OperatorKind.FUNCTION, code=FunctionReference(target="m:f"))
    vertex = JobVertex(id=vertex_id_of("f"), name="f", operators=(operator,))
    return JobGraph(name="daily", vertices=(vertex,), **more).model_dump(mode="json")


def submission(**more: Any) -> dict[str, Any]:
    return {"job_id": JOB, "job_graph": graph(), **more}


@pytest.mark.asyncio
@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_submit_is_idempotent(http: httpx.AsyncClient, fakes: RestFakes, prefix: str) -> None:
    first = await http.post(f"{prefix}/jobs", json=submission(options={"client": "test"}))
    again = await http.post(f"{prefix}/jobs", json=submission(options={"client": "test"}))
    other = await http.post(f"{prefix}/jobs", json={**submission(), "job_graph": graph(params={"day": 1})})
    assert (first.status_code, first.json()["jobUrl"]) == (202, f"/jobs/{JOB}")
    assert (again.status_code, again.json()["outcome"]) == (202, "ALREADY_SUBMITTED")
    assert other.status_code == 409
    assert fakes.dispatcher.submitted[0].client == "test"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b"{" * 50_000, "not JSON"),
        (b'{"job_id": "x", "job_graph": {}, "more": 1}', "more: unknown field"),
        (json.dumps({"job_id": JOB}).encode(), "job_graph: missing"),
        (json.dumps(submission(options={"x": 1})).encode(), "options.x: unknown field"),
        (json.dumps(submission(options={"client": "c" * 300})).encode(), "at most 256"),
        (json.dumps(submission(options={"client": "\ud800"})).encode(), "not JSON"),
        (json.dumps(submission(options={"client": "\0"})).encode(), "options.client"),
        (json.dumps({"job_id": JOB, "job_graph": graph(params={"x": "\ud800"})}).encode(), "not JSON"),
        (json.dumps({"job_id": JOB, "job_graph": {"schema_version": 9, "new": 1}}).encode(), "schema version 9"),
        (
            json.dumps({"job_id": JOB, "job_graph": graph(configuration={"rest.port": "1"})}).encode(),
            "is the cluster's",
        ),
        (b"[]," * 300_000, "600000 JSON values"),
    ],
)
async def test_bad_submissions_are_refused_with_sentences(http: httpx.AsyncClient, body: bytes, says: str) -> None:
    answer = await http.post("/jobs", content=body, headers=JSON)
    assert answer.status_code == 400
    assert says in "\n".join(answer.json()["errors"])


@pytest.mark.asyncio
async def test_all_problems_of_a_submission_come_at_once(http: httpx.AsyncClient) -> None:
    answer = await http.post("/jobs", json={"job_id": "x", "job_graph": {"name": 1}, "wrong": 1})
    assert len(answer.json()["errors"]) >= 4


@pytest.mark.asyncio
async def test_java_submissions_get_a_sentence_once_all_of_them_is_read(http: httpx.AsyncClient) -> None:
    """Flink's client takes an answer that comes before for a broken connection, and sends it again."""
    left = [b"--x\r\n", b"1", b"2"]

    async def pieces() -> AsyncIterator[bytes]:
        while left:
            yield left.pop(0)

    headers = {"content-type": "multipart/form-data; boundary=x"}
    answer = await http.post("/jobs", content=pieces(), headers=headers)
    assert left == []
    assert answer.status_code == 400
    assert "not Java job graphs" in answer.json()["errors"][0]


@pytest.mark.asyncio
async def test_static_conf_that_nobody_offers_is_refused_with_the_keys(
    http: httpx.AsyncClient, fakes: RestFakes
) -> None:
    conf = {"spark.executor.memory": "9g", "spark.sql.shuffle.partitions": "3", "spark.app.name": "x"}
    body = {"job_id": JOB, "job_graph": graph(spark_conf=conf)}
    assert (await http.post("/jobs", json=body)).status_code == 202
    fakes.resource_manager.offers = [SparkOffer({"spark.executor.memory": "1g"})]
    answer = await http.post("/jobs", json=body)
    assert answer.status_code == 400
    assert "spark.executor.memory" in answer.json()["errors"][0]
    assert "shuffle" not in answer.text
    same = graph(spark_conf={**conf, "spark.executor.memory": "1024m"})
    body = {"job_id": "b" * 32, "job_graph": same}
    assert (await http.post("/jobs", json=body)).status_code == 202, "the session has it, said otherwise"
    more = {**conf, "spark.jars.packages": "a:b:1", "spark.driver.memory": "8g"}
    answer = await http.post("/jobs", json={"job_id": JOB, "job_graph": graph(spark_conf=more)})
    named = [error.split()[1].rstrip(":") for error in answer.json()["errors"]]
    assert named == ["spark.driver.memory", "spark.executor.memory", "spark.jars.packages"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("refusal", "status", "retry_after"),
    [
        (BackpressureError("too many jobs", retry_after=2.4), 429, "2"),
        (BackpressureError("too many jobs", retry_after=0.1), 429, "1"),
        (StaleTokenError("this term is over"), 503, None),
        (UnavailableError("etcd is away"), 503, None),
        (OutcomeUnknownError("perhaps"), 503, None),
        (StorageExhaustedError("etcd is at 80 % of its quota"), 507, None),
        (MessageTooLargeError("too large"), 413, None),
        (PermanentError("broke"), 500, None),
        (ValueError("a bug of ours"), 500, None),
    ],
)
async def test_what_the_dispatcher_raises(
    http: httpx.AsyncClient, fakes: RestFakes, refusal: Exception, status: int, retry_after: str | None
) -> None:
    fakes.dispatcher.refusal = refusal
    answer = await http.post("/jobs", json=submission())
    assert (answer.status_code, answer.headers.get("retry-after")) == (status, retry_after)
    assert answer.json()["errors"]
    assert "a bug of ours" not in answer.text


@pytest.mark.asyncio
async def test_lists(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    assert (await http.get("/jobs")).json() == {"jobs": [{"id": JOB, "status": "RUNNING"}]}
    (job,) = (await http.get("/v1/jobs/overview")).json()["jobs"]
    assert (job["jid"], job["tasks"]["total"], job["end-time"], job["pending-operators"]) == (JOB, 1, -1, 0)
    overview = (await http.get("/overview")).json()
    assert (overview["slots-total"], overview["slots-available"], overview["jobs-running"]) == (2, 1, 1)
    assert overview["leader"] == "jm-1:8081"


@pytest.mark.asyncio
async def test_results(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    assert (await http.get(f"/jobs/{JOB}/execution-result")).json() == {"status": {"id": "IN_PROGRESS"}}
    fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    finished = (await http.get(f"/jobs/{JOB}/execution-result")).json()["job-execution-result"]
    assert (finished["application-status"], finished["result"]) == ("SUCCEEDED", {"rows": 3})
    fakes.dispatcher.put(JOB, JobStatus.FAILED)
    failed = (await http.get(f"/jobs/{JOB}/execution-result")).json()["job-execution-result"]
    assert failed["failure-cause"]["class"] == "ValueError"
    assert "serialized-throwable" not in failed["failure-cause"], "only Flink's Java clients can read it"
    for_flink = (await http.get(f"/v1/jobs/{JOB}/execution-result")).json()["job-execution-result"]
    assert for_flink["failure-cause"].pop("serialized-throwable").startswith("rO0AB")
    assert for_flink == failed
    assert failed["failure-cause"]["failure-labels"] == {"type": "USER"}
    assert failed["failure-cause"]["recoverable"] is True
    assert "result" not in failed
    (entry,) = (await http.get(f"/jobs/{JOB}/exceptions")).json()["exceptionHistory"]["entries"]
    assert (entry["taskName"], entry["failureLabels"]) == ("read (1/1)", {"type": "USER"})


@pytest.mark.asyncio
async def test_a_long_poll_ends_with_the_change(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.dispatcher.put(JOB, JobStatus.RUNNING, modified=1000)
    async with asyncio.TaskGroup() as group:
        poll = group.create_task(http.get(f"/jobs/{JOB}/execution-result", params={"wait": 5}))
        status = group.create_task(http.get(f"/jobs/{JOB}/status", params={"wait": 5, "since": 1000}))
        while fakes.dispatcher.polls < 2:
            await asyncio.sleep(0)
        fakes.dispatcher.put(JOB, JobStatus.FINISHED, modified=2000)
    assert poll.result().json()["status"]["id"] == "COMPLETED"
    assert status.result().json()["status"] == "FINISHED"


@pytest.mark.asyncio
async def test_one_long_poll_for_many_jobs(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    other = JobId("b" * 32)
    fakes.dispatcher.put(JOB, JobStatus.RUNNING, modified=1000)
    answer = await http.post("/jobs/wait", json={"ids": [JOB, other], "since": 500, "wait": 1})
    assert [job["jid"] for job in answer.json()["jobs"]] == [JOB]
    assert answer.json()["unknown"] == [other]
    assert (await http.post("/jobs/wait", json={"ids": "x"})).status_code == 400


@pytest.mark.asyncio
async def test_a_poll_says_what_it_knows_of_each_job(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    """Also when the clock of a later owner is behind."""
    ids = [JobId(letter * 32) for letter in "abc"]
    for job_id, modified in zip(ids, (1000, 2000, 3000), strict=True):
        fakes.dispatcher.put(job_id, JobStatus.RUNNING, modified=modified)
    known = {ids[0]: 1000, ids[1]: 2000, ids[2]: 5000}
    answer = await http.post("/jobs/wait", json={"known": known, "wait": 5, "name": "me"})
    assert [job["jid"] for job in answer.json()["jobs"]] == [ids[2]]
    assert fakes.dispatcher.polled == [(known, "me")]
    known[ids[2]] = 3000
    async with asyncio.TaskGroup() as group:
        poll = group.create_task(http.post("/jobs/wait", json={"known": known, "wait": 5}))
        while fakes.dispatcher.polls < 1:
            await asyncio.sleep(0)
        fakes.dispatcher.put(ids[1], JobStatus.FINISHED, modified=2000)
    assert [(job["jid"], job["state"]) for job in poll.result().json()["jobs"]] == [(ids[1], "FINISHED")]
    for wrong in ({"x": 1}, {ids[0]: -1}, {ids[0]: "1"}, [ids[0]]):
        assert (await http.post("/jobs/wait", json={"known": wrong})).status_code == 400


@pytest.mark.asyncio
async def test_an_end_is_told_whatever_the_clock_of_its_owner_says(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    other = JobId("b" * 32)
    fakes.dispatcher.put(JOB, JobStatus.FINISHED, modified=1000)
    fakes.dispatcher.put(other, JobStatus.RUNNING, modified=5000)
    answer = await http.post("/jobs/wait", json={"ids": [JOB, other], "since": 5000, "wait": 5})
    assert [job["jid"] for job in answer.json()["jobs"]] == [JOB]


@pytest.mark.asyncio
async def test_a_job_that_is_not_listed_any_more_is_still_answered(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    fakes.dispatcher.forgotten[JOB] = fakes.dispatcher.summaries.pop(JOB)
    assert (await http.get("/jobs")).json() == {"jobs": []}
    assert (await http.get(f"/jobs/{JOB}/status")).json()["status"] == "FINISHED"
    assert (await http.get(f"/jobs/{JOB}/execution-result")).json()["status"]["id"] == "COMPLETED"
    assert (await http.patch(f"/jobs/{JOB}")).status_code == 409
    answer = await http.post("/jobs/wait", json={"ids": [JOB], "since": 5000, "wait": 5})
    assert [job["state"] for job in answer.json()["jobs"]] == ["FINISHED"]


@pytest.mark.asyncio
async def test_client_heartbeat(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    path = f"/jobs/{JOB}/clientHeartbeat"
    answer = await http.patch(path, json={"expiredTimestamp": 1_767_268_800_000})
    assert (answer.status_code, answer.json()) == (202, {})
    assert (await http.patch(f"/v1{path}", json={"expiredTimestamp": 0})).status_code == 202
    assert fakes.dispatcher.heartbeats == [(JOB, 1_767_268_800_000), (JOB, 0)]
    unknown = await http.patch(f"/jobs/{'0' * 32}/clientHeartbeat", json={"expiredTimestamp": 1})
    assert unknown.status_code == 404


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"expiredTimestamp": -1}', b'{"expiredTimestamp": "1"}', b'{"expiredTimestamp": 1e999}',
     b'{"expiredTimestamp": 9223372036854775808}', b'{"expiredTimestamp": 1, "more": 1}'],
)  # fmt: skip
async def test_client_heartbeats_that_are_none(http: httpx.AsyncClient, fakes: RestFakes, body: bytes) -> None:
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    answer = await http.patch(f"/jobs/{JOB}/clientHeartbeat", content=body, headers=JSON if body else {})
    assert answer.status_code == 400
    assert answer.json()["errors"]
    assert fakes.dispatcher.heartbeats == []


@pytest.mark.asyncio
async def test_cancel(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    assert (await http.patch(f"/jobs/{JOB}?mode=cancel")).status_code == 202
    meant = {"x-requested-with": "flink"}
    assert (await http.get(f"/jobs/{JOB}/yarn-cancel", headers=meant)).status_code == 202
    assert (await http.patch(f"/jobs/{JOB}?mode=stop")).status_code == 400
    assert fakes.dispatcher.cancelled == [JOB, JOB]
    fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    assert (await http.patch(f"/jobs/{JOB}")).status_code == 409
    fakes.dispatcher.put(JOB, JobStatus.CANCELED)
    assert (await http.patch(f"/jobs/{JOB}")).status_code == 202


@pytest.mark.asyncio
async def test_drain_and_undrain(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    process = "b" * 32
    assert (await http.post(f"/jobmasters/{process}/drain")).status_code == 202
    assert (await http.get(f"/jobmasters/{process}")).json()["state"] == "draining"
    assert (await http.post(f"/v1/jobmasters/{process}/undrain")).status_code == 202
    assert not fakes.dispatcher.is_draining
    assert (await http.post(f"/jobmasters/{'9' * 32}/drain")).status_code == 404


@pytest.mark.asyncio
async def test_move(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    process = "b" * 32
    assert (await http.post(f"/jobs/{JOB}/move", json={"to": process})).status_code == 202
    assert fakes.dispatcher.moves == [(JOB, process)]
    bodies: tuple[object, ...] = ({}, {"to": 1}, {"to": ""}, {"to": process, "now": True})
    assert [(await http.post(f"/jobs/{JOB}/move", json=body)).status_code for body in bodies] == [400] * 4
    assert (await http.post(f"/jobs/{'0' * 32}/move", json={"to": process})).status_code == 404
    assert (await http.get(f"/jobmasters/{process}")).json()["jobs"] == [
        {"jid": JOB, "name": "daily", "state": "RUNNING"}
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/jobs/{'0' * 32}", 404),
        (f"/jobmasters/{'9' * 32}", 404),
        (f"/jobs/{'0' * 32}/status", 404),
        (f"/jobs/{'0' * 32}/execution-result", 404),
        ("/jobs/xyz", 400),
        (f"/jobs/{JOB}/vertices/{'9' * 32}", 404),
        (f"/jobs/{JOB}/vertices/{1:032x}/subtasks/99", 404),
        (f"/jobs/{JOB}/vertices/{1:032x}/subtasks/x", 400),
        (f"/jobs/{JOB}/vertices/{1:032x}/subtasks/0/attempts/5", 404),
        (f"/jobs/{JOB}/vertices/{1:032x}/subtasks/0/attempts/0/log?limit=99999999", 400),
        (f"/jobs/{JOB}/exceptions?maxExceptions=0", 400),
        (f"/jobs/{JOB}/status?wait=x", 400),
        ("/taskmanagers/nobody", 404),
        ("/nope/nada", 404),
        ("/blobs/../../etc/passwd", 404),
        ("/blobs/xyz", 400),
    ],
)
async def test_refusals_are_flinks_error_bodies(
    http: httpx.AsyncClient, fakes: RestFakes, path: str, status: int
) -> None:
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    answer = await http.get(path)
    assert answer.status_code == status
    assert all(isinstance(sentence, str) for sentence in answer.json()["errors"])


@pytest.mark.asyncio
async def test_a_task_manager_is_drained_and_used_again(http: httpx.AsyncClient) -> None:
    states = []
    for verb in ("drain", "undrain"):
        answer = await http.post(f"/taskmanagers/tm-1/{verb}")
        assert (answer.status_code, answer.json()) == (202, {})
        [shown] = (await http.get("/taskmanagers")).json()["taskmanagers"]
        states.append(shown["state"])
    assert states == ["draining", "ready"]
    assert (await http.post("/taskmanagers/nobody/drain")).status_code == 404


@pytest.mark.asyncio
async def test_no_leader_is_503(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.is_leading = False
    answer = await http.get("/overview")
    assert answer.status_code == 503
    assert "leader election" in answer.json()["errors"][0]


@pytest.mark.asyncio
async def test_attempt_logs_by_offset(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    path = f"/jobs/{JOB}/vertices/{1:032x}/subtasks/0/attempts/0/log"
    answer = await http.get(path, params={"offset": 6, "limit": 4})
    assert (answer.text, answer.headers["x-next-offset"]) == ("from", "10")
    assert (await http.get(path, params={"stream": "stderr"})).text == ""


@pytest.mark.asyncio
async def test_blobs(http: httpx.AsyncClient) -> None:
    sha = "1" * 64
    assert (await http.post("/blobs/missing", json={"digests": [{"sha256": sha, "size_bytes": 3}]})).json() == {
        "missing": [sha],
        "keys": {},
    }
    key = (await http.put(f"/blobs/{sha}", content=b"abc")).json()["key"]
    assert (await http.get(f"/blobs/{key}")).content == b"abc"
    assert (await http.get(f"/blobs/{'2' * 64}-u1")).status_code == 404
    assert (await http.put("/blobs/short", content=b"")).status_code == 400
    assert (await http.post("/blobs/missing", json={"digests": [{"sha256": "x", "size_bytes": 1}]})).status_code == 400


@pytest.mark.asyncio
async def test_a_job_says_who_runs_it_and_from_whom_it_was_taken_over(
    http: httpx.AsyncClient, fakes: RestFakes
) -> None:
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    body = (await http.get(f"/jobs/{JOB}")).json()
    assert (body["jobmaster"], body["jobmaster-id"]) == ("127.0.0.1:2", "b" * 32)
    assert body["takeovers"] == [
        {
            "timestamp": 990,
            "from": "10.0.0.9:1",
            "from-id": "e" * 32,
            "to": "127.0.0.1:2",
            "to-id": "b" * 32,
            "reason": "it was <lost>",
        }
    ]
    fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    body = (await http.get(f"/jobs/{JOB}")).json()
    assert body["jobmaster-id"] == "", "nobody runs it any more"
    assert len(body["takeovers"]) == 1, "and what happened is still told"


@pytest.mark.asyncio
async def test_nobody_is_led_to_the_host_that_he_names(http: httpx.AsyncClient) -> None:
    for path in ("/jobs/", "/v1/jobs/", "/taskmanagers/"):
        answer = await http.get(path)
        assert (answer.status_code, "location" in answer.headers) == (404, False)


@pytest.mark.asyncio
async def test_token_and_size_are_checked_before_anything_else(fakes: RestFakes) -> None:
    app = create_app(fakes.context(), sign_in=shown(TOKEN), content_length_max=1000, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        refused = await client.get("/overview")
        assert refused.status_code == 401
        assert "Authorization: Bearer" in refused.json()["errors"][0]
        headers = {"authorization": f"Bearer {TOKEN}", **JSON}
        assert (await client.get("/overview", headers=headers)).status_code == 200
        assert (await client.get("/overview", headers={"authorization": f"Bearer:{TOKEN}"})).status_code == 401
        assert (await client.get("/overview", headers={"authorization": "Bearer wrong"})).status_code == 401
        in_address = {"token": TOKEN}
        for method, path in (
            ("GET", "/overview"),
            ("GET", f"/ui/jobs/{JOB}"),
            ("POST", "/ui"),
            ("POST", "/tokens/ui/rotate"),
            ("GET", f"/jobs/{JOB}/vertices/ui/subtasktimes"),
            ("GET", "/v1/ui/jobs"),
        ):
            assert (await client.request(method, path, params=in_address)).status_code == 401, path
        assert (await client.post("/jobs", content=b"x" * 2000, headers=headers)).status_code == 413

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield b"x" * 100

        assert (await client.post("/jobs", content=endless(), headers=headers)).status_code == 413
        assert (await client.post("/blobs/missing", content=endless(), headers=headers)).status_code == 413
        assert (await client.put(f"/blobs/{'1' * 64}", content=b"x" * 5000, headers=headers)).status_code == 201


def test_a_streaming_script_may_say_how_often_checkpoints_are_made(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text("print(1)\n")
    interval = {"execution.checkpointing.interval": "5 s"}
    graph = script_job(tmp_path / "orders.py", streaming=True, configuration=interval).build().graph
    verify_graph(graph, "a" * 32, (), client="", namespace="")
