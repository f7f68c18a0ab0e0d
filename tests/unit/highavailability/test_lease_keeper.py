"""R40: a lease is kept for a holder whose loop stands still, for a bounded time, never longer than the store has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.aio.clock import LoopClock
from runtime.aio.scope import Scope
from runtime.highavailability.kv.core.keeping import STALL_TTLS, Held, Look, holder_renews_at
from runtime.highavailability.kv.core.lease import LeaseValidity
from runtime.highavailability.kv.keeper import HeldLease, Keeping, KeptLease, SharedLease
from runtime.highavailability.kv.lease import Lease, LeaseLostError, LeaseSettings
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from tests.kit.control_plane.virtual_time import freeze, run_virtual
from tests.kit.etcd.faulty_kv import FaultyKeyValueStore

TTL = 5
STALL = STALL_TTLS * TTL

# --- the decision ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "turned_at", "is_stopped", "look"),
    [
        (101.0, 101.0, False, Look.WAIT),
        (101.7, 101.0, False, Look.RENEW),
        (101.7, 101.0, True, Look.WAIT),
        (104.9, 104.9, False, Look.RENEW),
        (104.95, 104.9, False, Look.WAIT),
        (102.0, 102.0 - STALL + 0.01, False, Look.RENEW),
        (102.0, 102.0 - STALL, False, Look.WAIT),
        (102.0, 0.0, False, Look.WAIT),
    ],
    ids=["not due", "due", "stopped", "late", "lapsed", "stands still", "stuck", "never turned"],
)
def test_who_is_renewed(now: float, turned_at: float, is_stopped: bool, look: Look) -> None:
    held = Held(LeaseValidity(100.0, TTL), turned_at, is_stopped)
    assert held.look(now) is look


def test_the_keeper_looks_before_a_renewal_is_due_and_tries_again_soon() -> None:
    held = Held(LeaseValidity(100.0, TTL), 100.0, is_stopped=False)
    assert held.pause(100.0) == pytest.approx(TTL / 6)
    assert held.pause(101.6) == pytest.approx(TTL / 3 - 1.6)
    assert held.pause(102.0) == pytest.approx(TTL / 20)


def test_a_holder_leaves_its_keeper_the_first_try_and_has_two_behind_it() -> None:
    validity = LeaseValidity(100.0, TTL)
    assert holder_renews_at(validity, is_kept=False) == validity.renew_at
    first = holder_renews_at(validity, is_kept=True)
    assert first > validity.renew_at
    second = first + validity.try_timeout + validity.retry_delay
    assert second + validity.try_timeout < validity.valid_until


@given(
    ttl=st.integers(1, 60),
    stands_still_at=st.floats(0.0, 100.0),
    answers=st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans()), min_size=1, max_size=80),
)
def test_a_role_ends_within_a_bound_when_its_loop_stands_still(
    ttl: int, stands_still_at: float, answers: list[tuple[float, bool]]
) -> None:
    """However fast the store answers, or whether. Its clock begins when a renewal reaches it, behind our sending."""
    now, server_until, validity = 0.0, float(ttl), LeaseValidity(0.0, ttl)
    for way, is_answered in answers * 20:
        turned_at = min(now, stands_still_at)
        held = Held(validity, turned_at, is_stopped=False)
        if held.look(now) is Look.RENEW:
            sent_at, reached_at = now, now + way * ttl / 4
            if reached_at < server_until:
                server_until = reached_at + ttl
                if is_answered:
                    validity = validity.acknowledged(sent_at, ttl)
            now = reached_at
            held = Held(validity, turned_at, is_stopped=False)
        assert server_until <= stands_still_at + (STALL_TTLS + 1.25) * ttl or server_until <= ttl
        assert validity.valid_until <= server_until
        now += max(held.pause(now), 0.001)


# --- the shared record ----------------------------------------------------------------------------------------------


def test_each_says_and_the_other_reads_the_latest() -> None:
    shared = SharedLease()
    assert shared.held() is None
    assert shared.kept() is None
    shared.say_held(HeldLease(7, 1.0, 5.0, 2.0))
    shared.say_kept(KeptLease(7, 3.0, 5.0, has_ended=False))
    assert shared.held() == HeldLease(7, 1.0, 5.0, 2.0)
    assert shared.kept() == KeptLease(7, 3.0, 5.0, has_ended=False)
    shared.say_held(HeldLease(0, 0.0, 0.0, 0.0))
    assert shared.held() is None


def test_who_died_in_the_middle_of_a_word_has_said_the_one_before() -> None:
    shared = SharedLease()
    shared.say_kept(KeptLease(7, 3.0, 5.0, has_ended=False))
    assert shared.kept() == KeptLease(7, 3.0, 5.0, has_ended=False)
    page = shared._kept._page
    page[260:264] = b"torn"
    assert shared.kept() == KeptLease(7, 3.0, 5.0, has_ended=False)
    shared.say_kept(KeptLease(7, 4.0, 5.0, has_ended=True))
    assert shared.kept() == KeptLease(7, 4.0, 5.0, has_ended=True)


# --- holder and keeper together -------------------------------------------------------------------------------------


@dataclass
class Pair:
    """A holder and its keeper, each with connections of its own to one store."""

    store: MemoryKeyValueStore = field(default_factory=lambda: MemoryKeyValueStore(LoopClock()))
    shared: SharedLease = field(default_factory=SharedLease)
    is_there: bool = True
    is_stopped: bool = False
    holders: FaultyKeyValueStore = field(init=False)
    keepers: FaultyKeyValueStore = field(init=False)

    def __post_init__(self) -> None:
        self.holders, self.keepers = FaultyKeyValueStore(self.store), FaultyKeyValueStore(self.store)

    # As the holder sees it.

    def keep(self, held: HeldLease) -> None:
        self.shared.say_held(held)

    def kept(self, lease: int) -> KeptLease | None:
        kept = self.shared.kept()
        return kept if kept is not None and kept.lease == lease else None

    def release(self, _lease: int) -> None:
        self.shared.say_held(HeldLease(0, 0.0, 0.0, 0.0))

    async def grant(self) -> Lease:
        return await Lease.grant(self.holders, LoopClock(), LeaseSettings(TTL, 3.0, self))

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        keeping = Keeping(
            self.shared, self.keepers, LoopClock(), ttl=TTL, timeout=3.0, is_stopped=lambda: self.is_stopped
        )
        async with Scope("keeper") as scope:
            scope.spawn_eternal("keeping", keeping.run())
            yield
            scope.cancel_all()

    async def is_stored(self, lease: Lease) -> bool:
        """Without renewing it."""
        return lease.id in self.store._leases


async def stands_still(lease: Lease) -> None:
    """The loop of the holder has turned until now, and turns no more."""
    async with Scope("holder") as scope:
        scope.spawn_eternal("lease", lease.keep_alive())
        await asyncio.sleep(20)
        lease.check()
        scope.cancel_all()


async def seconds_until_it_ends(pair: Pair, lease: Lease, most: float) -> float:
    """Seconds until the lease ends in the store. The holder never claims a longer validity meanwhile."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while await pair.is_stored(lease):
        assert loop.time() - began < most, "the lease is kept for ever"
        await asyncio.sleep(0.05)
        assert not lease.is_valid or await pair.is_stored(lease)
    assert not lease.is_valid
    return loop.time() - began


