"""The asyncio kits: scopes, retries, mailboxes, watched values, reconcilers, entropy."""

from __future__ import annotations

import asyncio
import functools
import operator

import pytest

from runtime.aio.clock import LoopClock, SystemClock
from runtime.aio.entropy import SeededEntropy, SystemEntropy
from runtime.aio.mailbox import Mailbox
from runtime.aio.periodic import Reconciler
from runtime.aio.retry import RetryPolicy, retry
from runtime.aio.scope import EternalTaskEndedError, Scope, ScopeClosedError, ServiceScope
from runtime.aio.watch import Watch
from runtime.common.clock import Deadline
from runtime.common.errors import BackpressureError, BugError, ConflictError, UnavailableError
from runtime.common.ids import is_hex_id


async def _forever() -> None:
    await asyncio.Event().wait()


async def _fail() -> None:
    raise ConflictError("no")


async def _nothing() -> None:
    return


@pytest.mark.asyncio
async def test_scope_names_its_tasks_and_ends_with_the_first_failure() -> None:
    names: list[str] = []
    scope = Scope("jobs")

    async def run() -> None:
        async with scope:
            names.append(scope.start("wait", _forever()).get_name())
            scope.spawn("fail", _fail())

    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert names == ["jobs/wait"]
    assert caught.group_contains(ConflictError)
    assert not scope._tasks
    with pytest.raises(ScopeClosedError):
        scope.spawn("late", _forever())


@pytest.mark.asyncio
async def test_eternal_task_that_returns_is_an_error() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with Scope("jobs") as scope:
            scope.spawn_eternal("loop", _nothing())
    assert caught.group_contains(EternalTaskEndedError, match="jobs/loop")


@pytest.mark.asyncio
async def test_scope_cancel_all_ends_it_quietly() -> None:
    async with Scope("jobs") as scope:
        scope.spawn_eternal("loop", _forever())
        scope.cancel_all()


@pytest.mark.asyncio
async def test_service_scope_opens_in_one_task_and_closes_in_another() -> None:
    scope = ServiceScope("service")
    await scope.open()
    task = scope.start("loop", _forever())
    scope.spawn_eternal("more", _forever())
    async with asyncio.TaskGroup() as group:
        _ = group.create_task(scope.close())
    assert task.cancelled()
    assert not scope.is_open
    await scope.close()
    with pytest.raises(ScopeClosedError):
        scope.spawn("late", _nothing())


@pytest.mark.asyncio
async def test_service_scope_keeps_a_failure_until_asked() -> None:
    scope = ServiceScope("service")
    await scope.open()
    scope.spawn("fail", _fail())
    with pytest.raises(ExceptionGroup):
        await scope.wait_failed()
    assert not scope.is_open
    with pytest.raises(ExceptionGroup):
        await scope.close()


@pytest.mark.asyncio
async def test_retry_until_success_and_waits_at_least_retry_after() -> None:
    clock, delays = LoopClock(), list[float]()
    errors: list[Exception] = [UnavailableError("a"), BackpressureError("b", retry_after=0.02)]

    async def operation() -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    policy = RetryPolicy(delay_initial=0.001, delay_max=0.002)
    answer = await retry(
        operation,
        policy=policy,
        clock=clock,
        entropy=SeededEntropy(1),
        deadline=None,
        on_retry=lambda _, delay: delays.append(delay),
    )
    assert answer == "done"
    assert delays[0] < 0.002
    assert delays[1] == 0.02


@pytest.mark.asyncio
async def test_retry_gives_up_by_its_deadline() -> None:
    clock, calls = LoopClock(), 0

    async def operation() -> None:
        nonlocal calls
        calls += 1
        raise UnavailableError("away")

    policy = RetryPolicy(delay_initial=0.004, delay_max=0.004)
    with pytest.raises(UnavailableError):
        await retry(
            operation,
            policy=policy,
            clock=clock,
            entropy=SeededEntropy(2),
            deadline=Deadline.after(clock, 0.01),
        )
    assert 1 <= calls <= 40


