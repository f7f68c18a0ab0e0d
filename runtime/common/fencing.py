"""Fencing tokens (R1): a term of leadership or ownership, as an etcd revision of one cluster.

Ordered within one cluster, never random; a condition of writes, and part of every call. A new term builds new objects;
a token is never changed in place.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.errors import StaleTokenError
from runtime.common.ids import ClusterUuid


@dataclass(frozen=True, slots=True)
class FencingToken:
    """Term `revision` of cluster `cluster`."""

    cluster: ClusterUuid
    revision: int


class HighestToken:
    """Remembers the highest token that a role or a job was addressed with, and refuses lower ones (R1)."""

    __slots__ = ("_cluster", "_highest", "_role")

    def __init__(self, role: str, cluster: ClusterUuid) -> None:
        self._role = role
        self._cluster = cluster
        self._highest = 0

    @property
    def revision(self) -> int:
        """The highest revision accepted so far, 0 before the first."""
        return self._highest

    def check(self, token: FencingToken) -> None:
        """Accept `token` and remember it. Raises StaleTokenError for a lower term or another cluster."""
        if token.cluster != self._cluster:
            message = f"order of {self._role} comes from cluster {token.cluster}, this is {self._cluster}"
            raise StaleTokenError(message)
        if token.revision < self._highest:
            message = (
                f"order of {self._role} at term {token.revision} refused: term {self._highest} has given orders already"
            )
            raise StaleTokenError(message)
        self._highest = token.revision
