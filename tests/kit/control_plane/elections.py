"""Candidates for leadership over one memory store, each with connections of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.common.ids import ClusterUuid, Incarnation
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.lease import LeaseSettings
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.leadership.election import LeaderElection, LeadershipEpoch, ProofOfDeath, no_proof
from runtime.highavailability.records import LeaderRecord
from tests.kit.etcd.faulty_kv import FaultyKeyValueStore

KEYS = Keys.of_cluster("test")
CLUSTER = ClusterUuid("c" * 32)
SETTINGS = LeaseSettings(ttl=5, timeout=3.0)


def incarnation(number: int) -> Incarnation:
    return Incarnation(f"{number:032x}")


@dataclass
class World:
    """One memory store that each process sees through connections of its own."""

    store: MemoryKeyValueStore = field(default_factory=lambda: MemoryKeyValueStore(LoopClock()))
    terms: list[tuple[int, LeadershipEpoch]] = field(default_factory=list)

    def connection(self) -> FaultyKeyValueStore:
        return FaultyKeyValueStore(self.store)

    def election(self, number: int, kv: FaultyKeyValueStore, proof_of_death: ProofOfDeath = no_proof) -> LeaderElection:
        record = LeaderRecord(incarnation(number), f"host:{number}", f"rest:{number}")
        return LeaderElection(
            kv, KEYS, CLUSTER, record, SETTINGS, LoopClock(), SeededEntropy(number), proof_of_death=proof_of_death
        )

    def contender(self, number: int) -> Callable[[LeadershipEpoch], Awaitable[None]]:
        async def lead(epoch: LeadershipEpoch) -> None:
            self.terms.append((number, epoch))
            await asyncio.sleep(1e9)

        return lead

    async def wait_terms(self, count: int, *, within: float) -> None:
        async with asyncio.timeout(within):
            while len(self.terms) < count:
                await asyncio.sleep(0.01)
