"""How far this process has seen the store (R35). One that goes back was restored, or has lost data."""

from __future__ import annotations

from runtime.highavailability.etcd.generated import flinklike_etcdpb_pb2 as pb
from runtime.highavailability.kv.key_value_store import StoreRestoredError


class Position:
    """Of one driver. Linearizable answers only: what a member says of itself may be old."""

    def __init__(self) -> None:
        self._store_id = ""
        self._revision = 0
        self._went_back = ""

    def check(self) -> None:
        """Raises StoreRestoredError, from the moment on at which it was seen."""
        if self._went_back:
            raise StoreRestoredError(self._went_back)

    @property
    def revision(self) -> int:
        """What an answer to a question that is asked now must have reached."""
        return self._revision

    def note(self, header: pb.ResponseHeader, at_least: int) -> None:
        """An answer. Answers may overtake each other: each is held to what was known when it was asked for."""
        store_id = store_id_of(header)
        if self._store_id and store_id != self._store_id:
            self._went_back = f"etcd was cluster {self._store_id}, and is cluster {store_id} now"
        elif header.revision < at_least:
            self._went_back = f"etcd was at revision {at_least}, and is at {header.revision} now"
        self.check()
        self._store_id = store_id
        self._revision = max(self._revision, header.revision)


def store_id_of(header: pb.ResponseHeader) -> str:
    """As etcdctl shows it."""
    return f"{header.cluster_id:x}"
