"""What is wrong with etcd although it is there: no room, late requests, members that are behind, changes that get lost.

As with the real one: what comes last before the store is full is executed *and* refused, then nothing is until there is
room, not even what only reads in a transaction. A member that is behind commits at once and answers when it has caught
up; one that is cut off from the others does nothing until it is back, and does then what it was asked. Renewals of
leases pass, and may be answered late. A watch may lose a change and say nothing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from runtime.aio.entropy import SeededEntropy
from runtime.common.errors import StorageExhaustedError

MEMBERS = 3

LATE_SECONDS = 20.0
"""A request that is held up is executed within so many seconds, and never answered."""


@dataclass
class EtcdTrouble:
    """Until when, and how often. `slack`: so many more transactions are executed, and refused, once it is full."""

    entropy: SeededEntropy
    changes_lost: float = 0.0
    requests_late: float = 0.0
    renewals_slow: float = 0.0
    is_full: bool = False
    slack: int = 0
    behind_until: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    cut_off_until: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))

    def heal(self) -> None:
        """All is well."""
        self.changes_lost = self.requests_late = self.renewals_slow = 0.0
        self.make_room()
        self.behind_until.clear()
        self.cut_off_until.clear()

    def fill(self, slack: int) -> None:
        """No room any more."""
        self.is_full, self.slack = True, slack

    def make_room(self) -> None:
        """There is room again."""
        self.is_full = False

    def check_room(self) -> bool:
        """True: execute, and refuse. Raises StorageExhaustedError: only refuse."""
        if self.is_full and not self.slack:
            raise no_room()
        self.slack -= self.is_full
        return self.is_full

    def loses_change(self) -> bool:
        """This time?"""
        return self.changes_lost > 0 and self.entropy.uniform(0, 1) < self.changes_lost

    def lateness(self) -> float:
        """Of a request that nobody will hear of any more; 0: of none."""
        is_late = self.requests_late > 0 and self.entropy.uniform(0, 1) < self.requests_late
        return self.entropy.uniform(0.01, LATE_SECONDS) if is_late else 0.0

    def renewal_delay(self) -> float:
        """Between a renewal and its answer."""
        is_slow = self.renewals_slow > 0 and self.entropy.uniform(0, 1) < self.renewals_slow
        return self.entropy.uniform(0, 2.5) if is_slow else 0.0

    def held_up(self, member: int, now: float) -> float:
        """Seconds until a member does what it is asked."""
        return max(0.0, self.cut_off_until[member] - now)

    def silence(self, member: int, now: float) -> float:
        """Seconds until a member tells what has happened."""
        return max(0.0, self.cut_off_until[member] - now, self.behind_until[member] - now)


def no_room() -> StorageExhaustedError:
    """As etcd says it."""
    message = "etcd: database space exceeded"
    return StorageExhaustedError(message)
