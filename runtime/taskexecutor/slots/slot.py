"""One slot of a TaskManager, as its pool has it: which processes it has, and what runs in them."""

from __future__ import annotations

import asyncio

from runtime.taskexecutor.slots.running_attempt import RunningAttempt
from runtime.taskexecutor.slots.slot_handle import SlotProcess


class Slot:
    """One slot."""

    __slots__ = ("attempt", "current", "expiry", "fresh", "index", "kept", "refill", "used")

    def __init__(self, index: int) -> None:
        self.index = index
        self.attempt: RunningAttempt | None = None
        self.current: SlotProcess | None = None
        self.kept: RunningAttempt | None = None
        self.fresh: SlotProcess | None = None
        self.refill: asyncio.Task[None] | None = None
        self.expiry: asyncio.TimerHandle | None = None
        self.used: list[SlotProcess] = []

    def processes(self) -> list[SlotProcess]:
        """The processes of the slot."""
        return [process for process in (self.current, self.fresh) if process is not None]
