"""The network between simulated processes: links with delay, loss and partitions; requests, and ordered wires.

Every process is a host of its own, named as the process; an address is `host:port`. A link is one direction between two
hosts, with random numbers of its own. Two kinds of traffic: *requests* (one there, one back; each may be delayed,
lost, or held up by a partition and arrive long after the caller has given up), and *wires* (two lanes of items in
order, as TCP gives them: an item is late, or everything from it on is lost and the wire breaks).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from runtime.aio.entropy import SeededEntropy
from runtime.common.errors import ConflictError
from tests.kit.simulation.processes import Handle, Life, SimulatedLoop, SimulatedProcess

Reply = Callable[[object], None]
KEEPALIVE = 20.0
"""Seconds after which both ends of a wire give up a peer that does not even acknowledge pings."""

BREAK_LAG = 2.0
"""Seconds after which the other end of a wire that broke knows of it, at the latest."""

RESET = "connection reset by peer"
_TRANSIT_MAX = 16


class RefusedError(Exception):
    """Nobody listens there: the request was surely not executed."""


class ConnectionLostError(Exception):
    """The peer died with the request: nobody knows."""


@dataclass
class Weather:
    """How links behave now. Probabilities are per request or item; times in seconds.

    `spares_leases`: renewals of leases get through, as long as etcd is there. `broken_task_wire` is for the streams
    between TaskManagers and JobMasters, `broken_wire` for all others.
    """

    delay_low: float = 0.0002
    delay_high: float = 0.002
    slow: float = 0.0
    slow_max: float = 0.0
    lost_before: float = 0.0
    lost_after: float = 0.0
    broken_wire: float = 0.0
    broken_task_wire: float = 0.0
    duplicated: float = 0.0
    spares_leases: bool = True


CALM = Weather()

_FAILURES = (RefusedError, ConnectionLostError)


class Link:
    """One direction between two hosts."""

    def __init__(self, name: str, entropy: SeededEntropy, network: Network) -> None:
        self.name = name
        self._draw = entropy.uniform
        self._network = network
        self.blocked_since: float | None = None
        self._held: list[tuple[int, Callable[[], None]]] = []

    def chance(self, probability: float) -> bool:
        """Does it happen?"""
        return probability > 0 and self._draw(0, 1) < probability

    def delay(self, *, is_spared: bool = False) -> float:
        """Of the next item."""
        weather = CALM if is_spared else self._network.weather
        delay = self._draw(weather.delay_low, weather.delay_high)
        if weather.slow > 0 and self.chance(weather.slow):
            delay += self._draw(0, weather.slow_max)
        return delay

    def lag(self) -> float:
        """Until the other end of a broken wire notices."""
        return self.delay() + self._draw(0, BREAK_LAG)

    @property
    def is_open(self) -> bool:
        """Does what is sent now arrive by itself?"""
        return self.blocked_since is None and not self._held

    def hold(self, number: int, deliver: Callable[[], None]) -> None:
        """Keep something until the link is healed. `number`: the order in which things were sent."""
        self._held.append((number, deliver))

    def release(self) -> None:
        """What was held arrives now, in its order."""
        held, self._held = sorted(self._held, key=lambda one: one[0]), []
        for _, deliver in held:
            deliver()


@dataclass
class Listener:
    """What a process serves at one address."""

    process: SimulatedProcess
    on_request: Callable[[Any, Reply], None]
    on_dial: Callable[[Any, WireEnd], object] | None = None


class _Exchange:
    """One request on its way."""

    __slots__ = ("address", "answer", "host", "is_connection", "is_late", "is_renewal", "payload", "source", "timer")

    def __init__(self, source: SimulatedProcess, address: str, payload: Any, answer: asyncio.Future[Any]) -> None:
        self.source = source
        self.address = address
        self.host = address.rpartition(":")[0]
        self.payload = payload
        self.answer = answer
        self.is_connection = getattr(payload, "is_connection", False)
        self.is_renewal = getattr(payload, "is_renewal", False)
        self.is_late = False
        self.timer: Handle | None = None

    def give_up(self) -> None:
        """Its time is over, and whoever waits learns that next: an answer that came while it was frozen is too late."""
        self.is_late = True
        if not self.answer.done():
            self.answer.set_result(None)


class WireEnd:
    """One process's end of a wire. `on_item` is called in that process; None as item: the wire is over."""

    def __init__(self, network: Network, process: SimulatedProcess) -> None:
        self._network = network
        self.process = process
        self.peer: WireEnd = self
        self.is_over = False
        self.carries_tasks = False
        self.on_item: Callable[[object, str], None] | None = None
        self.on_room: Callable[[], None] | None = None
        self._early: deque[tuple[object, str]] = deque()
        self._last_arrival = 0.0
        self._transit = 0

    @property
    def has_room(self) -> bool:
        """May another item be sent? What is on its way is bounded, as by a window."""
        return self._transit < _TRANSIT_MAX

    def listen(self, on_item: Callable[[object, str], None]) -> None:
        """Take what arrives from now on, and what has."""
        self.on_item = on_item
        while self._early:
            on_item(*self._early.popleft())

    def send(self, item: object) -> None:
        """To the other end, in order."""
        if not self.is_over:
            self._transit += 1
            self._network.carry(self, item)

    def end(self) -> None:
        """Nothing more comes from here."""
        self.send(None)

    def give_up(self) -> None:
        """The dialler does not wait for the listener any more."""
        if self.peer is not self:
            self.end()
        self.is_over = True

    def next_arrival(self, earliest: float) -> float:
        """Never before what was sent before."""
        self._last_arrival = max(self._last_arrival + 1e-6, earliest)
        return self._last_arrival

    def arrived(self, item: object) -> None:
        """The network has carried an item of ours to the peer."""
        self._transit -= 1
        if self.on_room is not None and self.process.life is not Life.DEAD:
            self.process.post(self.on_room)
        if not self.peer.is_over:
            self.peer.take(item, "ended by the peer")

    def take(self, item: object, reason: str) -> None:
        """Something for this end."""
        if item is None:
            if self.is_over:
                return
            self.is_over = True
            self._network.forget(self)
        if self.process.life is not Life.DEAD:
            self.process.enter(self._handle, item, reason)

    def _handle(self, item: object, reason: str) -> None:
        if self.on_item is None:
            self._early.append((item, reason))
        else:
            self.on_item(item, reason)


