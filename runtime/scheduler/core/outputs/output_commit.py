"""The commit of a job's outputs: decided once, then carried out by one mover at a time.

`COMMIT_TRANSITIONS` is the whole of it. Invariants: nothing moves before an event says that the outcome is decided;
once that is asked for, the job is neither cancelled nor ended by its timeout (R26); a TaskManager gets the order to
move only when the one before it has stopped: by its own word, its death, or the fence on it (R27, R13, R14); an answer
counts only for the order that stands. Every step may be done again by the next mover (R28).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from runtime.common.fsm import StateMachine, TransitionTable
from runtime.common.ids import Incarnation
from runtime.executiongraph.core.execution import Execution, TaskManagerLocation
from runtime.executiongraph.core.graph import ExecutionGraph, ExecutionJobVertex
from runtime.gateways.job_master import CommitProgress
from runtime.gateways.kept_outputs import commit_command
from runtime.gateways.task import FailureInfo, OutputDirectory
from runtime.scheduler.core.acceptance import Acceptance, Batch
from runtime.scheduler.core.job_events import OutputsCommitting
from runtime.scheduler.core.outputs.output_modes import OutputModes
from runtime.scheduler.core.slots.placement import Placement
from runtime.scheduler.core.task_managers.fencing import Fences
from runtime.scheduler.core.task_managers.outbox import CommitOrder, Letter, Outbox


class CommitState(Enum):
    """OPEN until the outcome is decided; DECIDING while the decision is being made durable; SEEKING a TaskManager as
    mover; MOVING; STOPPING while a mover that cannot be reached may still move; DONE; FAILED for good.
    """

    OPEN = "OPEN"
    DECIDING = "DECIDING"
    SEEKING = "SEEKING"
    MOVING = "MOVING"
    STOPPING = "STOPPING"
    DONE = "DONE"
    FAILED = "FAILED"

    __hash__ = object.__hash__


_C = CommitState
COMMIT_TRANSITIONS = TransitionTable(
    {
        _C.OPEN: frozenset({_C.DECIDING, _C.SEEKING}),
        _C.DECIDING: frozenset({_C.SEEKING}),
        _C.SEEKING: frozenset({_C.MOVING, _C.STOPPING}),
        _C.MOVING: frozenset({_C.SEEKING, _C.STOPPING, _C.DONE, _C.FAILED}),
        _C.STOPPING: frozenset({_C.SEEKING, _C.DONE, _C.FAILED}),
        _C.DONE: frozenset(),
        _C.FAILED: frozenset(),
    }
)


class OutputCommit:
    """The commit of one job under one owner. `is_decided`: an earlier owner has made the decision durable."""

    __slots__ = (
        "_acceptance",
        "_fences",
        "_graph",
        "_machine",
        "_modes",
        "_mover",
        "_order",
        "_outbox",
        "_placement",
        "_progress",
        "_unstopped",
    )

    def __init__(
        self,
        graph: ExecutionGraph,
        placement: Placement,
        acceptance: Acceptance,
        outbox: Outbox,
        fences: Fences,
        *,
        is_decided: bool = False,
    ) -> None:
        self._graph = graph
        self._placement = placement
        self._acceptance = acceptance
        self._outbox = outbox
        self._fences = fences
        self._modes = OutputModes(graph)
        self._machine = StateMachine(f"commit of job {graph.job_id}", COMMIT_TRANSITIONS, CommitState.OPEN)
        self._mover: Incarnation | None = None
        self._unstopped: set[Incarnation] = set()
        self._order = 0
        self._progress: CommitProgress | None = None
        if is_decided:
            self._enter(CommitState.SEEKING)

    @property
    def state(self) -> CommitState:
        """Where the commit is."""
        return self._machine.state

    @property
    def is_decided(self) -> bool:
        """True once the job can only finish, or fail with everything kept that a repeat needs (R26)."""
        return self._machine.state is not CommitState.OPEN

    def is_complete(self) -> bool:
        """True when no output is left to be moved. Meaningful when every vertex is FINISHED."""
        return self._machine.state is CommitState.DONE or not self._graph.has_outputs

    def _enter(self, state: CommitState) -> None:
        self._machine.to(state)
        # What is shown is durable (R3): until it is, a cancel is stored.
        self._graph.is_committing = state not in {CommitState.OPEN, CommitState.DECIDING}

    def conflict(self, execution: Execution, outputs: Iterable[OutputDirectory]) -> str:
        """Why an attempt may not write `outputs` beside what other attempts of the job write; "" if it may."""
        return self._modes.conflict(execution, outputs)

    # --- the decision (R26) ---------------------------------------------------------------------------------

    def advance(self) -> None:
        """Every vertex is FINISHED: decide, and have the outputs moved once that is durable."""
        if self._machine.state is CommitState.OPEN and self._graph.has_outputs:
            self._enter(CommitState.DECIDING)
            self._acceptance.record(OutputsCommitting())
        elif self._machine.state is CommitState.SEEKING:
            self._seek()

    def written(self, batch: Batch) -> None:
        """Events are durable, perhaps the decision."""
        if self._machine.state is CommitState.DECIDING and OutputsCommitting() in batch.records:
            self._enter(CommitState.SEEKING)

    # --- one mover at a time (R27) --------------------------------------------------------------------------

    def _seek(self) -> None:
        """Order a TaskManager that wrote outputs, or any; else wait for one to reconnect, or ask for a slot (D-034)."""
        reachable = self._placement.reachable()
        writers = [one.location.incarnation for one in self._graph.executions() if one.outputs and one.location]
        candidates = [incarnation for incarnation in reversed(writers) if incarnation in reachable] or reachable
        if candidates:
            self._give_order(candidates[0])
        elif not self._placement.absent:
            self._placement.seek(self._a_writer)

    @property
    def _a_writer(self) -> ExecutionJobVertex:
        return next(one for one in self._graph.vertices.values() if any(map(_outputs_of, one.executions)))

    def _give_order(self, mover: Incarnation) -> None:
        self._enter(CommitState.MOVING)
        self._mover = mover
        self._order += 1
        self._progress = None
        self._tell(self._outbox.to(mover))

    def _tell(self, letter: Letter) -> None:
        assert self._mover is not None, self._order
        letter.commit = CommitOrder(
            vertex_id=self._a_writer.id,
            outputs=tuple(output for execution in self._graph.executions() for output in execution.outputs),
            order=self._order,
            fence_revision=self._fences.revision(self._mover),
        )

    def adopt(self, locations: Sequence[TaskManagerLocation]) -> None:
        """The mover of an earlier owner goes on, under an order of this owner.

        If there are several, all are stopped before one gets an order (R27). A mover that answered late and is being
        fenced off gets no order before its fence is confirmed: the fence would end the order with the move (R14).
        """
        if self._machine.state is not CommitState.SEEKING or not locations:
            return
        for location in locations:
            self._placement.know(location)
        first = locations[0].incarnation
        if not self._fences.are_available or (len(locations) == 1 and not self._fences.is_closed(first)):
            self._give_order(first)
            return
        moving = [one.incarnation for one in locations if not self._fences.is_waited_out(one.incarnation)]
        if moving:
            self._enter(CommitState.STOPPING)
        for incarnation in moving:
            self._unstopped.add(incarnation)
            self._fences.ask(incarnation)

    def counted(self, incarnation: Incarnation, letter: Letter) -> None:
        """A TaskManager is back on a new stream: the order may not have arrived, or its answer (R11)."""
        if self._machine.state is CommitState.MOVING and self._mover == incarnation:
            self._tell(letter)

    def task_manager_lost(self, incarnation: Incarnation) -> str:
        """A TaskManager counts as lost. Returns why the job must fail, "" if it goes on."""
        if self._mover != incarnation or self._machine.state not in _ENTRUSTED:
            return ""
        if not self._fences.are_available:
            self._enter(CommitState.FAILED)
            return (
                "the TaskManager that moves the outputs cannot be reached and may go on; what the job wrote is kept,"
                f" visible or not; to commit what is left, when that TaskManager has ended: {self._command()}"
            )
        self._fences.ask(incarnation)
        if self._machine.state is CommitState.MOVING:
            self._enter(CommitState.STOPPING)
        return ""

    def task_manager_died(self, incarnation: Incarnation) -> None:
        """A TaskManager is proved dead: another one may move (R13)."""
        if incarnation in self._unstopped:
            self.stopped(incarnation)
        if self._mover == incarnation and self._machine.state in _ENTRUSTED:
            self._enter(CommitState.SEEKING)

    def stopped(self, incarnation: Incarnation) -> None:
        """The fence says that nothing of this job runs there any more (R14)."""
        self._unstopped.discard(incarnation)
        if self._machine.state is CommitState.STOPPING and not self._unstopped and self._mover in {None, incarnation}:
            self._enter(CommitState.SEEKING)

    # --- answers --------------------------------------------------------------------------------------------

    def _stands(self, order: int) -> bool:
        return self._mover is not None and self._machine.state in _ENTRUSTED and order == self._order

    def progressed(self, progress: CommitProgress) -> None:
        """How far the mover is. Progress of a mover that was given up does not count."""
        if self._stands(progress.order):
            self._progress = progress

    def answered(self, order: int, failure: FailureInfo | None) -> FailureInfo | None:
        """The mover's last word about an order. Returns why the job must fail, None if it goes on."""
        if not self._stands(order):
            return None
        self._enter(CommitState.DONE if failure is None else CommitState.FAILED)
        self._placement.seek(None)
        return failure

    # --- what is shown --------------------------------------------------------------------------------------

    def reason(self) -> str:
        """The state of the commit in words for people, "" before it begins."""
        match self._machine.state:
            case CommitState.SEEKING:
                return "committing: waiting for a TaskManager that moves the outputs"
            case CommitState.STOPPING:
                return (
                    "committing: the TaskManager that moves the outputs cannot be reached: waiting until it has stopped"
                    " (taskmanager.isolation-timeout)"
                )
            case CommitState.MOVING:
                return self._progress_text()
            case _:
                return ""

    def _progress_text(self) -> str:
        progress = self._progress
        if progress is None or not progress.files_total:
            return "committing" if progress is None or not progress.problem else f"committing: {progress.problem}"
        text = f"committing: {_spaced(progress.files_moved)} of {_spaced(progress.files_total)} files"
        return f"{text}: {progress.problem}" if progress.problem else text

    def _command(self) -> str:
        return commit_command([output for execution in self._graph.executions() for output in execution.outputs])


_ENTRUSTED = frozenset({CommitState.MOVING, CommitState.STOPPING})


def _outputs_of(execution: Execution) -> tuple[OutputDirectory, ...]:
    return execution.outputs


def _spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")
