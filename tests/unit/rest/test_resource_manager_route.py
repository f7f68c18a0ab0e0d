"""GET /resourcemanager: what a driver starts and releases, and how much of it is still to come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio

from runtime.gateways.overview import WorkersStatus, WorkerStatus
from runtime.gateways.resource_manager import TaskManagerInfo
from runtime.rest.app import create_app
from tests.kit.rest.fakes import RestFakes

pytestmark = pytest.mark.asyncio


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> RestFakes:
    made = RestFakes()
    (known,) = made.resource_manager.task_managers()
    labelled = replace(known, registration=replace(known.registration, worker_id="w-1"))

    def task_managers() -> list[TaskManagerInfo]:
        return [labelled]

    monkeypatch.setattr(made.resource_manager, "task_managers", task_managers)
    return made


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        yield client


async def test_without_a_driver_there_is_nothing(http: httpx.AsyncClient) -> None:
    assert (await http.get("/resourcemanager")).json() == {"driver": "standalone", "kinds": [], "workers": []}
    overview = (await http.get("/overview")).json()
    assert (overview["taskmanagers-pending"], overview["jobmasters-pending"]) == (0, 0)


async def test_workers_are_told_with_their_states_and_processes(fakes: RestFakes, http: httpx.AsyncClient) -> None:
    fakes.resource_manager.worker_statuses = [
        WorkersStatus(
            "taskmanager",
            (WorkerStatus("w-1", "registered", 1_000), WorkerStatus("w-2-gpu", "starting", 2_000)),
            1,
            "it ended before it registered",
        ),
        WorkersStatus("jobmaster", (WorkerStatus("w-3", "leaving", 3_000, "it drains, and has no job"),), 0, ""),
    ]
    found = (await http.get("/v1/resourcemanager")).json()
    assert found["kinds"] == [
        {"kind": "taskmanager", "pending": 1, "problem": "it ended before it registered"},
        {"kind": "jobmaster", "pending": 0, "problem": ""},
    ]
    assert [tuple(one.values()) for one in found["workers"]] == [
        ("w-1", "taskmanager", "registered", 1_000, "", "tm-1", "default"),
        ("w-2-gpu", "taskmanager", "starting", 2_000, "", "", "gpu"),
        ("w-3", "jobmaster", "leaving", 3_000, "it drains, and has no job", "", ""),
    ]
    overview = (await http.get("/overview")).json()
    assert (overview["taskmanagers-pending"], overview["jobmasters-pending"]) == (1, 0)
