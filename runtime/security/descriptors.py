"""The share of a process's descriptors that its clients may take (R39, R41)."""

from __future__ import annotations

import resource

_PORTS_SHARE = 4
"""A process has two ports, REST's and gRPC's. Half of the descriptors is left for etcd and files during a flood."""


def connections_of_one_port(most: int) -> int:
    """A quarter of the descriptors that this process may have, at most `most`."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else min(most, soft // _PORTS_SHARE)
