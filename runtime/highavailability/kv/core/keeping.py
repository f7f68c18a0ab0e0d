"""When the keeper of a lease renews it, and when it lets it end (R40).

The keeper is another process than the one that holds the lease, so that whatever keeps the holder from renewing (its
serving loop, its connections) does not take its role away. It owns no decision: it renews for a holder that shows that
its loop turns, and for a bounded time for one that does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from runtime.highavailability.kv.core.lease import LeaseValidity

STALL_TTLS = 3
"""Lifetimes of its lease for which a holder's loop may stand still. Behind them nobody renews, and its role ends one
lifetime later at the latest."""

LOOKS_PER_TTL = 6
"""How often the keeper looks for a lease that is new to it: twice before the first renewal is due."""

TURNS_PER_TTL = 10
"""How often a holder shows that its loop turns."""


class Look(Enum):
    """What the keeper does now."""

    WAIT = "WAIT"
    RENEW = "RENEW"


@dataclass(frozen=True, slots=True)
class Held:
    """A lease as its keeper sees it: until when it is known to be valid, and what its holder shows of itself.

    `turned_at` is when the holder's loop has turned last; `is_stopped` says that the system runs the holder no more
    (SIGSTOP, a debugger, its end): who is stopped is not kept, however short the time.
    """

    validity: LeaseValidity
    turned_at: float
    is_stopped: bool

    @property
    def is_kept_until(self) -> float:
        """From then on the holder counts as stuck."""
        return self.turned_at + STALL_TTLS * self.validity.ttl

    def look(self, now: float) -> Look:
        """A lease that has lapsed is not renewed: whoever rests on it may have found it over already (R4)."""
        is_due = now >= self.validity.renew_at
        may_go_on = not self.is_stopped and now < self.is_kept_until and self.validity.is_valid(now)
        return Look.RENEW if is_due and may_go_on else Look.WAIT

    def pause(self, now: float) -> float:
        """Seconds until the keeper looks again."""
        until_due = self.validity.renew_at - now
        longest = self.validity.ttl / LOOKS_PER_TTL
        return min(until_due, longest) if until_due > 0 else self.validity.retry_delay


def holder_renews_at(validity: LeaseValidity, *, is_kept: bool) -> float:
    """When a holder renews by itself. One that has a keeper leaves it the first try, and two are left behind that."""
    return validity.renew_at + (validity.ttl / 15 if is_kept else 0.0)
