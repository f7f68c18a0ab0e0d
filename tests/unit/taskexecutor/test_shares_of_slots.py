"""A slot that has further ones of its TaskManager: what a large request takes (D-141)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runtime.gateways.resource_manager import RequestSlot, SlotRequestRefused
from runtime.gateways.task import DEFAULT_PROFILE, ResourceProfile
from runtime.taskexecutor.core.events import TellResourceManager
from runtime.taskexecutor.core.slot_table import SlotState, TaskSlotTable
from runtime.taskexecutor.core.task_executor import TaskExecutorCore
from tests.kit.control_plane.task_messages import allocation_id, incarnation, job_id


def core() -> TaskExecutorCore:
    return TaskExecutorCore("tm", slots=4, queue_max=8, reports_max=10, report_bytes_max=1 << 20, owner_timeout=60.0)


def request(number: int, index: int, *more: int) -> RequestSlot:
    return RequestSlot(
        allocation_id(number), index, job_id(number), 5, incarnation(1), "owner:1", DEFAULT_PROFILE, more_slots=more
    )


def refusals(effects: list[Any]) -> list[SlotRequestRefused]:
    told = [one.message for one in effects if isinstance(one, TellResourceManager)]
    return [one for one in told if isinstance(one, SlotRequestRefused)]


def test_further_slots_are_given_to_nobody() -> None:
    here = core()
    assert not refusals(here.handle(request(1, 0, 2)))
    here.check_invariants()
    held = [one.allocation_id for one in here.statuses()]
    assert held == [allocation_id(1), None, allocation_id(1), None], "the report says which belong together"
    (refused,) = refusals(here.handle(request(2, 2)))
    assert not refused.is_slot_free
    assert f"held by job {job_id(1)}" in refused.reason
    assert refusals(here.handle(request(3, 1, 2))), "nothing is taken where not all can be had"
    assert [one.allocation_id for one in here.statuses()] == held
    assert not refusals(here.handle(request(4, 1, 3)))
    assert not refusals(here.handle(request(1, 0, 2))), "a repeated order changes nothing"
    here.check_invariants()


def test_a_report_says_what_an_allocation_was_requested_for() -> None:
    here, large = core(), ResourceProfile(memory_bytes=5)
    here.handle(replace(request(1, 0, 2), profile=large))
    here.handle(request(2, 1))
    assert [one.profile for one in here.statuses()] == [large, DEFAULT_PROFILE, large, None]


@pytest.mark.parametrize("indexes", [(0, 4), (4, 0), (0, 0)])
def test_slots_that_are_not_there_are_refused(indexes: tuple[int, int]) -> None:
    here = core()
    (refused,) = refusals(here.handle(request(1, *indexes)))
    assert "there is no slot" in refused.reason
    assert {one.allocation_id for one in here.statuses()} == {None}


def test_they_are_free_together() -> None:
    table = TaskSlotTable(3, queue_max=8)
    first, second, third = table
    table.allocate(first, allocation_id(1), job_id(1), DEFAULT_PROFILE, [second, third])
    assert (first.shares, second.is_open, second.state) == (3, False, SlotState.FREE)
    assert table.of_job(job_id(1)) == [first]
    table.activate(first)
    table.release(first)
    table.check_invariants()
    table.free(first)
    table.check_invariants()
    assert all(slot.is_open and slot.shares == 1 for slot in table)
