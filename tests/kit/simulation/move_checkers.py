"""Judge of streaming queries that move, as their TaskManager is drained or stopped (D-122)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from runtime.common.ids import ExecutionAttemptId
from runtime.gateways.resource_manager import DrainTaskManager
from runtime.scheduler.core.job_events import FailureHandled
from tests.kit.simulation.checker import CheckerBase, Reader
from tests.kit.simulation.history import (
    AWAKE,
    FAILED,
    FROZEN,
    KILLED,
    STARTS,
    STOPPED,
    TERMINATED,
    Applied,
    AttemptEnded,
    AttemptStarted,
    BatchCommitted,
    Fault,
    ProcessEvent,
    QueryHeld,
    QueryReleased,
    QueryStarted,
    Received,
    Record,
)

DRAIN = "drain-"
"""The holds of a TaskManager's own begin so."""
DRAINED = "TaskManagerDrained"
_DRAIN_TIMEOUT = 20.0
_HEEDED = 1.0
_ENDS = 6.0
"""Seconds in which the batch that runs ends, up to 3, and the TaskManager has looked at each of its queries."""
_HELD_MAX = 10.0
"""Seconds in which a held attempt has ended, up to 5, or has the word."""


class _Host:
    """One TaskManager: its time stands still while it is frozen."""

    def __init__(self) -> None:
        self.drained_at = -1.0
        """In its own time; -1: it takes tasks."""
        self._asked_at = 0.0
        self._is_stopping = False
        self._slept = 0.0
        self._frozen_at = -1.0

    def now(self, at: float) -> float:
        """Its own time."""
        asleep = at - self._frozen_at if self._frozen_at >= 0 else 0.0
        return at - self._slept - asleep

    def drained(self, at: float) -> float:
        """For how long it has drained, in its own time."""
        return self.now(at) - self.drained_at if self.drained_at >= 0 else 0.0

    def has_time(self, at: float) -> bool:
        """Does it drain, and is `taskmanager.drain-timeout` not over?"""
        return self.drained_at >= 0 and at - self._asked_at < _DRAIN_TIMEOUT

    def drain(self, at: float, *, is_draining: bool) -> None:
        """Or not any more. Drained again it goes on as before."""
        if not is_draining:
            self.drained_at = self.drained_at if self._is_stopping else -1.0
        else:
            self._asked_at = at
            self.drained_at = self.now(at) if self.drained_at < 0 else self.drained_at

    def note(self, at: float, what: str) -> None:
        """What happens to its process."""
        if what == FROZEN and self._frozen_at < 0:
            self._frozen_at = at
        elif what in {AWAKE, KILLED, STARTS}:
            self._slept += at - self._frozen_at if self._frozen_at >= 0 else 0.0
            self._frozen_at = -1.0
        if what in {KILLED, STARTS, STOPPED}:
            self.drained_at, self._is_stopping = -1.0, False
        elif what == TERMINATED:
            self.drain(at, is_draining=True)
            self._is_stopping = True