@dataclass
class Network:
    """All links, listeners and wires of one world."""

    loop: SimulatedLoop
    entropy: SeededEntropy
    weather: Weather = field(default_factory=Weather)

    def __post_init__(self) -> None:
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[str, Listener] = {}
        self._deaf: dict[str, Listener] = {}
        self._exchanges: dict[_Exchange, SimulatedProcess | None] = {}
        self._wires: dict[WireEnd, None] = {}
        self._ports = 0
        self._count = 0

    # --- links ------------------------------------------------------------------------------------------------------

    def link(self, source: str, target: str) -> Link:
        """The direction from one host to another."""
        found = self._links.get((source, target))
        if found is None:
            name = f"{source}>{target}"
            found = self._links[source, target] = Link(name, self.entropy.child(name), self)
        return found

    def block(self, source: str, target: str) -> None:
        """Nothing passes in this direction until it is healed."""
        link = self.link(source, target)
        if link.blocked_since is None:
            link.blocked_since = self.loop.time()
            self.loop.outside_later(KEEPALIVE, self._give_up, source, target, link.blocked_since)

    def heal(self, source: str, target: str) -> None:
        """It passes again; what TCP has kept arrives now."""
        link = self.link(source, target)
        link.blocked_since = None
        link.release()

    def _give_up(self, source: str, target: str, since: float) -> None:
        link = self.link(source, target)
        if link.blocked_since == since:
            self.break_wires(source, target, "keepalive timeout")

    def _next_number(self) -> int:
        self._count += 1
        return self._count

    # --- listeners --------------------------------------------------------------------------------------------------

    def listen(self, host: str, port: int, listener: Listener) -> str:
        """Serve at an address; port 0: a free one. Raises ConflictError."""
        if port == 0:
            self._ports += 1
            port = 40_000 + self._ports
        address = f"{host}:{port}"
        if address in self._listeners:
            message = f"cannot listen on {address}: the port is in use"
            raise ConflictError(message)
        self._listeners[address] = listener
        return address

    def close(self, address: str) -> None:
        """Nobody listens there any more, though the process may live."""
        self._listeners.pop(address, None)
        self._deaf.pop(address, None)

    def deafen(self, address: str) -> bool:
        """The listener closes for a while, and what it had accepted breaks; its process lives. False: there is none."""
        listener = self._listeners.pop(address, None)
        if listener is None:
            return False
        self._deaf[address] = listener
        for end in list(self._wires):
            if end.process is listener.process:
                end.take(None, RESET)
                end.peer.take(None, RESET)
        return True

    def listen_again(self, address: str) -> None:
        """The end of that, unless the listener was closed for good meanwhile."""
        listener = self._deaf.pop(address, None)
        if listener is not None:
            self._listeners[address] = listener

    def process_died(self, process: SimulatedProcess) -> None:
        """The kernel closes what it had open: peers see resets, new dials are refused."""
        for listeners in (self._listeners, self._deaf):
            for address, listener in list(listeners.items()):
                if listener.process is process:
                    del listeners[address]
        for exchange, callee in list(self._exchanges.items()):
            if callee is process:
                self._answer(process.name, exchange, ConnectionLostError(exchange.address))
            if exchange.source is process:
                self._exchanges.pop(exchange, None)
        for end in list(self._wires):
            if end.process is process:
                self._break(end)

    def break_wires(self, source: str, target: str, reason: str) -> None:
        """Break every wire between two hosts, as seen from both."""
        for end in list(self._wires):
            if end.process.name == source and end.peer.process.name == target:
                end.take(None, reason)
                end.peer.take(None, reason)

    def _break(self, end: WireEnd) -> None:
        link = self.link(end.process.name, end.peer.process.name)
        deliver = lambda: end.peer.take(None, RESET)  # noqa: E731 - held or scheduled
        if link.blocked_since is not None:
            link.hold(self._next_number(), deliver)
        else:
            self.loop.outside_later(link.delay(), deliver)
        self.forget(end)

    def forget(self, end: WireEnd) -> None:
        """A wire that is over."""
        self._wires.pop(end, None)
        self._wires.pop(end.peer, None)

    # --- requests ---------------------------------------------------------------------------------------------------

    async def request(
        self, source: SimulatedProcess, address: str, payload: Any, *, timeout: float, is_kept_alive: bool = False
    ) -> Any:
        """The answer. Raises RefusedError, ConnectionLostError, TimeoutError.

        `is_kept_alive`: who is asked may take its time, as long as it has the question and answers pings.
        """
        loop, weather = self.loop, self.weather
        answer = loop.create_future()
        exchange = _Exchange(source, address, payload, answer)
        link = self.link(source.name, exchange.host)
        is_spared = exchange.is_renewal and weather.spares_leases
        if exchange.is_connection and link.chance(weather.broken_wire):
            self._pass(link, lambda: source.post(_settle, answer, ConnectionLostError(address)))
        elif exchange.is_connection or is_spared or not link.chance(weather.lost_before):
            self._pass(link, self._arrive, exchange, is_spared=is_spared)
            if weather.duplicated > 0 and getattr(payload, "is_repeatable", False) and link.chance(weather.duplicated):
                copy = _Exchange(source, address, payload, loop.create_future())
                copy.answer.add_done_callback(asyncio.Future.exception)
                self._pass(link, self._arrive, copy)
        if is_kept_alive:
            self._ping(exchange, timeout)
        else:
            exchange.timer = loop.call_later(timeout, exchange.give_up)
        try:
            value = await answer
        except _FAILURES:
            if exchange.is_late:
                raise TimeoutError from None
            raise
        finally:
            if exchange.timer is not None:
                exchange.timer.cancel()
                exchange.timer = None  # each holds the other one, and nothing is collected here
            self._exchanges.pop(exchange, None)
        if exchange.is_late:
            raise TimeoutError
        return value

    def _ping(self, exchange: _Exchange, timeout: float) -> None:
        exchange.timer = self.loop.call_later(timeout, self._on_pong_due, exchange, timeout)

    def _on_pong_due(self, exchange: _Exchange, timeout: float) -> None:
        callee = self._exchanges.get(exchange)
        ways = (self.link(exchange.source.name, exchange.host), self.link(exchange.host, exchange.source.name))
        if callee is not None and callee.life is Life.RUNNING and all(link.is_open for link in ways):
            self._ping(exchange, timeout)
        else:
            exchange.give_up()

    def _pass(self, link: Link, deliver: Callable[..., None], *arguments: Any, is_spared: bool = False) -> None:
        """After the link's delay, or when it is healed; a request may also be lost in a partition."""
        if link.blocked_since is None:
            self.loop.outside_later(link.delay(is_spared=is_spared), deliver, *arguments)
        elif link.chance(0.5):
            link.hold(self._next_number(), partial(deliver, *arguments))

    def _arrive(self, exchange: _Exchange) -> None:
        listener = self._listeners.get(exchange.address)
        if listener is None:
            self._answer(exchange.host, exchange, RefusedError(exchange.address))
            return
        callee = listener.process
        self._exchanges[exchange] = callee
        callee.enter(listener.on_request, exchange.payload, partial(self._answer, callee.name, exchange))

    def _answer(self, callee: str, exchange: _Exchange, value: object) -> None:
        self._exchanges.pop(exchange, None)
        link, weather = self.link(callee, exchange.source.name), self.weather
        is_spared = exchange.is_renewal and weather.spares_leases
        is_told = is_spared or exchange.is_connection or isinstance(value, ConnectionLostError)
        if is_told or not link.chance(weather.lost_after):
            self._pass(link, _settle, exchange.answer, value, is_spared=is_spared)

    # --- wires ------------------------------------------------------------------------------------------------------

    async def dial(
        self, source: SimulatedProcess, address: str, hello: Any, *, carries_tasks: bool, timeout: float
    ) -> tuple[WireEnd, object]:
        """A wire, and what the listener says to it. Raises as `request` does."""
        near = WireEnd(self, source)
        try:
            answer: object = await self.request(source, address, Dial(hello, near, carries_tasks), timeout=timeout)
        except BaseException:
            near.give_up()
            raise
        return near, answer

    def accept(self, process: SimulatedProcess, dial: Dial) -> WireEnd:
        """The listener's end."""
        far = WireEnd(self, process)
        far.peer, dial.near.peer = dial.near, far
        far.carries_tasks = dial.near.carries_tasks = dial.carries_tasks
        self._wires[far] = self._wires[dial.near] = None
        if dial.near.is_over:
            process.post(far.take, None, "the dialler has given up")
        return far

    def carry(self, end: WireEnd, item: object) -> None:
        """One item to the other end, unless the wire breaks under it."""
        link = self.link(end.process.name, end.peer.process.name)
        weather = self.weather
        if link.chance(weather.broken_task_wire if end.carries_tasks else weather.broken_wire):
            # The peer reads what has arrived, and learns of it later: meanwhile the sender may have dialled again.
            end.take(None, RESET)
            self.loop.outside_at(end.next_arrival(self.loop.time() + link.lag()), end.peer.take, None, RESET)
            return
        number = self._next_number()
        if link.is_open:
            loop = self.loop
            arrival = end.next_arrival(loop.time() + link.delay())
            loop.outside_at(arrival, self._land, link, number, end, item)
        else:
            link.hold(number, lambda: end.arrived(item))

    def _land(self, link: Link, number: int, end: WireEnd, item: object) -> None:
        """What is under way when a partition begins is held up too."""
        if link.blocked_since is not None:
            link.hold(number, lambda: end.arrived(item))
        else:
            end.arrived(item)


@dataclass(frozen=True, eq=False)
class Dial:
    hello: Any
    near: WireEnd
    carries_tasks: bool
    is_connection = True


def _settle(answer: asyncio.Future[Any], value: object) -> None:
    if answer.done():
        return
    if isinstance(value, _FAILURES):
        answer.set_exception(value)
    else:
        answer.set_result(value)
