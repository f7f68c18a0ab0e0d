"""Queues in REST: who may name which (R48), what is shown of them, and the place of a job that waits (D-128)."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import httpx
import pytest

from runtime.common.ids import JobId
from runtime.common.shares import QueuePolicy, QueueSettings, QueueStatus
from runtime.common.states import JobStatus
from runtime.common.waiting import Waiting, WaitingKind
from tests.kit.control_plane.job_graphs import lone
from tests.kit.rest.fakes import RestFakes
from tests.unit.rest.test_roles import connecting

Connect = Callable[[str], AbstractAsyncContextManager[httpx.AsyncClient]]
pytestmark = pytest.mark.asyncio
QUEUES = {
    "etl": QueueSettings(weight=2, min_slots=4, namespaces=("team-a",)),
    "reports": QueueSettings(min_slots=4, max_slots=8, max_running_jobs=3, namespaces=("team-b",)),
}
JOB = JobId("7" * 32)


@pytest.fixture
def fakes() -> RestFakes:
    made = RestFakes()
    made.queues = QueuePolicy(QUEUES)
    return made


@pytest.fixture
def as_(fakes: RestFakes) -> Connect:
    return connecting(fakes)


async def submit(as_: Connect, who: str, number: int, **options: object) -> httpx.Response:
    body = {"job_id": f"{number:032x}", "job_graph": json.loads(lone().canonical_json()), "options": options}
    async with as_(who) as client:
        return await client.post("/jobs", content=json.dumps(body))


async def test_the_queue_and_the_priority_go_to_the_dispatcher(fakes: RestFakes, as_: Connect) -> None:
    wanted: list[dict[str, object]] = [{}, {"queue": "etl", "priority": -7}, {"team": "etl"}, {"team": "reports"}]
    for number, options in enumerate(wanted):
        assert (await submit(as_, "submitter", number, **options)).status_code == 202
    asked = [(one.queue, one.priority) for one in fakes.dispatcher.submitted]
    assert asked == [("sam", 0), ("etl", -7), ("etl", 0), ("sam", 0)]


@pytest.mark.parametrize("queue", ["reports", "tom", "new"])
async def test_a_queue_of_others_is_refused_and_that_is_audited(as_: Connect, fakes: RestFakes, queue: str) -> None:
    refused = await submit(as_, "submitter", 1, queue=queue)
    assert refused.status_code == 403
    assert f"slotmanager.queue.{queue}.namespaces has team-a" in refused.text
    assert not fakes.dispatcher.submitted
    assert (await submit(as_, "submitter-of-all", 1, queue=queue)).status_code == 202


async def test_a_name_without_options_where_others_have_some_is_worth_a_warning(fakes: RestFakes, as_: Connect) -> None:
    async def warnings(who: str, number: int, **options: object) -> list[str]:
        answer = await submit(as_, who, number, **options)
        assert answer.status_code == 202, answer.text
        return list(answer.json().get("warnings", []))

    (told,) = await warnings("submitter-of-all", 1, queue="report")
    assert told == (
        "queue report: it has no options, so it is a new one with weight 1 (is reports meant?); queues with options "
        "are etl, reports"
    )
    (told,) = await warnings("submitter-of-all", 2, namespace="tema-a")
    assert (
        told
        == "namespace tema-a: no queue with options is for it (is team-a meant?); there are queues for team-a, team-b"
    )
    known: list[dict[str, object]] = [{}, {"queue": "etl"}, {"queue": "default"}, {"namespace": "team-b"}]
    for number, options in enumerate(known, 3):
        assert await warnings("submitter-of-all", number, **options) == []
    assert await warnings("submitter", 7, queue="sam") == [], "a submitter has a queue of its own"
    unset = await submit(connecting(RestFakes()), "submitter-of-all", 8, queue="report", namespace="tema-a")
    assert "warnings" not in unset.json(), "no queue has options"


@pytest.mark.parametrize(
    "options", [{"queue": "a b"}, {"queue": "a" * 128}, {"priority": 1 << 31}, {"priority": "7"}, {"priority": 0.5}]
)
async def test_what_cannot_be_meant_is_refused(as_: Connect, options: dict[str, object]) -> None:
    assert (await submit(as_, "admin", 1, **options)).status_code == 400


async def test_each_sees_the_queues_that_it_may_use(fakes: RestFakes, as_: Connect) -> None:
    unset = QueueSettings()
    fakes.resource_manager.queue_statuses = [
        QueueStatus("default", unset, 1, 0.5, 1, 0),
        QueueStatus("etl", QUEUES["etl"], 0, 1 / 3, 0, 12),
        QueueStatus("reports", QUEUES["reports"], 1, 1.0, 1, 2),
        QueueStatus("sam", unset, 0, 0.0, 0, 1),
        QueueStatus("tom", unset, 0, 0.0, 0, 1),
    ]
    found = {}
    for who in ("submitter", "viewer", "admin"):
        async with as_(who) as client:
            found[who] = (await client.get("/queues")).json()
    assert [one["name"] for one in found["submitter"]["queues"]] == ["default", "etl", "sam"]
    assert [one["name"] for one in found["viewer"]["queues"]] == ["default", "etl"]
    assert found["submitter"]["problem"] == ""
    assert len(found["admin"]["queues"]) == 5
    assert found["admin"]["queues"][2] == {
        "name": "reports",
        "weight": 1.0,
        "min-slots": 4,
        "max-slots": 8,
        "max-running-jobs": 3,
        "slots-held": 1,
        "share": 1.0,
        "jobs-running": 1,
        "jobs-waiting": 2,
    }
    assert found["admin"]["queues"][1]["share"] == 0.333
    assert found["admin"]["problem"].startswith("the queues have 8 min-slots in all, and there are 2 slots")


async def test_a_job_that_waits_for_its_turn_is_shown_with_its_place(fakes: RestFakes, as_: Connect) -> None:
    fakes.dispatcher.put(JOB, JobStatus.CREATED)
    waits = replace(fakes.dispatcher.summaries[JOB], pending_reason="no free slot", pending_kind="slots", queue="etl")
    fakes.dispatcher.summaries[JOB] = replace(waits, priority=3)
    reason = "no free slot; 3rd of 12 in queue etl, which holds 4 of its share of 4 slots"
    fakes.resource_manager.waiting = {JOB: Waiting(WaitingKind.SLOTS, reason)}
    async with as_("admin") as client:
        details = (await client.get(f"/jobs/{JOB}")).json()
        (listed,) = (await client.get("/jobs/overview")).json()["jobs"]
        (paged,) = (await client.get("/jobs/overview", params={"limit": 5})).json()["jobs"]
        status = (await client.get(f"/jobs/{JOB}/status")).json()
        (news,) = (await client.post("/jobs/wait", content=json.dumps({"known": {JOB: 0}, "wait": 0}))).json()["jobs"]
        for one in (details, listed, paged, status, news):
            assert one["pending-reason"] == reason
        assert (details["queue"], details["priority"], listed["queue"]) == ("etl", 3, "etl")
        fakes.dispatcher.summaries[JOB] = replace(waits, pending_reason="no TaskManager", pending_kind="taskmanagers")
        status = (await client.get(f"/jobs/{JOB}/status")).json()
        assert status["pending-reason"] == "no TaskManager"


async def test_a_list_asks_for_the_places_of_200_jobs_at_most(fakes: RestFakes, as_: Connect) -> None:
    jobs = [JobId(f"{number:032x}") for number in range(1, 251)]
    for one in jobs:
        fakes.dispatcher.put(one, JobStatus.CREATED)
        summary = fakes.dispatcher.summaries[one]
        fakes.dispatcher.summaries[one] = replace(summary, pending_reason="no free slot", pending_kind="slots")
    fakes.resource_manager.waiting = dict.fromkeys(jobs, Waiting(WaitingKind.SLOTS, "no free slot; a place"))
    asked = json.dumps({"known": dict.fromkeys(jobs, 0), "wait": 0})
    async with as_("admin") as client:
        for answer in (await client.get("/jobs/overview"), await client.post("/jobs/wait", content=asked)):
            shown = [one["pending-reason"] for one in answer.json()["jobs"]]
            assert (len(shown), shown.count("no free slot; a place")) == (250, 200)


async def test_a_job_of_an_earlier_release_is_in_the_default_queue(fakes: RestFakes, as_: Connect) -> None:
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    async with as_("admin") as client:
        assert (await client.get(f"/jobs/{JOB}")).json()["queue"] == "default"
