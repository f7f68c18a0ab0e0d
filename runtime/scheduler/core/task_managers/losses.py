"""Which attempts end when slots or TaskManagers are lost or dead (R13, R14, R18).

Invariants: an attempt that is not exclusive ends as soon as its TaskManager counts as lost; an exclusive attempt ends
only when its own report, a proof of death, or the fence on its TaskManager says that it has stopped; a lost TaskManager
counts as one failure at most, and attempts that a fence has stopped count as none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runtime.common.ids import ExecutionAttemptId, Incarnation, VertexId
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.job_master import SlotsLost
from runtime.gateways.task import TASK_ISOLATED, FailureInfo
from runtime.scheduler.core.outputs.output_commit import OutputCommit
from runtime.scheduler.core.slots.placement import Placement
from runtime.scheduler.core.task_managers.fencing import Fences
from runtime.scheduler.core.task_managers.reconnection import Reconnection


@dataclass(frozen=True, slots=True)
class Loss:
    """Attempts that have ended together, for one reason.

    `is_isolation`: a fence has stopped them, which does not count as a failure. Not `is_recoverable`: an exclusive
    attempt may run on, and nothing can stop it.
    """

    attempts: tuple[ExecutionAttemptId, ...]
    class_name: str
    reason: str
    is_isolation: bool = False
    is_recoverable: bool = True


@dataclass(slots=True)
class _Unseen:
    """Exclusive attempts on one TaskManager that counts as lost."""

    attempts: dict[ExecutionAttemptId, None]
    address: str
    reason: str
    is_counted: bool


class Losses:
    """The losses of one job."""

    __slots__ = ("_commit", "_fences", "_graph", "_placement", "_reconnection", "_unseen")

    def __init__(
        self,
        graph: ExecutionGraph,
        placement: Placement,
        commit: OutputCommit,
        reconnection: Reconnection,
        fences: Fences,
    ) -> None:
        self._graph = graph
        self._placement = placement
        self._commit = commit
        self._reconnection = reconnection
        self._fences = fences
        self._unseen: dict[Incarnation, _Unseen] = {}

    def holds(self, attempt_id: ExecutionAttemptId) -> bool:
        """True for an attempt that may still run on a lost TaskManager."""
        return any(attempt_id in unseen.attempts for unseen in self._unseen.values())

    def unseen(self) -> Mapping[VertexId, int]:
        """How many attempts of each vertex may still run on lost TaskManagers."""
        counts: dict[VertexId, int] = {}
        for unseen in self._unseen.values():
            for attempt_id in self._still_running(unseen):
                counts[attempt_id.vertex_id] = counts.get(attempt_id.vertex_id, 0) + 1
        return counts

    def reason(self) -> str:
        """What the job waits for, in words that stay the same while it waits; "" for nothing."""
        for unseen in self._unseen.values():
            waiting = list(self._still_running(unseen))
            if waiting:
                return (
                    f"{len(waiting)} exclusive tasks may still run on the TaskManager at {unseen.address}, which cannot"
                    " be reached: waiting until they have stopped (taskmanager.isolation-timeout)"
                )
        return ""

    def slots_lost(self, message: SlotsLost) -> Loss | None:
        """The TaskManager itself says so: what was in these slots is reaped."""
        lost = [one for allocation in message.allocations for one in self._placement.pool.remove(allocation)]
        return Loss(tuple(lost), "SlotLostError", message.reason) if lost else None

    def task_manager_lost(self, incarnation: Incarnation, reason: str) -> Loss | None:
        """A TaskManager counts as lost: its exclusive attempts may still run, where a fence can tell (R14)."""
        self._reconnection.lost(incarnation)
        lost = self._placement.task_manager_lost(incarnation)
        if problem := self._commit.task_manager_lost(incarnation):
            return Loss((), "OutputCommitError", f"{reason}; {problem}", is_recoverable=False)
        exclusive = [one for one in lost if self._graph.vertices[one.vertex_id].is_exclusive]
        if not exclusive or not self._fences.are_available:
            return _loss(lost, reason, is_recoverable=not exclusive)
        others = [one for one in lost if one not in exclusive]
        self._wait_for(incarnation, exclusive, reason, is_counted=bool(others))
        return _loss(others, reason)

    def task_manager_died(self, incarnation: Incarnation, reason: str) -> Loss | None:
        """A TaskManager is proved dead: nothing of it runs any more (R13)."""
        self._reconnection.lost(incarnation)
        lost = self._placement.task_manager_died(incarnation)
        self._commit.task_manager_died(incarnation)
        unseen = self._unseen.pop(incarnation, None)
        if unseen is None:
            return _loss(lost, reason)
        running = self._still_running(unseen)
        return _loss([*lost, *running], reason, is_isolation=unseen.is_counted and not lost)

    def _wait_for(
        self, incarnation: Incarnation, attempts: list[ExecutionAttemptId], reason: str, *, is_counted: bool
    ) -> None:
        execution = self._graph.execution(attempts[0])
        assert execution is not None, attempts[0]
        assert execution.location is not None, attempts[0]
        self._unseen[incarnation] = _Unseen(dict.fromkeys(attempts), execution.location.address, reason, is_counted)
        self._fences.ask(incarnation)

    def refused(self, execution: Execution, failure: FailureInfo) -> None:
        """A TaskManager has refused to begin an attempt, because of a fence that this owner does not know, or that
        cannot be read: a newer fence takes its place, and is confirmed before the next deployment there (R31).
        """
        is_refused = failure.class_name == TASK_ISOLATED and execution.state is ExecutionState.DEPLOYING
        if is_refused and execution.location is not None and self._fences.are_available:
            self._fences.ask(execution.location.incarnation)

    def stopped(self, incarnation: Incarnation, how: str) -> Loss | None:
        """The fence says that nothing runs there any more."""
        self._commit.stopped(incarnation)
        unseen = self._unseen.pop(incarnation, None)
        if unseen is None:
            return None
        return _loss(self._still_running(unseen), f"{unseen.reason}; {how}", is_isolation=True)

    def _still_running(self, unseen: _Unseen) -> Iterable[ExecutionAttemptId]:
        """The attempts that have not ended meanwhile."""
        for attempt_id in unseen.attempts:
            execution = self._graph.execution(attempt_id)
            if execution is not None and not execution.state.is_terminal:
                yield attempt_id


def _loss(
    attempts: Iterable[ExecutionAttemptId], reason: str, *, is_isolation: bool = False, is_recoverable: bool = True
) -> Loss | None:
    lost = tuple(attempts)
    return Loss(lost, "TaskManagerLostError", reason, is_isolation, is_recoverable) if lost else None
