"""Strangers: connections whose peer has not shown the cluster's token. They are bounded in time and bytes (R39).

The transport reads and decodes all data that arrives before the token can be checked, and offers no bound for that. So
the bounds are those of connections: bytes, time, refused calls, and their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Peer = tuple[str, int]
"""Address and port."""


@dataclass(frozen=True, slots=True)
class StrangerLimits:
    """`bytes_max` is enough for the largest headers, the first windows of HTTP/2 and a TLS handshake.

    When there are too many strangers, those younger than `crowd_seconds` stay: on a busy machine they may be processes
    of the cluster.
    """

    seconds_max: float = 10.0
    bytes_max: int = 256 * 1024
    refusals_max: int = 10
    connections_max: int = 256
    connections_per_address_max: int = 16
    crowd_seconds: float = 0.5


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection as the system sees it. `number` identifies it, also when a later one has the same peer."""

    peer: Peer
    number: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class CutOff:
    """A connection that is to be ended, with the reason."""

    connection: Connection
    reason: str


@dataclass
class Strangers:
    """The connections of one port: `admit` and `refuse` say who has shown the token, `look` says which are to end."""

    limits: StrangerLimits = field(default_factory=StrangerLimits)
    count: int = 0
    """Strangers that could stay at the last look."""
    _shown: set[Peer] = field(default_factory=set)
    _known: dict[Peer, int] = field(default_factory=dict)
    _refusals: Counter[Peer] = field(default_factory=Counter)
    _since: dict[int, float] = field(default_factory=dict)
    _cut_off: set[int] = field(default_factory=set)
    _talking: dict[int, Peer] = field(default_factory=dict)
    left: tuple[Peer, ...] = ()
    """Strangers that have sent data, and had ended by themselves at the last look."""

    def admit(self, peer: Peer) -> None:
        """The peer has shown the token: its connection is not bounded any more.

        Called before the connections for `look` are listed: a peer that is not among them has ended.
        """
        self._shown.add(peer)

    def refuse(self, peer: Peer, calls: int) -> None:
        """`calls` more calls of the peer were refused, because they had no token."""
        self._refusals[peer] += calls

    def is_known(self, peer: Peer, number: int) -> bool:
        """True when the connection was admitted at the last look or before."""
        return self._known.get(peer) == number

    def look(self, connections: Sequence[Connection], now: float) -> list[CutOff]:
        """The connections to end. `connections` are all present ones; `received_bytes` of admitted ones may be 0."""
        shown, self._shown = self._shown, set()
        self._note_known({one.peer: one.number for one in connections}, shown)
        there = {one.number for one in connections}
        ended = {number: peer for number, peer in self._talking.items() if number not in there}
        self.left = tuple(peer for number, peer in ended.items() if number not in self._cut_off and peer not in shown)
        # A connection that was cut off stays until the transport has closed it, and is not counted meanwhile.
        self._cut_off &= there
        strangers = [
            one for one in connections if not self.is_known(one.peer, one.number) and one.number not in self._cut_off
        ]
        self._since = {one.number: self._since.get(one.number, now) for one in strangers}
        # Of too many strangers the oldest end: they had the most time to show the token.
        self._talking = {one.number: one.peer for one in strangers if one.received_bytes}
        strangers.sort(key=lambda one: self._since[one.number], reverse=True)
        cut: list[CutOff] = []
        staying: Counter[str] = Counter()
        for one in strangers:
            has_had_time = now - self._since[one.number] >= self.limits.crowd_seconds
            reason = self._reason(one, now) or (self._crowd(staying, one.peer[0]) if has_had_time else "")
            if reason:
                cut.append(CutOff(one, reason))
            else:
                staying[one.peer[0]] += 1
        self._cut_off |= {one.connection.number for one in cut}
        self.count = staying.total()
        return cut

    def _note_known(self, there: Mapping[Peer, int], shown: set[Peer]) -> None:
        """Take in admitted peers. When another connection has the same peer by now, it is a stranger."""
        self._known = {peer: number for peer, number in self._known.items() if there.get(peer) == number}
        self._known |= {peer: there[peer] for peer in shown & there.keys()}
        for peer in [one for one in self._refusals if one not in there or one in self._known]:
            del self._refusals[peer]

    def _reason(self, one: Connection, now: float) -> str:
        limits = self.limits
        if self._refusals[one.peer] > limits.refusals_max:
            return f"more than {limits.refusals_max} calls"
        if one.received_bytes > limits.bytes_max:
            return f"{one.received_bytes} bytes"
        if now - self._since[one.number] > limits.seconds_max:
            return f"{limits.seconds_max:g} s"
        return ""

    def _crowd(self, staying: Counter[str], address: str) -> str:
        if staying[address] >= self.limits.connections_per_address_max:
            return f"{self.limits.connections_per_address_max} others of its address"
        if staying.total() >= self.limits.connections_max:
            return f"{self.limits.connections_max} others"
        return ""
