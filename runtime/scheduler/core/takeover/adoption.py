"""Adoption: a new owner takes the attempts that TaskManagers have for the job's current ones, or stops them (R6).

Invariant: a subtask without an accepted attempt adopts the attempt that its ordinal names, if a TaskManager has it, and
speculative ones, which have higher ordinals: one that has finished alone, else all that may finish (R67). An adopted
attempt keeps its id (R9), the times at which it began, and a cancel that is under way. Every other attempt that runs
was replaced or outrun before, and is stopped; the job waits for that where it is in one of its slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from runtime.common.ids import AllocationId, ExecutionAttemptId, VertexId
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.execution import NO_SLOT, Execution
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.job_master import HeldAttempt
from runtime.scheduler.core.takeover.inheritance import CensusAnswer

NOWHERE = AllocationId("")
"""The slot of an adopted attempt that has ended: it has none any more."""


_ENDED = frozenset({ExecutionState.CANCELING, ExecutionState.CANCELED, ExecutionState.FAILED})
_CANCELLED = frozenset({ExecutionState.CANCELING, ExecutionState.CANCELED})


@dataclass(slots=True)
class Adoption:
    """The attempts of one TaskManager: adopted ones that wait or run (`in_slots`), those to stop, adopted or not
    (`stopped`, `unwanted`), and those to forget.
    """

    answer: CensusAnswer
    in_slots: dict[AllocationId, list[ExecutionAttemptId]] = field(default_factory=dict)
    unwanted: list[ExecutionAttemptId] = field(default_factory=list)
    stopped: list[ExecutionAttemptId] = field(default_factory=list)
    settled: list[ExecutionAttemptId] = field(default_factory=list)


def adopt(graph: ExecutionGraph, answers: Sequence[CensusAnswer], at_millis: int) -> list[Adoption]:
    """Put adopted attempts into a graph that has all that is durable. Returns one Adoption for each answer."""
    current, beside = _adopted(graph, answers)
    adoptions = []
    for answer in answers:
        adoption = Adoption(answer)
        adoptions.append(adoption)
        for told in answer.attempts:
            attempt_id, held = told.attempt_id, told
            if attempt_id in current and _is_superseded(graph, attempt_id):
                if not told.state.is_terminal:
                    adoption.stopped.append(attempt_id)
                held = replace(told, state=ExecutionState.CANCELING)
            if attempt_id in current or attempt_id in beside:
                _take(graph, held, answer, at_millis, is_current=attempt_id in current)
                if not held.state.is_terminal and held.allocation_id is not None:
                    adoption.in_slots.setdefault(held.allocation_id, []).append(attempt_id)
            elif held.state.is_terminal:
                if graph.execution(attempt_id) is None:  # an accepted one is acknowledged when its report comes
                    adoption.settled.append(attempt_id)
            else:
                adoption.unwanted.append(attempt_id)
        _await_unwanted(graph, adoption, at_millis)
    return adoptions


def _await_unwanted(graph: ExecutionGraph, adoption: Adoption, at_millis: int) -> None:
    """What is stopped in a slot of the job keeps the slot, and the job from ending, until it has stopped (R16, R67)."""
    slots = {slot.allocation_id for slot in adoption.answer.slots}
    unwanted = {*adoption.unwanted}
    for held in adoption.answer.attempts:
        if held.attempt_id not in unwanted or held.allocation_id not in slots or held.allocation_id is None:
            continue
        execution = _subtask(graph, held.attempt_id)
        in_slot = adoption.in_slots.setdefault(held.allocation_id, [])
        is_alone = all(one.vertex_id == held.attempt_id.vertex_id for one in in_slot)
        if execution is not None and is_alone and not graph.vertex_of(execution).is_exclusive:
            _take(graph, replace(held, state=ExecutionState.CANCELING), adoption.answer, at_millis, is_current=False)
            in_slot.append(held.attempt_id)


def _is_superseded(graph: ExecutionGraph, attempt_id: ExecutionAttemptId) -> bool:
    """R12: another attempt reads one of its splits: it is stopped, whatever it says, and its subtask begins again."""
    vertex = graph.vertices.get(attempt_id.vertex_id)
    return vertex is not None and vertex.handed is not None and vertex.handed.is_superseded(attempt_id)


def _adopted(
    graph: ExecutionGraph, answers: Sequence[CensusAnswer]
) -> tuple[set[ExecutionAttemptId], set[ExecutionAttemptId]]:
    """For each subtask without an accepted attempt: its current one, and those beside it."""
    youngest: dict[tuple[VertexId, int], dict[int, HeldAttempt]] = {}
    for held in _attempts(answers):
        execution = _subtask(graph, held.attempt_id)
        if execution is None or execution.is_accepted or held.ordinal < execution.ordinal:
            continue
        by_ordinal = youngest.setdefault((held.attempt_id.vertex_id, held.attempt_id.subtask_index), {})
        known = by_ordinal.get(held.ordinal)
        if known is None or _age(known) < _age(held):
            by_ordinal[held.ordinal] = held
    current, beside = set(), set()
    for by_ordinal in youngest.values():
        first, *others = sorted(by_ordinal.values(), key=lambda one: (_rank(one), one.ordinal))
        current.add(first.attempt_id)
        beside |= {one.attempt_id for one in others if _rank(first) == _rank(one) == _MAY_FINISH}
    return current, beside


_HAS_FINISHED, _MAY_FINISH, _HAS_FAILED = range(3)


def _rank(held: HeldAttempt) -> int:
    if held.state is ExecutionState.FINISHED:
        return _HAS_FINISHED
    return _HAS_FAILED if held.state in _ENDED else _MAY_FINISH


def _age(held: HeldAttempt) -> tuple[int, int]:
    return held.attempt_id.epoch, held.attempt_id.counter


def _attempts(answers: Sequence[CensusAnswer]) -> Iterator[HeldAttempt]:
    return (held for answer in answers for held in answer.attempts)


def _subtask(graph: ExecutionGraph, attempt_id: ExecutionAttemptId) -> Execution | None:
    vertex = graph.vertices.get(attempt_id.vertex_id)
    if vertex is None or not 0 <= attempt_id.subtask_index < vertex.parallelism:
        return None
    return vertex.executions[attempt_id.subtask_index]


def _take(graph: ExecutionGraph, held: HeldAttempt, answer: CensusAnswer, at_millis: int, *, is_current: bool) -> None:
    deployed_millis = held.deployed_millis or at_millis
    execution = Execution(held.attempt_id, held.ordinal, deployed_millis)
    if is_current:
        graph.adopt(execution)
    else:
        graph.concurrent.add(execution)
    indexes = (slot.slot_index for slot in answer.slots if slot.allocation_id == held.allocation_id)
    execution.place(answer.location, held.allocation_id or NOWHERE, next(indexes, NO_SLOT))
    graph.transition(execution, ExecutionState.SCHEDULED, deployed_millis)
    graph.transition(execution, ExecutionState.DEPLOYING, deployed_millis)
    if held.state is not ExecutionState.DEPLOYING:
        graph.transition(execution, ExecutionState.RUNNING, held.running_millis or deployed_millis)
    if held.state in _CANCELLED:
        graph.transition(execution, ExecutionState.CANCELING, at_millis)
