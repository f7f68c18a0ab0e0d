"""Savepoints that are to be deleted, for tests of REST."""

from __future__ import annotations

from runtime.gateways.operations import SavepointDisposal


class FakeDisposals:
    """Implements `DisposalEndpoint` over a dictionary; nobody deletes anything."""

    def __init__(self) -> None:
        self.stored: dict[str, SavepointDisposal] = {}

    async def request(self, disposal: SavepointDisposal, /) -> SavepointDisposal:
        """The one that is there, or this one."""
        return self.stored.setdefault(disposal.trigger_id, disposal)

    async def find(self, trigger_id: str, /) -> SavepointDisposal | None:
        """One of them."""
        return self.stored.get(trigger_id)
