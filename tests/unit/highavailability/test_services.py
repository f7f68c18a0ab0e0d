"""HighAvailabilityServices: their start."""

from __future__ import annotations

import asyncio

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.aio.scope import Scope
from runtime.common.clock import Clock
from runtime.common.errors import UnavailableError
from runtime.common.ids import Incarnation
from runtime.highavailability.kv.key_value_store import KeyValueStore
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.leadership.election import LeadershipEpoch
from runtime.highavailability.records import LeaderRecord
from runtime.highavailability.services import HighAvailabilityServices, HighAvailabilitySettings, create
from tests.kit.control_plane.memory_objects import MemoryObjectStore
from tests.kit.control_plane.virtual_time import run_virtual
from tests.kit.etcd.faulty_kv import FaultyKeyValueStore


def services_of(kv: KeyValueStore, clock: Clock, boot_clock: Clock) -> HighAvailabilityServices:
    settings = HighAvailabilitySettings("test", lease_ttl=5, timeout=3.0)
    objects = MemoryObjectStore()
    return create(settings, objects=objects, clock=clock, boot_clock=boot_clock, entropy=SeededEntropy(1), store=kv)


def test_a_start_that_found_no_store_can_be_tried_again() -> None:
    async def scenario() -> None:
        clock = LoopClock()
        kv = FaultyKeyValueStore(MemoryKeyValueStore(clock))
        services = services_of(kv, clock, clock)
        kv.is_reachable = False
        for _ in range(2):
            with pytest.raises(UnavailableError):
                await services.start()
        kv.is_reachable = True
        await services.start()
        assert services.cluster
        await services.close()

    run_virtual(scenario())


class WokenClock(LoopClock):
    """CLOCK_BOOTTIME of a host that has slept `slept` seconds, which the loop's clock does not know of."""

    slept = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.slept


def test_a_leader_that_wakes_after_its_lease_has_ended_leads_no_more() -> None:  # R4
    async def scenario() -> None:
        clock, boot_clock = LoopClock(), WokenClock()
        services = services_of(MemoryKeyValueStore(clock), clock, boot_clock)
        await services.start()
        told: list[bool] = []

        async def lead(epoch: LeadershipEpoch) -> None:
            told.append(epoch.is_valid)
            boot_clock.slept += 6.0
            told.append(epoch.is_valid)
            await asyncio.Event().wait()

        election = services.leader_election(LeaderRecord(Incarnation("1" * 32), "host:1", "host:2"))
        async with Scope("test") as scope:
            scope.spawn("election", election.run(lead))
            async with asyncio.timeout(60):
                while len(told) < 4:
                    await asyncio.sleep(0.1)
            scope.cancel_all()
        assert told == [True, False] * 2, "from the first instant on, and it stands again"
        await services.close()

    run_virtual(scenario())
