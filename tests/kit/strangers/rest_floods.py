"""Hostile and slow clients of REST, each a process: `python -m tests.kit.strangers.rest_floods KIND HOST:PORT TOKEN`.

It goes on until its standard input ends. Kinds that need the token are what a user of the cluster can do to the others.
"""

from __future__ import annotations

import contextlib
import json
import resource
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

_LINE = "x-a: "
_WRONG = 249_001
_PIECE = 1 << 16


def _connect(address: tuple[str, int]) -> socket.socket | None:
    try:
        return socket.create_connection(address, 5)
    except OSError:
        return None


def _send(connection: socket.socket, data: bytes) -> bool:
    try:
        connection.sendall(data)
    except OSError:
        return False
    return True


def _is_over(seconds: float = 0.0) -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready)


def silence(address: tuple[str, int], _token: str) -> None:
    """As many connections as this process may have, which say nothing; those that are closed are opened again."""
    held: list[socket.socket] = []
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 50
    while not _is_over(0.0):
        connection = _connect(address)
        if connection is not None:
            held.append(connection)
        if len(held) > most:
            for one in held[: most // 2]:
                one.close()
            del held[: most // 2]


def dripping(address: tuple[str, int], _token: str) -> None:
    """200 connections, each with a byte of its head every 0.2 s."""
    held: list[socket.socket] = []
    while not _is_over(0.2):
        while len(held) < 200 and (connection := _connect(address)) is not None:
            connection.sendall(f"GET /overview HTTP/1.1\r\nhost: a\r\n{_LINE}".encode())
            held.append(connection)
        held = [one for one in held if _send(one, b"a")]


def refused(address: tuple[str, int], _token: str) -> None:
    """Requests without a token, as fast as one connection takes them, many at once."""
    batch = b"GET /overview HTTP/1.1\r\nhost: a\r\n\r\n" * 100
    connection = _connect(address)
    while not _is_over():
        if connection is None or not _send(connection, batch):
            connection = _connect(address)
            continue
        with contextlib.suppress(OSError):
            connection.recv(_PIECE)


def pipelined(address: tuple[str, int], _token: str) -> None:
    """50 connections at a time, each with 64 KiB of the smallest requests, none of which has a token."""
    request = b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n"
    batch = request * (_PIECE // len(request))
    while not _is_over(0.1):
        held: list[socket.socket] = []
        while len(held) < 50 and (connection := _connect(address)) is not None:
            held.append(connection)
            connection.setblocking(False)
            with contextlib.suppress(OSError):
                connection.send(batch)
        for one in held:
            one.close()


def _post(path: str, token: str, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
        f"content-length: {length}\r\n\r\n"
    ).encode()


def _posting(address: tuple[str, int], token: str, body: bytes) -> None:
    connection = _connect(address)
    request = _post("/jobs", token, len(body)) + body
    while not _is_over():
        if connection is None or not _send(connection, request):
            connection = _connect(address)
            continue
        with contextlib.suppress(OSError):
            connection.recv(_PIECE)


def wrong_vertices(address: tuple[str, int], token: str) -> None:
    """Submits of 498 kB in which nothing is right, one after the other."""
    body = {"job_id": "a" * 32, "job_graph": {"name": "a", "vertices": [1] * _WRONG}}
    _posting(address, token, json.dumps(body, separators=(",", ":")).encode())


def large_jobs(address: tuple[str, int], token: str) -> None:
    """Submits of almost 16 MB that are right but for their last edge, one after the other."""
    text = "x" * 100
    vertex = {"id": "b" * 32, "name": "a", "operators": [], "splits": [text] * 140_000}
    graph = {"name": "a", "vertices": [vertex]}
    _posting(address, token, json.dumps({"job_id": "a" * 32, "job_graph": graph}).encode())


def held_bodies(address: tuple[str, int], token: str) -> None:
    """Eight bodies of 16 MB without their last byte."""
    size = 16 * 1024 * 1024
    held: list[socket.socket] = []
    while not _is_over(0.1):
        while len(held) < 8 and (connection := _connect(address)) is not None:
            if _send(connection, _post("/jobs", token, size) + b" " * (size - 1)):
                held.append(connection)
        held = [one for one in held if not select.select([one], [], [], 0)[0]]


KINDS: Mapping[str, Callable[[tuple[str, int], str], None]] = {
    "silence": silence,
    "dripping": dripping,
    "refused": refused,
    "pipelined": pipelined,
    "wrong-vertices": wrong_vertices,
    "large-jobs": large_jobs,
    "held-bodies": held_bodies,
}


@contextlib.contextmanager
def rest_flood(kind: str, address: str, token: str) -> Iterator[None]:
    """The flood, while the block runs."""
    command = [sys.executable, "-m", "tests.kit.strangers.rest_floods", kind, address, token]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        try:
            yield
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def main(kind: str, address: str, token: str) -> None:
    """Until standard input ends."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    host, _, port = address.rpartition(":")
    KINDS[kind]((host, int(port)), token)


if __name__ == "__main__":
    main(*sys.argv[1:4])
