"""When the keeper of a lease renews it, and when it lets the lease end (R40).

The keeper is a process beside the lease's holder, so that a blocked event loop or blocked connections of the holder do
not take its role away. The keeper renews for a holder whose loop turns, and for a bounded time for one whose loop
stands still.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from runtime.highavailability.kv.core.lease import LeaseValidity

STALL_TTLS = 3
"""Lifetimes of the lease for which a holder's loop may stand still. After them the keeper renews no more, and the role
ends one lifetime later at the latest."""

LOOKS_PER_TTL = 6
"""How often the keeper looks at the lease: twice before the first renewal of a new lease is due."""

TURNS_PER_TTL = 10
"""How often a holder shows that its loop turns."""


class Look(Enum):
    """The keeper's decision."""

    WAIT = "WAIT"
    RENEW = "RENEW"


@dataclass(frozen=True, slots=True)
class Held:
    """A lease as its keeper sees it: its validity, and the state of its holder.

    `turned_at` is when the holder's loop has turned last. `is_stopped`: the system does not run the holder (SIGSTOP, a
    debugger, its end); the lease of a stopped holder is not renewed, however short the stop is.
    """

    validity: LeaseValidity
    turned_at: float
    is_stopped: bool

    @property
    def is_kept_until(self) -> float:
        """From then on the holder counts as stuck."""
        return self.turned_at + STALL_TTLS * self.validity.ttl

    def look(self, now: float) -> Look:
        """The decision. A lease that has lapsed is not renewed: its holder may have found that already (R4)."""
        is_due = now >= self.validity.renew_at
        may_go_on = not self.is_stopped and now < self.is_kept_until and self.validity.is_valid(now)
        return Look.RENEW if is_due and may_go_on else Look.WAIT

    def pause(self, now: float) -> float:
        """Seconds until the keeper looks again."""
        until_due = self.validity.renew_at - now
        longest = self.validity.ttl / LOOKS_PER_TTL
        return min(until_due, longest) if until_due > 0 else self.validity.retry_delay


def holder_renews_at(validity: LeaseValidity, *, is_kept: bool) -> float:
    """When a holder renews by itself. A holder with a keeper waits for the keeper's try; time for two more is left."""
    return validity.renew_at + (validity.ttl / 15 if is_kept else 0.0)
