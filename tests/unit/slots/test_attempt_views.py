"""Stacks of a running attempt: whoever asks for the same one meanwhile gets the same answer, others are told so."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.aio.clock import SystemClock
from runtime.aio.scope import Scope
from runtime.common.errors import UnavailableError
from runtime.common.ids import ExecutionAttemptId
from runtime.taskexecutor.slots.attempt_views import AttemptViews

FIRST, OTHER = (ExecutionAttemptId.parse(f"{'a' * 32}_{1:032x}_{subtask}_0_0") for subtask in (0, 1))


class Process:
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.looks = 0

    async def stacks(self) -> str:
        self.looks += 1
        await asyncio.sleep(0.01)
        return ""


@pytest.mark.asyncio
async def test_two_who_ask_at_once_for_one_attempt_get_one_look() -> None:
    processes = {FIRST: Process(), OTHER: Process()}
    running: Any = [SimpleNamespace(attempt_id=one, process=process) for one, process in processes.items()]
    views = AttemptViews(lambda: running, SystemClock())
    async with Scope("test") as scope:
        asked = [scope.start("look", views.stacks(FIRST, 3)) for _ in range(2)]
        await asyncio.sleep(0.01)
        with pytest.raises(UnavailableError, match="of another attempt"):
            await views.stacks(OTHER, 3)
        first, second = [await one for one in asked]
    assert first is second
    assert processes[FIRST].looks == 3
    assert processes[OTHER].looks == 0
