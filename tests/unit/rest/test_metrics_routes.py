"""REST tells the metrics of its own JobManager, and whom Prometheus is to scrape."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import pytest

from runtime.aio.scope import Scope
from runtime.metrics.reporting import Exposition
from runtime.rest.app import create_app
from runtime.rest.bodies.schema import metrics as schema
from runtime.rest.context import LeaderComponents, MetricsTarget
from runtime.rest.server import RestServer, RestSettings
from tests.kit.rest.fakes import RestFakes, shown
from tests.kit.rest.schema import check_answer

TOKEN = "the-token"
SIGNED_IN = {"authorization": f"Bearer {TOKEN}"}


class FixedMetrics:
    """`MetricsView` of one text."""

    def __init__(self, text: bytes) -> None:
        self.exposition = Exposition(lambda: text, "text/plain; version=0.0.4; charset=utf-8")

    def targets(self, _components: LeaderComponents, /) -> Sequence[MetricsTarget]:
        """One of each kind."""
        return [MetricsTarget("jobmanager", "b" * 32, "h:1"), MetricsTarget("taskmanager", "tm-1", "[::1]:2")]


def fakes_with(text: bytes) -> RestFakes:
    fakes = RestFakes()
    fakes.metrics = FixedMetrics(text)
    return fakes


def client(fakes: RestFakes) -> httpx.AsyncClient:
    app = create_app(fakes.context(), sign_in=shown(TOKEN), content_length_max=1 << 20, hosts={"test"})
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test", headers=SIGNED_IN)


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/metrics", "/v1/metrics"])
async def test_the_text(path: str) -> None:
    async with client(fakes_with(b"flinklike_jobs 1\n")) as http:
        answer = await http.get(path)
    assert answer.content == b"flinklike_jobs 1\n"
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.asyncio
async def test_targets_as_prometheus_discovers_them() -> None:
    async with client(fakes_with(b"")) as http:
        answer = await http.get("/metrics/targets")
    body = answer.json()
    check_answer(schema.MetricsTargets, body)
    assert body == [
        {"targets": ["h:1"], "labels": {"process": "jobmanager", "__meta_flinklike_id": "b" * 32}},
        {"targets": ["[::1]:2"], "labels": {"process": "taskmanager", "__meta_flinklike_id": "tm-1"}},
    ]
    assert answer.headers["content-type"].startswith("application/json"), "Prometheus asks for it"


@pytest.mark.asyncio
async def test_without_a_reporter_the_answer_says_what_to_do() -> None:
    async with client(RestFakes()) as http:
        answers = [await http.get(path) for path in ("/metrics", "/metrics/targets")]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert all("metrics.reporters: prometheus" in answer.text for answer in answers)


@pytest.mark.asyncio
async def test_nobody_reads_them_without_a_sign_in() -> None:
    async with client(fakes_with(b"flinklike_jobs 1\n")) as http:
        for path in ("/metrics", "/metrics/targets"):
            assert (await http.get(path, headers={"authorization": "Bearer another"})).status_code == 401


@pytest.mark.asyncio
async def test_who_stands_by_tells_its_own_metrics_and_the_targets_of_the_leader() -> None:
    leader, standby = fakes_with(b"of the leader"), fakes_with(b"of the stand-by")
    standby.is_leading = False
    async with Scope("test") as scope:
        servers = [
            RestServer(fakes.context(), RestSettings("127.0.0.1", 0, 1 << 20), sign_in=shown(TOKEN))
            for fakes in (leader, standby)
        ]
        for server in servers:
            server.bind()
            await server.start(scope)
        standby.other_leader.set(f"127.0.0.1:{servers[0].port}")
        base = f"http://127.0.0.1:{servers[1].port}"
        async with httpx.AsyncClient(base_url=base, headers=SIGNED_IN, timeout=30) as http:
            assert (await http.get("/metrics")).content == b"of the stand-by"
            assert len((await http.get("/metrics/targets")).json()) == 2
        for server in servers:
            server.stop()
