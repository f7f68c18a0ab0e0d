"""Which TaskManagers' guards the leader dials, and what it may conclude (R13). Pure.

Two questions: a guard that no leader has reached yet is asked whether it is there, because only an address that has
once been dialled successfully proves anything by refusing; a TaskManager that is not heard of is asked whether it is
dead. A TaskManager is used only when the first answer is durable: so one without it runs nothing.
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


@dataclass(frozen=True, slots=True)
class StoredProcess:
    """A TaskManager that has a key. `is_reached` None: nobody has looked for its guard, and so nobody has used it."""

    process: GuardedProcess
    is_reached: bool | None


@dataclass(slots=True)
class _Known:
    process: GuardedProcess
    is_used: bool = False
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
        if known is None or (not known.is_used and not is_heard):
            return None
        if not known.is_reached:
            return Question.IS_IT_THERE
        return None if is_heard else Question.IS_IT_DEAD

    def is_used(self, incarnation: Incarnation) -> bool:
        """May something be given to it? What was found out about its guard is durable then."""
        return incarnation in self._known and self._known[incarnation].is_used

    def is_superfluous(self, incarnation: Incarnation, *, is_heard: bool) -> bool:
        """It has a key, nobody has used it, and nobody hears of it; never one whose guard cannot be asked (R31)."""
        known = self._known.get(incarnation)
        can_be_asked = known is not None and known.process.guard_address != ""
        return known is not None and can_be_asked and known.is_stored and not known.is_used and not is_heard

    def registered(self, process: GuardedProcess) -> None:
        """A TaskManager has registered with this leader. Idempotent."""
        # Its own word: what is stored of it may not be readable.
        self._known.setdefault(process.incarnation, _Known(process)).process = process

    def stored(self, processes: Iterable[StoredProcess]) -> tuple[list[Incarnation], list[GuardedProcess]]:
        """All that the store names. (new here, gone from there)

        Whose key was there and is deleted has ended by itself and reaped everything, or was found dead.
        """
        present: set[Incarnation] = set()
        new = []
        for one in processes:
            incarnation = one.process.incarnation
            present.add(incarnation)
            if incarnation not in self._known:
                self._known[incarnation] = _Known(one.process)
                new.append(incarnation)
            self._known[incarnation].is_stored = True
            if one.is_reached is not None:
                self.looked_for(incarnation, is_reached=one.is_reached)
        gone = [known.process for one, known in self._known.items() if known.is_stored and one not in present]
        for process in gone:
            del self._known[process.incarnation]
        return new, gone

    def looked_for(self, incarnation: Incarnation, *, is_reached: bool) -> None:
        """A leader has dialled its guard, and the outcome is durable."""
        known = self._known.get(incarnation)
        if known is not None:
            known.is_used = True
            known.is_reached = known.is_reached or is_reached

    def given_up(self, incarnation: Incarnation) -> None:
        """It has been silent for too long. Without a key and without a guard there is nothing to find out any more."""
        known = self._known.get(incarnation)
        if known is not None and not known.is_stored and not known.is_reached:
            del self._known[incarnation]

    def gone(self, incarnation: Incarnation) -> None:
        """It is dead. Idempotent."""
        self._known.pop(incarnation, None)
