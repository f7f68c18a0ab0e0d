"""Checkpoints of a streaming job in Flink's bodies, and as Flink refuses where there are none."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from runtime.common.checkpoint_settings import CheckpointRetention
from runtime.common.states import JobStatus
from runtime.executiongraph.archived_checkpoints import ArchivedCheckpoints
from runtime.rest.app import create_app
from tests.kit.rest.fakes import JOB, RestFakes
from tests.kit.rest.streaming_graphs import CHECKPOINTS, put_checkpoints

VERTEX = f"{1:032x}"
BELOW = f"/jobs/{JOB}/checkpoints"
FLINK = json.loads(Path(__file__).with_name("flink_checkpoints.json").read_text())
"""Answers of Flink 2.3.0: fields and their types count here, not their values."""
OURS = {"positions", "queries_without_batch", "uid", "query-id", "batch-id", "state-rows"}

pytestmark = pytest.mark.asyncio


@pytest.fixture
def fakes() -> RestFakes:
    fakes = RestFakes()
    put_checkpoints(fakes.dispatcher, JOB, CHECKPOINTS)
    return fakes


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test/v1") as client:
        yield client


def fields(body: Any) -> Any:
    """The names of a body, and of the bodies within: of a list those of the first element."""
    if isinstance(body, dict):
        return {name: fields(value) for name, value in body.items() if name not in OURS}
    if isinstance(body, list):
        return [fields(one) for one in body[:1]]
    return "number" if isinstance(body, int | float) and not isinstance(body, bool) else type(body).__name__


def told(body: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(body[name] for name in names)


async def test_all_of_a_job(http: httpx.AsyncClient) -> None:
    body = (await http.get(BELOW)).json()
    assert body["counts"] == {"restored": 1, "total": 4, "in_progress": 1, "completed": 2, "failed": 1}
    assert told(body["summary"]["end_to_end_duration"], "min", "max", "avg", "p50", "p999") == (30, 38, 34, 34.0, 38.0)
    assert [told(one, "className", "id", "status") for one in body["history"]] == [
        ("in_progress", 7, "IN_PROGRESS"),
        ("completed", 6, "COMPLETED"),
        ("failed", 5, "FAILED"),
        ("completed", 4, "COMPLETED"),
    ]
    pending, latest, failed, before = body["history"]
    assert told(pending, "num_subtasks", "num_acknowledged_subtasks", "end_to_end_duration") == (2, 1, 12)
    assert told(latest, "end_to_end_duration", "discarded", "state_size", "queries_without_batch") == (
        38,
        False,
        8192,
        0,
    )
    assert told(failed, "end_to_end_duration", "latest_ack_timestamp") == (5000, -1)
    assert failed["failure_message"].startswith("Checkpoint was declined.")
    assert before["discarded"] is True
    assert body["latest"]["completed"] == latest
    assert (body["latest"]["failed"]["id"], body["latest"]["savepoint"]) == (5, None)
    assert told(body["latest"]["restored"], "id", "restore_timestamp") == (4, 975_000)


async def test_the_bodies_are_those_of_flink(http: httpx.AsyncClient) -> None:
    job = (await http.get(BELOW)).json()
    for name in ("counts", "summary"):
        assert fields(job[name]) == fields(FLINK["job"][name])
    assert fields(job["history"][1]) == fields(FLINK["job"]["history"][0])
    assert [*job] == [*FLINK["job"]]
    assert [*job["latest"]] == [*FLINK["job"]["latest"]]
    assert fields((await http.get(f"{BELOW}/config")).json()) == fields(FLINK["config"])
    details = (await http.get(f"{BELOW}/details/6")).json()
    task, of_flink = details["tasks"].pop(VERTEX), FLINK["details"]["tasks"].popitem()[1]
    assert fields(task) == fields(of_flink)
    assert fields(details) == fields({**FLINK["details"], "tasks": {}})
    subtasks = (await http.get(f"{BELOW}/details/6/subtasks/{VERTEX}")).json()
    shape, expected = fields(subtasks), fields(FLINK["subtasks"])
    del shape["summary"], expected["summary"]
    assert shape == expected
    assert subtasks["summary"].keys() == FLINK["subtasks"]["summary"].keys()


async def test_the_settings(http: httpx.AsyncClient) -> None:
    body = (await http.get(f"{BELOW}/config")).json()
    names = ("mode", "interval", "timeout", "min_pause", "tolerable_failed_checkpoints", "max_concurrent")
    assert told(body, *names) == ("exactly_once", 10_000, 600_000, 500, 3, 1)


@pytest.mark.parametrize(
    ("retention", "enabled", "deletes"),
    [
        (CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS, False, True),
        (CheckpointRetention.DELETE_ON_CANCELLATION, True, True),
        (CheckpointRetention.RETAIN_ON_CANCELLATION, True, False),
    ],
)
async def test_what_stays_of_a_job_in_flinks_words(
    http: httpx.AsyncClient, fakes: RestFakes, retention: CheckpointRetention, enabled: bool, deletes: bool
) -> None:
    put_checkpoints(fakes.dispatcher, JOB, replace(CHECKPOINTS, retention=retention))
    body = (await http.get(f"{BELOW}/config")).json()
    assert body["externalization"] == {"enabled": enabled, "delete_on_cancellation": deletes}


async def test_one_has_its_vertices_and_the_position_of_each_query(http: httpx.AsyncClient) -> None:
    body = (await http.get(f"{BELOW}/details/6")).json()
    assert told(body["tasks"][VERTEX], "num_subtasks", "state_size", "end_to_end_duration") == (2, 8192, 38)
    assert [told(one, "uid", "subtask", "batch-id") for one in body["positions"]] == [
        ("orders", 0, 46),
        ("orders", 1, 45),
    ]
    pending = (await http.get(f"{BELOW}/details/7/subtasks/{VERTEX}")).json()
    assert told(pending, "status", "num_subtasks", "num_acknowledged_subtasks") == ("IN_PROGRESS", 2, 1)
    first, second = pending["subtasks"]
    assert told(first, "className", "status", "batch-id", "end_to_end_duration") == ("completed", "completed", 47, 12)
    assert second == {"className": "pending", "index": 1, "status": "pending_or_failed"}
    failed = (await http.get(f"{BELOW}/details/5")).json()
    assert told(failed["tasks"][VERTEX], "num_subtasks", "num_acknowledged_subtasks", "latest_ack_timestamp") == (
        2,
        0,
        -1,
    )


@pytest.mark.parametrize("path", ["", "/config", "/details/6", f"/details/6/subtasks/{VERTEX}"])
async def test_a_job_without_is_told_as_by_flink(http: httpx.AsyncClient, fakes: RestFakes, path: str) -> None:
    put_checkpoints(fakes.dispatcher, JOB, replace(CHECKPOINTS, interval_millis=0, history=()))
    answer = await http.get(f"{BELOW}{path}")
    assert (answer.status_code, answer.json()) == (404, {"errors": ["Checkpointing has not been enabled."]})
    assert (await http.get(f"/jobs/{JOB}")).json()["checkpointing"] is False


async def test_while_nobody_owns_a_streaming_job_its_checkpoints_are_not_denied(
    http: httpx.AsyncClient, fakes: RestFakes
) -> None:
    put_checkpoints(fakes.dispatcher, JOB, None)
    answer = await http.get(BELOW)
    assert (answer.status_code, "waits for a JobMaster" in answer.text) == (503, True)
    ended = replace(fakes.dispatcher.graphs[JOB], status=JobStatus.CANCELED)
    fakes.dispatcher.graphs[JOB] = ended
    assert (await http.get(BELOW)).status_code == 404


async def test_what_there_is_not(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    answer = await http.get(f"{BELOW}/details/99")
    assert (answer.status_code, "checkpoint 99." in answer.text) == (404, True)
    answer = await http.get(f"{BELOW}/details/6/subtasks/{2:032x}")
    assert (answer.status_code, "There is no checkpoint statistics" in answer.text) == (404, True)
    assert (await http.get(f"{BELOW}/details/six")).status_code == 400
    fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    assert (await http.get(BELOW)).status_code == 404


async def test_the_savepoint_that_a_job_was_started_from(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    """Also where no checkpoints are made."""
    from_savepoint = ArchivedCheckpoints(0, 600_000, 0, 0, restored_millis=9, restored_savepoint="/s/savepoint-1")
    put_checkpoints(fakes.dispatcher, JOB, from_savepoint)
    body = (await http.get(f"/jobs/{JOB}/checkpoints")).json()
    assert body["latest"]["restored"] == {
        "id": 0, "restore_timestamp": 9, "is_savepoint": True, "external_path": "/s/savepoint-1",
    }  # fmt: skip


async def test_before_the_first_summaries_tell_of_none(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    put_checkpoints(fakes.dispatcher, JOB, ArchivedCheckpoints(10_000, 600_000, 0, 0))
    body = (await http.get(BELOW)).json()
    none = {"min": 0, "max": 0, "avg": 0, "p50": "NaN", "p90": "NaN", "p95": "NaN", "p99": "NaN", "p999": "NaN"}
    assert set(map(json.dumps, body["summary"].values())) == {json.dumps(none)}
    assert body["latest"] == {"completed": None, "savepoint": None, "failed": None, "restored": None}
    assert (body["history"], body["counts"]["total"]) == ([], 0)


async def test_a_savepoint_of_the_job(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    assert CHECKPOINTS.latest_completed is not None
    one = replace(CHECKPOINTS.latest_completed, checkpoint_id=9, savepoint="/s/savepoint-1", positions=())
    with_one = replace(CHECKPOINTS, latest_savepoint=one, history=(one, *CHECKPOINTS.history))
    put_checkpoints(fakes.dispatcher, JOB, with_one)
    body = (await http.get(BELOW)).json()
    assert body["history"][0] == body["latest"]["savepoint"]
    told_of = told(
        body["latest"]["savepoint"], "id", "is_savepoint", "savepointFormat", "checkpoint_type", "external_path"
    )
    assert told_of == (9, True, "CANONICAL", "SAVEPOINT", "file:///s/savepoint-1")
    assert (await http.get(f"{BELOW}/details/9")).json()["positions"] == []
