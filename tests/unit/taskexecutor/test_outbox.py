"""What leaves at once, and what may wait for company."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runtime.common.states import ExecutionState
from runtime.gateways.job_master import TaskReports
from runtime.gateways.resource_manager import SlotsFreed
from runtime.taskexecutor.connections.outbox import RUNNING_DELAY, Outbox
from runtime.taskexecutor.core.events import SendReport
from tests.kit.control_plane.task_messages import allocation_id, incarnation, report

OWNER = incarnation(7)


@pytest.fixture
def told() -> list[Any]:
    return []


@pytest.fixture
def outbox(told: list[Any]) -> Outbox:
    return Outbox(lambda _owner, message: told.append(message), told.append)


@pytest.mark.asyncio
async def test_running_waits_for_the_end_and_travels_with_it(outbox: Outbox, told: list[Any]) -> None:
    running, finished = report(1, 0, ExecutionState.RUNNING), report(1, 0)
    outbox.add_report(SendReport(OWNER, 1, running))
    outbox.deliver()
    assert not told
    outbox.add_report(SendReport(OWNER, 1, finished))
    outbox.deliver()
    both = [TaskReports(running.attempt_id.job_id, 1, (running, finished))]
    assert told == both
    await asyncio.sleep(3 * RUNNING_DELAY)
    outbox.deliver()
    assert told == both


@pytest.mark.asyncio
async def test_running_does_not_wait_for_long(outbox: Outbox, told: list[Any]) -> None:
    running = report(1, 0, ExecutionState.RUNNING)
    outbox.add_report(SendReport(OWNER, 1, running))
    outbox.deliver()
    async with asyncio.timeout(100):
        while not told:
            await asyncio.sleep(RUNNING_DELAY)
    assert told == [TaskReports(running.attempt_id.job_id, 1, (running,))]


def test_a_freed_slot_is_urgent(outbox: Outbox, told: list[Any]) -> None:
    outbox.add_freed(allocation_id(1))
    outbox.deliver()
    assert told == [SlotsFreed((allocation_id(1),))]
