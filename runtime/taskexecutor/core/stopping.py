"""Ends attempts for reasons that are not their owner's: fences, lost contact, an owner that stays away, a drain. Pure.

Invariant: what is ended here is reported FAILED with its reason, when nothing of it is left (R15), and never counts
against a restart strategy; an attempt that has reported, or whose owner cancels it, is left to end as it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from runtime.common.ids import ExecutionAttemptId
from runtime.common.states import ExecutionState
from runtime.taskexecutor.core.events import CancelAttempt, Effect, FenceObeyed, FenceRequested, ReportUnstarted
from runtime.taskexecutor.core.isolation import Isolation, StopReason
from runtime.taskexecutor.core.moves import Moves
from runtime.taskexecutor.core.reports import AttemptLedger, AttemptState
from runtime.taskexecutor.core.slot_table import TaskSlot, TaskSlotTable


class Stopping:
    """Ends attempts of one TaskManager."""

    def __init__(self, slots: TaskSlotTable, ledger: AttemptLedger, isolation: Isolation, moves: Moves) -> None:
        self._slots = slots
        self._ledger = ledger
        self._isolation = isolation
        self._moves = moves

    def fence(self, request: FenceRequested) -> list[Effect]:
        """R14: end what the fence is for, unless it, or a newer one, is known."""
        fence = self._isolation.fence(request.job_id, request.epoch, request.revision, is_readable=request.is_readable)
        if fence is None:
            return []
        may = "has" if fence.is_readable else "may have"
        reason = StopReason.isolated(f"its job's owner {may} fenced this TaskManager off (fence {fence.revision})")
        slots = self._slots.of_job(fence.job_id)
        stopped = self.waiting(slots, reason, fence.is_for) + self.running(slots, reason, fence.is_for)
        return stopped + self._moves.fence(fence)

    def obeyed_fences(self) -> list[Effect]:
        """R15: a fence is obeyed when nothing that it is for is left in any slot, and no mover (R27)."""
        effects: list[Effect] = []
        for fence in self._isolation.pending():
            in_slots = any(slot.running is not None and fence.is_for(slot.running) for slot in self._slots)
            if not in_slots and not self._moves.is_held_by(fence):
                self._isolation.note_obeyed(fence)
                effects.append(FenceObeyed(fence.job_id, fence.revision))
        return effects

    def waiting(
        self,
        slots: Iterable[TaskSlot],
        reason: StopReason,
        is_meant: Callable[[ExecutionAttemptId], bool] = lambda _: True,
    ) -> list[Effect]:
        """End attempts that have not begun."""
        effects: list[Effect] = []
        for slot in slots:
            for attempt_id in [task.attempt_id for task in slot.waiting if is_meant(task.attempt_id)]:
                self._slots.withdraw(attempt_id)
                effects.append(self.refuse(attempt_id, reason))
        return effects

    def running(
        self,
        slots: Iterable[TaskSlot],
        reason: StopReason,
        is_meant: Callable[[ExecutionAttemptId], bool] = lambda _: True,
    ) -> list[Effect]:
        """End attempts that run."""
        effects: list[Effect] = []
        for slot in slots:
            if slot.running is not None and is_meant(slot.running) and self._is_live(slot.running):
                self._isolation.stop(slot.running, reason)
                effects.append(CancelAttempt(slot.index, slot.running))
        return effects

    def refuse(self, attempt_id: ExecutionAttemptId, reason: StopReason) -> ReportUnstarted:
        """End an attempt that is in no slot."""
        self._isolation.stop(attempt_id, reason)
        return ReportUnstarted(attempt_id, ExecutionState.FAILED, reason.message)

    def _is_live(self, attempt_id: ExecutionAttemptId) -> bool:
        return self._ledger.state(attempt_id) is AttemptState.STARTED
