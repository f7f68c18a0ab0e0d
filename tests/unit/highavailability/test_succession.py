"""How leadership passes on at once: by a resignation, and past a predecessor that is proved dead. On virtual time."""

from __future__ import annotations

import asyncio

from runtime.aio.scope import Scope
from runtime.common.errors import StaleTokenError
from runtime.highavailability.leadership.election import LeadershipEpoch
from runtime.highavailability.records import LeaderRecord
from tests.kit.control_plane.elections import SETTINGS, World, incarnation
from tests.kit.control_plane.virtual_time import run_virtual


def test_who_resigns_deletes_its_key_before_it_stops_anything() -> None:
    async def main() -> None:
        world = World()
        left: list[int] = []

        async def lead(epoch: LeadershipEpoch) -> None:
            world.terms.append((1, epoch))
            try:
                await asyncio.sleep(1e9)
            finally:
                await asyncio.sleep(5)  # an orderly stop takes its time
                left.append(len(world.terms))

        async with Scope("test") as scope:
            leading = scope.start("first", world.election(1, world.connection()).run(lead))
            await world.wait_terms(1, within=1)
            scope.spawn("second", world.election(2, world.connection()).run(world.contender(2)))
            await asyncio.sleep(1)
            leading.cancel()
            await world.wait_terms(2, within=0.1)
            assert not world.terms[0][1].is_valid
            assert left == []
            await asyncio.wait({leading})
            assert left == [2]
            scope.cancel_all()

    run_virtual(main())


def test_a_predecessor_that_is_surely_gone_is_not_waited_for() -> None:
    async def main() -> None:
        world = World()
        dead = asyncio.Event()

        async def proof(record: LeaderRecord) -> str:
            assert record.incarnation == incarnation(1)
            await dead.wait()
            return "killed"

        async with Scope("test") as scope:
            scope.spawn("first", world.election(1, world.connection()).run(world.contender(1)))
            await world.wait_terms(1, within=1)
            scope.spawn("second", world.election(2, world.connection(), proof).run(world.contender(2)))
            await asyncio.sleep(20)
            assert len(world.terms) == 1
            dead.set()
            await world.wait_terms(2, within=0.1)
            assert [number for number, _ in world.terms] == [1, 2]
            scope.cancel_all()

    run_virtual(main())


def test_two_dead_predecessors_are_outrun_one_after_the_other() -> None:
    async def main() -> None:
        world = World()
        dead = asyncio.Event()
        judged: list[str] = []

        async def proof(record: LeaderRecord) -> str:
            await dead.wait()
            judged.append(record.address)
            return "killed"

        async with Scope("test") as scope:
            for number in (1, 2):
                scope.spawn(f"{number}", world.election(number, world.connection()).run(world.contender(number)))
                await asyncio.sleep(1)
            scope.spawn("3", world.election(3, world.connection(), proof).run(world.contender(3)))
            await asyncio.sleep(1)
            dead.set()
            await world.wait_terms(2, within=0.1)
            assert [number for number, _ in world.terms] == [1, 3]
            assert judged == ["host:2", "host:1"]
            scope.cancel_all()

    run_virtual(main())


def test_whoever_was_found_dead_and_stands_again_is_not_judged_again() -> None:
    """A proof may be wrong; two processes that take each other for dead must not take turns for ever."""

    async def main() -> None:
        world = World()

        async def proof(_: LeaderRecord) -> str:
            return "refused by a firewall"

        async with Scope("test") as scope:
            for number in (1, 2):
                scope.spawn(f"{number}", world.election(number, world.connection(), proof).run(world.contender(number)))
                await asyncio.sleep(1)
            await asyncio.sleep(600)
            assert [number for number, _ in world.terms] == [1, 2, 1]
            assert world.terms[-1][1].is_valid
            scope.cancel_all()

    run_virtual(main())


def test_an_earlier_candidacy_of_the_same_process_is_not_waited_for() -> None:
    async def main() -> None:
        world = World()
        kv = world.connection()
        cut_off: list[float] = []

        async def lead(epoch: LeadershipEpoch) -> None:
            world.terms.append((1, epoch))
            if len(world.terms) == 1:
                cut_off.append(asyncio.get_running_loop().time())
                kv.is_reachable = False
                raise StaleTokenError
            await asyncio.sleep(1e9)

        async with Scope("test") as scope:
            scope.spawn("first", world.election(1, kv).run(lead))
            await asyncio.sleep(1.5)
            kv.is_reachable = True
            await world.wait_terms(2, within=2.5)
            assert asyncio.get_running_loop().time() - cut_off[0] < SETTINGS.ttl
            scope.cancel_all()

    run_virtual(main())
