"""Flink's scheduler for streaming jobs whose parallelism follows the slots that there are.

A streaming query with splits runs once for each split, so that another parallelism moves whole queries and parts no
state (R68). The job asks for as many slots as its upper bounds take, begins with what it gets, and is rescaled when
slots come or go, or when its bounds change (R69). What restarts a failed query is what the DefaultScheduler does: the
others run on. Vertices that cannot be rescaled have the parallelism of their graph.

Invariants: one rescale at a time; nothing of a vertex runs when it gets another parallelism, and that is durable before
anything of it is deployed; no rescale begins while a stop with a savepoint goes on, a failed task waits for its
restart, or an attempt may run on a lost TaskManager (R16).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runtime.common.ids import VertexId
from runtime.common.states import ExecutionState, JobStatus, SchedulerType
from runtime.common.waiting import Waiting, WaitingKind
from runtime.executiongraph.archived_rescales import ArchivedRescales, RescaleCause, RescaleReason
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionJobVertex
from runtime.gateways.rescales import UpdateRequirements, VertexBounds
from runtime.scheduler.core.acceptance import Batch
from runtime.scheduler.core.adaptive.bounds import bounds_problems, can_rescale, divided, initial_bounds, shown_bounds
from runtime.scheduler.core.adaptive.rescales import Rescales
from runtime.scheduler.core.adaptive.states import (
    Canceling,
    Change,
    Created,
    CreatingExecutionGraph,
    Executing,
    Failing,
    Finished,
    GiveUp,
    Outlook,
    Restarting,
    State,
    StopWithSavepoint,
    Wait,
    WaitingForResources,
)
from runtime.scheduler.core.default_scheduler import DefaultScheduler
from runtime.scheduler.core.effects import AnswerRequirements, ScheduleRestart
from runtime.scheduler.core.job_context import JobContext
from runtime.scheduler.core.job_events import JobRescaled, RequirementsChanged, RescaleEnded
from runtime.scheduler.core.scheduler import JobEnd
from runtime.scheduler.core.takeover.job_recovery import RecoveredJob

_ALIVE = frozenset({JobStatus.CREATED, JobStatus.RUNNING, JobStatus.RESTARTING})
_ENDING: Mapping[JobStatus, State] = {JobStatus.FAILING: Failing(), JobStatus.CANCELLING: Canceling()}
_ENDED = {
    JobStatus.FAILED: RescaleReason.JOB_FAILED,
    JobStatus.CANCELED: RescaleReason.JOB_CANCELED,
    JobStatus.FINISHED: RescaleReason.JOB_FINISHED,
}


class AdaptiveScheduler(DefaultScheduler):
    """Implements `Scheduler`. `_state` is Flink's; `_change`: what a rescale makes of the job, until it is durable.

    `_batch`: the number of the batch that has it. `_began`: when the rescale that goes on has ended its first query.
    """

    __slots__ = (
        "_asked",
        "_awake",
        "_batch",
        "_began",
        "_bounds",
        "_change",
        "_has_new_bounds",
        "_rescales",
        "_state",
        "_written",
    )

    def __init__(self, context: JobContext, recovered: RecoveredJob | None = None, **inherited: Any) -> None:
        for vertex in context.graph.vertices.values():
            if can_rescale(vertex):
                vertex.queries = len(vertex.vertex.splits or ())
        super().__init__(context, recovered, **inherited)
        self._rescales = Rescales(context.graph.job_id, context.adaptive)
        self._bounds = initial_bounds(context.graph, is_reactive=context.adaptive.is_reactive)
        self._change: Change | None = None
        self._batch: int | None = None
        self._began = context.at.monotonic
        self._awake: float | None = None
        self._written: dict[VertexId, VertexBounds] = {}
        self._asked: list[tuple[UpdateRequirements, int | None]] = []
        self._has_new_bounds = False
        self._state: State = Created()
        self._rescales.entered(self._state.NAME, context.at.millis)
        if recovered is not None:
            self._inherit(recovered)

    def _inherit(self, recovered: RecoveredJob) -> None:
        self._written = {key: one for key, one in recovered.bounds.items() if key in self._bounds}
        self._bounds |= self._written
        for rescale in recovered.rescales:
            if rescale.state is None:
                self._rescales.begun(rescale)
            else:
                self._rescales.ended(rescale)
        if recovered.rescales:
            at = self._context.at
            age = max(0, at.millis - recovered.rescales[-1].start_millis) / 1000
            self._began = at.monotonic - age
            self._state = Executing(since=at.monotonic - age)
            self._rescales.entered(self._state.NAME, at.millis)

    # --- what others are told -----------------------------------------------------------------------------

    @property
    def scheduler_type(self) -> SchedulerType:
        """Flink's type Adaptive."""
        return SchedulerType.ADAPTIVE

    @property
    def state(self) -> State:
        """Flink's state of the scheduler."""
        return self._state

    def rescales(self) -> ArchivedRescales:
        """What is shown of them."""
        return self._rescales.archived(self._state.NAME, shown_bounds(self._graph, self._bounds))

    def waiting(self, resources: Waiting) -> Waiting:
        """What the job waits for, if it does: a rescale that goes on, too."""
        if self._graph.status in _ALIVE and isinstance(self._state, Restarting | CreatingExecutionGraph):
            return Waiting(WaitingKind.RESTART, f"the job is rescaled: {self._changes()}")
        if self._graph.status in _ALIVE and isinstance(self._state, WaitingForResources):
            least = sum(one.lower for one in self._bounds.values())
            reason = f"waiting for slots (at least {least} for its streaming queries)"
            return Waiting(WaitingKind.SLOTS, f"{reason}: {resources.reason}" if resources else reason)
        return super().waiting(resources)

    def _changes(self) -> str:
        current = self._rescales.current
        named = () if current is None else current.vertices
        return ", ".join(f"{one.name} from {max(one.before, 0)} to {one.after} subtasks" for one in named)

    # --- requirements (R69) -------------------------------------------------------------------------------

    def requirements_wanted(self, wanted: UpdateRequirements) -> None:
        """They are made durable before they are answered, and hold from then on. What holds already is no event."""
        problem = "; ".join(bounds_problems(self._graph, wanted.bounds))
        if not problem and self._graph.status not in _ALIVE:
            problem = "the job is ending"
        if problem:
            self._context.effects.append(AnswerRequirements(wanted.request_id, problem))
            return
        news = [
            one for one in wanted.bounds if one.vertex_id in self._bounds and self._written.get(one.vertex_id) != one
        ]
        if not news and not self._asked:
            self._context.effects.append(AnswerRequirements(wanted.request_id))
            return
        self._acceptance.record(RequirementsChanged(wanted.bounds))
        self._asked.append((wanted, None))

    def _updated(self, wanted: UpdateRequirements) -> None:
        new = {one.vertex_id: one for one in wanted.bounds if one.vertex_id in self._bounds}
        self._has_new_bounds = self._has_new_bounds or any(self._bounds[key] != one for key, one in new.items())
        self._bounds |= new
        self._written |= new
        self._context.effects.append(AnswerRequirements(wanted.request_id))
        self._context.changes += 1

    # --- what follows from every event --------------------------------------------------------------------

    def advance(self) -> JobEnd | None:
        """As the DefaultScheduler, behind what the slots that there are make of the parallelism."""
        if self._graph.status in _ALIVE:
            self._note_stop()
            self._adapt()
        if self._graph.status in _ALIVE:
            self._wish()
        end = super().advance()
        if (ending := _ENDING.get(self._graph.status)) is not None and type(ending) is not type(self._state):
            self._enter(ending)
        if end is not None and not isinstance(self._state, Finished):
            self._rescales.end(_ENDED[end.status], self._context.at.millis)
            self._enter(Finished())
        return end

    @property
    def _may_deploy(self) -> bool:
        has_begun = not isinstance(self._state, Created | WaitingForResources) and self._change is None
        return has_begun and super()._may_deploy

    @property
    def _is_restarting(self) -> bool:
        return super()._is_restarting or self._change is not None

    def _restart(self) -> None:
        if self._change is None or not isinstance(self._state, CreatingExecutionGraph):
            super()._restart()  # else what is written says which attempts there are

    def _write(self, batch: Batch) -> None:
        super()._write(batch)
        self._asked = [(wanted, batch.number if number is None else number) for wanted, number in self._asked]
        if any(isinstance(record, JobRescaled) for record in batch.records):
            self._batch = batch.number

    def events_written(self, number: int) -> None:
        """Bounds hold, and a new parallelism, once they are durable."""
        super().events_written(number)
        if self._graph.status not in _ALIVE:
            return
        for wanted, batch in self._asked:
            if batch == number:
                self._updated(wanted)
        self._asked = [(wanted, batch) for wanted, batch in self._asked if batch != number]
        if self._batch == number and self._change is not None:
            self._apply(self._change)

    def _stop_attempts(self) -> None:
        super()._stop_attempts()
        self._change = self._batch = None
        for wanted, _ in self._asked:
            self._context.effects.append(AnswerRequirements(wanted.request_id, "the job is ending"))
        self._asked.clear()

    # --- rescales (R68) -----------------------------------------------------------------------------------

    def _enter(self, state: State) -> None:
        assert state.NAME in self._state.LEADS_TO, (self._state.NAME, state.NAME)
        self._state = state
        self._rescales.entered(state.NAME, self._context.at.millis)
        self._context.changes += 1

    def _note_stop(self) -> None:
        state = self._state
        if self._checkpoints.is_stopping and isinstance(state, Executing):
            self._enter(StopWithSavepoint(before=state))
        elif isinstance(state, StopWithSavepoint) and not self._checkpoints.is_stopping:
            self._enter(state.before)

    def _adapt(self) -> None:
        if isinstance(self._state, Created):
            self._enter(WaitingForResources(since=self._context.at.monotonic))
        self._note_end()
        if self._change is not None:
            self._go_on(self._change)
        elif not self._is_unsettled():
            self._decide()

    def _decide(self) -> None:
        outlook = self._outlook()
        self._state, decision = self._state.decide(outlook, self._context.adaptive)
        match decision:
            case Wait(until):
                self._wake_at(until)
            case GiveUp(waited):
                least = sum(one.lower for one in self._bounds.values())
                message = (
                    f"the job needs at least {least} slots for its streaming queries, and has waited {waited:.0f} s "
                    "(jobmanager.adaptive-scheduler.submission.resource-wait-timeout): start more TaskManagers, or "
                    "give it lower bounds"
                )
                failure = self._system_failure("NoResourceAvailableException", message, is_recoverable=False)
                self._fail(failure)
            case Change():
                self._begin(decision)

    def _is_unsettled(self) -> bool:
        """True while it is not known which attempts run, or some wait for their restart."""
        unseen = self._losses.unseen()
        return self._failover.is_pending or any(vertex_id in unseen for vertex_id in self._bounds)

    def _outlook(self) -> Outlook:
        current = {vertex_id: self._graph.vertices[vertex_id].parallelism for vertex_id in self._bounds}
        possible: dict[VertexId, int] | None = {}
        is_desired, is_short = True, False
        for bounds in self._by_kind():
            slots = self._slots(bounds[0].vertex_id)
            found = divided(slots, bounds)
            possible = None if possible is None or found is None else possible | found
            is_desired = is_desired and slots >= sum(one.upper for one in bounds)
            is_short = is_short or slots < sum(current[one.vertex_id] for one in bounds)
        if possible is not None:
            possible = {vertex_id: possible[vertex_id] for vertex_id in current}
        return Outlook(self._context.at.monotonic, current, possible, is_desired, is_short, self._has_new_bounds)

    def _by_kind(self) -> Sequence[Sequence[VertexBounds]]:
        """Bounds of vertices that take the same slots."""
        found: dict[Any, list[VertexBounds]] = {}
        for vertex_id, bounds in self._bounds.items():
            found.setdefault(self._placement.kind(vertex_id), []).append(bounds)
        return [*found.values()]

    def _slots(self, vertex_id: VertexId) -> int:
        """Those that the job has for vertices like this one which can be rescaled."""
        kind = self._placement.kind(vertex_id)
        others = (one for one in self._graph.vertices.values() if not one.queries)
        taken = sum(_live(one) for one in others if self._placement.kind(one.id) == kind)
        return max(0, self._placement.usable(vertex_id) - taken)

    def _wish(self) -> None:
        wishes = self._checkpoints.may_deploy and not self._checkpoints.is_stopping and not self._graph.finishes_queries
        wished = {
            one.vertex_id: one.upper - _live(self._graph.vertices[one.vertex_id]) for one in self._bounds.values()
        }
        self._placement.wish(wished if wishes else {})

    def _wake_at(self, until: float | None) -> None:
        now = self._context.at.monotonic
        if until is None or (self._awake is not None and now < self._awake <= until):
            return
        self._awake = until
        self._context.effects.append(ScheduleRestart(until))

    def _begin(self, change: Change) -> None:
        """The queries of vertices that get another parallelism end, each between two batches."""
        at, is_first = self._context.at, change.cause is RescaleCause.INITIAL_SCHEDULE
        changed = {
            vertex_id: count
            for vertex_id, count in change.parallelism.items()
            if is_first or count != self._graph.vertices[vertex_id].parallelism
        }
        is_wanted = change.cause is RescaleCause.UPDATE_REQUIREMENT
        superseded = RescaleReason.RESOURCE_REQUIREMENTS_UPDATED if is_wanted else RescaleReason.JOB_FAILOVER_RESTARTING
        self._note(self._rescales.end(superseded, at.millis))
        self._rescales.begin(self._graph, self._bounds, changed, change.cause, at.millis)
        self._change = replace(change, parallelism=changed)
        self._began = at.monotonic
        self._has_new_bounds = False
        if not is_first:
            self._enter(Restarting())
            if self._graph.status is JobStatus.RUNNING:
                self._graph.enter(JobStatus.RESTARTING, at.millis, change.cause.value)
        self._go_on(self._change)

    def _go_on(self, change: Change) -> None:
        """Nothing of the vertices may run when they get another parallelism, and that is written in one batch."""
        if isinstance(self._state, CreatingExecutionGraph):
            return
        vertices = [self._graph.vertices[vertex_id] for vertex_id in change.parallelism]
        for vertex in vertices:
            self._placement.cancel(vertex.executions, self._context.at, ends_batches=True)
        self._context.changes += 1
        is_over = all(one.state.is_terminal for vertex in vertices for one in vertex.executions)
        if not is_over or self._failover.is_pending or self._acceptance.in_flight is not None:
            return
        change = self._change = self._reconsidered(change)
        assert self._rescales.current is not None
        ordinals = tuple(_ordinals(vertex, change.parallelism[vertex.id]) for vertex in vertices)
        unbegun = tuple(vertex.id for vertex in vertices if _is_unbegun(vertex))
        self._acceptance.record(JobRescaled(self._rescales.current, ordinals, unbegun))
        self._enter(CreatingExecutionGraph())

    def _reconsidered(self, change: Change) -> Change:
        """What suits the slots and bounds of now: both may have changed while the queries ended."""
        outlook = self._outlook()
        possible, current = outlook.possible, outlook.current
        others_stay = possible is not None and all(
            possible[one] == count for one, count in current.items() if one not in change.parallelism
        )
        chosen = possible if possible is not None and others_stay else change.parallelism
        counts = {one: min(chosen[one], self._bounds[one].upper) for one in change.parallelism}
        if counts != change.parallelism:
            self._rescales.amend(counts, self._bounds)
        return replace(change, parallelism=counts)

    def _apply(self, change: Change) -> None:
        at = self._context.at
        for vertex_id, count in change.parallelism.items():
            vertex = self._graph.vertices[vertex_id]
            for execution in vertex.executions:
                if execution.location is not None:
                    self._placement.acknowledge(execution)
            self._checkpoints.note_restarts([one for one in vertex.executions if one.location is not None])
            self._graph.rescale(vertex_id, count, at.millis, is_first_to_begin=_is_unbegun(vertex))
            self._placement.replaced(vertex)
        self._change = self._batch = None
        self._enter(Executing(since=at.monotonic))

    def _note_end(self) -> None:
        """A rescale has ended when all queries of its vertices work again: their pause is over."""
        current = self._rescales.current
        if current is None or self._change is not None or not isinstance(self._state, Executing):
            return
        vertices = [self._graph.vertices[one.vertex_id] for one in current.vertices]
        if all(one.state is ExecutionState.RUNNING for vertex in vertices for one in vertex.executions):
            is_first = current.cause is RescaleCause.INITIAL_SCHEDULE
            pause = 0 if is_first else max(0, round((self._context.at.monotonic - self._began) * 1000))
            self._note(self._rescales.end(RescaleReason.SUCCEEDED, self._context.at.millis, pause))
            self._context.changes += 1

    def _note(self, ended: Any) -> None:
        if ended is not None:
            self._acceptance.record(RescaleEnded(ended), rides=True)

    def check_invariants(self) -> None:
        """Raises AssertionError when a rescale contradicts its state."""
        super().check_invariants()
        is_changing = isinstance(self._state, Restarting | CreatingExecutionGraph)
        is_first = isinstance(self._state, WaitingForResources)
        assert is_changing or is_first or self._change is None, self._state.NAME
        assert not is_changing or self._change is not None, self._state.NAME
        for vertex_id in self._bounds:
            vertex = self._graph.vertices[vertex_id]
            assert 1 <= vertex.parallelism <= vertex.queries, vertex_id
            shares = (range(index, vertex.queries, vertex.parallelism) for index in range(vertex.parallelism))
            numbers = [number for share in shares for number in share]
            assert sorted(numbers) == list(range(vertex.queries)), vertex_id


def _live(vertex: ExecutionJobVertex) -> int:
    """Subtasks that have a slot, or will take one."""
    return sum(count for state, count in vertex.counts.items() if not state.is_terminal)


def _ordinals(vertex: ExecutionJobVertex, parallelism: int) -> tuple[int, ...]:
    known: dict[int, Execution] = {**vertex.retired, **dict(enumerate(vertex.executions))}
    found = [known.get(index) for index in range(parallelism)]
    return tuple(0 if one is None else one.ordinal + (one.location is not None) for one in found)


def _is_unbegun(vertex: ExecutionJobVertex) -> bool:
    """True if no attempt of the vertex has begun."""
    return all(one.lets_next_begin_first for one in (*vertex.executions, *vertex.retired.values()))
