"""R21: the leader compacts etcd by time and by revisions, watches the quota, and defragments where much is free."""

from __future__ import annotations

import logging
import math
from collections import deque
from dataclasses import dataclass

from runtime.common.clock import Clock
from runtime.common.errors import StorageExhaustedError
from runtime.highavailability.kv.key_value_store import KeyValueStore, StoreStatus

logger = logging.getLogger(__name__)

LOOK_PERIOD = 10.0
COMPACTION_PERIOD = 60.0
HISTORY_SECONDS = 300.0
HISTORY_REVISIONS = 5_000
"""With small jobs a revision takes about 6 KB until it is compacted; a busy cluster makes 60 000 in five minutes."""
QUOTA_FRACTION = 0.8
_DEFRAGMENT_TIMEOUT = 60.0
_DEFRAGMENT_PAUSE = 600.0
"""Seconds between two defragmentations: etcd answers nothing while it rewrites its file."""
_IDLE_REVISIONS = 120
_WASTED_BYTES = 32 * 1024**2
_QUICK_BYTES = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class CompactionStatus:
    """Findings and actions of the last activation."""

    revision: int
    compacted_to: int
    size_bytes: int
    quota_bytes: int
    has_defragmented: bool

    @property
    def is_full(self) -> bool:
        """True from 80 % of the quota on: no new jobs until it shrinks."""
        return self.size_bytes >= self.quota_bytes * QUOTA_FRACTION


class Compactor:
    """A reconciler: drive it with `runtime.aio.periodic.Reconciler(..., period=LOOK_PERIOD)`.

    `defragments_when_idle`: for the embedded etcd, whose file no operator looks after.
    """

    def __init__(self, kv: KeyValueStore, clock: Clock, *, timeout: float, defragments_when_idle: bool = False) -> None:
        self._kv = kv
        self._clock = clock
        self._timeout = timeout
        self._seen: deque[tuple[float, int]] = deque()
        self._defragments_when_idle = defragments_when_idle
        self._compacted_to = 0
        self._compacted_at = -math.inf
        self._status: StoreStatus | None = None
        self.looked_millis = 0
        """When `status` was told, since 1970."""
        self._defragmented_at = -math.inf

    async def activate(self) -> CompactionStatus:
        """Compact history that is too old or too long, and defragment when it is worth it. Idempotent."""
        now = self._clock.monotonic()
        status = await self._kv.status(timeout=self._timeout)
        self._seen.append((now, status.revision))
        while len(self._seen) > 1 and self._seen[1][0] <= now - HISTORY_SECONDS:
            self._seen.popleft()
        target = self._target(now, status.revision)
        if target > self._compacted_to:
            await self._kv.compact(target, timeout=self._timeout)
            self._compacted_to, self._compacted_at = target, now
        has_defragmented = await self._defragment_if_worth(status)
        self._status = await self._kv.status(timeout=self._timeout) if has_defragmented else status
        self.looked_millis = self._clock.epoch_millis()
        if has_defragmented:
            logger.info("etcd's file has shrunk from %d to %d bytes", status.size_bytes, self._status.size_bytes)
        return CompactionStatus(
            status.revision, self._compacted_to, self._status.size_bytes, status.quota_bytes, has_defragmented
        )

    @property
    def status(self) -> StoreStatus | None:
        """As of the last activation that the store has answered, None before."""
        return self._status

    def _target(self, now: float, current: int) -> int:
        """The revision to compact to. Each minute: the one of five minutes ago. Earlier when there are too many.

        A follower that falls behind lists its prefix again.
        """
        seen_at, revision = self._seen[0]
        is_due = seen_at <= now - HISTORY_SECONDS and now >= self._compacted_at + COMPACTION_PERIOD
        target = revision if is_due else 0
        if current - max(target, self._compacted_to) > 2 * HISTORY_REVISIONS:
            target = current - HISTORY_REVISIONS
        return target

    def check_capacity(self) -> None:
        """Called before a submit. Raises StorageExhaustedError from 80 % of the quota on."""
        status = self._status
        if status is not None and _is_full(status):
            message = f"the store holds {status.size_bytes} of {status.quota_bytes} bytes: no new jobs until it shrinks"
            raise StorageExhaustedError(message)

    async def _defragment_if_worth(self, status: StoreStatus) -> bool:
        """Defragment when it gains enough: etcd's file never shrinks by itself, and the quota counts the file."""
        now = self._clock.monotonic()
        if now < self._defragmented_at + _DEFRAGMENT_PAUSE:
            return False
        is_data = status.used_bytes >= status.quota_bytes * QUOTA_FRACTION
        if _is_full(status) and not is_data:  # submits are possible afterwards
            logger.warning(
                "etcd's file is at %s of %s bytes with %s in use: defragmenting it",
                status.size_bytes,
                status.quota_bytes,
                status.used_bytes,
            )
        elif not (self._defragments_when_idle and self._is_idle(now, status.revision) and _is_hollow(status)):
            return False
        await self._kv.defragment(timeout=_DEFRAGMENT_TIMEOUT)
        self._defragmented_at = now
        return True

    def _is_idle(self, now: float, current: int) -> bool:
        """True when hardly a revision was made in the last minute."""
        before = [revision for at, revision in self._seen if at <= now - COMPACTION_PERIOD]
        return bool(before) and current - before[-1] <= _IDLE_REVISIONS


def _is_hollow(status: StoreStatus) -> bool:
    """True when a defragmentation frees much and takes little time: etcd copies the used bytes, and answers nothing."""
    wasted = status.size_bytes - status.used_bytes
    return wasted >= _WASTED_BYTES and status.used_bytes <= min(_QUICK_BYTES, wasted)


def _is_full(status: StoreStatus) -> bool:
    return status.size_bytes >= status.quota_bytes * QUOTA_FRACTION
