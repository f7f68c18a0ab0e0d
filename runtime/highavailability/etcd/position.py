"""The store's highest revision that this process has seen (R35). A lower one later proves that data is lost."""

from __future__ import annotations

from runtime.highavailability.etcd.generated import flinklike_etcdpb_pb2 as pb
from runtime.highavailability.kv.key_value_store import StoreRestoredError


class Position:
    """The position of one driver. Only linearizable answers count: the status of a member may be old."""

    def __init__(self) -> None:
        self._store_id = ""
        self._revision = 0
        self._went_back = ""

    def check(self) -> None:
        """Raises StoreRestoredError, from the first answer on that had a lower revision or another store id."""
        if self._went_back:
            raise StoreRestoredError(self._went_back)

    @property
    def revision(self) -> int:
        """The revision that the answer to a request sent now must have reached."""
        return self._revision

    def note(self, header: pb.ResponseHeader, at_least: int) -> None:
        """Take in an answer. `at_least`: the revision known when it was asked for, as answers may overtake each other.

        Raises StoreRestoredError.
        """
        store_id = store_id_of(header)
        if self._store_id and store_id != self._store_id:
            self._went_back = f"etcd was cluster {self._store_id}, and is cluster {store_id} now"
        elif header.revision < at_least:
            self._went_back = f"etcd was at revision {at_least}, and is at {header.revision} now"
        self.check()
        self._store_id = store_id
        self._revision = max(self._revision, header.revision)


def store_id_of(header: pb.ResponseHeader) -> str:
    """etcd's cluster id, in etcdctl's form."""
    return f"{header.cluster_id:x}"
