"""A job that has failed and restarted, over REST: its exception history, its attempts, its restart strategy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import pytest_asyncio

from runtime.common.states import ExecutionState, JobStatus
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.gateways.failure_enricher import FailureContext
from runtime.jobgraph.graph import OperatorKind
from runtime.jobgraph.restart_strategy import ExponentialDelayRestartStrategy
from runtime.rest.app import create_app
from runtime.scheduler.core.failover.settings import FailoverSettings
from tests.kit.control_plane.job_graphs import graph, vertex
from tests.kit.control_plane.job_master_driver import JOB_ID, JobMasterDriver, user_failure
from tests.kit.rest.fakes import RestFakes


def team_label(context: FailureContext) -> dict[str, str]:
    return {"type": context.failure.kind, "team": f"{context.job_name}/{context.task_name[:4]}"}


def failed_twice() -> ArchivedExecutionGraph:
    """Two subtasks fail together, restart, and one of them fails again."""
    settings = FailoverSettings(ExponentialDelayRestartStrategy(jitter_factor=0.0), "restart", enrich=team_label)
    job = JobMasterDriver(graph(vertex("wide", OperatorKind.FUNCTION, parallelism=2)), failover=settings)
    job.offer(1, 2)
    for number, attempt_id in enumerate(job.running()):
        job.report(attempt_id, ExecutionState.FAILED, failure=user_failure(f"first {number}"))
    settle(job)
    job.offer(3, 4)
    job.now += 1
    job.report(job.running()[0], ExecutionState.FAILED, failure=user_failure("second"))
    settle(job)
    return ArchivedExecutionGraph.from_json(job.core.archived().to_json())


def settle(job: JobMasterDriver) -> None:
    while job.pending_events is not None or job.restarts:
        job.events_durable()
        if job.pending_events is None and job.restarts:
            job.restart_due()


@pytest_asyncio.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    fakes = RestFakes()
    fakes.dispatcher.put(JOB_ID, JobStatus.RUNNING)
    fakes.dispatcher.graphs[JOB_ID] = failed_twice()
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


async def body(http: httpx.AsyncClient, path: str, **params: Any) -> Any:
    answer = await http.get(f"/jobs/{JOB_ID}{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.asyncio
async def test_root_failures_are_newest_first_and_have_their_concurrent_ones(http: httpx.AsyncClient) -> None:
    history = (await body(http, "/exceptions"))["exceptionHistory"]
    assert not history["truncated"]
    second, first = history["entries"]
    assert second["taskName"] == "wide (1/2) - execution #1"
    assert second["concurrentExceptions"] == []
    assert (first["exceptionName"], first["stacktrace"]) == ("ValueError", "ValueError: first 0")
    assert (first["endpoint"], first["taskManagerId"]) == ("host-0:1", "tm-0")
    assert first["failureLabels"] == {"type": "USER", "team": "job/wide"}
    (other,) = first["concurrentExceptions"]
    assert (other["taskName"], other["stacktrace"]) == ("wide (2/2) - execution #0", "ValueError: first 1")


@pytest.mark.asyncio
async def test_a_history_cut_short_says_so(http: httpx.AsyncClient) -> None:
    history = (await body(http, "/exceptions", maxExceptions=1))["exceptionHistory"]
    assert history["truncated"]
    assert [one["stacktrace"] for one in history["entries"]] == ["ValueError: second"]


@pytest.mark.asyncio
async def test_earlier_attempts_are_there_by_their_numbers(http: httpx.AsyncClient) -> None:
    detail = await body(http, "")
    (only,) = detail["vertices"]
    assert only["restarts"] == 3, "two of the first subtask, one of the second"
    path = f"/vertices/{only['id']}/subtasks/0"
    current = await body(http, path)
    assert (current["attempt"], current["status"]) == (2, "SCHEDULED")
    for number in (0, 1):
        attempt = await body(http, f"{path}/attempts/{number}")
        assert (attempt["attempt"], attempt["status"], attempt["taskmanager-id"]) == (number, "FAILED", "tm-0")
    missing = await http.get(f"/jobs/{JOB_ID}{path}/attempts/3")
    assert missing.status_code == 404


@pytest.mark.asyncio
async def test_the_restart_strategy_is_shown(http: httpx.AsyncClient) -> None:
    config = (await body(http, "/config"))["execution-config"]
    assert config["restart-strategy"].startswith("restarts without limit, 1 s, growing to 1 min;")
    assert config["user-failures"] == "restart"


def test_archives_of_before_labels_are_read() -> None:
    stored = failed_twice()
    bare = replace(stored, exceptions=tuple(replace(one, labels={}, concurrent=()) for one in stored.exceptions))
    data = bare.to_json().replace(b',"labels":{}', b"").replace(b',"lost_partitions":[]', b"")
    assert b"labels" not in data
    assert ArchivedExecutionGraph.from_json(data) == bare
