"""A driver that cannot say what runs: nothing is decided on it, and who waits is told (R65)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.aio.scope import Scope
from runtime.gateways.cluster_events import NO_EVENTS, EventKind, NoEvents
from runtime.resourcemanager.active import ActiveResourceManager
from runtime.resourcemanager.core.events import AdviceChanged
from runtime.resourcemanager.core.worker_lives import ReleaseWorker, WorkerLives, WorkerTimes
from runtime.resourcemanager.core.workers import WorkerSettings
from runtime.resourcemanager.driver import DriverError, ResourceManagerDriver
from runtime.resourcemanager.driver_calls import DriverCalls, WorkerKind
from tests.kit.control_plane.slot_requests import ANY_PROFILE as PROFILES
from tests.kit.control_plane.slot_requests import Cluster

pytestmark = pytest.mark.asyncio

ONE = "w-000000000001"
KINDS = (EventKind.TASKMANAGER_REQUESTED, EventKind.TASKMANAGER_START_FAILED, EventKind.TASKMANAGER_RELEASED)
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


class Events(NoEvents):
    """What was told."""

    def __init__(self) -> None:
        self.told: list[tuple[EventKind, str]] = []

    def tell(self, kind: EventKind, message: str, /, *, subject: str = "") -> None:
        self.told.append((kind, message))


class Term:
    """One leader's calls to a driver, with what it had to say."""

    def __init__(self, driver: ResourceManagerDriver) -> None:
        self.events = Events()
        self.lives = WorkerLives(WorkerTimes(), lambda: ONE, 0.0, "gave no slots")
        self.may_decide = True
        kind = WorkerKind("taskmanager", "TaskManager", "TaskManagers", lambda _label: "1 slots", *KINDS)
        self.calls = DriverCalls(
            kind, driver, self.lives, lambda: self.may_decide, clock=LoopClock(), events=self.events
        )


async def test_a_start_is_wanted_within_the_term_only() -> None:
    """It may wait for its turn for a while, and the question comes in any thread."""
    questions: list[Callable[[], bool]] = []

    class Waiting(Driver):
        async def start(self, worker_id: str, /, *, is_wanted: Callable[[], bool]) -> None:
            questions.append(is_wanted)

    term = Term(Waiting())
    async with Scope("term") as term.calls.scope:
        await term.calls.do(term.lives.start(0.0))
    (is_wanted,) = questions
    assert is_wanted()
    term.may_decide = False
    assert not is_wanted(), "the lease is over by this clock"
    term.may_decide, term.calls.scope = True, None
    assert not is_wanted(), "the term is over"
    assert term.events.told == [(KINDS[0], f"worker {ONE} is asked for: 1 slots")]


async def test_a_release_that_fails_is_told_and_an_overdue_worker_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    released: list[bool] = []

    class Stubborn(Driver):
        async def release(self, worker_id: str, /, *, kills: bool) -> None:
            released.append(kills)
            raise DriverError(AWAY)

    term = Term(Stubborn())
    term.lives.look([ONE], [ONE], asked_at=0.0, at=0.0)
    worker = term.lives.get(ONE)
    assert worker is not None
    await term.calls.do(term.lives.release(worker, "it was idle", 1.0))
    assert term.lives.leaving == frozenset(), "it serves, and gets work"
    await term.calls.do(ReleaseWorker(ONE, "it has not ended yet", is_overdue=True))
    assert released == [False, True]
    assert f"worker {ONE} cannot be released now: {AWAY}" in caplog.text
    assert f"worker {ONE} stays, end it by hand: {AWAY}" in caplog.text
    assert term.events.told == [(KINDS[2], f"worker {ONE} is released: it was idle")]


@pytest.mark.parametrize("is_overdue", [False, True])
async def test_nobody_is_released_after_the_term(*, is_overdue: bool) -> None:
    """A leader that was frozen does not know what the next one has given to do."""
    driver = Driver()
    driver.running = {ONE}
    term = Term(driver)
    term.may_decide = False
    await term.calls.do(ReleaseWorker(ONE, "it was idle", is_overdue=is_overdue))
    assert driver.running == {ONE}
    assert term.events.told == []
    term.may_decide = True
    await term.calls.do(ReleaseWorker(ONE, "it was idle"))
    assert driver.running == set()


async def test_a_worker_that_was_released_while_it_started_leaves() -> None:
    term = Term(Driver())
    start = term.lives.start(0.0)
    worker = term.lives.get(start.worker_id)
    assert worker is not None
    term.lives.release(worker, "it was idle", 1.0)
    term.lives.started(ONE, 2.0)
    assert term.lives.leaving == {ONE}


async def looked(active: ActiveResourceManager, driver: Driver, times: int) -> None:
    """Wait for so many more looks."""
    until = driver.looks + times
    while driver.looks < until:
        active.signal()
        await asyncio.sleep(0.01)


async def test_nothing_starts_until_it_can_say_again_and_jobs_that_wait_are_told_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster, driver, told = Cluster(profiles=PROFILES), Driver(), list[AdviceChanged]()
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
