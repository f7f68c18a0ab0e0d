"""StrangerWatch (R39): a thread that looks at the connections of this process's port, and cuts strangers off.

gRPC owns the sockets, and reports no connection before its first call. But each is a descriptor of this process, and
the system tells how many bytes it has received. Data is not copied, and a connection whose peer has shown the token is
not asked any more. It is a thread, because a flood may keep the serving loop busy.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import struct
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote

from runtime.common.clock import Clock
from runtime.logs.rate_limit import LogRateLimit
from runtime.rpc.core.strangers import Connection, CutOff, Peer, StrangerLimits, Strangers

logger = logging.getLogger(__name__)

CALM_PAUSE = 0.5
ALERT_PAUSE = 0.05
HANDSHAKE_PAUSE = 0.02
ALERT_SECONDS = 10.0
"""Seconds of frequent looks after the last one that has cut a connection off."""
TOLD_EVERY = 10.0
_CUT_OFF, _LEFT = "cut off", "left"

_BYTES_RECEIVED = struct.Struct("=128xQ")
"""`tcpi_bytes_received` of Linux' `tcp_info`."""
_V4_IN_V6 = "::ffff:"


class StrangerWatch:
    """Watches one port of this process between `start` and `stop`.

    The serving loop calls `admit` or `refuse` for each call, with gRPC's name of the peer. The watch's thread calls
    `on_crash`, with a sentence, when the watch has ended by a bug.
    """

    def __init__(
        self,
        clock: Clock,
        limits: StrangerLimits,
        *,
        is_encrypted: bool = False,
        on_crash: Callable[[str], None] | None = None,
    ) -> None:
        self._clock = clock
        self._on_crash = on_crash
        self._strangers = Strangers(limits)
        self._sockets = _Sockets(self._strangers)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self._shown: set[str] = set()
        self._refused: Counter[str] = Counter()
        self._alert_until = float("-inf")
        self._latest: CutOff | None = None
        self._is_encrypted = is_encrypted
        self._looked_at = float("-inf")
        self._lines = LogRateLimit(TOLD_EVERY)

    def start(self, port: int) -> None:
        """Watch that port."""
        self._sockets.port = port
        self._thread = threading.Thread(target=self._run, name="strangers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Idempotent."""
        self._is_stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def admit(self, peer: str) -> None:
        """The peer of a call has shown the token."""
        with self._lock:
            self._shown.add(peer)

    def refuse(self, peer: str) -> None:
        """The peer of a call has not shown it."""
        with self._lock:
            self._refused[peer] += 1
            has_to_go = self._refused[peer] > self._strangers.limits.refusals_max
        if has_to_go:
            self._wake.set()

    def note_handshake(self) -> None:
        """A TLS handshake begins: only an immediate look sees a connection whose handshake fails. Thread-safe."""
        if self._clock.monotonic() - self._looked_at > HANDSHAKE_PAUSE:
            self._wake.set()

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:
            # The boundary of the thread: what it raises would go to stderr alone.
            logger.exception("the watch over strangers has failed")
            if self._on_crash is not None:
                self._on_crash(f"the watch over strangers has failed: {type(error).__name__}: {error}")

    def _watch(self) -> None:
        while not self._is_stopped:
            try:
                self._look()
            except OSError as error:
                # The table of descriptors may be full for a moment.
                logger.warning("the connections of port %d cannot be looked at: %s", self._sockets.port, error)
            is_alert = self._strangers.count or self._clock.monotonic() < self._alert_until
            self._wake.wait(ALERT_PAUSE if is_alert else CALM_PAUSE)
            self._wake.clear()

    def _look(self) -> None:
        with self._lock:
            shown, self._shown = self._shown, set()
            refused, self._refused = self._refused, Counter()
        # Calls so far belong to connections that are seen now, or have ended.
        try:
            connections = self._sockets.connections()
        except OSError:
            with self._lock:  # the next look has to know of them
                self._shown |= shown
                self._refused.update(refused)
            raise
        for name in shown:
            if (peer := parse_peer(name)) is not None:
                self._strangers.admit(peer)
        for name, calls in refused.items():
            if (peer := parse_peer(name)) is not None:
                self._strangers.refuse(peer, calls)
        now = self._clock.monotonic()
        cut = self._strangers.look(connections, now)
        self._looked_at = now
        for one in cut:
            self._sockets.end(one.connection)
        if cut:
            self._alert_until = now + ALERT_SECONDS
        self._tell(cut, now)
        self._tell_left(self._strangers.left, now)

    def _tell(self, cut: list[CutOff], now: float) -> None:
        """Log the first closed connection at once, later ones as a sum now and then: strangers cannot fill a log."""
        self._latest = cut[-1] if cut else self._latest
        count = self._lines.take(now, _CUT_OFF, occasions=len(cut))
        if not count or self._latest is None:
            return
        logger.warning(
            "%d connections to port %d were cut off, the latest of %s after %s without the cluster's token",
            count,
            self._sockets.port,
            self._latest.connection.peer[0],
            self._latest.reason,
        )

    def _tell_left(self, left: Sequence[Peer], now: float) -> None:
        """Log strangers that have left, in the same way. A failed TLS handshake ends so: gRPC logs it to stderr."""
        count = self._lines.take(now, _LEFT, occasions=len(left)) if left else 0
        if not count:
            return
        logger.log(
            logging.WARNING if self._is_encrypted else logging.INFO,
            "%d connections to port %d ended before they had shown the cluster's token, the latest of %s: %s",
            count,
            self._sockets.port,
            left[-1][0],
            _LEFT_ENCRYPTED if self._is_encrypted else _LEFT_PLAIN,
        )


_LEFT_ENCRYPTED = (
    "it speaks no TLS, or one of the two does not accept the certificate of the other (its CA, its dates, the names in "
    "it); the line of gRPC in this process's .out file says which"
)
_LEFT_PLAIN = "it may speak TLS, which security.ssl.internal.enabled turns on"


@dataclass(slots=True)
class _Seen:
    """A socket of the port, and the descriptor by which it is reached."""

    peer: Peer
    descriptor: int


class _Sockets:
    """The connections of one port among the descriptors of this process."""

    def __init__(self, strangers: Strangers) -> None:
        self.port = 0
        self._strangers = strangers
        self._seen: dict[int, _Seen | None] = {}

    def connections(self) -> list[Connection]:
        """The present connections. Other sockets are remembered, so that they are not asked again."""
        seen: dict[int, _Seen | None] = {}
        found = []
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - at every look, without an object for each
            descriptor = int(name)
            try:
                about = os.fstat(descriptor)
            except OSError:
                continue
            if not stat.S_ISSOCK(about.st_mode):
                continue
            number = about.st_ino
            one = self._seen[number] if number in self._seen else self._ask(number, descriptor)
            seen[number] = one
            if one is None:
                continue
            one.descriptor = descriptor
            received = 0 if self._strangers.is_known(one.peer, number) else self._received(number, descriptor)
            found.append(Connection(one.peer, number, received))
        self._seen = seen
        return found

    def end(self, connection: Connection) -> None:
        """Shut a connection down; gRPC then finds it closed."""
        one = self._seen[connection.number]
        assert one is not None, connection
        with suppress(OSError), _Borrowed(connection.number, one.descriptor) as found:
            found.shutdown(socket.SHUT_RDWR)

    def _ask(self, number: int, descriptor: int) -> _Seen | None:
        """The connection of a socket; None when it listens, or belongs to another port."""
        try:
            with _Borrowed(number, descriptor) as found:
                if found.family not in {socket.AF_INET, socket.AF_INET6} or found.getsockname()[1] != self.port:
                    return None
                address, port = found.getpeername()[:2]
        except OSError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE}:
                raise  # what it is tells the next look: there is no descriptor to ask with
            return None
        return _Seen((_plain(address), port), descriptor)

    def _received(self, number: int, descriptor: int) -> int:
        try:
            with _Borrowed(number, descriptor) as found:
                info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED.size)
        except OSError:
            return 0
        return int(_BYTES_RECEIVED.unpack(info)[0]) if len(info) == _BYTES_RECEIVED.size else 0


class _Borrowed:
    """A duplicate of the socket behind gRPC's descriptor. Raises OSError if the descriptor is another socket by now."""

    def __init__(self, number: int, descriptor: int) -> None:
        duplicate = os.dup(descriptor)
        try:
            self._socket = socket.socket(fileno=duplicate)
        except OSError:
            os.close(duplicate)
            raise
        if os.fstat(self._socket.fileno()).st_ino != number:
            self._socket.close()
            message = f"descriptor {descriptor} is another socket by now"
            raise OSError(message)

    def __enter__(self) -> socket.socket:
        return self._socket

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def parse_peer(name: str) -> Peer | None:
    """`ipv4:127.0.0.1:5555` or `ipv6:%5B::1%5D:5555`, as gRPC names a peer; None for one that has no port."""
    family, _, rest = unquote(name).partition(":")
    address, _, port = rest.rpartition(":")
    if family not in {"ipv4", "ipv6"} or not port.isdecimal():
        return None
    return _plain(address.strip("[]")), int(port)


def _plain(address: str) -> str:
    """A normal form of an address: gRPC and the system write IPv4 on an IPv6 socket, and scopes, in different ways."""
    return address.partition("%")[0].removeprefix(_V4_IN_V6)
