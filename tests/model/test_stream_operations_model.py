"""Stops and savepoints (R61) under all that may happen: owners change, streams end, attempts fail, writes take time.

The store, two TaskManagers and their queries are modelled; the core is the real one. A query finishes only for a stop
that is durable, no number is used twice, and in the end nothing is held and no operation is in progress.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.checkpoint.core.checkpoint_coordinator import CheckpointCoordinator
from runtime.checkpoint.core.stream_operations import (
    CopyQueries,
    EndOperation,
    FinishCopies,
    OperationOrder,
    RecordOperation,
    StreamOperations,
)
from runtime.common.checkpoint_settings import CheckpointSettings
from runtime.common.ids import ExecutionAttemptId, JobId, VertexId
from runtime.gateways.operations import OperationKind, OperationState, StreamOperation, TriggerOperation

JOB = JobId("a" * 32)
Order = CopyQueries | FinishCopies | EndOperation


@dataclass
class Query:
    """One subtask: its attempt, what it is held for, and whether it has finished."""

    attempt_id: ExecutionAttemptId
    hold: str = ""
    has_finished: bool = False
    is_stopped: bool = False
    orders: deque[Order] = field(default_factory=deque)
    answers: deque[tuple[str, str]] = field(default_factory=deque)


class World:
    """What is outside of the core."""

    def __init__(self) -> None:
        self.stored: dict[str, StreamOperation] = {}
        self.writes: deque[RecordOperation] = deque()
        self.numbers: dict[int, str] = {}
        self.counter = self.wishes = 0
        self.now = 0.0
        self.queries = [self.query(index) for index in range(2)]
        self.owner = self.new_owner()

    def query(self, index: int) -> Query:
        self.counter += 1
        return Query(ExecutionAttemptId(JOB, VertexId(f"{index:032x}"), 0, 1, self.counter))

    def new_owner(self) -> StreamOperations:
        stored = list(self.stored.values())
        taken = max((one.checkpoint_id for one in stored), default=0)
        coordinator = CheckpointCoordinator(CheckpointSettings(timeout=10.0), self.now, taken=taken)
        owner = StreamOperations(JOB, coordinator, stored)
        owner.found_held({one.attempt_id: one.hold for one in self.queries if one.hold})
        return owner

    def advance(self) -> None:
        running = {one.attempt_id: True for one in self.queries if not one.has_finished}
        self.carry_out(self.owner.advance(self.now, int(self.now * 1000), running))
        self.owner.check_invariants()

    def carry_out(self, orders: list[OperationOrder]) -> None:
        for order in orders:
            match order:
                case RecordOperation():
                    self.writes.append(order)
                case FinishCopies(_, attempt_id):
                    self.of(attempt_id, order)
                case CopyQueries(_, attempts) | EndOperation(_, attempts):
                    for attempt_id in attempts:
                        self.of(attempt_id, order)
                case _:
                    pass

    def of(self, attempt_id: ExecutionAttemptId, order: Order) -> None:
        for query in self.queries:
            if query.attempt_id == attempt_id:
                query.orders.append(order)

    # --- what may happen ----------------------------------------------------------------------------------

    def want(self, kind: OperationKind) -> None:
        self.wishes += 1
        wanted = TriggerOperation(JOB, f"{self.wishes:032x}", kind, "/s")
        if not self.owner.refusal(wanted):
            self.carry_out(self.owner.want(wanted, int(self.now * 1000)))

    def store(self) -> None:
        if not self.writes:
            return
        write = self.writes.popleft()
        one = write.operation
        before = self.stored.get(one.trigger_id)
        assert before is None or before.state is OperationState.IN_PROGRESS, (before, one)
        assert (before is None) == (one.state is OperationState.IN_PROGRESS)
        assert self.numbers.setdefault(one.checkpoint_id, one.trigger_id) == one.trigger_id, "a number is used twice"
        for trigger_id in write.dropped:
            del self.stored[trigger_id]
        self.stored[one.trigger_id] = one
        self.owner.recorded(one, write.dropped)

    def obey(self, index: int) -> None:
        query = self.queries[index]
        if not query.orders or query.has_finished:
            return
        match query.orders.popleft():
            case CopyQueries(operation):
                if operation.kind is OperationKind.STOP:
                    query.hold = operation.trigger_id
                query.answers.append((operation.trigger_id, "copied"))
            case FinishCopies(operation):
                query.answers.append((operation.trigger_id, "finished"))
            case EndOperation(operation, finishes=finishes):
                if query.hold == operation.trigger_id:
                    query.hold = ""
                    query.has_finished = finishes
                    stop = self.stored.get(operation.trigger_id)
                    assert not finishes or (stop is not None and stop.state is OperationState.COMPLETED), "R61"

    def answer(self, index: int, *, declines: bool = False) -> None:
        query = self.queries[index]
        if not query.answers:
            return
        trigger_id, what = query.answers.popleft()
        if what == "copied":
            self.owner.answered(trigger_id, query.attempt_id, "no space" if declines else "")
        else:
            self.owner.finished(trigger_id, "no space" if declines else "", int(self.now * 1000))

    def cut(self, index: int) -> None:
        query = self.queries[index]
        query.orders.clear()
        query.answers.clear()
        self.owner.interrupted([query.attempt_id], "")
        self.advance()
        if query.hold:
            self.owner.found_held({query.attempt_id: query.hold})

    def change_owner(self) -> None:
        self.writes.clear()
        for query in self.queries:
            query.orders.clear()
            query.answers.clear()
        self.owner = self.new_owner()

    def fail(self, index: int) -> None:
        """An attempt fails and is replaced, as soon as the owner may deploy."""
        if self.queries[index].has_finished or not self.owner.may_deploy:
            return
        self.queries[index] = self.query(index)
        if self.owner.is_stopped:
            self.queries[index].has_finished = True
            assert any(
                one.kind is OperationKind.STOP and one.state is OperationState.COMPLETED for one in self.stored.values()
            ), "R61"

    def step(self, number: int) -> None:
        kind, index = number % 10, (number // 10) % 2
        actions = (
            lambda: self.want(OperationKind.SAVEPOINT),
            lambda: self.want(OperationKind.STOP),
            self.store,
            lambda: self.obey(index),
            lambda: self.answer(index),
            lambda: self.answer(index, declines=True),
            lambda: self.cut(index),
            self.change_owner,
            lambda: self.fail(index),
            self.pass_time,
        )
        actions[kind]()
        self.advance()

    def pass_time(self) -> None:
        self.now += 6.0

    def settle(self) -> None:
        """Nothing goes wrong any more."""
        for _ in range(200):
            self.store()
            for index in (0, 1):
                self.obey(index)
                self.answer(index)
            self.advance()


@settings(max_examples=400, deadline=None)
@given(st.lists(st.integers(0, 19), max_size=60))
def test_whatever_happens_a_stop_is_all_or_nothing(numbers: list[int]) -> None:
    world = World()
    for number in numbers:
        world.step(number)
    world.settle()
    assert not any(one.hold for one in world.queries)
    assert all(one.state is not OperationState.IN_PROGRESS for one in world.stored.values())
    stops = [one for one in world.stored.values() if one.kind is OperationKind.STOP]
    is_stopped = any(one.state is OperationState.COMPLETED for one in stops)
    assert [one.has_finished for one in world.queries] == [is_stopped] * 2
    world.want(OperationKind.SAVEPOINT)
    world.settle()
    assert is_stopped or any(
        one.state is OperationState.COMPLETED and one.kind is OperationKind.SAVEPOINT for one in world.stored.values()
    )
