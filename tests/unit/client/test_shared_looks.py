"""Callers within a moment share one request and its answer, also when it fails or is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from airflow_flinklike.client.shared_looks import SharedLooks
from airflow_flinklike.exceptions import ClusterUnavailableError
from tests.kit.control_plane.plane import eventually

pytestmark = pytest.mark.asyncio
LONG = 3600.0


class Cluster:
    """A path that answers with the number of the request. The requests in `broken` fail."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.broken: set[int] = set()

    async def ask(self, path: str, patience: float) -> int:
        self.asked.append((path, patience))
        number = len(self.asked)
        await self.may_answer.wait()
        if number in self.broken:
            message = f"request {number}"
            raise ClusterUnavailableError(message)
        return number


async def test_a_thousand_cost_one_request() -> None:
    cluster = Cluster()
    looks = SharedLooks(cluster.ask)
    assert await asyncio.gather(*(looks.get("/a", age=LONG) for _ in range(1000))) == [1] * 1000
    assert await looks.get("/a", age=LONG) == 1
    assert await looks.get("/b", age=LONG, patience=5.0) == 2
    assert cluster.asked == [("/a", 0.0), ("/b", 5.0)]


async def test_what_is_too_old_is_asked_for_again() -> None:
    cluster = Cluster()
    looks = SharedLooks(cluster.ask)
    assert await looks.get("/a", age=LONG) == 1
    await asyncio.sleep(0.002)
    assert await looks.get("/a", age=0.001) == 2


async def test_a_failure_is_told_to_all_who_were_waiting_each_with_its_own() -> None:
    cluster = Cluster()
    cluster.broken, looks = {1}, SharedLooks(cluster.ask)
    cluster.may_answer.clear()
    waiting = [asyncio.ensure_future(looks.get("/a", age=0.0)) for _ in range(3)]
    await eventually(lambda: len(cluster.asked) == 1)
    cluster.may_answer.set()
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(error) for error in errors] == ["request 1"] * 3
    assert len(set(map(id, errors))) == 3
    await asyncio.sleep(0.002)
    assert await looks.get("/a", age=0.0) == 2


async def test_the_next_one_asks_when_the_first_is_cancelled() -> None:
    cluster = Cluster()
    cluster.may_answer.clear()
    looks = SharedLooks(cluster.ask)
    first, second = (asyncio.ensure_future(looks.get("/a", age=LONG)) for _ in range(2))
    await eventually(lambda: len(cluster.asked) == 1)
    first.cancel()
    await eventually(lambda: len(cluster.asked) == 2)
    cluster.may_answer.set()
    assert await second == 2
    assert first.cancelled()
