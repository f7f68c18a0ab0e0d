"""The credential of links between processes, which clients and jobs never get (R48).

It is derived from the cluster's key, which every process has, or read from a file, which may change while they run.
"""

from __future__ import annotations

from runtime.security.cluster_key import ClusterKey
from runtime.security.tokens import ClusterToken

_PURPOSE = "links between processes"


def derived_credential(key: ClusterKey) -> ClusterToken:
    """The credential, the same in all processes with this key."""
    return ClusterToken(key.derived(_PURPOSE).hex())
