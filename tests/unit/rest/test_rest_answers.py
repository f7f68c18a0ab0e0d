"""Every answer has the shape that is documented: Flink's fields and types, and ours, to the last level."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, NotRequired

import httpx
import pytest
import pytest_asyncio
from pydantic import ValidationError
from typing_extensions import TypedDict

from runtime.common.errors import FlinklikeError
from runtime.common.states import JobStatus
from runtime.gateways.overview import WorkersStatus, WorkerStatus
from runtime.rest.app import create_app
from runtime.rest.bodies.schema import blobs, cluster, jobs, resource_manager, vertices
from runtime.rest.bodies.schema.common import Errors
from runtime.rest.errors import STATUS
from tests.kit.rest.fakes import JOB, RestFakes
from tests.kit.rest.schema import check_answer

VERTEX = f"/jobs/{JOB}/vertices/{1:032x}"
ANSWERS: dict[str, Any] = {
    "/": cluster.Start,
    "/overview": cluster.ClusterOverview,
    "/config": cluster.DashboardConfiguration,
    "/jobmanager/config": cluster.Configuration,
    "/taskmanagers": cluster.TaskManagers,
    "/taskmanagers/tm-1": cluster.TaskManagerDetails,
    "/jobmasters": cluster.JobMasterProcesses,
    "/resourcemanager": resource_manager.ResourceManager,
    f"/jobmasters/{'b' * 32}": cluster.JobMasterProcessDetails,
    "/jobs": jobs.Jobs,
    "/jobs/overview": jobs.JobOverviews,
    f"/jobs/{JOB}": jobs.Job,
    f"/jobs/{JOB}/status": jobs.JobState,
    f"/jobs/{JOB}/plan": jobs.JobPlan,
    f"/jobs/{JOB}/config": jobs.JobConfiguration,
    f"/jobs/{JOB}/exceptions": jobs.JobExceptions,
    f"/jobs/{JOB}/execution-result": jobs.ExecutionResult,
    VERTEX: vertices.Vertex,
    f"{VERTEX}/subtasktimes": vertices.SubtaskTimes,
    f"{VERTEX}/taskmanagers": vertices.VertexTaskManagers,
    f"{VERTEX}/subtasks/0": vertices.Attempt,
    f"{VERTEX}/subtasks/0/attempts/0": vertices.Attempt,
    "/jobs/xyz": Errors,
    "/nowhere": Errors,
}


@pytest.fixture
def fakes() -> RestFakes:
    made = RestFakes()
    made.dispatcher.put(JOB, JobStatus.FAILED)
    made.resource_manager.worker_statuses = [WorkersStatus("taskmanager", (WorkerStatus("w-1", "lost", 1),), 0, "")]
    return made


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ANSWERS)
async def test_answers(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert answer.headers["content-type"] == "application/json; charset=UTF-8"
    check_answer(ANSWERS[path], answer.json())


@pytest.mark.asyncio
async def test_answers_to_bodies(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    waited = await http.post("/jobs/wait", json={"ids": [JOB]})
    check_answer(jobs.ChangedJobs, waited.json())
    stored = await http.put(f"/blobs/{'1' * 64}", content=b"x")
    check_answer(blobs.StoredBlob, stored.json())
    missing = await http.post("/blobs/missing", json={"digests": [{"sha256": "1" * 64, "size_bytes": 1}]})
    check_answer(blobs.MissingBlobs, missing.json())
    fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    result = await http.get(f"/jobs/{JOB}/execution-result")
    check_answer(jobs.ExecutionResult, result.json())


class Inner(TypedDict):
    c: str


class Outer(TypedDict):
    a: int
    b: list[Inner]
    d: NotRequired[bool]


@pytest.mark.parametrize(
    "wrong",
    [
        {"a": True, "b": [{"c": "x"}]},
        {"a": 1, "b": [{"c": 1}]},
        {"a": 1, "b": [{}]},
        {"a": 1, "b": [{"c": "x"}], "d": 1},
        {"a": 1, "b": [{"c": "x"}], "e": 1},
        {"a": 1, "b": [{"c": "x", "e": 1}]},
        {"a": 1, "b": []},
    ],
)
def test_the_comparison_finds_what_is_wrong(wrong: dict[str, Any]) -> None:
    check_answer(Outer, {"a": 1, "b": [{"c": "x"}]})
    with pytest.raises((ValidationError, AssertionError)):
        check_answer(Outer, wrong)


@pytest.mark.asyncio
async def test_the_shares_of_a_task_manager(http: httpx.AsyncClient) -> None:
    (one,) = (await http.get("/taskmanagers")).json()["taskmanagers"]
    assert [one["spark"], one["spark-profile"], one["spark-master"], one["spark-version"]] == [
        True, "sql", "local[*]", "4.3.0",
    ]  # fmt: skip
    assert (one["totalResource"]["cpuCores"], one["freeResource"]["cpuCores"]) == (2.0, 1.0)
    (slot,) = (await http.get("/taskmanagers/tm-1")).json()["allocatedSlots"]
    assert (slot["jobId"], slot["resource"]["cpuCores"]) == (JOB, 1.0)


@pytest.mark.asyncio
async def test_the_slot_sharing_group_has_an_id_as_flinks(http: httpx.AsyncClient) -> None:
    vertex = (await http.get(f"/jobs/{JOB}")).json()["vertices"][0]
    assert vertex["slot-sharing-group"] == "default"
    assert len(bytes.fromhex(vertex["slotSharingGroupId"])) == 16


@pytest.mark.asyncio
async def test_the_config_of_a_job_is_text_without_secrets(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.dispatcher.set_config(
        JOB, {"day": None, "list": [1, "x"], "name": "daily"}, {"spark.hadoop.fs.s3a.secret.key": "s3cr3t", "a": "b"}
    )
    shown = (await http.get(f"/jobs/{JOB}/config")).json()["execution-config"]["user-config"]
    assert shown == {
        "day": "null",
        "list": '[1, "x"]',
        "name": "daily",
        "spark.hadoop.fs.s3a.secret.key": "******",
        "a": "b",
    }


@pytest.mark.asyncio
async def test_a_result_with_half_a_surrogate_pair(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.dispatcher.set_result(JOB, json.dumps("\u00fc\ud800"))
    answer = await http.get(f"/jobs/{JOB}/execution-result")
    assert answer.status_code == 200
    assert json.loads(answer.content)["job-execution-result"]["result"] == "\u00fc\ud800"


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/openapi.json", "/v1/openapi.json"])
async def test_openapi(http: httpx.AsyncClient, path: str) -> None:
    document = (await http.get(path)).json()
    submit = document["paths"]["/jobs"]["post"]
    body = submit["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    assert "job_graph" in document["components"]["schemas"][body.rpartition("/")[2]]["properties"]
    for route, operations in document["paths"].items():
        for method, operation in operations.items():
            schemas = [
                content["schema"]
                for status, answer in operation["responses"].items()
                if status.startswith("2")
                for content in answer.get("content", {}).values()
            ]
            has_bytes = any(schema.get("format") == "binary" for schema in schemas)
            is_refused = "refused" in operation.get("tags", ())
            assert has_bytes or (_has_schema(schemas) is not is_refused), (method, route)
    referred = set(_references(document))
    assert {f"#/components/schemas/{name}" for name in document["components"]["schemas"]} >= referred


def _has_schema(schemas: list[dict[str, Any]]) -> bool:
    return bool(schemas) and all(schemas)


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [found for one in value.values() for found in _references(one)]
    return [found for one in value for found in _references(one)] if isinstance(value, list) else []


def _all_errors(root: type[FlinklikeError]) -> list[type[FlinklikeError]]:
    return [root, *(found for one in root.__subclasses__() for found in _all_errors(one))]


def test_every_error_has_a_status() -> None:  # style 3.11
    declared = [one for one in _all_errors(FlinklikeError) if one.__module__ == "runtime.common.errors"]
    assert set(declared) == set(STATUS)
