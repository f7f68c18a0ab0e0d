"""The start of a takeover: a new owner collects graph, durable events and a whole census before it decides (R6).

Invariants: until they are complete, all other messages of TaskManagers are kept, in order, and nothing is decided; if a
stream ends, the messages of its TaskManager are dropped, since its next stream begins with a census (R11). A job that
cannot be read ends only when every attempt that the census shows has stopped (R16).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from runtime.common.ids import ExecutionAttemptId, Incarnation
from runtime.common.states import ExecutionState
from runtime.common.waiting import Waiting, WaitingKind
from runtime.gateways.job_master import (
    CheckpointAnswered,
    CommitProgress,
    JobCensus,
    OfferSlots,
    OutputsCommitted,
    SavepointAnswered,
    SavepointFinished,
    SlotsDraining,
    SlotsLost,
    SplitsRequested,
    TaskProgresses,
    TaskReports,
)
from runtime.jobmaster.core.census import Census
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.job_events import OutputsCommitting
from runtime.scheduler.core.takeover.inheritance import CensusAnswer, Inheritance
from runtime.scheduler.core.task_managers.fencing import Fences
from runtime.scheduler.core.task_managers.outbox import Outbox


class Recovery:
    """Collects what earlier owners of one job have left."""

    __slots__ = (
        "_census",
        "_failed",
        "_kept",
        "_lost",
        "_progress",
        "_read",
        "_told",
        "_unheard",
        "_unreadable",
        "cancel_reason",
    )

    def __init__(self) -> None:
        self._census = Census()
        self._read: ev.JobRead | None = None
        self._failed: ev.InitializationFailed | None = None
        self._told: set[tuple[Incarnation, ExecutionAttemptId]] = set()
        self._lost: set[Incarnation] = set()
        self._unheard: set[Incarnation] = set()
        self._unreadable: frozenset[Incarnation] = frozenset()
        self._kept: list[ev.TaskManagerSpoke] = []
        self._progress: dict[ExecutionAttemptId, ev.TaskManagerSpoke] = {}
        self.cancel_reason: str | None = None
        """Of a cancel that has to wait until it is known what there is to stop (R16)."""

    @property
    def waiting(self) -> Waiting:
        """What the takeover waits for."""
        is_read = self._read is not None or self._failed is not None
        return Waiting(WaitingKind.TAKEOVER if is_read else WaitingKind.LOADING, self._reason)

    @property
    def _reason(self) -> str:
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
        """What a person can do about records of TaskManagers that cannot be read (R31)."""
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

    def heed(self, fences: Fences) -> None:
        """Do not wait for lost TaskManagers on which neither an exclusive attempt nor a mover can run (any more)."""
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
        self._census.drop(incarnation)
        self._drop_kept(incarnation)

    def _drop_kept(self, incarnation: Incarnation) -> None:
        self._forget_told(incarnation)
        self._kept = [kept for kept in self._kept if kept.incarnation != incarnation]
        self._progress = {one: kept for one, kept in self._progress.items() if kept.incarnation != incarnation}

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
                for gone in {kept.incarnation for kept in (*self._kept, *self._progress.values())} - incarnations:
                    self._drop_kept(gone)
            case ev.TaskManagerSpoke():
                self._take_message(event)
            case ev.TaskManagerDisconnected(incarnation):
                self._disconnected(incarnation)
            case ev.TaskManagerLost(incarnation):
                self._disconnected(incarnation)
                self._lost.add(incarnation)
            case ev.TaskManagerDied(incarnation):
                self._forget(incarnation)
            case ev.SendFailed():
                return  # nothing but cancels is sent before the job is taken over
            case _:
                assert_never(event)

    def _take_message(self, event: ev.TaskManagerSpoke) -> None:
        match event.message:
            case JobCensus() as census:
                self._forget_told(event.incarnation)
                self._lost.discard(event.incarnation)
                self._unheard.discard(event.incarnation)
                self._census.answered(event.location, census)
            case OfferSlots() | SlotsLost() | SlotsDraining() | TaskReports() | SplitsRequested():
                self._kept.append(event)
            case TaskProgresses(progresses=progresses):
                for one in progresses:
                    self._progress[one.attempt_id] = replace(event, message=replace(event.message, progresses=(one,)))
            case OutputsCommitted() | CommitProgress() | CheckpointAnswered():
                return  # the outputs are asked to be moved again, checkpoints are made anew
            case SavepointAnswered() | SavepointFinished():
                return  # to an owner of before: what it has not completed fails (R61)
            case _:
                assert_never(event.message)

    def _disconnected(self, incarnation: Incarnation) -> None:
        self._census.disconnected(incarnation)
        self._drop_kept(incarnation)

    def _forget_told(self, incarnation: Incarnation) -> None:
        self._told = {(who, attempt_id) for who, attempt_id in self._told if who != incarnation}

    def stop(self, outbox: Outbox) -> None:
        """Cancel the attempts of a job that cannot be read, once on each stream."""
        for answer in self._census.heard if self._failed is not None else ():
            for attempt_id in sorted(self._running(answer), key=str):
                told = (answer.location.incarnation, attempt_id)
                if told not in self._told:
                    self._told.add(told)
                    outbox.to(answer.location.incarnation).cancelled.append(attempt_id)

    def _running(self, answer: CensusAnswer) -> set[ExecutionAttemptId]:
        return {one.attempt_id for one in answer.attempts if not one.state.is_terminal} - self._ended()

    def complete(self) -> Inheritance | ev.InitializationFailed | None:
        """The inheritance, once the census is complete and every attempt that was ending has ended.

        InitializationFailed for a job that cannot be read, once none of its attempts runs. None before that.
        """
        if self._failed is not None and self._census.is_complete:
            return None if any(map(self._running, self._census.answers())) else self._failed
        if self._read is None or not self._census.is_complete:
            return None
        answers = self._census.answers()
        if _ending(answers) - self._ended():
            return None
        kept = [*_losses_last(self._kept), *self._progress.values()]
        return Inheritance(self._read, answers, kept, frozenset(self._unheard))

    def _ended(self) -> set[ExecutionAttemptId]:
        return {
            report.attempt_id
            for event in self._kept
            if isinstance(event.message, TaskReports)
            for report in event.message.reports
            if report.state.is_terminal
        }


def _losses_last(kept: Sequence[ev.TaskManagerSpoke]) -> Sequence[ev.TaskManagerSpoke]:
    """Reports of FINISHED come before all failures and losses, for which their attempts might be cancelled (R17)."""
    good, rest = list[ev.TaskManagerSpoke](), list[ev.TaskManagerSpoke]()
    for event in kept:
        if not isinstance(event.message, TaskReports):
            rest.append(event)
            continue
        reports = event.message.reports
        failed = tuple(report for report in reports if report.state is ExecutionState.FAILED)
        others = tuple(report for report in reports if report.state is not ExecutionState.FAILED)
        good.append(replace(event, message=replace(event.message, reports=others)))
        rest.append(replace(event, message=replace(event.message, reports=failed)))
    return [*good, *rest]


def _ending(answers: Sequence[CensusAnswer]) -> set[ExecutionAttemptId]:
    """Attempts that have ended, or whose slot is being freed: their terminal reports are on their way."""
    ending = set()
    for answer in answers:
        held = {slot.allocation_id for slot in answer.slots}
        ending |= {one.attempt_id for one in answer.attempts if one.state.is_terminal or one.allocation_id not in held}
    return ending