@pytest.mark.asyncio
async def test_retry_passes_permanent_errors_on_at_once() -> None:
    policy = RetryPolicy(delay_initial=1, delay_max=1)
    with pytest.raises(ConflictError):
        await retry(_fail, policy=policy, clock=LoopClock(), entropy=SeededEntropy(3), deadline=None)


def test_full_jitter_stays_below_its_ceiling() -> None:
    policy, entropy = RetryPolicy(delay_initial=0.1, delay_max=5.0), SeededEntropy(4)
    for attempt in range(2000):
        assert 0 <= policy.delay(attempt, entropy) <= min(5.0, 0.1 * 2 ** min(attempt, 64))


@pytest.mark.asyncio
async def test_mailbox_is_bounded_and_ordered() -> None:
    mailbox = Mailbox[int]("orders", capacity=2)
    mailbox.put(1)
    mailbox.put(2)
    with pytest.raises(BackpressureError, match="orders"):
        mailbox.put(3)
    assert await mailbox.get_all() == [1, 2]
    mailbox.put(3)
    assert await mailbox.get_all() == [3]


@pytest.mark.asyncio
async def test_mailbox_wakes_its_receiver() -> None:
    mailbox = Mailbox[int]("orders", capacity=2)
    async with asyncio.TaskGroup() as group:
        received = group.create_task(mailbox.get_all())
        await asyncio.sleep(0)
        mailbox.put(7)
    assert received.result() == [7]


@pytest.mark.asyncio
async def test_watch_waits_for_levels_and_generations() -> None:
    watch = Watch(0)
    assert await watch.wait_until(lambda value: value == 0) == 0
    async with asyncio.TaskGroup() as group:
        level = group.create_task(watch.wait_until(lambda value: value >= 2))
        change = group.create_task(watch.wait_changed(watch.generation))
        await asyncio.sleep(0)
        watch.set(1)
        await asyncio.sleep(0)
        watch.set(2)
    assert (level.result(), change.result() in {1, 2}, watch.generation) == (2, True, 2)


@pytest.mark.asyncio
async def test_watch_forgets_cancelled_waiters() -> None:
    watch = Watch(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await watch.wait_until(lambda value: value == 1)
    assert watch._waiters == []


@pytest.mark.asyncio
async def test_reconciler_runs_on_signal_one_at_a_time_and_goes_on_after_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs = Watch(0)

    async def activate() -> int:
        runs.set(runs.value + 1)
        if runs.value == 2:
            raise UnavailableError("storage away")
        return runs.value

    driver = Reconciler("cleaner", activate, period=3600)
    async with Scope("test") as scope:
        scope.spawn_eternal("cleaner", driver.run())
        for wanted in (1, 2, 3):
            await runs.wait_until(functools.partial(operator.le, wanted))
            await asyncio.sleep(0)
            driver.signal()
        await runs.wait_until(lambda value: value >= 4)
        scope.cancel_all()
    (failure,) = [one.getMessage() for one in caplog.records if one.name == "runtime.aio.periodic"]
    assert failure == "cleaner failed, next try in 3600.0 s: storage away"


@pytest.mark.asyncio
async def test_reconciler_ends_on_a_bug() -> None:
    async def activate() -> None:
        raise BugError("mistake")

    with pytest.raises(BugError):
        await Reconciler("cleaner", activate, period=1).run()


def test_entropy_replays_by_seed_and_children_are_independent() -> None:
    one, two = SeededEntropy(7), SeededEntropy(7)
    one.child("a").hex_id()
    assert [one.hex_id(), one.uniform(1, 2)] == [two.hex_id(), two.uniform(1, 2)]
    assert SeededEntropy(7).child("a").hex_id() != SeededEntropy(7).child("b").hex_id()
    system = SystemEntropy()
    assert is_hex_id(system.hex_id())
    assert is_hex_id(one.hex_id())
    assert 1 <= system.child("x").uniform(1, 2) <= 2


@pytest.mark.asyncio
async def test_clocks_agree() -> None:
    loop_clock, system_clock = LoopClock(), SystemClock()
    assert abs(loop_clock.monotonic() - system_clock.monotonic()) < 5
    assert abs(loop_clock.epoch_millis() - system_clock.epoch_millis()) < 5000
