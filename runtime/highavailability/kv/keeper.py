"""Holder and keeper of a lease (R40): the records that they exchange through shared memory, and the keeper's loop.

Each of the two writes one record and reads the other's latest one. The holder reads the keeper's record whenever it
asks whether its lease is valid, so the answer is right even in the first instant after the holder's loop stood still.
Times are of CLOCK_BOOTTIME, which all processes of a host share.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from zlib import crc32

from runtime.common.clock import Clock
from runtime.common.errors import RetryableError
from runtime.highavailability.kv.core.keeping import LOOKS_PER_TTL, Held, Look
from runtime.highavailability.kv.core.lease import LeaseValidity
from runtime.highavailability.kv.key_value_store import KeyValueStore

logger = logging.getLogger(__name__)

_HELD = struct.Struct("<qddd")
_KEPT = struct.Struct("<qdd?")
_KEPT_OFFSET = 256
_CHECKSUM_BYTES = 4


@dataclass(frozen=True, slots=True)
class HeldLease:
    """The holder's record: the lease to keep, its last renewal by the holder, and when the holder's loop has turned.

    Lease 0: there is none to keep.
    """

    lease: int
    sent_at: float
    ttl: float
    turned_at: float


@dataclass(frozen=True, slots=True)
class KeptLease:
    """The keeper's record: its renewal, sent at `sent_at`, was acknowledged for `ttl`; or etcd has ended the lease."""

    lease: int
    sent_at: float
    ttl: float
    has_ended: bool


class LeaseKeeper(Protocol):
    """The holder's interface to its keeper. One lease at a time."""

    @property
    def is_there(self) -> bool:
        """False when there is no keeper: the holder renews by itself as soon as a renewal is due."""

    def keep(self, held: HeldLease) -> None:
        """Renew this lease from now on. A repeated call shows that the holder's loop turns."""

    def kept(self, lease: int) -> KeptLease | None:
        """The keeper's latest record of that lease, None when there is none."""

    def release(self, lease: int) -> None:
        """Stop renewing that lease. Idempotent."""


class NoKeeper:
    """`LeaseKeeper` of a process that renews by itself."""

    is_there = False

    def keep(self, held: HeldLease) -> None:
        """No effect."""

    def kept(self, _lease: int) -> None:
        """Always None."""
        return

    def release(self, _lease: int) -> None:
        """No effect."""


NO_KEEPER = NoKeeper()


class _Record:
    """One record in shared memory: one process writes it, another one reads the latest whole one.

    When the latest one is only half written, because its writer writes or has died, a reader gets the one before.
    """

    def __init__(self, page: mmap.mmap, offset: int, layout: struct.Struct) -> None:
        self._page = page
        self._layout = layout
        self._bytes = slice(offset, offset + layout.size + _CHECKSUM_BYTES)
        self._raw = b""
        self._latest: tuple[int | float | bool, ...] | None = None

    def write(self, *values: float) -> None:
        body = self._layout.pack(*values)
        self._page[self._bytes] = body + crc32(body).to_bytes(_CHECKSUM_BYTES, "little")

    def read(self) -> tuple[int | float | bool, ...] | None:
        raw = self._page[self._bytes]
        if raw != self._raw:
            body = raw[:-_CHECKSUM_BYTES]
            if crc32(body).to_bytes(_CHECKSUM_BYTES, "little") == raw[-_CHECKSUM_BYTES:]:
                self._raw, self._latest = raw, self._layout.unpack(body)
        return self._latest


class SharedLease:
    """The memory between a holder and its keeper. Made before the keeper is forked."""

    def __init__(self) -> None:
        page = mmap.mmap(-1, mmap.PAGESIZE)
        self._held = _Record(page, 0, _HELD)
        self._kept = _Record(page, _KEPT_OFFSET, _KEPT)

    def say_held(self, held: HeldLease) -> None:
        """By the holder."""
        self._held.write(held.lease, held.sent_at, held.ttl, held.turned_at)

    def say_kept(self, kept: KeptLease) -> None:
        """By the keeper."""
        self._kept.write(kept.lease, kept.sent_at, kept.ttl, kept.has_ended)

    def held(self) -> HeldLease | None:
        """The holder's latest word; None: it has said nothing, or that no lease is to be kept."""
        found = self._held.read()
        if found is None or not found[0]:
            return None
        return HeldLease(int(found[0]), found[1], found[2], found[3])

    def kept(self) -> KeptLease | None:
        """The keeper's latest word."""
        found = self._kept.read()
        return None if found is None else KeptLease(int(found[0]), found[1], found[2], bool(found[3]))


class Keeping:
    """The keeper's own work, until it is cancelled. `is_stopped`: does the system run the holder no more?"""

    def __init__(
        self,
        shared: SharedLease,
        kv: KeyValueStore,
        clock: Clock,
        *,
        ttl: float,
        timeout: float,
        is_stopped: Callable[[], bool],
    ) -> None:
        self._shared = shared
        self._kv = kv
        self._clock = clock
        self._idle_pause = ttl / LOOKS_PER_TTL
        self._timeout = timeout
        self._is_stopped = is_stopped
        self._ended = 0

    async def run(self) -> None:
        """Renew what is held. Eternal; raises what is not retryable."""
        while True:  # noqa: ASYNC110 - what it looks at is memory that another process writes
            await asyncio.sleep(await self._look())

    async def _look(self) -> float:
        """Do what is due; seconds until the next look."""
        said = self._shared.held()
        if said is None or said.lease == self._ended:
            return self._idle_pause
        held = self._as_known(said)
        if held.look(self._clock.monotonic()) is Look.RENEW:
            await self._renew(said.lease, held.validity)
            held = self._as_known(said)
        return held.pause(self._clock.monotonic())

    def _as_known(self, said: HeldLease) -> Held:
        """By the later of the two: what its holder has renewed, and what we have."""
        validity = LeaseValidity(said.sent_at, said.ttl)
        kept = self._shared.kept()
        if kept is not None and kept.lease == said.lease and not kept.has_ended:
            validity = validity.acknowledged(kept.sent_at, kept.ttl)
        return Held(validity, said.turned_at, self._is_stopped())

    async def _renew(self, lease: int, validity: LeaseValidity) -> None:
        sent_at = self._clock.monotonic()
        timeout = min(self._timeout, validity.try_timeout, validity.remaining(sent_at))
        try:
            ttl = await self._kv.keep_lease_alive(lease, timeout=timeout)
        except RetryableError as error:
            # Its holder finds its lease late, renews by itself, and tells of its own failures.
            logger.debug("lease %x was not renewed: %s", lease, error)
            return
        if ttl == 0:
            self._ended = lease
        # It counts from the send time (R4).
        self._shared.say_kept(KeptLease(lease, sent_at, min(ttl, validity.ttl), has_ended=ttl == 0))
