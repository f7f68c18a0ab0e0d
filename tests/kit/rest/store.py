"""The store behind REST, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.highavailability.kv.key_value_store import StoreMember, StoreStatus


class FakeStore:
    """Implements `StoreView`: an etcd of two endpoints, of which one is away."""

    kind = "etcd"
    status: StoreStatus | None = StoreStatus("3.5.21", 77, 12 << 20, 2 << 30, 4 << 20, "c")
    looked_millis = 1_700_000_000_000

    async def members(self) -> Sequence[StoreMember]:
        """Both."""
        there = StoreMember("etcd-1:2379", "", "3.5.21", is_leader=True, size_bytes=12 << 20, answer_millis=1.26)
        return there, StoreMember("etcd-2:2379", problem="status of etcd-2:2379: etcd does not answer")
