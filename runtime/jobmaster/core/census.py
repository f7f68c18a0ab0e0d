"""The census of a job by its new owner (R6): which TaskManagers have to answer, and what they have said.

Invariants: the census is complete when every TaskManager that was registered at its beginning has sent its whole
answer, or is registered no more (its processes are dead then, R13, R14); if a stream ends, its TaskManager has to
answer again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runtime.common.ids import Incarnation
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.gateways.job_master import JobCensus
from runtime.scheduler.core.takeover.inheritance import CensusAnswer


class Census:
    """The census of one job. It begins with the first `registered`."""

    __slots__ = ("_answers", "_awaited", "_is_begun")

    def __init__(self) -> None:
        self._awaited: set[Incarnation] = set()
        self._answers: dict[Incarnation, CensusAnswer] = {}
        self._is_begun = False

    @property
    def is_complete(self) -> bool:
        """True when the answers show everything that any TaskManager has of the job."""
        return self._is_begun and not self._awaited

    @property
    def awaited(self) -> frozenset[Incarnation]:
        """The TaskManagers that have not answered yet."""
        return frozenset(self._awaited)

    def registered(self, incarnations: Iterable[Incarnation]) -> None:
        """The TaskManagers that are registered now. A later one has nothing of the job; one that is missing is dead."""
        present = set(incarnations)
        self._awaited = self._awaited & present if self._is_begun else present - self._complete()
        self._answers = {incarnation: one for incarnation, one in self._answers.items() if incarnation in present}
        self._is_begun = True

    def answered(self, location: TaskManagerLocation, census: JobCensus) -> None:
        """One part of an answer. What follows the last part is another answer, which takes the place of the first."""
        answer = self._answers.get(location.incarnation)
        if answer is None or answer.is_complete:
            answer = self._answers[location.incarnation] = CensusAnswer(location)
        answer.slots = census.slots
        answer.attempts.extend(census.attempts)
        answer.is_complete = census.is_complete
        answer.is_moving = census.is_moving
        if census.is_complete:
            self._awaited.discard(location.incarnation)
        elif self._is_begun:
            self._awaited.add(location.incarnation)

    def drop(self, incarnation: Incarnation) -> None:
        """Do not wait for a TaskManager that is dead, or on which no attempt of the job can matter (R13, R14)."""
        self._awaited.discard(incarnation)
        self._answers.pop(incarnation, None)

    def disconnected(self, incarnation: Incarnation) -> None:
        """The stream has ended: what the TaskManager has may change unheard, so it has to answer again."""
        if self._answers.pop(incarnation, None) is not None and self._is_begun:
            self._awaited.add(incarnation)

    @property
    def heard(self) -> Sequence[CensusAnswer]:
        """The answers so far, whole or in part."""
        return tuple(self._answers.values())

    def answers(self) -> Sequence[CensusAnswer]:
        """The answers of all TaskManagers. Only when the census is complete."""
        assert self.is_complete, self._awaited
        return tuple(self._answers.values())

    def _complete(self) -> set[Incarnation]:
        return {incarnation for incarnation, answer in self._answers.items() if answer.is_complete}
