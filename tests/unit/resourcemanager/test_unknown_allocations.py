"""What the SlotManager hears of slots that it has already forgotten changes nothing."""

from __future__ import annotations

from runtime.common.ids import AllocationId, Incarnation
from runtime.gateways.resource_manager import SlotRequestRefused
from runtime.resourcemanager.core import events as ev
from runtime.resourcemanager.core.slot_manager import SlotManager

PEER = Incarnation("a" * 32)


def test_a_refusal_of_an_allocation_that_is_forgotten_changes_nothing() -> None:
    manager = SlotManager(lambda: AllocationId("1" * 32), lambda *_: True, request_timeout=10.0, round_seconds=2.0)
    refusal = SlotRequestRefused(AllocationId("2" * 32), 0, "it is taken")
    assert list(manager.handle(ev.AllocationRefused(PEER, refusal), 100.0)) == []
