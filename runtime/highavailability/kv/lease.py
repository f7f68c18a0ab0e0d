"""One lease of this process, kept alive; valid only by the local deadline (R4).

Where the process has a keeper (R40), the keeper renews the lease, and the process only when the keeper is late or has
ended.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from runtime.common.clock import Clock
from runtime.common.errors import RetryableError
from runtime.highavailability.kv.core.keeping import TURNS_PER_TTL, holder_renews_at
from runtime.highavailability.kv.core.lease import LeaseValidity
from runtime.highavailability.kv.keeper import NO_KEEPER, HeldLease, LeaseKeeper
from runtime.highavailability.kv.key_value_store import KeyValueStore

logger = logging.getLogger(__name__)

REVOKE_TIMEOUT = 1.0
_TIMER_SLACK = 0.001
"""Seconds by which a timer may be early."""


class LeaseLostError(RetryableError):
    """The lease has ended, or may have: the role that rests on it is over."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """`ttl` in whole seconds, as etcd has it; `timeout` of one request. `keeper` renews for this process (R40)."""

    ttl: int
    timeout: float
    keeper: LeaseKeeper = NO_KEEPER


class Lease:
    """One lease. Made by `grant`; `keep_alive` must run for as long as it is needed."""

    def __init__(self, kv: KeyValueStore, clock: Clock, settings: LeaseSettings, lease: int, granted_at: float) -> None:
        self._kv = kv
        self._clock = clock
        self._settings = settings
        self._keeper = settings.keeper
        self._validity = LeaseValidity(granted_at, settings.ttl)
        self._is_ended = False
        self._is_revoked = False
        self.id = lease

    @classmethod
    async def grant(cls, kv: KeyValueStore, clock: Clock, settings: LeaseSettings) -> Lease:
        """A new lease. Its validity counts from the send time of the request (R4)."""
        sent_at = clock.monotonic()
        lease = await kv.grant_lease(settings.ttl, timeout=settings.timeout)
        return cls(kv, clock, settings, lease, sent_at)

    @property
    def is_valid(self) -> bool:
        """True while the process may act. Right even in the first instant after a freeze, before any task has run."""
        self._hear_keeper()
        return not self._is_ended and self._validity.is_valid(self._clock.monotonic())

    def check(self) -> None:
        """Raises LeaseLostError unless valid."""
        if not self.is_valid:
            message = f"lease {self.id:x} has ended" if self._is_ended else f"lease {self.id:x} has lapsed"
            raise LeaseLostError(message)

    async def keep_alive(self) -> None:
        """Renew until the lease is lost: never returns, raises LeaseLostError."""
        try_at = self._renew_at()
        while True:
            self._show_turn()
            # Never past the deadline: the work that rests on the lease must stop then, not at the next try.
            await asyncio.sleep(max(0.0, min(self._until_look(try_at), self._remaining())))
            known = self._validity
            self.check()
            if self._validity is not known:
                try_at = self._renew_at()
            now = self._clock.monotonic()
            if now >= try_at - _TIMER_SLACK:
                is_renewed = await self._renew()
                try_at = self._renew_at() if is_renewed else self._clock.monotonic() + self._validity.retry_delay

    def _renew_at(self) -> float:
        return holder_renews_at(self._validity, is_kept=self._keeper.is_there)

    def _remaining(self) -> float:
        return self._validity.remaining(self._clock.monotonic())

    def _until_look(self, try_at: float) -> float:
        pause = try_at - self._clock.monotonic()
        return min(pause, self._settings.ttl / TURNS_PER_TTL) if self._keeper.is_there else pause

    def _show_turn(self) -> None:
        """R40: the keeper renews for a loop that turns."""
        now = self._clock.monotonic()
        self._keeper.keep(HeldLease(self.id, self._validity.sent_at, self._validity.ttl, now))

    def _hear_keeper(self) -> None:
        kept = self._keeper.kept(self.id)
        if kept is None:
            return
        if kept.has_ended:
            self._is_ended = True
        else:
            self._validity = self._validity.acknowledged(kept.sent_at, kept.ttl)

    async def _renew(self) -> bool:
        sent_at = self._clock.monotonic()
        validity = self._validity
        timeout = min(self._settings.timeout, validity.try_timeout, validity.remaining(sent_at))
        try:
            ttl = await self._kv.keep_lease_alive(self.id, timeout=timeout)
        except RetryableError as error:
            logger.info("lease %x was not renewed: %s", self.id, error)
            self.check()
            return False
        if ttl == 0:
            self._is_ended = True
        else:
            # Counted from the send time: a freeze since then does not extend the validity.
            self._validity = self._validity.acknowledged(sent_at, min(ttl, self._settings.ttl))
        self.check()
        return True

    async def revoke(self) -> bool:
        """End the lease now. False if the store cannot be reached: then the lease lapses. Idempotent."""
        self._is_ended = True
        self._keeper.release(self.id)
        if self._is_revoked:
            return True
        try:
            await self._kv.revoke_lease(self.id, timeout=REVOKE_TIMEOUT)
        except RetryableError as error:
            logger.info("lease %x could not be revoked, it lapses: %s", self.id, error)
        else:
            self._is_revoked = True
        return self._is_revoked
