"""What clients ask of the state of one streaming job: checkpoints on request, savepoints, stops (R60, R61).

Invariants (checked): an operation does nothing before its record is durable; one is under way at most; nothing that is
held finishes before the record of its savepoint is durable, and an operation that has failed is never completed.
A later owner completes none of those that it finds: it fails them, and what they hold goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from runtime.checkpoint.core.checkpoint_coordinator import CheckpointCoordinator
from runtime.checkpoint.core.checkpoints import CheckpointFailureReason
from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.gateways.operations import OperationKind, OperationState, StreamOperation, TriggerOperation

KEPT_MAX = 20
"""Operations of a job whose records are kept, those in progress not counted."""
IN_PROGRESS_MAX = 10
OWNER_LOST = "The JobMaster of the job was lost, or the job was moved, while the operation was in progress."
_ENDING = "The job is ending."
_CAUSE_LENGTH_MAX = 2000


@dataclass(frozen=True, slots=True)
class CopyQueries:
    """Have the queries of these attempts copied, and for a stop held before; those of `ended` have nothing to hold."""

    operation: StreamOperation
    attempts: tuple[ExecutionAttemptId, ...]
    ended: tuple[ExecutionAttemptId, ...] = ()


@dataclass(frozen=True, slots=True)
class FinishCopies:
    """Have the TaskManager of this attempt make the last step of a savepoint of so many `queries`."""

    operation: StreamOperation
    attempt_id: ExecutionAttemptId
    queries: int


@dataclass(frozen=True, slots=True)
class EndOperation:
    """Tell the TaskManagers of these attempts that it is over: what is held finishes, or goes on.

    `discards`: what was copied is no savepoint.
    """

    operation: StreamOperation
    attempts: tuple[ExecutionAttemptId, ...]
    finishes: bool
    discards: bool


@dataclass(frozen=True, slots=True)
class RecordOperation:
    """Make it durable as it is here and drop the records of `dropped`, then say `recorded`."""

    operation: StreamOperation
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WakeUpOperation:
    """Call `advance` at this monotonic time."""

    at: float


OperationOrder = CopyQueries | FinishCopies | EndOperation | RecordOperation | WakeUpOperation


@dataclass(slots=True)
class _Active:
    """The one under way. `awaited`: attempts that have not answered. `copied`: queries of those that have.

    `outcome`: what is being recorded. `ended`: those of queries that had finished when it began; what becomes of them
    is no matter of it.
    """

    operation: StreamOperation
    deadline: float
    attempts: tuple[ExecutionAttemptId, ...] = ()
    ended: tuple[ExecutionAttemptId, ...] = ()
    awaited: frozenset[ExecutionAttemptId] = frozenset()
    copied: int = 0
    is_finishing: bool = False
    failure: str | None = None
    outcome: StreamOperation | None = None
    is_recording: bool = False
    is_recorded: bool = False

    @property
    def asked(self) -> int:
        """How many queries it is of. An attempt counts as one until it answers, whatever its script has started."""
        return self.copied + len(self.awaited)

    @property
    def answered(self) -> int:
        """Of how many there is a copy."""
        return self.copied

    def ends(self, state: OperationState, millis: int, **changes: Any) -> None:
        """What is to be recorded of it."""
        told = {"queries": self.asked, "answered": self.answered, **changes}
        self.outcome = replace(self.operation, state=state, ended_millis=millis, **told)


class StreamOperations:
    """Those of one job under one owner. Times as for CheckpointCoordinator."""

    def __init__(
        self,
        job_id: JobId,
        coordinator: CheckpointCoordinator,
        stored: Sequence[StreamOperation] = (),
        *,
        named: Callable[[ExecutionAttemptId], str] = str,
    ) -> None:
        """`stored`: all that earlier owners have recorded. `named`: what people call the query of an attempt."""
        self._named = named
        self._job_id = job_id
        self._coordinator = coordinator
        self._known = {one.trigger_id: one for one in sorted(stored, key=lambda one: one.trigger_millis)}
        self._asked: dict[str, StreamOperation] = {}
        """Those whose first record is being written."""
        self._waiting: deque[str] = deque()
        self._inherited = [one for one in self._known.values() if one.state is OperationState.IN_PROGRESS]
        self._held: dict[ExecutionAttemptId, str] = {}
        """Attempts that were found held by what is under way no more: the word is owed to them."""
        self._active: _Active | None = None
        self._ending = ""
        self._wakes_at = 0.0

    @property
    def is_stopped(self) -> bool:
        """True once a stop is durable: queries of the job finish, also those that are started again (R61)."""
        return any(
            one.kind is OperationKind.STOP and one.state is OperationState.COMPLETED for one in self._known.values()
        )

    @property
    def may_deploy(self) -> bool:
        """False while it is not known yet whether what is deployed now belongs to a job that is stopped."""
        active = self._active
        if active is None or active.outcome is None or active.is_recorded or self._has_failed(active):
            return True
        return active.operation.kind is not OperationKind.STOP

    @property
    def holds(self) -> bool:
        """True while a stop is under way, so that queries may be held."""
        return self._active is not None and self._active.operation.kind is OperationKind.STOP

    @property
    def is_stopping(self) -> bool:
        """True from the wish to stop on, as long as it has not failed."""
        wanted = [*self._known.values(), *self._asked.values()]
        return any(one.kind is OperationKind.STOP and one.state is not OperationState.FAILED for one in wanted)

    @property
    def active(self) -> StreamOperation | None:
        """The one under way, None without one."""
        return None if self._active is None else self._active.operation

    @property
    def all(self) -> tuple[StreamOperation, ...]:
        """What is durable of all of them, oldest first."""
        return tuple(self._known.values())

    def answers_of(self, trigger_id: str) -> tuple[int, int]:
        """How many queries were asked for an operation, and have answered; 0 of one that nobody was asked for."""
        active = self._active
        if active is None or active.operation.trigger_id != trigger_id:
            one = self._known.get(trigger_id)
            return (0, 0) if one is None else (one.queries, one.answered)
        return active.asked, active.answered

    def known(self, trigger_id: str) -> StreamOperation | None:
        """What is durable of an operation."""
        return self._known.get(trigger_id)

    # --- what clients want --------------------------------------------------------------------------------

    def refusal(self, wanted: TriggerOperation) -> str:
        """Why it cannot be done, "" if it can or is known already."""
        known = self._known.get(wanted.trigger_id) or self._asked.get(wanted.trigger_id)
        if known is not None:
            same = known.is_answer_to(wanted)
            return "" if same else f"triggerId {wanted.trigger_id} is taken by another operation of the job"
        if self._ending:
            return self._ending
        if self.is_stopping:
            return f"job {self._job_id} is being stopped with a savepoint"
        in_progress = sum(one.state is OperationState.IN_PROGRESS for one in self._known.values()) + len(self._asked)
        if in_progress >= IN_PROGRESS_MAX:
            return f"{in_progress} operations of the job are in progress, more are not taken: wait for their end"
        return ""

    def want(self, wanted: TriggerOperation, millis: int) -> list[OperationOrder]:
        """Take what `refusal` refuses not. It is acknowledged when it is `known`."""
        if wanted.trigger_id in self._known or wanted.trigger_id in self._asked:
            return []
        number = 0 if wanted.kind is OperationKind.CHECKPOINT else self._coordinator.take_number()
        made = StreamOperation(
            wanted.trigger_id,
            wanted.kind,
            OperationState.IN_PROGRESS,
            number,
            millis,
            directory=self._directory(wanted),
            drains=wanted.drains,
        )
        self._asked[made.trigger_id] = made
        return [RecordOperation(made, self._superfluous())]

    def _directory(self, wanted: TriggerOperation) -> str:
        """The same trigger means the same directory, whoever owns the job."""
        if wanted.kind is OperationKind.CHECKPOINT:
            return ""
        name = sha256(f"{self._job_id}/{wanted.trigger_id}".encode()).hexdigest()[:12]
        return f"{wanted.target.rstrip('/')}/savepoint-{self._job_id[:6]}-{name}"

    def _superfluous(self) -> tuple[str, ...]:
        """The oldest ones that have ended. Those that stay have the highest numbers, so no number is taken twice."""
        ended = [one.trigger_id for one in self._known.values() if one.state is not OperationState.IN_PROGRESS]
        return tuple(ended[: max(0, len(ended) - KEPT_MAX + 1)])

    # --- what the store and TaskManagers say --------------------------------------------------------------

    def recorded(self, operation: StreamOperation, dropped: Collection[str]) -> None:
        """It is durable as it is there."""
        for trigger_id in dropped:
            self._known.pop(trigger_id, None)
        self._asked.pop(operation.trigger_id, None)
        self._known[operation.trigger_id] = operation
        active = self._active
        if operation.state is OperationState.IN_PROGRESS:
            self._waiting.append(operation.trigger_id)
        elif active is not None and active.outcome == operation:
            active.is_recorded = True

    def answered(self, trigger_id: str, attempt_id: ExecutionAttemptId, declined: str, queries: int = 1) -> None:
        """The queries of an attempt are copied, or cannot be. What is late says nothing."""
        active = self._active
        if active is None or active.operation.trigger_id != trigger_id or attempt_id not in active.awaited:
            return
        if declined:
            self._fail(
                active, f"{CheckpointFailureReason.CHECKPOINT_DECLINED.value} {self._named(attempt_id)}: {declined}"
            )
        else:
            active.awaited -= {attempt_id}
            active.copied += queries

    def finished(self, trigger_id: str, failure: str, millis: int, *, size_bytes: int = 0) -> None:
        """The last step is made, or cannot be. What is late, or of an operation that has failed, says nothing."""
        active = self._active
        if active is None or active.operation.trigger_id != trigger_id or not active.is_finishing:
            return
        if active.failure is not None or active.outcome is not None:
            return
        if failure:
            self._fail(active, failure)
        else:
            active.ends(OperationState.COMPLETED, millis, size_bytes=size_bytes)

    def interrupted(self, attempts: Collection[ExecutionAttemptId], why: str) -> None:
        """An order to the TaskManager of these, or its answer, may be lost."""
        active = self._active
        if active is not None and active.outcome is None and not set(active.attempts).isdisjoint(attempts):
            self._fail(active, f"{CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND.value} {why}")

    def found_held(self, held: Mapping[ExecutionAttemptId, str]) -> None:
        """A census says that these are held, and for what."""
        self._held.update({attempt_id: hold for attempt_id, hold in held.items() if hold})

    def stop(self, why: str = _ENDING) -> None:
        """The job is ending: what is in progress fails."""
        self._ending = why
        if self._active is not None and self._active.outcome is None:
            self._fail(self._active, why)

    def _fail(self, active: _Active, why: str) -> None:
        if active.outcome is None and active.failure is None:
            active.failure = why.strip()

    # --- what follows -------------------------------------------------------------------------------------

    def advance(
        self,
        now: float,
        millis: int,
        queries: Mapping[ExecutionAttemptId, bool],
        ended: Sequence[ExecutionAttemptId] = (),
    ) -> list[OperationOrder]:
        """Begin, complete or fail an operation. `queries`: as for CheckpointCoordinator. `ended`: those that have
        FINISHED, which are part of a savepoint too.
        """
        orders = self._give_up_inherited(millis, queries)
        if self._active is not None:
            orders += self._go_on(self._active, now, millis, queries)
        if self._active is None and self._waiting:
            begun = self._active = self._begin(self._known[self._waiting.popleft()], now, queries, ended)
            if begun.attempts:
                orders.append(CopyQueries(begun.operation, begun.attempts, begun.ended))
            orders += self._go_on(begun, now, millis, queries)
        orders += self._owed()
        return orders + self._wakes_next()

    def _wakes_next(self) -> list[OperationOrder]:
        active = self._active
        if active is None or active.outcome is not None or active.deadline == self._wakes_at:
            return []
        self._wakes_at = active.deadline
        return [WakeUpOperation(active.deadline)]

    def _give_up_inherited(self, millis: int, queries: Mapping[ExecutionAttemptId, bool]) -> list[OperationOrder]:
        inherited, self._inherited = self._inherited, []
        orders: list[OperationOrder] = []
        for one in inherited:
            failed = replace(one, state=OperationState.FAILED, ended_millis=millis, cause=OWNER_LOST)
            self._known[one.trigger_id] = failed  # nobody else can complete it: this owner's epoch is higher
            orders.append(RecordOperation(failed))
            if one.kind is not OperationKind.CHECKPOINT:
                running = tuple(attempt_id for attempt_id, is_running in queries.items() if is_running)
                orders.append(EndOperation(one, running, finishes=False, discards=True))
        return orders

    def _begin(
        self,
        operation: StreamOperation,
        now: float,
        queries: Mapping[ExecutionAttemptId, bool],
        ended: Sequence[ExecutionAttemptId],
    ) -> _Active:
        begun = _Active(operation, now + self._coordinator.settings.timeout)
        if self._ending:
            self._fail(begun, self._ending)
        elif operation.kind is OperationKind.CHECKPOINT:
            self._coordinator.request()
        elif not queries or not all(queries.values()):
            self._fail(begun, CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING.value)
        else:
            begun.attempts, begun.ended = tuple(queries), tuple(ended)
            begun.awaited = frozenset((*begun.attempts, *begun.ended))
        return begun

    def _go_on(
        self, active: _Active, now: float, millis: int, queries: Mapping[ExecutionAttemptId, bool]
    ) -> list[OperationOrder]:
        if active.is_recorded:
            return self._concluded(active)
        if active.is_recording:
            return []
        if active.outcome is None and active.failure is None:
            self._heed(active, now, millis, queries)
        orders: list[OperationOrder] = []
        if active.failure is not None:
            active.ends(OperationState.FAILED, millis, cause=active.failure[:_CAUSE_LENGTH_MAX])
            if active.attempts:  # it can be completed no more, so what it holds goes on at once
                orders.append(EndOperation(active.operation, active.attempts, finishes=False, discards=True))
        if active.outcome is not None:
            active.is_recording = True
            orders.append(RecordOperation(active.outcome))
        elif active.attempts and not active.awaited and not active.is_finishing:
            active.is_finishing = True
            orders.append(FinishCopies(active.operation, active.attempts[0], active.copied))
        return orders

    def _concluded(self, active: _Active) -> list[OperationOrder]:
        assert active.outcome is not None, active
        self._active = None
        if active.outcome.state is OperationState.FAILED or not active.attempts:
            return []
        is_stop = active.outcome.kind is OperationKind.STOP
        return [EndOperation(active.outcome, active.attempts, finishes=is_stop, discards=False)]

    def _heed(self, active: _Active, now: float, millis: int, queries: Mapping[ExecutionAttemptId, bool]) -> None:
        if active.operation.kind is OperationKind.CHECKPOINT:
            self._heed_checkpoint(active, millis)
        elif gone := [one for one in active.attempts if not queries.get(one, False)]:
            self._fail(active, f"{CheckpointFailureReason.TASK_FAILURE.value} {self._named(gone[0])} has ended")
        if now >= active.deadline:
            silent = ", ".join(sorted(map(self._named, active.awaited))[:3])
            asked = len(active.attempts) + len(active.ended)
            why = f"{len(active.awaited)} of {asked} queries have not answered: {silent}" if silent else ""
            self._fail(active, f"{CheckpointFailureReason.CHECKPOINT_EXPIRED.value} {why}")

    def _heed_checkpoint(self, active: _Active, millis: int) -> None:
        ended = self._coordinator.requested()
        if ended is None:
            return
        if ended.failure:
            self._fail(active, ended.failure)
        else:
            active.ends(OperationState.COMPLETED, millis, checkpoint_id=ended.checkpoint_id)

    def _owed(self) -> list[OperationOrder]:
        """R61: finish for a stop that is durable, go on for what cannot be completed; others wait for their word."""
        open_ = "" if self._active is None or self._has_failed(self._active) else self._active.operation.trigger_id
        owed = {attempt_id: hold for attempt_id, hold in self._held.items() if hold != open_}
        self._held = {attempt_id: hold for attempt_id, hold in self._held.items() if hold == open_}
        orders: list[OperationOrder] = []
        for hold in sorted(set(owed.values())):
            attempts = tuple(sorted((one for one, held_for in owed.items() if held_for == hold), key=str))
            operation = self._known.get(hold)
            is_stop = operation is not None and operation.state is OperationState.COMPLETED
            shown = operation or StreamOperation(hold, OperationKind.STOP, OperationState.FAILED, 0, 0)
            orders.append(EndOperation(shown, attempts, finishes=is_stop, discards=False))
        return orders

    @staticmethod
    def _has_failed(active: _Active) -> bool:
        return active.outcome is not None and active.outcome.state is OperationState.FAILED

    def check_invariants(self) -> None:
        """Raises AssertionError when the operations contradict each other."""
        active = self._active
        if active is not None:
            assert self._known[active.operation.trigger_id].state is not None, active
            assert active.failure is None or active.outcome is None or active.outcome.state is OperationState.FAILED
        numbers = [one.checkpoint_id for one in (*self._known.values(), *self._asked.values()) if one.directory]
        assert len(numbers) == len(set(numbers)), numbers
        assert not self._asked.keys() & self._known.keys(), self._asked
