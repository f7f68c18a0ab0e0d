"""One lease of this process, kept alive; valid only by the local deadline (R4)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from runtime.common.clock import Clock
from runtime.common.errors import RetryableError
from runtime.highavailability.core.lease import LeaseValidity
from runtime.highavailability.kv import KeyValueStore

logger = logging.getLogger(__name__)

REVOKE_TIMEOUT = 1.0


class LeaseLostError(RetryableError):
    """The lease has ended, or may have: whatever rests on it is over."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """`ttl` in whole seconds, as etcd has it; `timeout` of one request."""

    ttl: int
    timeout: float


class Lease:
    """One lease. Made by `grant`; `keep_alive` must run for as long as it is needed."""

    def __init__(self, kv: KeyValueStore, clock: Clock, settings: LeaseSettings, lease: int, granted_at: float) -> None:
        self._kv = kv
        self._clock = clock
        self._settings = settings
        self._validity = LeaseValidity(granted_at, settings.ttl)
        self._is_ended = False
        self._is_revoked = False
        self.id = lease

    @classmethod
    async def grant(cls, kv: KeyValueStore, clock: Clock, settings: LeaseSettings) -> Lease:
        """A new lease, counted from before it was asked for."""
        sent_at = clock.monotonic()
        lease = await kv.grant_lease(settings.ttl, timeout=settings.timeout)
        return cls(kv, clock, settings, lease, sent_at)

    @property
    def is_valid(self) -> bool:
        """May we act? Right also in the first instant after a freeze, before any task has run."""
        return not self._is_ended and self._validity.is_valid(self._clock.monotonic())

    def check(self) -> None:
        """Raises LeaseLostError unless valid."""
        if not self.is_valid:
            message = f"lease {self.id:x} has lapsed"
            raise LeaseLostError(message)

    async def keep_alive(self) -> None:
        """Renew until the lease is lost: never returns, raises LeaseLostError."""
        pause = self._until_renewal()
        while True:
            # Never past the deadline: who rests on the lease must be stopped at it, not at the next try.
            await asyncio.sleep(max(0.0, min(pause, self._validity.remaining(self._clock.monotonic()))))
            pause = self._until_renewal() if await self._renew() else self._validity.retry_delay

    def _until_renewal(self) -> float:
        return max(0.0, self._validity.renew_at - self._clock.monotonic())

    async def _renew(self) -> bool:
        self.check()
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
            message = f"lease {self.id:x} is gone"
            raise LeaseLostError(message)
        # A freeze between asking and now does not make it longer: it counts from the send time.
        self._validity = self._validity.acknowledged(sent_at, min(ttl, self._settings.ttl))
        self.check()
        return True

    async def revoke(self) -> bool:
        """End it now. False if the store cannot be reached: it ends by itself. Idempotent."""
        self._is_ended = True
        if self._is_revoked:
            return True
        try:
            await self._kv.revoke_lease(self.id, timeout=REVOKE_TIMEOUT)
        except RetryableError as error:
            logger.info("lease %x could not be revoked, it lapses: %s", self.id, error)
        else:
            self._is_revoked = True
        return self._is_revoked
