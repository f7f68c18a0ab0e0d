"""R21: the leader compacts every minute to the revision of five minutes ago, and watches the quota."""

from __future__ import annotations

import logging
import math
from collections import deque
from dataclasses import dataclass

from runtime.common.clock import Clock
from runtime.common.errors import StorageExhaustedError
from runtime.highavailability.kv import KeyValueStore, StoreStatus

logger = logging.getLogger(__name__)

COMPACTION_PERIOD = 60.0
HISTORY_SECONDS = 300.0
QUOTA_FRACTION = 0.8
_DEFRAGMENT_TIMEOUT = 60.0
_DEFRAGMENT_PAUSE = 600.0
"""Seconds between two defragmentations: etcd answers nothing while it rewrites its file."""


@dataclass(frozen=True, slots=True)
class CompactionStatus:
    """What the last activation found and did."""

    revision: int
    compacted_to: int
    size_bytes: int
    quota_bytes: int
    has_defragmented: bool


class Compactor:
    """A reconciler: drive it with `runtime.aio.periodic.Reconciler(..., period=COMPACTION_PERIOD)`."""

    def __init__(self, kv: KeyValueStore, clock: Clock, *, timeout: float) -> None:
        self._kv = kv
        self._clock = clock
        self._timeout = timeout
        self._seen: deque[tuple[float, int]] = deque()
        self._compacted_to = 0
        self._status: StoreStatus | None = None
        self._defragmented_at = -math.inf

    async def activate(self) -> CompactionStatus:
        """Compact what is old enough. Idempotent."""
        now = self._clock.monotonic()
        status = await self._kv.status(timeout=self._timeout)
        self._seen.append((now, status.revision))
        while len(self._seen) > 1 and self._seen[1][0] <= now - HISTORY_SECONDS:
            self._seen.popleft()
        seen_at, revision = self._seen[0]
        if seen_at <= now - HISTORY_SECONDS and revision > self._compacted_to:
            await self._kv.compact(revision, timeout=self._timeout)
            self._compacted_to = revision
        has_defragmented = await self._defragment_if_worth(status)
        self._status = await self._kv.status(timeout=self._timeout) if has_defragmented else status
        return CompactionStatus(
            status.revision, self._compacted_to, self._status.size_bytes, status.quota_bytes, has_defragmented
        )

    def check_capacity(self) -> None:
        """Called before a submit. Raises StorageExhaustedError from 80 % of the quota on."""
        status = self._status
        if status is not None and _is_full(status):
            message = f"the store holds {status.size_bytes} of {status.quota_bytes} bytes: no new jobs until it shrinks"
            raise StorageExhaustedError(message)

    async def _defragment_if_worth(self, status: StoreStatus) -> bool:
        """The quota counts the file, which never shrinks by itself: worth it when submits are possible afterwards."""
        now = self._clock.monotonic()
        is_data = status.used_bytes >= status.quota_bytes * QUOTA_FRACTION
        if not _is_full(status) or is_data or now < self._defragmented_at + _DEFRAGMENT_PAUSE:
            return False
        logger.warning(
            "etcd's file is at %s of %s bytes with %s in use: defragmenting it",
            status.size_bytes,
            status.quota_bytes,
            status.used_bytes,
        )
        await self._kv.defragment(timeout=_DEFRAGMENT_TIMEOUT)
        self._defragmented_at = now
        return True


def _is_full(status: StoreStatus) -> bool:
    return status.size_bytes >= status.quota_bytes * QUOTA_FRACTION
