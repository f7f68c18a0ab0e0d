"""The commits that this TaskManager was ordered to carry out: at most one per job, under its highest order. Pure.

Invariants: an order that is older than the job's newest one, or than its newest fence here, begins nothing (R27, R14);
without contact, or under a fence that cannot be read, nothing begins, and what is stopped for that goes on afterwards;
a fence is not obeyed, and a job not forgotten, before its mover has ended. A commit that was carried out stays here
until its job ends: an owner that has not heard of it finds it in the census, and asks for it again (R6, R28).
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.ids import JobId
from runtime.gateways.job_master import CommitOutputs, CommitProgress, OutputsCommitted
from runtime.taskexecutor.core.events import Effect, MoveOutputs, MoveProgressed, OutputsMoved, StopMove
from runtime.taskexecutor.core.isolation import Isolation, PendingFence


@dataclass(slots=True)
class _Move:
    """`message` is the newest order; not `is_wanted`: it only has to end; `is_done`: it was answered."""

    message: CommitOutputs
    is_running: bool = False
    is_wanted: bool = True
    is_done: bool = False


class Moves:
    """The commits of one TaskManager."""

    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation
        self._moves: dict[JobId, _Move] = {}

    def is_ordered(self, job_id: JobId) -> bool:
        """True while a mover runs for the job, will run, or has answered."""
        return job_id in self._moves

    def is_held_by(self, fence: PendingFence) -> bool:
        """True while a mover runs that the fence is for."""
        move = self._moves.get(fence.job_id)
        if move is None or not move.is_running:
            return False
        return not move.is_wanted or (not fence.is_readable and move.message.epoch <= fence.epoch)

    def order(self, message: CommitOutputs) -> list[Effect]:
        """An owner's order. The outputs of a job that is decided do not change: one that runs goes on under it."""
        move = self._moves.get(message.job_id)
        if move is None:
            move = self._moves[message.job_id] = _Move(message)
        elif (message.epoch, message.order) < (move.message.epoch, move.message.order):
            return []
        move.message, move.is_wanted, move.is_done = message, True, False
        return self._begin(move)

    def _begin(self, move: _Move) -> list[Effect]:
        if move.is_running or move.is_done or not move.is_wanted or self._isolation.is_isolated:
            return []
        order = move.message
        if self._isolation.unread(order.job_id, order.epoch, order.fence_revision):  # R31
            return []
        move.is_running = True
        return [MoveOutputs(order)]

    def contact_lost(self, reason: str) -> list[Effect]:
        """R14: they stop, and go on when there is contact again."""
        return [StopMove(job_id, reason) for job_id, move in self._moves.items() if move.is_running]

    def contact_regained(self) -> list[Effect]:
        """What waited for it."""
        return [effect for move in self._moves.values() for effect in self._begin(move)]

    def fence(self, fence: PendingFence) -> list[Effect]:
        """R14: what was ordered under the epochs that the fence is for ends here."""
        move = self._moves.get(fence.job_id)
        if move is None or move.message.epoch > fence.epoch:
            return []
        if not fence.is_readable:
            reason = "its job's owner may have fenced this TaskManager off"
            return [StopMove(fence.job_id, reason)] if move.is_running else []
        return self._drop(fence.job_id, move, "its job's owner has fenced this TaskManager off")

    def reopened(self, job_id: JobId) -> list[Effect]:
        """Its fence can be read again, or is lifted: if it was for the mover, that has ended for good."""
        move = self._moves.get(job_id)
        return self._begin(move) if move is not None else []

    def end_job(self, job_id: JobId) -> list[Effect]:
        """The job ends here."""
        move = self._moves.get(job_id)
        return self._drop(job_id, move, "the job has ended") if move is not None else []

    def _drop(self, job_id: JobId, move: _Move, reason: str) -> list[Effect]:
        move.is_wanted = False
        if move.is_running:
            return [StopMove(job_id, reason)]
        del self._moves[job_id]
        return []

    def progressed(self, event: MoveProgressed) -> CommitProgress | None:
        """What the owner hears of it."""
        move = self._moves.get(event.job_id)
        if move is None or not move.is_wanted:
            return None
        order = move.message
        return CommitProgress(
            order.job_id, order.epoch, order.order, event.files_moved, event.files_total, event.problem
        )

    def ended(self, event: OutputsMoved) -> tuple[OutputsCommitted | None, list[Effect]]:
        """A mover has ended: what its owner hears, and what begins in its place."""
        move = self._moves[event.job_id]
        move.is_running = False
        if move.is_wanted and event.is_stopped:
            return None, self._begin(move)
        if not move.is_wanted or event.is_superseded:
            del self._moves[event.job_id]
            return None, []
        move.is_done = True
        order = move.message
        return OutputsCommitted(order.job_id, order.epoch, order.vertex_id, event.failure, order.order), []
