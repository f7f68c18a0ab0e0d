"""Flame graphs and back pressure in Flink's bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.states import JobStatus
from runtime.gateways.task_executor import CLUSTER_FRAME, SampledStack
from runtime.rest.app import create_app
from runtime.rest.bodies.flame_graph import FlameType, flame_graph
from runtime.rest.bodies.schema.flame_graphs import FlameNode
from tests.kit.rest.fakes import JOB, FakeTaskExecutor, RestFakes

BELOW = f"/jobs/{JOB}/vertices/{1:032x}"


@pytest.fixture
def fakes() -> RestFakes:
    fakes = RestFakes()
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    return fakes


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        yield client


def executor(fakes: RestFakes) -> FakeTaskExecutor:
    assert isinstance(fakes.task_executor, FakeTaskExecutor)
    return fakes.task_executor


@pytest.mark.asyncio
async def test_a_flame_graph_is_taken_now_and_by_type(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    executor(fakes).stacks = (SampledStack(("main", "total"), 3, True), SampledStack(("main", "wait"), 1, False))
    body = (await http.get(f"{BELOW}/flamegraph")).json()
    assert body["endTimestamp"] == 1_000_000
    leaves = [{"name": "total", "value": 3, "children": []}, {"name": "wait", "value": 1, "children": []}]
    assert body["data"] == {"name": "root", "value": 4, "children": [{"name": "main", "value": 4, "children": leaves}]}
    on = (await http.get(f"{BELOW}/flamegraph?type=ON_CPU&subtaskindex=0")).json()
    assert on["data"]["value"] == 3
    assert (await http.get(f"{BELOW}/flamegraph?type=OFF_CPU")).json()["data"]["value"] == 1
    assert (await http.get(f"{BELOW}/flamegraph?type=SIDEWAYS")).status_code == 400
    assert (await http.get(f"{BELOW}/flamegraph?subtaskindex=5")).status_code == 404


def test_the_code_of_users_comes_first() -> None:
    stacks = [SampledStack((CLUSTER_FRAME, "wait"), 9, False), SampledStack(("total",), 1, True)]
    assert [one["name"] for one in flame_graph(stacks, FlameType.FULL)["children"]] == ["total", CLUSTER_FRAME]


@pytest.mark.asyncio
async def test_nobody_is_looked_at_who_does_not_run(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    assert (await http.get(f"{BELOW}/flamegraph")).status_code == 503, "the TaskManager does not know it"
    fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    looked = len(executor(fakes).sampled)
    assert (await http.get(f"{BELOW}/flamegraph")).json() == {"endTimestamp": -3}
    assert len(executor(fakes).sampled) == looked


@pytest.mark.asyncio
async def test_a_batch_job_has_no_back_pressure(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    body = (await http.get(f"{BELOW}/backpressure")).json()
    assert (body["status"], body["backpressure-level"], body["subtasks"][0]["ratio"]) == ("ok", "ok", 0.0)
    fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    assert (await http.get(f"{BELOW}/backpressure")).json() == {"status": "deprecated"}


_FRAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=5).map(tuple)
_STACKS = st.lists(st.builds(SampledStack, _FRAMES, st.integers(1, 9), st.booleans()), max_size=20)


@given(_STACKS, st.sampled_from(FlameType))
def test_no_node_has_more_below_than_it_has_itself(stacks: list[SampledStack], type_: FlameType) -> None:
    def check(node: FlameNode) -> None:
        assert sum(child["value"] for child in node["children"]) <= node["value"]
        assert len({child["name"] for child in node["children"]}) == len(node["children"])
        for child in node["children"]:
            check(child)

    root = flame_graph(stacks, type_)
    check(root)
    assert root["value"] == sum(one.count for one in stacks if type_.takes(one))
    assert sum(flame_graph(stacks, one)["value"] for one in (FlameType.ON_CPU, FlameType.OFF_CPU)) == sum(
        one.count for one in stacks
    )