class QueriesMove(CheckerBase):
    """D-122: a TaskManager that drains ends each query between two batches, takes no other, and no restart strategy
    counts that. What it holds for that ends soon or goes on, also when the drain is taken back.
    """

    rule = "moves"

    sees: tuple[type, ...] = (
        Applied,
        AttemptEnded,
        AttemptStarted,
        BatchCommitted,
        Fault,
        ProcessEvent,
        QueryHeld,
        QueryReleased,
        QueryStarted,
        Received,
    )

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._hosts: dict[str, _Host] = defaultdict(_Host)
        self._taken: dict[ExecutionAttemptId, float] = {}
        """Attempts that run, and for how long their host had drained when they began."""
        self._free: dict[ExecutionAttemptId, float] = {}
        """Endless queries that run, and since when nobody holds them, in the time of their host."""
        self._held: dict[ExecutionAttemptId, tuple[str, float]] = {}
        self._cut: dict[ExecutionAttemptId, str] = {}
        """Endless queries that have ended on a host that drained, and had time, and were not held."""
        self._early: list[tuple[str, ExecutionAttemptId]] = []
        """Those of them that the drain has ended."""

    def see(self, record: Record) -> Iterator[str]:
        """Who drains, and what queries do there."""
        match record.what:
            case Received(message=DrainTaskManager(is_draining)):
                self._hosts[record.process].drain(record.at, is_draining=is_draining)
            case Fault(what=what) | ProcessEvent(what=what):
                self._hosts[record.process].note(record.at, what)
                if what.startswith(FAILED):  # it had no time any more
                    self._early = [one for one in self._early if one[0] != record.process]
            case Applied():
                yield from self._moved(record)
            case AttemptStarted(attempt_id):
                self._taken[attempt_id] = self._hosts[record.process].drained(record.at)
            case QueryStarted() | BatchCommitted() | QueryHeld() | QueryReleased() | AttemptEnded():
                yield from self._of_query(record, self._hosts[record.process])
            case _:
                return

    def finish(self) -> Iterator[str]:
        """Nothing is held at the end."""
        for attempt_id, (host, _) in self._held.items():
            yield f"{attempt_id} is held on {host} for a drain, for good"
        for host, attempt_id in self._early:
            yield f"{attempt_id} was ended by the drain of {host} within a batch, and it had time"

    def _of_query(self, record: Record, host: _Host) -> Iterator[str]:
        now, drained = host.now(record.at), host.drained(record.at)
        match record.what:
            case QueryStarted(attempt_id, ends=ends):
                # Its attempt was taken earlier: before it begins, a savepoint may be restored.
                if (had_drained := self._taken.get(attempt_id, drained)) > _HEEDED:
                    yield f"{attempt_id} begins on {record.process}, which has drained for {had_drained:.1f} s"
                if not ends:
                    self._free[attempt_id] = now
            case BatchCommitted(attempt_id):
                if min(drained, now - self._free.get(attempt_id, now)) > _ENDS:
                    yield f"{attempt_id} works on on {record.process}, which has drained for {drained:.1f} s"
            case QueryHeld(attempt_id, hold) if hold.startswith(DRAIN):
                self._held[attempt_id] = record.process, now
            case QueryReleased() as released:
                yield from self._released(released, now)
            case AttemptEnded(attempt_id):
                yield from self._ended(record, attempt_id, host)
            case _:
                return

    def _released(self, released: QueryReleased, now: float) -> Iterator[str]:
        if released.hold.startswith(DRAIN) and released.finishes:
            yield f"{released.attempt_id} finishes by {released.hold}"
        yield from self._let_go(released.attempt_id, now)
        if released.attempt_id in self._free:
            self._free[released.attempt_id] = now

    def _ended(self, record: Record, attempt_id: ExecutionAttemptId, host: _Host) -> Iterator[str]:
        self._taken.pop(attempt_id, None)
        is_cut = self._free.pop(attempt_id, None) is not None and attempt_id not in self._held
        if is_cut and host.has_time(record.at):
            self._cut[attempt_id] = record.process
        yield from self._let_go(attempt_id, host.now(record.at))

    def _let_go(self, attempt_id: ExecutionAttemptId, now: float) -> Iterator[str]:
        host, since = self._held.pop(attempt_id, ("", now))
        if now - since > _HELD_MAX:
            yield f"{attempt_id} was held on {host} for a drain, for {now - since:.1f} s"

    def _moved(self, record: Record) -> Iterator[str]:
        """What an owner makes durable of what drains have ended."""
        for job_id, event in self.job_events(record):
            if not isinstance(event, FailureHandled) or event.exception.failure.class_name != DRAINED:
                continue
            named = f"{', '.join(map(str, event.attempts))} of job {job_id}"
            if event.backoff_seconds is not None:
                yield f"a move of {named} counts as a restart"
            self._early += [(self._cut[one], one) for one in event.attempts if one in self._cut]
