"""Which guards of TaskManagers the leader dials, and what it may conclude from an answer (R13). Pure.

The leader asks a guard two questions. "Is it there?" while no leader has reached the guard: only a guard that a leader
has reached can be asked for the end later. "Is it dead?" when the TaskManager is not heard of: only the guard's own
statement that all is reaped proves it; a refusal proves nothing (R30). The leader uses a TaskManager only when the
first answer is durable, so a TaskManager without that answer runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from runtime.common.ids import Incarnation


class Question(Enum):
    """A question of the leader to a guard."""

    IS_IT_THERE = "IS_IT_THERE"
    IS_IT_DEAD = "IS_IT_DEAD"


class GuardedProcess(Protocol):
    """A TaskManager with a guard, as its record in the store or its own registration describes it."""

    @property
    def incarnation(self) -> Incarnation:
        """The process."""

    @property
    def task_manager_id(self) -> str:
        """The TaskManager's name for people."""

    @property
    def address(self) -> str:
        """host:port of the TaskManager."""

    @property
    def guard_address(self) -> str:
        """host:port of its guard, "" if nothing can be asked there."""

    @property
    def boot_id(self) -> str:
        """The boot of its host: after another boot none of its processes lives."""


class GuardFinding(Protocol):
    """A leader's durable finding about a guard."""

    @property
    def is_reached(self) -> bool:
        """True if a leader has reached the guard."""


class StoredProcess(Protocol):
    """The keys of a TaskManager in the store."""

    @property
    def record(self) -> GuardedProcess:
        """The registration of the TaskManager."""

    @property
    def guard(self) -> GuardFinding | None:
        """The finding about its guard; None: no leader has used the TaskManager yet."""


def described(process: GuardedProcess) -> str:
    """The TaskManager, for people."""
    return f"TaskManager {process.task_manager_id} on host {process.address.rpartition(':')[0]}"


@dataclass(slots=True)
class _Known:
    process: GuardedProcess
    is_used: bool = False
    is_reached: bool = False
    is_stored: bool = False


class Liveness:
    """The leader's knowledge of the TaskManagers' guards. A dead TaskManager is forgotten: its incarnation never comes
    back.
    """

    def __init__(self) -> None:
        self._known: dict[Incarnation, _Known] = {}

    @property
    def incarnations(self) -> list[Incarnation]:
        """All TaskManagers that are known."""
        return list(self._known)

    def process(self, incarnation: Incarnation) -> GuardedProcess:
        """The TaskManager, which must be known."""
        return self._known[incarnation].process

    def question(self, incarnation: Incarnation, *, is_heard: bool) -> Question | None:
        """The next question to the guard of a TaskManager; None for none."""
        known = self._known.get(incarnation)
        if known is None or (not known.is_used and not is_heard):
            return None
        if not known.is_reached:
            return Question.IS_IT_THERE
        return None if is_heard else Question.IS_IT_DEAD

    def is_used(self, incarnation: Incarnation) -> bool:
        """True if the TaskManager may get work: the finding about its guard is durable."""
        return incarnation in self._known and self._known[incarnation].is_used

    def is_superfluous(self, incarnation: Incarnation, *, is_heard: bool) -> bool:
        """True if it has a key, was never used, and is not heard of; never if its guard cannot be asked (R31)."""
        known = self._known.get(incarnation)
        can_be_asked = known is not None and known.process.guard_address != ""
        return known is not None and can_be_asked and known.is_stored and not known.is_used and not is_heard

    def registered(self, process: GuardedProcess) -> None:
        """A TaskManager has registered with this leader. Idempotent."""
        # The registration counts more than the record, which may not be readable (R31).
        self._known.setdefault(process.incarnation, _Known(process)).process = process

    def stored(self, processes: Iterable[StoredProcess]) -> tuple[list[Incarnation], list[GuardedProcess]]:
        """Take over all keys of the store. Returns (TaskManagers that are new here, those whose key was deleted).

        A TaskManager whose key was there and is deleted has ended by itself and reaped everything, or was found dead.
        """
        present: set[Incarnation] = set()
        new = []
        for one in processes:
            incarnation = one.record.incarnation
            present.add(incarnation)
            if incarnation not in self._known:
                self._known[incarnation] = _Known(one.record)
                new.append(incarnation)
            self._known[incarnation].is_stored = True
            if one.guard is not None:
                self.looked_for(incarnation, is_reached=one.guard.is_reached)
        ended = [known.process for one, known in self._known.items() if known.is_stored and one not in present]
        for process in ended:
            del self._known[process.incarnation]
        return new, ended

    def looked_for(self, incarnation: Incarnation, *, is_reached: bool) -> None:
        """A leader has dialled the guard, and the outcome is durable."""
        known = self._known.get(incarnation)
        if known is not None:
            known.is_used = True
            known.is_reached = known.is_reached or is_reached

    def given_up(self, incarnation: Incarnation) -> None:
        """The TaskManager is lost. One without a key and without a guard is forgotten: nothing can be found out."""
        known = self._known.get(incarnation)
        if known is not None and not known.is_stored and not known.is_reached:
            del self._known[incarnation]

    def died(self, incarnation: Incarnation) -> None:
        """The TaskManager is dead. Idempotent."""
        self._known.pop(incarnation, None)