def test_a_lease_is_kept_while_the_loop_of_its_holder_stands_still() -> None:
    async def main() -> None:
        pair = Pair()
        lease = await pair.grant()
        async with pair.keeping():
            await stands_still(lease)
            for _ in range(10 * (STALL - 1)):
                await asyncio.sleep(0.1)
                assert lease.is_valid
            async with Scope("holder") as scope:
                scope.spawn_eternal("lease", lease.keep_alive())
                await asyncio.sleep(60)
                lease.check()
                scope.cancel_all()

    run_virtual(main())


def test_a_loop_that_stands_still_for_longer_loses_its_role() -> None:
    async def main() -> None:
        pair = Pair()
        lease = await pair.grant()
        async with pair.keeping():
            await stands_still(lease)
            took = await seconds_until_it_ends(pair, lease, STALL + 2 * TTL)
            assert STALL < took < STALL + TTL + 1
            with pytest.raises(LeaseLostError):
                await lease.keep_alive()

    run_virtual(main())


def test_a_holder_that_the_system_has_stopped_loses_its_role_as_without_a_keeper() -> None:
    async def main() -> None:
        pair = Pair()
        lease = await pair.grant()
        async with pair.keeping():
            await stands_still(lease)
            pair.is_stopped = True
            assert await seconds_until_it_ends(pair, lease, STALL) <= TTL + 0.1

    run_virtual(main())


