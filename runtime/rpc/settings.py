"""Limits and timings of the transports. Defaults are those of the configuration's catalogue where it has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from runtime.common.ids import Incarnation
from runtime.common.watched import Watched
from runtime.rpc.core.strangers import StrangerLimits
from runtime.security.descriptors import connections_of_one_port
from runtime.security.tokens import Token

if TYPE_CHECKING:
    from runtime.security.tls_files import TlsMaterial

CONNECTIONS_MAX = 100_000
KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RpcLimits:
    """Bounds of one stream and of one message, the same on both ends.

    Loopback and 10 Gbit/s carry a frame of 1 MiB in about a millisecond; more than 1000 messages per frame gain nothing
    more. At the inbox bound a slow receiver begins to slow down its peer.
    """

    message_size_max: int = 4 * MIB
    frame_messages_max: int = 1000
    frame_size_max: int = 1 * MIB
    outbox_messages_max: int = 100_000
    outbox_size_max: int = 64 * MIB
    inbox_messages_max: int = 10_000
    inbox_size_max: int = 64 * MIB
    close_timeout: float = 1.0

    @property
    def frame_encoded_size_max(self) -> int:
        """The largest frame on the wire: one message above the frame size still travels, alone."""
        return max(self.message_size_max, self.frame_size_max) + 16 * self.frame_messages_max + 64 * KIB


@dataclass(frozen=True, slots=True)
class RpcSettings:
    """Network settings of a process. `port` 0 picks a free one; `credential` None: no authentication.

    `former`: the cluster's token, which is sent and accepted too while processes of an earlier release run.

    `connections_max`: concurrent connections, including those of strangers until they are cut off (R39).

    `tls` None: plain text (R46).

    `address` is the host that others dial, `bind_host` where this process listens.
    """

    incarnation: Incarnation
    credential: Token | None
    address: str = "127.0.0.1"
    bind_host: str = "127.0.0.1"
    port: int = 0
    limits: RpcLimits = field(default_factory=RpcLimits)
    strangers: StrangerLimits = field(default_factory=StrangerLimits)
    connections_max: int = field(default_factory=partial(connections_of_one_port, CONNECTIONS_MAX))
    tls: Watched[TlsMaterial] | None = None
    former: Token | None = None
    connect_timeout: float = 5.0
    keepalive_interval: float = 10.0
    keepalive_timeout: float = 10.0
