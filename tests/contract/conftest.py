"""Fixtures of the contract suites: every implementation of one protocol runs the same tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import KeyValueStore
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from tests.kit.etcd.server import EtcdProcess, StoreUnderTest
from tests.kit.fixtures import etcd, own_etcd

__all__ = ["etcd", "own_etcd", "store"]


@pytest_asyncio.fixture(params=["memory", pytest.param("etcd", marks=pytest.mark.etcd)])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[StoreUnderTest]:
    """The memory store, and a real etcd."""
    keys = Keys.of_cluster(SystemEntropy().hex_id())
    if request.param == "memory":
        kv: KeyValueStore = MemoryKeyValueStore(LoopClock())
    else:
        process: EtcdProcess = request.getfixturevalue("etcd")
        driver = process.store()
        await driver.open(timeout=5.0)
        kv = driver
    yield StoreUnderTest(kv, keys)
    await kv.close()
