"""Who is connected and has not shown the cluster's token: a stranger, who may stay for a while and say a little (R39).

The transport reads and decodes whatever arrives before anybody can ask for a token, and offers no bound for that. So
these bounds are about connections: bytes, time, refused calls, and how many there are at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Peer = tuple[str, int]
"""Address and port."""


@dataclass(frozen=True, slots=True)
class StrangerLimits:
    """`bytes_max` holds the largest headers, what fits into the first windows of HTTP/2, and a TLS handshake.

    Of too many, nobody has to go who has come less than `crowd_seconds` ago: it may be one of ours, on a busy machine.
    """

    seconds_max: float = 10.0
    bytes_max: int = 256 * 1024
    refusals_max: int = 10
    connections_max: int = 256
    connections_per_address_max: int = 16
    crowd_seconds: float = 0.5


@dataclass(frozen=True, slots=True)
class Connection:
    """As the system sees it. `number` is another one for each connection, also for two that follow on one port."""

    peer: Peer
    number: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class CutOff:
    """A connection that is to be ended, and why."""

    connection: Connection
    reason: str


@dataclass
class Strangers:
    """The connections of one port. Told of who shows the token and who does not, asked now and then who has to go."""

    limits: StrangerLimits = field(default_factory=StrangerLimits)
    count: int = 0
    """Strangers that could stay when they were last looked at."""
    _shown: set[Peer] = field(default_factory=set)
    _known: dict[Peer, int] = field(default_factory=dict)
    _refusals: Counter[Peer] = field(default_factory=Counter)
    _since: dict[int, float] = field(default_factory=dict)
    _cut_off: set[int] = field(default_factory=set)
    _talking: dict[int, Peer] = field(default_factory=dict)
    left: tuple[Peer, ...] = ()
    """Who has said something, and was gone at the last look without having shown the token."""

    def admit(self, peer: Peer) -> None:
        """It has shown the token: whatever it sends from now on is of no concern here.

        Told before the connections are listed that `look` is called with: who is not among them has ended.
        """
        self._shown.add(peer)

    def refuse(self, peer: Peer, calls: int) -> None:
        """So many more calls of it were refused for want of the token."""
        self._refusals[peer] += calls

    def is_known(self, peer: Peer, number: int) -> bool:
        """Was it admitted, as of the last look?"""
        return self._known.get(peer) == number

    def look(self, connections: Sequence[Connection], now: float) -> list[CutOff]:
        """Who has to go. `connections` are all that there are; what those that are known have sent does not matter."""
        shown, self._shown = self._shown, set()
        self._note_known({one.peer: one.number for one in connections}, shown)
        there = {one.number for one in connections}
        gone = {number: peer for number, peer in self._talking.items() if number not in there}
        self.left = tuple(peer for number, peer in gone.items() if number not in self._cut_off and peer not in shown)
        # Who was cut off is there until the transport has closed it, and is none of too many meanwhile.
        self._cut_off &= there
        strangers = [
            one for one in connections if not self.is_known(one.peer, one.number) and one.number not in self._cut_off
        ]
        self._since = {one.number: self._since.get(one.number, now) for one in strangers}
        # Of too many the oldest go, which had the most time in which to show the token.
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
        """A port that another connection has by now is a stranger's again."""
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
