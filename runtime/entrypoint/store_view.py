"""What REST shows of the store: the leader's last look at it, and its endpoints when somebody asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.highavailability.kv.compaction import Compactor
from runtime.highavailability.kv.key_value_store import StoreMember, StoreStatus
from runtime.highavailability.services import HighAvailabilityServices


@dataclass(frozen=True, slots=True)
class LeadersStore:
    """Implements `StoreView`. `kind`: `high-availability.type`."""

    kind: str
    services: HighAvailabilityServices
    compactor: Compactor

    @property
    def status(self) -> StoreStatus | None:
        """As of the last look of the compaction."""
        return self.compactor.status

    @property
    def looked_millis(self) -> int:
        """When that was."""
        return self.compactor.looked_millis

    async def members(self) -> Sequence[StoreMember]:
        """Its endpoints, asked now."""
        return await self.services.store_members()
