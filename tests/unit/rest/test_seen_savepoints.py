"""A job that goes on from a savepoint which does not fit is refused at its submit, where the JobManager sees it."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from runtime.aio.thread_calls import ThreadCalls
from runtime.checkpoint.savepoint.savepoint_form import METADATA
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.jobgraph.savepoints import ClaimMode, SavepointRestoreSettings
from runtime.rest.app import create_app
from runtime.rest.routes import seen_savepoints
from tests.kit.checkpoint.query_directories import query_directory, saved
from tests.kit.control_plane.streaming_jobs import streaming_job
from tests.kit.rest.fakes import RestFakes
from tests.unit.scheduler.test_streaming_jobs import streaming_script

pytestmark = pytest.mark.asyncio
JOB = JobId("5" * 32)
_numbers = itertools.count(1)


@pytest.fixture
def fakes() -> RestFakes:
    return RestFakes()


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test/v1") as client:
        yield client


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    source = tmp_path / "query"
    query_directory(source, batches=5)
    return saved(tmp_path / "savepoints", source, batch_id=4, uid="orders")


async def answer(
    http: httpx.AsyncClient, path: Path | str, *uids: str, parallelism: int = 1, job_id: str = "", allows: bool = False
) -> str:
    """The status of a submit, and what it says."""
    settings = SavepointRestoreSettings(path=str(path), allow_non_restored_state=allows, claim_mode=ClaimMode.CLAIM)
    graph = streaming_job(*uids, parallelism=parallelism).model_copy(update={"savepoint": settings})
    said = await http.post(
        "/jobs", json={"job_id": job_id or f"{next(_numbers):032x}", "job_graph": graph.model_dump(mode="json")}
    )
    return f"{said.status_code} {said.text if said.status_code != 202 else ''}".strip()


async def test_what_fits_is_taken(http: httpx.AsyncClient, savepoint: Path) -> None:
    assert await answer(http, savepoint, "orders", "alerts") == "202"
    assert await answer(http, savepoint.as_uri(), "orders", "alerts") == "202"


async def test_other_uids_are_refused_with_both_lists(http: httpx.AsyncClient, savepoint: Path) -> None:
    said = await answer(http, savepoint, "tables")
    assert said.startswith("400 ")
    assert "The savepoint's queries: 'orders'; the job's: 'tables'" in said
    assert await answer(http, savepoint, "tables", allows=True) == "202"


async def test_a_script_starts_its_queries_later(http: httpx.AsyncClient, savepoint: Path) -> None:
    settings = SavepointRestoreSettings(path=str(savepoint))
    graph = streaming_script().model_copy(update={"savepoint": settings})
    said = await http.post("/jobs", json={"job_id": "7" * 32, "job_graph": graph.model_dump(mode="json")})
    assert said.status_code == 202, said.text


async def test_another_parallelism_is_refused(http: httpx.AsyncClient, savepoint: Path) -> None:
    assert "with parallelism 1, and the job has 2" in await answer(http, savepoint, "orders", parallelism=2)


async def test_a_directory_that_is_no_savepoint_is_refused(http: httpx.AsyncClient, savepoint: Path) -> None:
    assert "Name the directory of one savepoint" in await answer(http, savepoint.parent, "orders")
    (savepoint / METADATA).write_text("{}")
    assert "is no metadata of a savepoint" in await answer(http, savepoint, "orders")


async def test_what_is_not_seen_here_is_left_to_the_tasks(http: httpx.AsyncClient, savepoint: Path) -> None:
    assert await answer(http, savepoint.with_name("savepoint-of-another-host"), "tables") == "202"
    with (savepoint / METADATA).open("r+b") as large:
        large.truncate(17 * 1024 * 1024)
    assert await answer(http, savepoint, "orders") == "202", "it takes too long to read"


async def test_a_job_that_is_known_may_have_changed_what_it_claims(
    fakes: RestFakes, http: httpx.AsyncClient, savepoint: Path
) -> None:
    assert await answer(http, savepoint, "orders", job_id=JOB) == "202"
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    (savepoint / METADATA).unlink()
    assert await answer(http, savepoint, "orders", job_id=JOB) == "202"
    assert (await answer(http, savepoint, "orders")).startswith("400 ")


async def test_storage_that_hangs_holds_up_no_later_submit_and_no_exit(
    http: httpx.AsyncClient, savepoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, size = threading.Event(), seen_savepoints._size

    def hangs(path: Path) -> int:
        answers.wait()
        return size(path)

    monkeypatch.setattr(seen_savepoints, "_size", hangs)
    monkeypatch.setattr(seen_savepoints, "_LOOKS", ThreadCalls("look", 0.2, threads=2))
    assert await answer(http, savepoint, "tables") == "202"
    assert await answer(http, savepoint, "tables") == "202"
    hanging = [one for one in threading.enumerate() if one.name == "look"]
    assert [one.daemon for one in hanging] == [True, True], "the end of the process waits for none"
    monkeypatch.setattr(seen_savepoints._LOOKS, "_timeout", 60.0)
    async with asyncio.timeout(5.0):
        assert await answer(http, savepoint, "tables") == "202", "no thread is left to look"
    answers.set()
    for one in hanging:
        await asyncio.to_thread(one.join)
    assert (await answer(http, savepoint, "tables")).startswith("400 ")