def test_a_released_lease_is_kept_no_more() -> None:
    async def main() -> None:
        pair = Pair()
        lease = await pair.grant()
        async with pair.keeping():
            await stands_still(lease)
            pair.holders.is_reachable = False
            assert not await lease.revoke()
            assert not lease.is_valid
            assert await seconds_until_it_ends(pair, lease, STALL) <= TTL + 0.1

    run_virtual(main())


@pytest.mark.parametrize("how", ["never begun", "frozen", "without etcd", "ended"])
def test_a_holder_renews_by_itself_when_its_keeper_does_not(how: str) -> None:
    async def main() -> None:
        pair = Pair(is_there=how != "ended")
        pair.keepers.is_reachable = how != "without etcd"
        lease = await pair.grant()
        async with Scope("holder") as scope:
            scope.spawn_eternal("lease", lease.keep_alive())
            if how in {"never begun", "ended"}:
                await asyncio.sleep(60)
            else:
                async with pair.keeping():
                    await asyncio.sleep(30)
                await asyncio.sleep(30)
            lease.check()
            scope.cancel_all()

    run_virtual(main())


def test_the_keeper_renews_and_its_holder_does_not() -> None:
    async def main() -> None:
        pair = Pair()
        lease = await pair.grant()
        pair.holders.is_reachable = False
        async with pair.keeping(), Scope("holder") as scope:
            scope.spawn_eternal("lease", lease.keep_alive())
            await asyncio.sleep(60)
            lease.check()
            scope.cancel_all()
        assert pair.holders.calls_refused == 0

    run_virtual(main())


def test_a_renewal_counts_from_the_time_at_which_its_keeper_has_sent_it() -> None:
    """The host is suspended between asking and answering: the store has counted on."""

    class Slow(FaultyKeyValueStore):
        async def keep_lease_alive(self, lease: int, /, *, timeout: float) -> int:
            ttl = await super().keep_lease_alive(lease, timeout=timeout)
            freeze(TTL - 0.5)
            return ttl

    async def main() -> None:
        pair = Pair()
        pair.keepers = Slow(pair.store)
        lease = await pair.grant()
        pair.keep(HeldLease(lease.id, 1000.0, TTL, 1000.0))
        async with pair.keeping():
            await asyncio.sleep(TTL / 3)
            while pair.kept(lease.id) is None:
                await asyncio.sleep(0.001)
            pair.is_stopped = True
            assert await seconds_until_it_ends(pair, lease, STALL) < 0.6

    run_virtual(main())


def test_a_host_that_was_suspended_finds_the_lease_over_before_anybody_has_run() -> None:
    async def main() -> None:
        pair = Pair()
        lease = await pair.grant()
        async with pair.keeping():
            await stands_still(lease)
            freeze(TTL + 1)
            assert not lease.is_valid
            with pytest.raises(LeaseLostError):
                await lease.keep_alive()

    run_virtual(main())


def test_what_the_store_has_ended_is_known_as_soon_as_the_keeper_knows() -> None:
    async def main() -> None:
        pair = Pair()
        lease = await pair.grant()
        async with pair.keeping():
            async with Scope("holder") as scope:
                scope.spawn_eternal("lease", lease.keep_alive())
                await asyncio.sleep(20)
                scope.cancel_all()
            await pair.store.revoke_lease(lease.id, timeout=1)
            while (kept := pair.kept(lease.id)) is None or not kept.has_ended:
                await asyncio.sleep(0.1)
            assert not lease.is_valid
            with pytest.raises(LeaseLostError, match="has ended"):
                lease.check()

    run_virtual(main())
