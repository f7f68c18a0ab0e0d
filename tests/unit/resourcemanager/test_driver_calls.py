"""A driver that cannot say what runs: nothing is decided on it, and who waits is told (R65)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.gateways.cluster_events import NO_EVENTS
from runtime.resourcemanager.active import ActiveResourceManager
from runtime.resourcemanager.core.events import AdviceChanged
from runtime.resourcemanager.core.workers import WorkerSettings
from runtime.resourcemanager.driver import DriverError
from tests.kit.control_plane.slot_requests import Cluster

pytestmark = pytest.mark.asyncio

AWAY = "docker at unix:///x.sock does not answer: there is no such file"


class Driver:
    """Workers in a set. `is_away`: it cannot say which."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.is_away = True
        self.looks = 0

    async def workers(self) -> Collection[str]:
        self.looks += 1
        if self.is_away:
            raise DriverError(AWAY)
        return set(self.running)

    async def start(self, worker_id: str, /, *, is_wanted: Callable[[], bool]) -> None:
        assert is_wanted()
        self.running.add(worker_id)

    async def release(self, worker_id: str, /, *, kills: bool) -> None:
        assert not kills
        self.running.discard(worker_id)

    async def last_words(self, worker_id: str, /) -> str:
        return f"nothing of {worker_id}"


async def looked(active: ActiveResourceManager, driver: Driver, times: int) -> None:
    """Wait for so many more looks."""
    until = driver.looks + times
    while driver.looks < until:
        active.signal()
        await asyncio.sleep(0.01)


async def test_nothing_starts_until_it_can_say_again_and_jobs_that_wait_are_told_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster, driver, told = Cluster(), Driver(), list[AdviceChanged]()
    cluster.declare(1, 2)
    active = ActiveResourceManager(
        WorkerSettings(slots=1, recovery_timeout=0.0),
        driver,
        cluster.manager,
        told.append,
        lambda: True,
        clock=LoopClock(),
        entropy=SeededEntropy(1),
        events=NO_EVENTS,
    )
    serving = asyncio.create_task(active.run())
    await looked(active, driver, 3)
    assert driver.running == set()
    assert told[-1].coming == f"TaskManagers do not come up: {AWAY}"
    assert active.status().problem == told[-1].coming.partition(": ")[2]
    assert len([one for one in caplog.records if AWAY in one.getMessage()]) == 1, "once, not at each look"
    driver.is_away = False
    await looked(active, driver, 3)
    assert len(driver.running) == 2
    assert active.status().problem == ""
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
