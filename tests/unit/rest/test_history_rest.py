"""A history server's REST: the bodies of a JobManager for jobs that have ended, and a sentence for everything else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio

from runtime.common.states import JobStatus
from runtime.history.pack import EndedJob
from runtime.history.views import HistoryDispatcher, NoBlobs, NoJars, NoResourceManager
from runtime.rest.access.roles import TABLE, is_in_history
from runtime.rest.app import create_app
from runtime.rest.context import LeaderComponents
from tests.kit.history.histories import Histories, ended, job_id
from tests.kit.rest.fakes import RestFakes, archived

pytestmark = pytest.mark.asyncio(loop_scope="module")
JOB = job_id(1)
VERTEX = f"{1:032x}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    """One for all, as they only read."""
    histories = Histories(tmp_path_factory.mktemp("histories"))
    await histories.write(ended(1, JobStatus.FAILED, name="daily <b>"), ended(2, namespace="sales"))
    await histories.write(
        EndedJob(ended(3).summary, b'{"schema_version": 99}'),
        EndedJob(ended(4).summary, archived(job_id(9), JobStatus.FINISHED).to_json()),
        EndedJob(ended(5).summary, b""),
        cluster="two",
    )
    catalogue = histories.catalogue()
    await catalogue.refresh()
    leading = LeaderComponents(HistoryDispatcher(catalogue), NoResourceManager(), NoBlobs(), NoJars(), "")
    context = replace(RestFakes().context(), leader=lambda: leading, history=catalogue)
    app = create_app(context, sign_in=None, content_length_max=1 << 20, hosts={"test"})
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client
    histories.io.close()


async def test_lists_and_pages_of_jobs(http: httpx.AsyncClient) -> None:
    rows = {one["jid"]: one for one in (await http.get("/jobs/overview")).json()["jobs"]}
    assert len(rows) == 5
    assert (rows[JOB]["cluster"], rows[job_id(3)]["cluster"]) == ("one", "two")
    assert len((await http.get("/jobs")).json()["jobs"]) == 5
    details = (await http.get(f"/jobs/{JOB}")).json()
    assert (details["state"], details["cluster"], len(details["vertices"])) == ("FAILED", "one", 2)
    assert "no such column" in (await http.get(f"/v1/jobs/{JOB}/exceptions")).text
    for path in ("plan", "config", "status", "execution-result", "attempts", f"vertices/{VERTEX}"):
        assert (await http.get(f"/jobs/{JOB}/{path}")).status_code == 200, path
    assert (await http.get("/config")).json()["features"] == {
        "web-submit": False,
        "web-cancel": False,
        "web-rescale": False,
        "web-history": True,
    }


@pytest.mark.parametrize(
    ("query", "numbers"), [("since=901", set()), ("until=901", {1, 2, 3, 4, 5}), ("since=900&until=900", set())]
)
async def test_lists_by_time(http: httpx.AsyncClient, query: str, numbers: set[int]) -> None:
    found = (await http.get(f"/jobs/overview?{query}")).json()["jobs"]
    assert {one["jid"] for one in found} == {job_id(number) for number in numbers}


@pytest.mark.parametrize(
    ("method", "path"),
    sorted(key for key in TABLE if not is_in_history(*key) and "yarn" not in key[1]),  # a GET that others may not send
)
async def test_what_a_history_does_not_know_is_a_404_with_a_sentence(
    http: httpx.AsyncClient, method: str, path: str
) -> None:
    filled = path.replace("{job_id}", JOB).replace("{", "").replace("}", "").replace(":path", "")
    answer = await http.request(method, filled, json={})
    assert answer.status_code == 404
    assert "ask the JobManager of the cluster" in answer.json()["errors"][0]


async def test_nothing_that_changes_is_in_a_history() -> None:
    assert not [key for key, access in TABLE.items() if is_in_history(*key) and access.action]


@pytest.mark.parametrize(
    ("number", "sentence"),
    [(3, "cannot read an archived execution graph of schema 99"), (4, "is that of another job"), (5, "no archive")],
)
async def test_an_archive_that_is_none_is_a_404_with_a_sentence(
    http: httpx.AsyncClient, number: int, sentence: str
) -> None:  # R52
    answer = await http.get(f"/jobs/{job_id(number)}")
    assert answer.status_code == 404
    assert sentence in answer.json()["errors"][0]


async def test_where_logs_are_is_said(http: httpx.AsyncClient) -> None:
    body = {"position": {}, "wait": 0}
    answer = (await http.post(f"/jobs/{JOB}/logs", json=body)).json()
    assert "a history has no logs" in answer["attempts"][0]["missing"]
    assert "log/attempts/tm-1/" in answer["attempts"][0]["missing"]
    one = await http.get(f"/jobs/{JOB}/vertices/{VERTEX}/subtasks/0/attempts/0/log")
    assert one.status_code == 404
    assert "a history has no logs" in one.json()["errors"][0]


async def test_the_page_says_that_it_is_of_a_history(http: httpx.AsyncClient) -> None:
    assert '<meta name="mode" content="history">' in (await http.get("/ui/jobs")).text


async def test_a_poll_for_jobs_that_have_ended_waits_for_nothing(http: httpx.AsyncClient) -> None:
    answer = await http.post("/jobs/wait", json={"known": {JOB: 2000, job_id(9): 1}, "wait": 60})
    assert [one["jid"] for one in answer.json()["jobs"]] == [JOB]
    assert answer.json()["unknown"] == [job_id(9)]
