"""HighAvailabilityServices: their start."""

from __future__ import annotations

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.common.errors import UnavailableError
from runtime.highavailability.memory import MemoryKeyValueStore
from runtime.highavailability.services import HighAvailabilitySettings, create
from tests.kit.faulty_kv import FaultyKeyValueStore
from tests.kit.memory_objects import MemoryObjectStore
from tests.kit.virtual_time import run_virtual


def test_a_start_that_found_no_store_can_be_tried_again() -> None:
    async def scenario() -> None:
        clock = LoopClock()
        kv = FaultyKeyValueStore(MemoryKeyValueStore(clock))
        settings = HighAvailabilitySettings("test", lease_ttl=5, timeout=3.0)
        services = create(settings, objects=MemoryObjectStore(), clock=clock, entropy=SeededEntropy(1), store=kv)
        kv.is_reachable = False
        for _ in range(2):
            with pytest.raises(UnavailableError):
                await services.start()
        kv.is_reachable = True
        await services.start()
        assert services.cluster
        await services.close()

    run_virtual(scenario())
