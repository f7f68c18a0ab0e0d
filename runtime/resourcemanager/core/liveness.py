"""Which TaskManagers' guards the leader dials, and what it may conclude (R13). Pure.

Two questions: a guard that no leader has reached yet is asked whether it is there, because only an address that has
once been dialled successfully proves anything by refusing; a TaskManager that is not heard of is asked whether it is
dead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from runtime.common.ids import Incarnation


class Question(Enum):
    """What to ask a guard now."""

    IS_IT_THERE = "IS_IT_THERE"
    IS_IT_DEAD = "IS_IT_DEAD"


@dataclass(frozen=True, slots=True)
class GuardedProcess:
    """A TaskManager, and where its guard listens."""

    incarnation: Incarnation
    task_manager_id: str
    address: str
    guard_address: str
    boot_id: str

    def __str__(self) -> str:
        return f"TaskManager {self.task_manager_id} on host {self.address.rpartition(':')[0]}"


@dataclass(slots=True)
class _Known:
    process: GuardedProcess
    is_reached: bool = False
    is_stored: bool = False


class Liveness:
    """What the leader knows of the TaskManagers' guards. Who is `gone` is forgotten: no incarnation comes back."""

    def __init__(self) -> None:
        self._known: dict[Incarnation, _Known] = {}

    @property
    def incarnations(self) -> list[Incarnation]:
        """All that are known."""
        return list(self._known)

    def process(self, incarnation: Incarnation) -> GuardedProcess:
        """One of them."""
        return self._known[incarnation].process

    def question(self, incarnation: Incarnation, *, is_heard: bool) -> Question | None:
        """What to ask its guard now; None for nothing."""
        known = self._known.get(incarnation)
        if known is None:
            return None
        if not known.is_reached:
            return Question.IS_IT_THERE
        return None if is_heard else Question.IS_IT_DEAD

    def registered(self, process: GuardedProcess) -> None:
        """A TaskManager has registered with this leader. Idempotent."""
        self._known.setdefault(process.incarnation, _Known(process))

    def stored(
        self, processes: Iterable[tuple[GuardedProcess, bool]]
    ) -> tuple[list[Incarnation], list[GuardedProcess]]:
        """All that the store names, with whether a leader has reached their guard. (new here, gone from there)

        Whose key was there and is deleted has ended by itself and reaped everything, or was found dead.
        """
        present: set[Incarnation] = set()
        new = []
        for process, is_reached in processes:
            present.add(process.incarnation)
            if process.incarnation not in self._known:
                self._known[process.incarnation] = _Known(process)
                new.append(process.incarnation)
            known = self._known[process.incarnation]
            known.is_stored = True
            known.is_reached = known.is_reached or is_reached
        gone = [known.process for one, known in self._known.items() if known.is_stored and one not in present]
        for process in gone:
            del self._known[process.incarnation]
        return new, gone

    def reached(self, incarnation: Incarnation) -> None:
        """Its guard has answered."""
        if incarnation in self._known:
            self._known[incarnation].is_reached = True

    def given_up(self, incarnation: Incarnation) -> None:
        """It has been silent for too long. Without a key and without a guard there is nothing to find out any more."""
        known = self._known.get(incarnation)
        if known is not None and not known.is_stored and not known.is_reached:
            del self._known[incarnation]

    def gone(self, incarnation: Incarnation) -> None:
        """It is dead. Idempotent."""
        self._known.pop(incarnation, None)
