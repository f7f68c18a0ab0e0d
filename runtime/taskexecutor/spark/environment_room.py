"""Which Spark environments a TaskManager has beside its default one, and which give way (R53). No I/O, no clock.

Invariants: environments that start, live or end take no more memory together than there is; one that has users never
gives way; of those without users the one that was used least recently goes first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from runtime.common.spark_environments import EnvironmentSpec
from runtime.gateways.resource_manager import SparkEnvironmentStatus


@dataclass(frozen=True, slots=True)
class Lease:
    """One user of one environment. `number` tells environments of one key apart that follow each other."""

    key: str
    number: int


class Step(Enum):
    """What a claim leads to: the environment is there (or starts), is to be started, or has to be waited for."""

    USE = "use"
    START = "start"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Claim:
    """The answer to a claim. `lease` is None for one that waits. `ending`: environments that are to end now."""

    step: Step
    lease: Lease | None = None
    ending: tuple[str, ...] = ()


@dataclass(slots=True)
class _Place:
    number: int
    memory_bytes: int
    users: int
    used_at: float
    is_ending: bool = False


class EnvironmentRoom:
    """The memory of `bytes_max` bytes, and who has it; `count_max` have it at once at most, 0 is no limit. Times are
    monotonic seconds.
    """

    def __init__(self, bytes_max: int, count_max: int = 0) -> None:
        self._bytes_max = bytes_max
        self._count_max = count_max or sys.maxsize
        self._places: dict[str, _Place] = {}
        self._next_number = 0

    def claim(self, spec: EnvironmentSpec, now: float, *, may_start: bool = True) -> Claim:
        """Become a user of an environment, unless the claim waits: it is made again when one has ended, or has no user
        any more. Without `may_start` it waits unless the environment is there.
        """
        found = self._places.get(spec.key)
        if found is not None and not found.is_ending:
            found.users += 1
            return Claim(Step.USE, Lease(spec.key, found.number))
        if not may_start:
            return Claim(Step.WAIT)
        free = self._bytes_max - sum(place.memory_bytes for place in self._places.values())
        places = self._count_max - len(self._places)
        if found is None and spec.memory_bytes <= free and places > 0:
            self._next_number += 1
            self._places[spec.key] = _Place(self._next_number, spec.memory_bytes, 1, now)
            return Claim(Step.START, Lease(spec.key, self._next_number))
        return Claim(Step.WAIT, ending=tuple(self._give_way(spec.memory_bytes - free, 1 - places)))

    def _give_way(self, needed: int, needed_places: int) -> list[str]:
        """Let unused environments end until so much is free with those that end already; none if that is not enough."""
        ending = [place.memory_bytes for place in self._places.values() if place.is_ending]
        needed, needed_places = needed - sum(ending), needed_places - len(ending)
        idle = [(key, place) for key, place in self._places.items() if not (place.users or place.is_ending)]
        chosen: list[str] = []
        for key, place in sorted(idle, key=lambda one: one[1].used_at):
            if needed <= 0 and needed_places <= 0:
                break
            chosen.append(key)
            needed, needed_places = needed - place.memory_bytes, needed_places - 1
        if needed > 0 or needed_places > 0:
            return []
        for key in chosen:
            self._places[key].is_ending = True
        return chosen

    def renew(self, lease: Lease) -> bool:
        """Become a user once more, with a lease that was released. False if that environment has ended, or is to."""
        place = self._place_of(lease)
        if place is None or place.is_ending:
            return False
        place.users += 1
        return True

    def release(self, lease: Lease, now: float) -> None:
        """One user less. Does nothing when that environment has ended."""
        place = self._place_of(lease)
        if place is not None:
            assert place.users > 0, lease
            place.users -= 1
            place.used_at = now

    def _place_of(self, lease: Lease) -> _Place | None:
        place = self._places.get(lease.key)
        return place if place is not None and place.number == lease.number else None

    def expire(self, now: float, idle_seconds: float) -> list[str]:
        """The environments that no one has used for so long: they are to end now."""
        due = [
            key
            for key, place in self._places.items()
            if not (place.users or place.is_ending) and now - place.used_at >= idle_seconds
        ]
        for key in due:
            self._places[key].is_ending = True
        return due

    def end_unused(self, key: str) -> list[str]:
        """The environment with that key, if no one uses it: it is to end now."""
        place = self._places.get(key)
        if place is None or place.users or place.is_ending:
            return []
        place.is_ending = True
        return [key]

    def end(self, key: str) -> None:
        """It is lost: no task can have it any more, and its memory is free when its processes are dead."""
        if (place := self._places.get(key)) is not None:
            place.is_ending = True

    def is_living(self, lease: Lease) -> bool:
        """True while tasks can have the environment of that lease."""
        place = self._place_of(lease)
        return place is not None and not place.is_ending

    def remove(self, key: str) -> None:
        """Its processes are dead: the memory is free. Idempotent."""
        self._places.pop(key, None)

    def statuses(self) -> Iterator[SparkEnvironmentStatus]:
        """Those that a task can have."""
        for key, place in self._places.items():
            if not place.is_ending:
                yield SparkEnvironmentStatus(key, place.memory_bytes, place.users)
