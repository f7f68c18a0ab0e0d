"""How many of the descriptors of a process those take who dial it (R39, R41)."""

from __future__ import annotations

import resource

_PORTS_SHARE = 4
"""Of two ports, REST's and that of the links: so half of the descriptors is left for etcd and files, whoever floods."""


def connections_of_one_port(most: int) -> int:
    """A quarter of what this process may have, and no more than `most`."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else min(most, soft // _PORTS_SHARE)
