"""TaskManagers on which a job wants no new work (Flink's blocklist): those on which its tasks were slow.

Invariant (R67): a job that has no such slot on any other TaskManager uses those of blocked ones, so that a block never
stops it.
"""

from __future__ import annotations

from collections.abc import Iterator

from runtime.common.ids import Incarnation


class Blocklist:
    """The blocked TaskManagers of one job, each with the monotonic time until which it is."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[Incarnation, float] = {}

    def __iter__(self) -> Iterator[Incarnation]:
        return iter(self._until)

    def __contains__(self, incarnation: object) -> bool:
        return incarnation in self._until

    def __len__(self) -> int:
        return len(self._until)

    def block(self, incarnation: Incarnation, until: float) -> None:
        """Block a TaskManager, or block it for longer."""
        self._until[incarnation] = max(until, self._until.get(incarnation, until))

    def expire(self, now: float) -> None:
        """Lift the blocks whose time is over."""
        for incarnation in [one for one, until in self._until.items() if until <= now]:
            del self._until[incarnation]

    def forget(self, incarnation: Incarnation) -> None:
        """The TaskManager is gone."""
        self._until.pop(incarnation, None)
