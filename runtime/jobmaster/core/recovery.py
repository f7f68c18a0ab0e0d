"""What a later owner of a job has to know before it decides anything (R6): graph, durable events, and a whole census.

Invariants: until that is together all other news of TaskManagers is kept, in order, and nothing is decided; of a
TaskManager whose stream is lost nothing is kept, since its next stream begins with everything again (R11). A job that
cannot be read is over only when everything that the census shows of it is stopped (R16).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from runtime.common.ids import ExecutionAttemptId, Incarnation
from runtime.common.states import ExecutionState
from runtime.jobmaster.core.census import Census
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.fencing import Fences
from runtime.scheduler.core.inheritance import CensusAnswer, Inheritance, KeptEvent
from runtime.scheduler.core.job_events import OutputsCommitting
from runtime.scheduler.core.outbox import Outbox


class Recovery:
    """Collects, from the first thing that says that the job had an owner before."""

    __slots__ = ("_census", "_failed", "_kept", "_lost", "_read", "_told", "_unheard", "_unreadable", "cancel_reason")

    def __init__(self) -> None:
        self._census = Census()
        self._read: ev.JobRead | None = None
        self._failed: ev.InitializationFailed | None = None
        self._told: set[tuple[Incarnation, ExecutionAttemptId]] = set()
        self._lost: set[Incarnation] = set()
        self._unheard: set[Incarnation] = set()
        self._unreadable: frozenset[Incarnation] = frozenset()
        self._kept: list[tuple[Incarnation | None, KeptEvent]] = []
        self.cancel_reason: str | None = None
        """Of a cancel that has to wait until it is known what there is to stop (R16)."""

    @property
    def reason(self) -> str:
        """What is waited for, for people."""
        if self._read is None and self._failed is None:
            return "reading what the job's last owner wrote"
        waits = len(self._census.awaited)
        lost = f", {len(self._lost)} of them cannot be reached (taskmanager.isolation-timeout)" if self._lost else ""
        if waits:
            return f"waiting for {waits} TaskManagers to say what they have of the job{lost}{self._unreadable_reason}"
        if self._failed is not None:
            return f"stopping its tasks: {self._failed.failure.message}"
        return "taking over its tasks"

    @property
    def _unreadable_reason(self) -> str:
        """R31: nothing but the record's end, or its TaskManager, helps."""
        keys = ", ".join(f"taskmanagers/{incarnation}" for incarnation in sorted(self._unreadable & self.awaited))
        if not keys:
            return ""
        return (
            f"; {keys} in etcd cannot be read: a TaskManager that lives writes it again within heartbeat.interval;"
            " if that TaskManager has ended, start it again in its run directory, or delete the key when nothing of it"
            " runs any more"
        )

    @property
    def awaited(self) -> frozenset[Incarnation]:
        """The TaskManagers whose answers are missing."""
        return self._census.awaited

    def _take_end(self, event: ev.TaskManagerDisconnected | ev.TaskManagerGone) -> None:
        if isinstance(event, ev.TaskManagerGone) and event.is_reaped:
            self._forget(event.incarnation)
            return
        self._census.disconnected(event.incarnation)
        self._drop_kept(event.incarnation)
        if isinstance(event, ev.TaskManagerGone):
            self._lost.add(event.incarnation)

    def heed(self, fences: Fences) -> None:
        """A TaskManager that counts as lost need not answer when neither exclusive tasks nor a mover of the job's
        outputs can run there (any more).
        """
        if self._read is None and self._failed is None:
            return
        for incarnation in sorted(self._lost & self._census.awaited):
            if not self._may_disturb or fences.has_stopped(incarnation):
                self._forget(incarnation)
                self._unheard.add(incarnation)
            elif fences.are_available:
                fences.ask(incarnation)

    @property
    def _may_disturb(self) -> bool:
        if self._read is None:
            return True
        graph = self._read.graph
        is_committing = any(isinstance(event, OutputsCommitting) for batch in self._read.batches for event in batch)
        return is_committing or any(vertex.is_exclusive(graph) for vertex in graph.vertices)

    def _forget(self, incarnation: Incarnation) -> None:
        self._lost.discard(incarnation)
        self._unheard.discard(incarnation)
        self._census.gone(incarnation)
        self._drop_kept(incarnation)

    def _drop_kept(self, incarnation: Incarnation) -> None:
        self._forget_told(incarnation)
        self._kept = [(who, kept) for who, kept in self._kept if who != incarnation]

    def take(self, event: ev.RecoveryEvent | ev.TaskManagerEvent) -> None:
        """Take one event."""
        match event:
            case ev.JobRead():
                self._read = event
            case ev.InitializationFailed():
                self._failed = event
            case ev.TaskManagersRegistered(incarnations, unreadable=unreadable):
                self._census.registered(incarnations)
                self._unreadable = unreadable
                self._unheard &= {*incarnations}
                self._kept = [(who, kept) for who, kept in self._kept if who is None or who in incarnations]
            case ev.JobCounted():
                self._forget_told(event.location.incarnation)
                self._lost.discard(event.location.incarnation)
                self._unheard.discard(event.location.incarnation)
                self._census.answered(
                    event.location, event.slots, event.attempts, is_last=event.is_last, is_moving=event.is_moving
                )
            case ev.TaskManagerDisconnected() | ev.TaskManagerGone():
                self._take_end(event)
            case ev.SlotsOffered(location):
                self._kept.append((location.incarnation, event))
            case ev.SlotsGone(incarnation) | ev.SlotsClosed(incarnation) | ev.AttemptsReported(incarnation=incarnation):
                self._kept.append((incarnation, event))
            case ev.AttemptsProgressed() | ev.OutputsMoved() | ev.OutputsMoving():
                return  # progress comes again, and the outputs are asked to be moved again
            case _:
                assert_never(event)

    def _forget_told(self, incarnation: Incarnation) -> None:
        self._told = {(who, attempt_id) for who, attempt_id in self._told if who != incarnation}

    def stop(self, outbox: Outbox) -> None:
        """Cancel what runs of a job that cannot be read, once on each stream."""
        for answer in self._census.heard if self._failed is not None else ():
            for attempt_id in sorted(self._running(answer), key=str):
                told = (answer.location.incarnation, attempt_id)
                if told not in self._told:
                    self._told.add(told)
                    outbox.to(answer.location.incarnation).cancelled.append(attempt_id)

    def _running(self, answer: CensusAnswer) -> set[ExecutionAttemptId]:
        return {one.attempt_id for one in answer.attempts if not one.state.is_terminal} - self._ended()

    def complete(self) -> Inheritance | ev.InitializationFailed | None:
        """All of it, once nobody can have what is not in it, and every attempt that was ending has ended.

        A job that cannot be read is complete when none of its attempts runs.
        """
        if self._failed is not None and self._census.is_complete:
            return None if any(map(self._running, self._census.answers())) else self._failed
        if self._read is None or not self._census.is_complete:
            return None
        answers = self._census.answers()
        if _ending(answers) - self._ended():
            return None
        return Inheritance(
            self._read, answers, _losses_last([event for _, event in self._kept]), frozenset(self._unheard)
        )

    def _ended(self) -> set[ExecutionAttemptId]:
        return {
            report.attempt_id
            for _, event in self._kept
            if isinstance(event, ev.AttemptsReported)
            for report in event.reports
            if report.state.is_terminal
        }


def _losses_last(kept: Sequence[KeptEvent]) -> Sequence[KeptEvent]:
    """What has FINISHED somewhere comes before all that failed or was lost, for which it might be cancelled (R17)."""
    good, rest = list[KeptEvent](), list[KeptEvent]()
    for event in kept:
        if not isinstance(event, ev.AttemptsReported):
            rest.append(event)
            continue
        failed = tuple(report for report in event.reports if report.state is ExecutionState.FAILED)
        others = tuple(report for report in event.reports if report.state is not ExecutionState.FAILED)
        good.append(replace(event, reports=others))
        rest.append(replace(event, reports=failed))
    return [*good, *rest]


def _ending(answers: Sequence[CensusAnswer]) -> set[ExecutionAttemptId]:
    """Attempts that have ended, or run in a slot that is being freed: their terminal reports are on their way."""
    ending = set()
    for answer in answers:
        held = {slot.allocation_id for slot in answer.slots}
        ending |= {one.attempt_id for one in answer.attempts if one.state.is_terminal or one.allocation_id not in held}
    return ending
