"""What a driver can start, and which of it serves a request (D-141).

A slot serves a request that is larger than it with others of the same TaskManager: its shares (D-141).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from runtime.common.worker_ids import profile_of
from runtime.gateways.resource_manager import RegisterTaskManager, ResourceProfile

Demand = Mapping[str, Counter[int]]
"""What waiting jobs lack, by profile in the order in which they are served: how many requests of how many slots."""

NO_DEMAND: Demand = {}
_TOLERANCE = 1e-6
"""Of a share: a slot's part of a TaskManager is rounded down."""


@dataclass(frozen=True, slots=True)
class WorkerProfile:
    """A kind of TaskManager. `name`: "" for the cluster's own configuration; `slot`: what each of its slots offers.

    Its cores may be infinite: those of a host of which nothing is known yet.
    """

    name: str
    slots: int
    slot: ResourceProfile

    def shares_for(self, required: ResourceProfile) -> int:
        """How many of its slots a request takes; 0 for one that it can never hold."""
        return shares_of(self.slot, self.slots, required)

    def with_cores(self, cores: int) -> WorkerProfile:
        """The same where a host has turned out to have so many cores."""
        return replace(self, slot=replace(self.slot, cpu_cores=cores / self.slots))

    @property
    def rank(self) -> tuple[bool, float, float, int, str]:
        """Smallest first; the cluster's own configuration comes before all others."""
        slot, slots = self.slot, self.slots
        return (bool(self.name), slot.memory_bytes * slots, slot.cpu_cores * slots, slots, self.name)


def shares_of(offered: ResourceProfile, slots: int, required: ResourceProfile) -> int:
    """How many of the `slots` of one TaskManager a request takes, 0 where that is more than there are.

    0 and "" in a request mean any slot.
    """
    if required.spark_profile and required.spark_profile != offered.spark_profile:
        return 0
    if not set(required.labels).issubset(offered.labels):
        return 0
    if not required.cpu_cores and not required.memory_bytes:
        return 1
    parts = ((required.cpu_cores, offered.cpu_cores), (required.memory_bytes, offered.memory_bytes))
    if any(asked > 0 and there <= 0 for asked, there in parts):
        return 0
    most = max((asked / there for asked, there in parts if asked > 0), default=1.0)
    if most > max(1, slots) + _TOLERANCE:
        return 0
    return max(1, math.ceil(most - _TOLERANCE))


def choices(profiles: Sequence[WorkerProfile], required: ResourceProfile) -> list[tuple[WorkerProfile, int]]:
    """The profiles that can hold a request, each with the slots that it takes there, the one to start first.

    One with fewer labels comes first, since nobody asked for the others; then one whose slot fits before one that needs
    several; then the cluster's own configuration; then the smallest.
    """
    able = [(one, shares) for one in profiles if (shares := one.shares_for(required))]
    return sorted(able, key=lambda choice: (len(choice[0].slot.labels), choice[1] > 1, choice[0].rank))


class WorkerProfiles:
    """What a driver can start; nothing without one. The cores of hosts are known once a TaskManager has registered."""

    def __init__(self, profiles: Sequence[WorkerProfile]) -> None:
        self._profiles = list(profiles)
        self._choices: dict[ResourceProfile, list[tuple[WorkerProfile, int]]] = {}

    def registered(self, registration: RegisterTaskManager) -> None:
        """Note the cores of a host."""
        if registration.worker_id:
            name = profile_of(registration.worker_id)
            self._profiles = [
                one.with_cores(registration.cpu_cores) if one.name == name else one for one in self._profiles
            ]
            self._choices.clear()

    def __iter__(self) -> Iterator[WorkerProfile]:
        return iter(self._profiles)

    def __bool__(self) -> bool:
        return bool(self._profiles)

    def choices(self, required: ResourceProfile) -> list[tuple[WorkerProfile, int]]:
        """Those that can hold a request, each with the slots that it takes, the one to start first."""
        if required not in self._choices:
            self._choices[required] = choices(self._profiles, required)
        return self._choices[required]


def task_managers_for(requests: Mapping[int, int], slots: int, most: int) -> int:
    """How many TaskManagers with so many slots hold all requests, the largest placed first; at most `most`.

    `requests`: how many there are of each number of slots.
    """
    free: Counter[int] = Counter()  # how many TaskManagers have so many slots left
    opened = 0
    for shares, count in sorted(requests.items(), reverse=True):
        left = count
        for room in sorted(one for one in free if one >= shares):
            left = _fill(free, room, shares, left)
        each = slots // shares
        if each and left > 0:
            needed = min(-(-left // each), max(0, most - opened))
            opened += needed
            full, rest = divmod(left, each)
            free[slots - each * shares] += min(full, needed)
            if rest and needed > full:
                free[slots - rest * shares] += 1
    return opened


def _fill(free: Counter[int], room: int, shares: int, left: int) -> int:
    """Place requests in TaskManagers that have room for some. Returns how many are left."""
    each = room // shares
    used = min(free[room], -(-left // each)) if left > 0 else 0
    if not used:
        return left
    free[room] -= used
    placed = min(left, used * each)
    full, rest = divmod(placed, each)
    free[room - each * shares] += full
    if rest:
        free[room - rest * shares] += 1
    return left - placed


def slots_in(requests: Mapping[int, int]) -> int:
    """All slots of these requests."""
    return sum(shares * count for shares, count in requests.items())
