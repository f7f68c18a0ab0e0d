"""The arithmetic of leases (R4): until when a process may act, and when it renews.

etcd counts a lease from the moment it receives a renewal, the process from the moment it sent the renewal. So the
deadline of the process is never later than etcd's.
"""

from __future__ import annotations

from dataclasses import dataclass

CLOCK_MARGIN = 0.01
"""Fraction of the ttl by which two clocks may run apart."""


@dataclass(frozen=True, slots=True)
class LeaseValidity:
    """Deadlines that follow from the last acknowledged renewal, which was sent at `sent_at`. Times are seconds."""

    sent_at: float
    ttl: float

    @property
    def valid_until(self) -> float:
        """From this moment on the lease may have ended, and the process must not act."""
        return self.sent_at + self.ttl * (1 - CLOCK_MARGIN)

    @property
    def renew_at(self) -> float:
        """A third of the ttl: two renewals may be lost, also by members that hang, before the lease lapses."""
        return self.sent_at + self.ttl / 3

    @property
    def try_timeout(self) -> float:
        """Bound of one try. 1/3 + 2 * (1/4 + 1/20) of the ttl leaves time for a third, at another endpoint."""
        return self.ttl / 4

    @property
    def retry_delay(self) -> float:
        """Pause after a renewal that failed."""
        return self.ttl / 20

    def is_valid(self, now: float) -> bool:
        """True while the process may act."""
        return now < self.valid_until

    def remaining(self, now: float) -> float:
        """Seconds for which the process may act; negative after the lease has lapsed."""
        return self.valid_until - now

    def acknowledged(self, sent_at: float, ttl: float) -> LeaseValidity:
        """The validity after an acknowledged renewal. Answers may overtake each other: the latest send time counts."""
        return LeaseValidity(sent_at, ttl) if sent_at > self.sent_at else self
