"""What processes of a cluster show each other: a credential that neither a client nor a job is given (R48).

Derived from the cluster's key, which every process has; or of a file of its own, where it is to change while they run.
"""

from __future__ import annotations

from runtime.security.cluster_key import ClusterKey
from runtime.security.tokens import ClusterToken

_PURPOSE = "links between processes"


def derived_credential(key: ClusterKey) -> ClusterToken:
    """The same in each process that has the key."""
    return ClusterToken(key.derived(_PURPOSE).hex())
