"""What a TaskManager is told again after its stream has ended: the census on its next stream settles it (R11).

Invariants: a command whose effect the census does not show is sent again, under the same attempt ids; every command is
idempotent, so a census that crosses with commands does no harm; between the end of a stream and the census the job
decides nothing that needs the TaskManager to have heard a command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.common.ids import ExecutionAttemptId, Incarnation
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.job_master import HeldAttempt, JobCensus, SlotOffer
from runtime.scheduler.core.outputs.output_commit import OutputCommit
from runtime.scheduler.core.slots.placement import Placement
from runtime.scheduler.core.task_managers.outbox import Letter, Outbox


class Reconnection:
    """The reconnections of TaskManagers with one job."""

    __slots__ = ("_commit", "_graph", "_outbox", "_parts", "_placement")

    def __init__(self, graph: ExecutionGraph, placement: Placement, commit: OutputCommit, outbox: Outbox) -> None:
        self._graph = graph
        self._placement = placement
        self._commit = commit
        self._outbox = outbox
        self._parts: dict[Incarnation, dict[ExecutionAttemptId, HeldAttempt]] = {}

    def disconnected(self, incarnation: Incarnation) -> None:
        """The stream has ended: the last messages to the TaskManager may not have arrived."""
        self._parts.pop(incarnation, None)
        self._placement.disconnected(incarnation)

    def lost(self, incarnation: Incarnation) -> None:
        """The TaskManager is lost or dead: the parts of its census do not count."""
        self._parts.pop(incarnation, None)

    def counted(self, location: TaskManagerLocation, census: JobCensus) -> None:
        """One part of a census; the last part settles everything."""
        incarnation = location.incarnation
        there = self._parts.setdefault(incarnation, {})
        there.update({held.attempt_id: held for held in census.attempts})
        if not census.is_complete:
            return
        del self._parts[incarnation]
        self._settle_slots(incarnation, census.slots)
        letter = self._outbox.to(incarnation)
        self._settle_attempts(letter, incarnation, there)
        self._stop_strangers(letter, there)
        self._placement.reconnected(location, has_something=bool(census.slots or there))
        self._commit.counted(incarnation, letter)

    def _settle_slots(self, incarnation: Incarnation, slots: Sequence[SlotOffer]) -> None:
        """Free ACTIVE slots that are not this job's, accept again slots of this job that are not ACTIVE."""
        letter, pool = self._outbox.to(incarnation), self._placement.pool
        active = {slot.allocation_id for slot in slots}
        letter.freed.extend(allocation_id for allocation_id in active if allocation_id not in pool)
        ours = pool.of_task_manager(incarnation)
        letter.accepted.extend(allocation_id for allocation_id in ours if allocation_id not in active)

    def _settle_attempts(
        self, letter: Letter, incarnation: Incarnation, held: Mapping[ExecutionAttemptId, HeldAttempt]
    ) -> None:
        """Deploy attempts again that the TaskManager does not have, or cancel them if they are CANCELING."""
        for slot in self._placement.pool.slots_of(incarnation):
            for attempt_id in slot.attempts:
                execution = self._graph.execution(attempt_id)
                assert execution is not None, attempt_id
                if attempt_id in held:
                    continue
                if execution.state is ExecutionState.CANCELING:
                    letter.cancelled.append(attempt_id)
                else:
                    letter.deployed.append(self._placement.descriptor(execution, slot.allocation_id))

    def _stop_strangers(self, letter: Letter, held: Mapping[ExecutionAttemptId, HeldAttempt]) -> None:
        """Cancel or acknowledge attempts that were cancelled, replaced or given up while the stream was down."""
        for attempt_id, there in held.items():
            execution = self._graph.execution(attempt_id)
            if there.state.is_terminal:
                if execution is None:  # the others' reports follow
                    letter.acknowledged.append(attempt_id)
            elif execution is None or execution.state.is_terminal or execution.state is ExecutionState.CANCELING:
                letter.cancelled.append(attempt_id)
