"""SparkEnvironments: what is started, shared, waited for and ended; with environments that do as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
import pytest_asyncio

from runtime.aio.clock import LoopClock
from runtime.aio.watch import Watch
from runtime.common.errors import UnavailableError
from runtime.common.spark_conf import ISOLATION
from runtime.common.spark_environments import EnvironmentSpec, SparkOffer, SparkWish
from runtime.taskexecutor.spark.environment import SparkEnvironment, SparkLoss
from runtime.taskexecutor.spark.environments import SparkEnvironments

pytestmark = pytest.mark.asyncio
GIB = 1 << 30
OFFER = SparkOffer({"spark.master": "local[*]", "spark.driver.memory": "1g"}, 4 * GIB)


class ScriptedEnvironment:
    """Is ready, or not, and lost when the test says so."""

    def __init__(self, spec: EnvironmentSpec | None = None, refusal: str = "") -> None:
        self.spec = spec
        self.may_start = asyncio.Event()
        self.is_ready = False
        self.is_warm = True
        self.put_back: Watch[None] = Watch(None)
        self.problem = ""
        self.refusal = refusal
        self.loss: asyncio.Future[SparkLoss] = asyncio.get_running_loop().create_future()
        self.is_stopped = False
        self.memory_bytes = 0
        self.ended_jobs: list[str] = []

    async def start(self) -> None:
        await self.may_start.wait()
        if self.refusal:
            raise OSError(self.refusal)
        self.is_ready = True

    async def wait_lost(self) -> SparkLoss:
        return await asyncio.shield(self.loss)

    async def give_up(self, reason: str) -> None:
        self.lose(reason)

    async def end(self, loss: SparkLoss) -> None:
        self.lose(loss.reason)

    def lose(self, reason: str) -> None:
        self.is_ready = False
        if not self.loss.done():
            self.loss.set_result(SparkLoss(reason))

    async def stop(self) -> None:
        self.is_stopped = True

    async def end_job(self, job_id: str) -> None:
        self.ended_jobs.append(job_id)
        if self.refusal:
            raise UnavailableError(self.refusal)


class World:
    def __init__(self) -> None:
        self.made: list[ScriptedEnvironment] = []
        self.forgotten: list[object] = []
        self.losses: list[str] = []
        self.notes: list[str] = []
        self.refusal = ""
        self.starts_at_once = True
        self.default = ScriptedEnvironment()
        self.environments = SparkEnvironments(
            cast("Any", self.default), self.make, OFFER, LoopClock(), idle_timeout=1000.0, forget=self.forgotten.append
        )
        self.environments.on_loss = lambda _, loss: self.losses.append(str(loss))

    def make(self, spec: EnvironmentSpec) -> SparkEnvironment:
        made = ScriptedEnvironment(spec, self.refusal)
        if self.starts_at_once:
            made.may_start.set()
        self.made.append(made)
        return cast("SparkEnvironment", made)

    def spec(self, heap: str) -> EnvironmentSpec:
        return self.environments.spec_of(SparkWish(asked={"spark.driver.memory": heap}))

    async def acquire(self, heap: str) -> Any:
        return await self.environments.acquire(self.spec(heap), self.notes.append)

    def users(self) -> list[int]:
        return [status.users for status in self.environments.statuses()]


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.environments.open()
    yield made
    await made.environments.stop()
    assert all(one.is_stopped for one in made.made)
    assert made.forgotten == made.made, "each, when it is dead"


async def eventually(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0)


async def test_one_starts_for_all_who_need_it(world: World) -> None:
    world.starts_at_once = False
    first, second = asyncio.create_task(world.acquire("2g")), asyncio.create_task(world.acquire("2048m"))
    await eventually(lambda: world.made)
    await eventually(lambda: world.users() == [2])
    assert not first.done()
    world.made[0].may_start.set()
    (one, _), (other, _) = await first, await second
    assert one is other is world.made[0]
    assert world.notes[0] == "starts a Spark environment for the job's static conf"
    assert world.notes[-1] == ""
    assert world.spec("1024m").is_default


async def test_who_finds_no_room_waits_until_an_unused_one_has_ended(world: World) -> None:
    one, lease = await world.acquire("2g")
    waiting = asyncio.create_task(world.acquire("3g"))
    await eventually(lambda: world.notes[-1].startswith("waits for room"))
    assert len(world.made) == 1
    world.environments.release(lease)
    other, _ = await waiting
    assert one.is_stopped
    assert other is world.made[1]
    assert [loss.partition(",")[0] for loss in world.losses] == ["no task uses this Spark environment"]


async def test_one_that_does_not_start_fails_those_who_wait_for_it_and_is_tried_again_by_the_next(
    world: World,
) -> None:
    world.refusal, world.starts_at_once = "no such class", False
    both = [asyncio.create_task(world.acquire("2g")) for _ in range(2)]
    await eventually(lambda: world.users() == [2])
    world.made[0].may_start.set()
    for one in both:
        with pytest.raises(UnavailableError, match="no such class"):
            await one
    assert world.users() == []
    world.refusal, world.starts_at_once = "", True
    assert (await world.acquire("2g"))[0] is world.made[1]


async def test_one_that_is_lost_leaves_the_others_alone_and_is_started_again(world: World) -> None:
    lost, old = await world.acquire("1100m")
    other, _ = await world.acquire("1200m")
    lost.lose("the JVM ended")
    await eventually(lambda: lost.is_stopped)
    await eventually(lambda: len(world.users()) == 1)
    assert world.losses == ["the JVM ended"]
    assert other.is_ready
    again, _ = await world.acquire("1100m")
    assert again is not lost
    assert not world.environments.renew(old)
    world.environments.release(old)
    assert world.users() == [1, 1]


@pytest.mark.parametrize(
    ("mib", "is_idle", "ends"),
    [(1536, True, False), (1537, True, True), (2048, False, False), (2049, False, True)],
)
async def test_the_jvm_of_all_jobs_is_replaced_between_tasks_and_under_them_when_it_takes_far_too_much(
    monkeypatch: pytest.MonkeyPatch, world: World, mib: int, *, is_idle: bool, ends: bool
) -> None:
    monkeypatch.setattr("runtime.taskexecutor.spark.environments._MEMORY_LOOK_SECONDS", 0.0)
    world.default.is_ready = True
    world.environments.is_default_idle = lambda: is_idle
    beside, _ = await world.acquire("1100m")
    world.default.memory_bytes = mib << 20
    world.made[0].memory_bytes = 2048 << 20
    await eventually(lambda: world.made[0].is_stopped)  # by then, the default one was looked at as well
    assert world.default.loss.done() is ends
    if ends:
        begin = f"the JVM of all jobs has {mib} MiB of memory, and 1536 MiB for heap and overhead (taskmanager.memory.s"
        assert str(world.default.loss.result()).startswith(begin)
    assert not beside.is_ready


async def test_a_jvm_of_all_jobs_that_is_not_ready_is_left_alone(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    monkeypatch.setattr("runtime.taskexecutor.spark.environments._MEMORY_LOOK_SECONDS", 0.0)
    await world.acquire("1100m")
    world.default.memory_bytes = world.made[0].memory_bytes = 4096 << 20
    await eventually(lambda: world.made[0].is_stopped)
    assert not world.default.loss.done(), "it starts, or ends already"


async def test_one_that_takes_more_memory_than_it_has_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.taskexecutor.spark.environments._MEMORY_LOOK_SECONDS", 0.01)
    world = World()
    await world.environments.open()
    one, _ = await world.acquire("1100m")
    other, _ = await world.acquire("1200m")
    one.memory_bytes = other.memory_bytes = (1100 + 513) << 20
    await eventually(lambda: one.is_stopped)
    assert world.losses[0].startswith("its JVM has 1613 MiB of memory, and its Spark environment 1612 MiB")
    assert other.is_ready
    await world.environments.stop()


async def test_who_gives_up_waiting_is_no_user(world: World) -> None:
    world.starts_at_once = False
    waiting = asyncio.create_task(world.acquire("2g"))
    await eventually(lambda: world.users() == [1])
    waiting.cancel()
    await eventually(waiting.done)
    assert world.users() == [0]
    world.made[0].may_start.set()
    assert (await world.acquire("2g"))[0] is world.made[0], "its start goes on"


async def test_a_job_that_leaves_is_ended_in_all_of_them(world: World) -> None:
    one, _ = await world.acquire("2g")
    await world.environments.end_job("j")
    assert one.ended_jobs == world.default.ended_jobs == ["j"]


async def test_one_that_cannot_be_told_of_a_job_keeps_no_other_from_it(world: World) -> None:
    one, _ = await world.acquire("2g")
    world.default.refusal = "away"
    with pytest.raises(UnavailableError, match="away"):
        await world.environments.end_job("j")
    assert one.ended_jobs == ["j"]


async def test_those_who_wait_start_theirs_in_the_order_in_which_they_came(world: World) -> None:
    _, lease = await world.acquire("3g")
    large = asyncio.create_task(world.acquire("3500m"))
    await eventually(lambda: len(world.notes) > 2)
    small = asyncio.create_task(world.acquire("1100m"))
    same = await world.acquire("3g")
    for _ in range(20):
        await asyncio.sleep(0)
    assert not small.done(), "it would fit when the first one has ended, and so would all others that come"
    for one in (lease, same[1]):
        world.environments.release(one)
    done, _ = await asyncio.wait({large, small}, return_when=asyncio.FIRST_COMPLETED)
    assert done == {large}
    world.environments.release(large.result()[1])
    assert (await small)[0].is_ready


async def test_two_who_wait_get_what_fits(world: World) -> None:
    _, lease = await world.acquire("3g")
    both = [asyncio.create_task(world.acquire(heap)) for heap in ("1100m", "1200m")]
    await eventually(lambda: sum(note.startswith("waits") for note in world.notes) == 2)
    world.environments.release(lease)
    assert all([(await one)[0].is_ready for one in both])


async def test_who_stops_waiting_leaves_nothing_behind_that_ends_for_ever(world: World) -> None:
    _, first = await world.acquire("3g")
    waiting = [asyncio.create_task(world.acquire(heap)) for heap in ("2g", "2500m")]
    await eventually(lambda: sum(note.startswith("waits") for note in world.notes) == 2)
    waiting[0].cancel()
    world.environments.release(first)
    assert (await waiting[1])[0].is_ready
    assert world.users() == [1]


async def test_one_that_is_lost_is_not_given_out_any_more(world: World) -> None:
    one, lease = await world.acquire("2g")
    seen: list[bool] = []
    world.environments.on_loss = lambda *_: seen.append(world.environments.is_living(lease))
    one.lose("the JVM ended")
    await eventually(lambda: seen)
    assert seen == [False]
    assert (await world.acquire("2g"))[0] is not one


async def test_one_that_has_not_begun_to_start_when_all_are_given_up_does_not_start(world: World) -> None:
    asking = asyncio.create_task(world.acquire("2g"))
    await eventually(lambda: world.made)
    await world.environments.give_up("another namespace")
    with pytest.raises(UnavailableError, match="another namespace"):
        await asking
    assert not world.made[0].is_ready


async def test_all_are_given_up_together(world: World) -> None:
    one, _ = await world.acquire("2g")
    await world.environments.give_up("another namespace")
    await eventually(lambda: world.losses == ["another namespace"])
    assert world.default.loss.done()
    await eventually(lambda: one.is_stopped)


async def test_the_room_of_an_application_ends_with_its_attempt(world: World) -> None:
    wish = SparkWish("1" * 32, {"spark.driver.memory": "3g"}, is_application=True)
    spec = world.environments.spec_of(wish)
    _, lease = await world.environments.acquire(spec, world.notes.append)
    assert world.notes == [""]
    world.environments.release(lease)
    await eventually(lambda: world.made[0].is_stopped)
    assert not world.environments.statuses()


def own(world: World, job_id: str) -> EnvironmentSpec:
    return world.environments.spec_of(SparkWish(job_id * 32, {ISOLATION: "jvm"}))


async def test_a_jvm_of_one_job_ends_with_it_and_no_other(world: World) -> None:
    (one, lease), (other, _) = [await world.environments.acquire(own(world, n), world.notes.append) for n in "12"]
    assert one is not other
    assert world.notes[0] == "starts a Spark environment for the job alone"
    world.environments.release(lease)
    assert len(world.environments.statuses()) == 2, "it is kept for the job's next task"
    await world.environments.end_job("1" * 32)
    assert not one.is_ready
    assert other.is_ready
    await eventually(lambda: world.made[0].is_stopped)
    assert not world.environments.renew(lease)
    assert world.losses == ["the job whose Spark environment it was has ended"]


async def test_a_jvm_of_one_job_ends_at_the_latest_with_its_last_user(world: World) -> None:
    one, lease = await world.environments.acquire(own(world, "1"), world.notes.append)
    await world.environments.end_job("1" * 32)
    assert one.is_ready, "a task has it still"
    world.environments.release(lease)
    await eventually(lambda: world.made[0].is_stopped)


async def test_a_jvm_of_one_job_ends_with_it_though_its_start_has_only_begun(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its host is made there is nothing that could be ended."""
    world.starts_at_once = False
    waiting = asyncio.create_task(world.environments.acquire(own(world, "1"), world.notes.append))
    await eventually(lambda: world.users() == [1])
    made = world.made[0]
    monkeypatch.setattr(made, "lose", lambda _reason: None)
    waiting.cancel()
    await eventually(waiting.done)
    await world.environments.end_job("1" * 32)
    made.may_start.set()
    await eventually(lambda: made.is_stopped)
    assert not world.environments.statuses()


async def test_a_jvm_of_one_job_gives_way_to_another_between_its_tasks(world: World) -> None:
    """So jobs that wait for slots and jobs that wait for room do not wait for each other."""
    for number in "12":
        _, lease = await world.environments.acquire(own(world, number), world.notes.append)
        world.environments.release(lease)
    await world.environments.acquire(own(world, "3"), world.notes.append)
    assert world.made[0].is_stopped
    again, _ = await world.environments.acquire(own(world, "2"), world.notes.append)
    assert (again.is_ready, len(world.made)) == (True, 3)
