"""A submit parses its graph once and hashes it once in each process that uses the graph."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from pydantic import BaseModel

from runtime.common.states import JobStatus
from runtime.jobgraph.graph import JobGraph
from runtime.rest.routes.submission import read_submission
from tests.kit.control_plane.job_graphs import graph, source
from tests.kit.control_plane.plane import ControlPlane, eventually

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture(params=["standalone", "split"])
async def plane(request: pytest.FixtureRequest) -> AsyncIterator[ControlPlane]:
    """JobMasters in the JobManager, or in a process of their own."""
    made = ControlPlane(is_split=request.param == "split", has_real_job_masters=True)
    yield made
    await made.stop()


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often bytes with a graph were parsed, and bytes of which sha256 was asked."""
    counted: Counter[str] = Counter()
    validate: Any = BaseModel.__dict__["model_validate_json"].__func__
    loads, sha256 = json.loads, hashlib.sha256

    def validating(model: type[BaseModel], /, data: bytes, **more: Any) -> BaseModel:
        counted["parses"] += b'"vertices"' in data
        made: BaseModel = validate(model, data, **more)
        return made

    def loading(data: bytes | str, **more: Any) -> Any:
        counted["parses"] += '"vertices"' in (data if isinstance(data, str) else data.decode())
        return loads(data, **more)

    def hashing(data: bytes = b"", **more: Any) -> Any:
        counted["hashes"] += b'"vertices"' in bytes(data)
        return sha256(data, **more)

    monkeypatch.setattr(BaseModel, "model_validate_json", classmethod(validating))
    monkeypatch.setattr(json, "loads", loading)
    monkeypatch.setattr(hashlib, "sha256", hashing)
    return counted


async def submitted(plane: ControlPlane, job_graph: JobGraph, counts: Counter[str]) -> Counter[str]:
    """What a submit costs until its JobMaster has the graph."""
    leader = await plane.lead()
    if plane.is_split:
        await plane.start_job_master()
        await eventually(lambda: any(one.state == "ready" for one in leader.dispatcher.job_masters()))
    job_id = plane.new_job().job_id
    body = json.dumps({"job_id": job_id, "job_graph": json.loads(job_graph.canonical_json())}).encode()
    counts.clear()
    verified = await read_submission(body, ())
    await leader.dispatcher.submit_verified(verified.request, verified.graph)

    def is_created() -> bool:
        summary = leader.dispatcher.job_summary(job_id)
        return summary is not None and summary.status is JobStatus.CREATED

    await eventually(is_created)
    return Counter(counts)


async def test_a_graph_that_travels_in_messages(plane: ControlPlane, counts: Counter[str]) -> None:
    processes = 2 if plane.is_split else 1
    assert await submitted(plane, graph(source("only")), counts) == {"parses": processes, "hashes": processes}


async def test_a_graph_that_travels_through_storage(plane: ControlPlane, counts: Counter[str]) -> None:
    large = graph(source("only"), params={"text": "x" * 100_000})
    found = await submitted(plane, large, counts)
    assert found["parses"] == (2 if plane.is_split else 1)
    # What comes from storage is compared with its digest by the storage, and with the assignment's by the JobMaster.
    assert found["hashes"] == (3 if plane.is_split else 1)
