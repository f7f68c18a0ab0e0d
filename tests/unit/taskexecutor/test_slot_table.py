"""The slot table: every arc, legal and illegal, and what an allocation may not do."""

from __future__ import annotations

import pytest

from runtime.common.fsm import IllegalTransitionError
from runtime.gateways.task import DEFAULT_PROFILE
from runtime.taskexecutor.core.slot_table import (
    FREED_ALLOCATIONS_REMEMBERED_MAX,
    SLOT_TRANSITIONS,
    SlotState,
    TaskSlot,
    TaskSlotTable,
)
from tests.kit.control_plane.task_messages import allocation_id, attempt_id, job_id, task


def table_with(state: SlotState) -> tuple[TaskSlotTable, TaskSlot]:
    table = TaskSlotTable(2, queue_max=8)
    slot = table.slot(0)
    assert slot is not None
    if state is not SlotState.FREE:
        table.allocate(slot, allocation_id(1), job_id(1), DEFAULT_PROFILE)
    if state in {SlotState.ACTIVE, SlotState.RELEASING}:
        table.activate(slot)
    if state is SlotState.RELEASING:
        table.release(slot)
    assert slot.state is state
    return table, slot


LEGAL = set(SLOT_TRANSITIONS.arcs())


@pytest.mark.parametrize("source", SlotState)
@pytest.mark.parametrize("target", SlotState)
def test_every_arc_is_either_in_the_table_or_refused(source: SlotState, target: SlotState) -> None:
    _, slot = table_with(source)
    if (source, target) in LEGAL:
        slot.machine.to(target)
        assert slot.state is target
    else:
        with pytest.raises(IllegalTransitionError, match=f"{source.name} -> {target.name}"):
            slot.machine.to(target)


def test_a_slot_walks_through_its_life_and_is_free_again() -> None:
    table, slot = table_with(SlotState.RELEASING)
    assert table.free(slot) == allocation_id(1)
    table.check_invariants()
    assert slot.state is SlotState.FREE
    assert table.was_freed(allocation_id(1))
    assert table.held(job_id(1), allocation_id(1)) is None


def test_an_allocation_is_held_by_its_job_only() -> None:
    table, slot = table_with(SlotState.ACTIVE)
    assert table.held(job_id(1), allocation_id(1)) is slot
    assert table.held(job_id(2), allocation_id(1)) is None
    assert table.holder(allocation_id(1)) is slot


def test_a_freed_allocation_cannot_be_allocated_again() -> None:
    table, slot = table_with(SlotState.ALLOCATED)
    table.free(slot)
    with pytest.raises(AssertionError):
        table.allocate(slot, allocation_id(1), job_id(1), DEFAULT_PROFILE)


def test_freed_allocations_are_remembered_within_a_bound() -> None:
    table, slot = table_with(SlotState.FREE)
    for number in range(FREED_ALLOCATIONS_REMEMBERED_MAX + 10):
        table.allocate(slot, allocation_id(number), job_id(1), DEFAULT_PROFILE)
        table.free(slot)
    assert not table.was_freed(allocation_id(0))
    assert table.was_freed(allocation_id(FREED_ALLOCATIONS_REMEMBERED_MAX + 9))
    assert len(table._freed) == FREED_ALLOCATIONS_REMEMBERED_MAX


def test_attempts_wait_in_order_and_no_more_than_the_limit() -> None:
    table, slot = table_with(SlotState.ACTIVE)
    assert table.enqueue(slot, task(1, 0, 1))
    first = table.start_next(slot)
    assert first is not None
    assert first.attempt_id == attempt_id(1, 0)
    assert all(table.enqueue(slot, task(1, subtask, 1)) for subtask in range(1, 9))
    assert not table.enqueue(slot, task(1, 9, 1))
    assert table.start_next(slot) is None, "one runs already"
    table.check_invariants()
    table.end_running(slot, attempt_id(1, 0))
    second = table.start_next(slot)
    assert second is not None
    assert second.attempt_id == attempt_id(1, 1)
    assert table.running_in(attempt_id(1, 1)) is slot


def test_a_waiting_attempt_can_be_withdrawn_a_running_one_cannot() -> None:
    table, slot = table_with(SlotState.ACTIVE)
    table.enqueue(slot, task(1, 0, 1))
    table.start_next(slot)
    table.enqueue(slot, task(1, 1, 1))
    assert table.withdraw(attempt_id(1, 1))
    assert not table.withdraw(attempt_id(1, 1))
    assert not table.withdraw(attempt_id(1, 0))


def test_releasing_returns_what_had_waited() -> None:
    table, slot = table_with(SlotState.ACTIVE)
    table.enqueue(slot, task(1, 0, 1))
    table.enqueue(slot, task(1, 1, 1))
    assert [dropped.attempt_id for dropped in table.release(slot)] == [attempt_id(1, 0), attempt_id(1, 1)]
    assert slot.state is SlotState.RELEASING


@pytest.mark.parametrize("index", [-1, 2, 10_000])
def test_there_is_no_slot_beyond_the_last(index: int) -> None:
    table, _ = table_with(SlotState.FREE)
    assert table.slot(index) is None
