"""What a later owner of a job has to know before it decides anything (R6): graph, durable events, and a whole census.

Invariants: until that is together every other news of TaskManagers is kept in order, and nothing is decided; of a
TaskManager whose stream is lost nothing is kept, since the next stream begins with everything again (R11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.common.ids import ExecutionAttemptId, Incarnation
from runtime.jobgraph.graph import JobGraph
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.census import Census, CensusAnswer
from runtime.scheduler.core.job_events import JobEvent

KeptEvent = ev.SlotsOffered | ev.SlotsGone | ev.AttemptsReported | ev.AttemptsProgressed | ev.OutputsMoved


@dataclass(frozen=True, slots=True)
class RecoveredJob:
    """Everything, at the moment at which it was complete. `kept` is to be handled after the answers."""

    graph: JobGraph
    events: tuple[JobEvent, ...]
    answers: Sequence[CensusAnswer]
    kept: Sequence[KeptEvent]


class Recovery:
    """Collects. `recovered` is None until all is together."""

    __slots__ = ("_census", "_kept", "_read")

    def __init__(self) -> None:
        self._census = Census()
        self._read: ev.JobRead | None = None
        self._kept: list[tuple[Incarnation | None, KeptEvent]] = []

    @property
    def reason(self) -> str:
        """What is waited for, for people."""
        if self._read is None:
            return "reading what the job's last owner wrote"
        waits = self._census.awaited
        return f"waiting for {waits} TaskManagers to say what they have of the job" if waits else "taking over its tasks"

    def read(self, event: ev.JobRead) -> None:
        """Graph and events are here."""
        self._read = event

    def registered(self, event: ev.TaskManagersRegistered) -> None:
        """Who has to answer."""
        self._census.registered(event.incarnations)
        self._forget_all_but(event.incarnations)

    def counted(self, event: ev.JobCounted) -> None:
        """A part of an answer."""
        self._census.answered(event.location, event.slots, event.attempts, is_last=event.is_last)

    def gone(self, event: ev.TaskManagerGone) -> None:
        """A stream is lost: its TaskManager will say everything again."""
        self._census.disconnected(event.incarnation)
        self._kept = [(incarnation, kept) for incarnation, kept in self._kept if incarnation != event.incarnation]

    def keep(self, incarnation: Incarnation | None, event: KeptEvent) -> None:
        """News that is for later."""
        self._kept.append((incarnation, event))

    def recovered(self) -> RecoveredJob | None:
        """All of it, once nobody can still have what is not in it, and every attempt that is ending has ended."""
        if self._read is None or not self._census.is_complete:
            return None
        answers = self._census.answers()
        if self._ending(answers) - self._ended():
            return None
        return RecoveredJob(self._read.graph, self._read.events, answers, [event for _, event in self._kept])

    def _ending(self, answers: Sequence[CensusAnswer]) -> set[ExecutionAttemptId]:
        """Attempts that have ended, or run in a slot that is being freed: their terminal reports are on their way."""
        ending = set()
        for answer in answers:
            held = {slot.allocation_id for slot in answer.slots}
            ending |= {
                one.attempt_id for one in answer.attempts if one.state.is_terminal or one.allocation_id not in held
            }
        return ending

    def _ended(self) -> set[ExecutionAttemptId]:
        return {
            report.attempt_id
            for _, event in self._kept
            if isinstance(event, ev.AttemptsReported)
            for report in event.reports
            if report.state.is_terminal
        }

    def _forget_all_but(self, incarnations: frozenset[Incarnation]) -> None:
        self._kept = [(who, kept) for who, kept in self._kept if who is None or who in incarnations]
