"""StoreMark: the store's last known revision, kept in the storage directory (R35).

A start compares it with etcd, and finds out when etcd was restored from a snapshot.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from typing import Protocol

from pydantic import TypeAdapter, ValidationError

from runtime.common.ids import ClusterUuid
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import KeyValueStore, StoreRestoredError

logger = logging.getLogger(__name__)


class MarkFile(Protocol):
    """`runtime.blob.mark_file.MarkFile`."""

    async def read(self) -> bytes | None:
        """The content, None when there is no file."""

    async def write(self, data: bytes, /) -> None:
        """Durable when it returns."""


@dataclass(frozen=True, slots=True)
class Mark:
    """`store_id`: etcd's own cluster id. `revision`: the store's at that time."""

    cluster: ClusterUuid
    store_id: str
    revision: int


_MARK = TypeAdapter(Mark)


class StoreMark:
    """The mark of one cluster. A JobManager calls `check` at its start, and the leader `note` every minute."""

    def __init__(self, kv: KeyValueStore, keys: Keys, cluster: ClusterUuid, file: MarkFile, *, timeout: float) -> None:
        self._kv = kv
        self._keys = keys
        self._cluster = cluster
        self._file = file
        self._timeout = timeout
        self._noted: Mark | None = None

    async def check(self) -> None:
        """Raises StoreRestoredError when the store is another one, or has a lower revision than the mark."""
        data = await self._file.read()
        if data is None:
            return
        try:
            mark = _MARK.validate_json(data)
        except ValidationError as error:
            message = "the mark of etcd in the storage cannot be read"  # R31
            raise StoreRestoredError(message) from error
        now = await self._now()
        if mark.cluster != now.cluster:
            logger.warning("the storage was used by cluster %s, this is %s", mark.cluster, now.cluster)
        elif mark.store_id != now.store_id:
            message = f"etcd was cluster {mark.store_id}, and is cluster {now.store_id} now"
            raise StoreRestoredError(message)
        elif now.revision < mark.revision:
            message = f"etcd was at revision {mark.revision}, and is at {now.revision} now"
            raise StoreRestoredError(message)

    async def note(self) -> Mark:
        """Write the store's present revision into the mark. Idempotent."""
        now = await self._now()
        if now != self._noted:
            await self._file.write(json.dumps(asdict(now)).encode())
            self._noted = now
        return now

    async def _now(self) -> Mark:
        status = await self._kv.status(timeout=self._timeout)
        state = await self._kv.prefix_state(self._keys.cluster, timeout=self._timeout)
        return Mark(self._cluster, status.store_id, state.revision)
