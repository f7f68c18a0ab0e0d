"""What each queue has a claim to, and where a job stands in its queue: for people, not for decisions (D-128)."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.common.shares import QueueSettings, QueueStatus, in_slots
from runtime.common.waiting import Waiting, WaitingKind
from runtime.resourcemanager.core.queues import Queue, Queues

_BY_PLACE = (WaitingKind.SLOTS, WaitingKind.QUEUE)
_SUFFIXES = {1: "st", 2: "nd", 3: "rd"}


def fair_shares(queues: Mapping[str, QueueSettings], slots: int) -> dict[str, float]:
    """The slots of each queue: by weight, and none below its minimum or above its maximum.

    Minima that add up to more than `slots` shrink alike.
    """
    minima = sum(one.min_slots for one in queues.values())
    if minima > slots:
        return {name: one.min_slots * slots / minima for name, one in queues.items()}
    fixed: dict[str, float] = {}
    while open_ones := {name: one for name, one in queues.items() if name not in fixed}:
        left, weights = slots - sum(fixed.values()), sum(one.weight for one in open_ones.values())
        shares = {name: left * one.weight / weights for name, one in open_ones.items()}
        bounded = {name: _bounded(share, queues[name]) for name, share in shares.items()}
        excess = sum(bounded.values()) - left
        # Those that are bounded on the side that outweighs stay so, whatever the others get.
        held_back = {n: b for n, b in bounded.items() if (b > shares[n] if excess > 0 else b < shares[n])}
        if not held_back or not excess:
            return {**fixed, **bounded}
        fixed |= held_back
    return fixed


def _bounded(share: float, settings: QueueSettings) -> float:
    share = max(share, settings.min_slots)
    return share if settings.max_slots is None else min(share, settings.max_slots)


def statuses(queues: Queues, settings: Mapping[str, QueueSettings], slots: int) -> list[QueueStatus]:
    """All queues that have jobs or settings, by name. A queue without a job has no share."""
    there = {one.name: one for one in queues.all()}
    shares = fair_shares({name: one.settings for name, one in there.items()}, slots)
    idle = [QueueStatus(name, one, 0, 0.0, 0, 0, is_named=True) for name, one in settings.items() if name not in there]
    busy = [
        QueueStatus(name, one.settings, one.held, shares[name], len(one.holders), len(one.line), name in settings)
        for name, one in there.items()
    ]
    return sorted(idle + busy, key=lambda one: one.name)


def with_place(waiting: Waiting, queue: Queue, position: int, share: float) -> Waiting:
    """The reason of a job that waits for its turn, with where it stands. Any other reason stays as it is."""
    if waiting.kind not in _BY_PLACE:
        return waiting
    place = f"{ordinal(position)} of {len(queue.line)} in queue {queue.name}"
    if waiting.kind is not WaitingKind.QUEUE:
        place += f", which holds {queue.held} of its share of {in_slots(share)}"
    return Waiting(waiting.kind, f"{waiting.reason}; {place}")


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th."""
    suffix = "th" if number // 10 % 10 == 1 else _SUFFIXES.get(number % 10, "th")
    return f"{number}{suffix}"
