"""R41: connections before a token is asked for. A real endpoint, real sockets, both of uvicorn's parsers."""

from __future__ import annotations

import json
import socket
import ssl
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any, Self

import pytest
from uvicorn.protocols.http import h11_impl, httptools_impl

from runtime.common.states import JobStatus
from runtime.rest.access.principal_limits import LimitSettings
from runtime.rest.connections import limited_connections
from runtime.rest.connections.limited_connections import Connections, LimitedProtocol, protocol_among
from runtime.rest.connections.tls import RestTls
from tests.kit.host.levels import reached
from tests.kit.rest.fakes import JOB
from tests.kit.rest.server import TOKEN, RestThread
from tests.kit.services.certificates import Made, fixed

PATIENCE = 20.0
CA = Made.new()
GOOD = CA.material(CA.shown())
REQUEST = f"GET /overview HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {TOKEN}\r\n\r\n".encode()
ANSWERED = b"HTTP/1.1 200"


@pytest.fixture(params=[h11_impl.H11Protocol, httptools_impl.HttpToolsProtocol])
def parser(request: pytest.FixtureRequest) -> Iterator[None]:
    """The endpoint's connections are of this parser."""
    before = LimitedProtocol.__bases__
    LimitedProtocol.__bases__ = (request.param,)
    yield
    LimitedProtocol.__bases__ = before


@pytest.fixture(params=[False, True], ids=["plain", "TLS"])
def rest(parser: None, request: pytest.FixtureRequest) -> Iterator[RestThread]:
    del parser
    with RestThread(RestTls(fixed(GOOD), asks_clients=False) if request.param else None) as started:
        yield started


class Client:
    """One connection."""

    def __init__(self, rest: RestThread) -> None:
        scheme, _, address = rest.address.partition("://")
        host, _, port = address.partition(":")
        self.socket = socket.create_connection((host, int(port)), PATIENCE)
        if scheme == "https":
            context = ssl.create_default_context(cadata=GOOD.ca.decode())
            self.socket = context.wrap_socket(self.socket, server_hostname=host, suppress_ragged_eofs=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def piece(self) -> bytes:
        """What comes next; b"" when the other side has closed."""
        try:
            return self.socket.recv(65536)
        except (ConnectionResetError, ssl.SSLEOFError):
            return b""

    def head(self) -> bytes:
        """The head of an answer, and perhaps more."""
        found = b""
        while b"\r\n\r\n" not in found and (piece := self.piece()):
            found += piece
        return found

    def answer(self) -> bytes:
        """A whole answer."""
        head, _, body = self.head().partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(body) < size and (piece := self.piece()):
            body += piece
        return head + body

    def rest_of_it(self) -> bytes:
        """Everything until the other side closes."""
        found = b""
        while piece := self.piece():
            found += piece
        return found

    def asks(self) -> bool:
        """True if a request is answered."""
        self.send(REQUEST)
        return self.answer().startswith(ANSWERED)


def hurry(rest: RestThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on there is next to no time, for those who are waited for already, too.

    Called when what is to be in time has come: how long that takes a client is the machine's affair.
    """
    monkeypatch.setattr(limited_connections, "HEAD_SECONDS", 0.2)

    def begin_again() -> None:
        for one in _protocols(rest):
            if one._timer is not None:
                one._wait()

    rest.do(begin_again)


def _protocols(rest: RestThread) -> list[LimitedProtocol]:
    return [one for one in rest.server.connections._peers if isinstance(one, LimitedProtocol)]


def test_a_head_that_does_not_come_ends_the_connection(rest: RestThread, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(rest) as silent, Client(rest) as begun, Client(rest) as second:
        begun.send(b"GET /overview HTTP/1.1\r\nhost: 127.0.0.1\r\nx-a: ")
        assert second.asks()
        second.send(REQUEST[:20])
        reached(lambda: rest.do(lambda: sum(one._unread > 0 for one in _protocols(rest))) == 2, "both are begun")
        hurry(rest, monkeypatch)
        assert silent.rest_of_it() == b""
        assert b" 408 " in begun.rest_of_it()
        assert b" 408 " in second.rest_of_it(), "the head of a further request has its time too"


def test_a_body_may_begin_as_tls_does(rest: RestThread) -> None:
    """Its head came by itself, as most clients send it."""
    body = b"\x16\x03\x01\x02\x00" * 100
    head = f"PUT /blobs/{'a' * 64} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {TOKEN}\r\n"
    with Client(rest) as client:
        for _ in range(2):
            client.send(f"{head}content-length: {2 * len(body)}\r\n\r\n".encode())
            reached(lambda: any(one.cycle is not None for one in _protocols(rest)), "the head is there")
            for _ in range(2):
                time.sleep(0.05)  # pieces that are read by themselves; together they are no test, and no failure
                client.send(body)
            assert client.answer().startswith(b"HTTP/1.1 201")
        assert client.asks()
    assert rest.fakes.blobs.stored["a" * 64] == body * 2


def test_a_head_that_drips_ends_the_connection(rest: RestThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte is on time, the head is not."""
    monkeypatch.setattr(limited_connections, "HEAD_SECONDS", 0.3)
    with Client(rest) as dripping:
        dripping.send(b"GET /overview HTTP/1.1\r\nx-a: ")
        dripping.socket.settimeout(0.02)
        said = b""
        while b" 408 " not in said:
            try:
                dripping.send(b"a")
                said += dripping.socket.recv(65536)
            except TimeoutError:
                continue


def test_a_head_has_a_size(rest: RestThread) -> None:
    with Client(rest) as client:
        client.send(b"GET /overview HTTP/1.1\r\nhost: a\r\nx-a: ")
        try:
            for _ in range(64):
                client.send(b"x" * 65536)
        except OSError:
            return
        assert client.rest_of_it().split(b" ")[1] in {b"400", b"431"}


def test_a_head_of_too_many_cookies_is_told_what_to_do(rest: RestThread, request: pytest.FixtureRequest) -> None:
    """A script at another port of this host can fill a browser with them."""
    for accept, kind in ((b"application/json", b"application/json"), (b"text/html,*/*", b"text/html")):
        head, body = too_large(rest, b"GET /ui HTTP/1.1\r\nhost: a\r\naccept: " + accept + b"\r\nCookie: ")
        if "H11" in request.node.name:  # it ends such a head by itself
            assert b" 200 " not in head
            continue
        assert head.startswith(b"HTTP/1.1 431 ")
        assert b'\r\nclear-site-data: "cookies"' in head
        assert b"content-type: " + kind in head
        assert b"clear the cookies of this host" in body


def test_no_address_of_a_link_clears_the_cookies_of_a_host(rest: RestThread, request: pytest.FixtureRequest) -> None:
    long = b"a" * (limited_connections.HEAD_BYTES_MAX - 100)
    head, _ = too_large(rest, b"GET /" + long + b" HTTP/1.1\r\nhost: a\r\nCookie: ")
    assert b"clear-site-data" not in head
    assert "H11" in request.node.name or head.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))


def too_large(rest: RestThread, begin: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer to a head that begins so, and is too large."""
    with Client(rest) as client, suppress(OSError):
        client.send(begin + b"a" * (limited_connections.HEAD_BYTES_MAX + 1))
        head, _, body = client.rest_of_it().partition(b"\r\n\r\n")
        return head, body
    return b"", b""


def test_who_sends_many_requests_at_once_is_closed(rest: RestThread) -> None:
    """Without a token, each of some thousands in 256 KiB had its own memory, on each connection. Two are answered."""
    with Client(rest) as client:
        client.send(REQUEST * 2)
        said = b""
        while said.count(ANSWERED) < 2:
            said += client.piece()
    flood = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 9_000
    tracemalloc.start()
    try:
        with Client(rest) as client:
            with suppress(OSError):
                client.send(flood)
            rest.do(lambda: None)
            assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()
    with Client(rest) as client:
        assert client.asks()


def test_of_many_requests_at_once_few_are_made(rest: RestThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """One piece holds some hundreds: to make each of them had the loop stand still for 25 ms, for a stranger."""
    made = count()
    begin = limited_connections.LimitedProtocol.on_message_begin

    def counted(protocol: limited_connections.LimitedProtocol) -> None:
        begin(protocol)
        next(made)

    monkeypatch.setattr(limited_connections.LimitedProtocol, "on_message_begin", counted)
    with Client(rest) as client:
        client.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 500)
        client.rest_of_it()
    assert next(made) <= limited_connections.PIPELINED_MAX + 2


def test_who_shows_no_token_gets_one_answer(rest: RestThread) -> None:
    with Client(rest) as client:
        client.send(b"GET /overview HTTP/1.1\r\nhost: a\r\n\r\n" * 5)
        assert client.rest_of_it().count(b"HTTP/1.1 401") == 1


def test_requests_that_run_and_connections_that_rest_are_left_alone(
    rest: RestThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest.put(JOB, JobStatus.RUNNING)
    with Client(rest) as polling, Client(rest) as resting, Client(rest) as silent:
        polling.send(REQUEST.replace(b"/overview", f"/jobs/{JOB}/status?wait=60&since=1000".encode()))
        reached(lambda: rest.do(lambda: rest.dispatcher.polls) > 0, "the poll waits")
        assert resting.asks()
        hurry(rest, monkeypatch)
        assert silent.rest_of_it() == b"", "the time is over"
        monkeypatch.setattr(limited_connections, "HEAD_SECONDS", PATIENCE)
        assert resting.asks()
        rest.put(JOB, JobStatus.FINISHED, modified=2000)
        assert polling.answer().startswith(ANSWERED)


def test_a_flood_of_silent_connections_leaves_room_for_who_asks(parser: None, monkeypatch: pytest.MonkeyPatch) -> None:
    del parser
    monkeypatch.setattr("runtime.rest.server.connections_max", lambda: 40)
    with RestThread() as rest:
        rest.put(JOB, JobStatus.RUNNING)
        with Client(rest) as polling:
            polling.send(REQUEST.replace(b"/overview", f"/jobs/{JOB}/status?wait=60&since=1000".encode()))
            reached(lambda: rest.do(lambda: rest.dispatcher.polls) > 0, "the poll waits")
            flood = [Client(rest) for _ in range(100)]
            with Client(rest) as client:
                assert client.asks()
                assert flood[0].rest_of_it() == b"", "the oldest has given its place"
            for one in flood:
                one.socket.close()
            rest.put(JOB, JobStatus.FINISHED, modified=2000)
            assert polling.answer().startswith(ANSWERED)


def test_where_all_places_are_in_use_a_newcomer_is_closed(parser: None, monkeypatch: pytest.MonkeyPatch) -> None:
    del parser
    monkeypatch.setattr("runtime.rest.server.connections_max", lambda: 4)
    poll = REQUEST.replace(b"/overview", f"/jobs/{JOB}/status?wait=60&since=1000".encode())
    with RestThread() as rest:
        rest.put(JOB, JobStatus.RUNNING)
        with Client(rest) as first, Client(rest) as second, Client(rest) as third:
            for one in (first, second, third):
                one.send(poll)
            reached(lambda: rest.do(lambda: rest.dispatcher.polls) == 3, "all poll")
            with Client(rest) as late:
                assert late.rest_of_it() == b"", "one peer has three quarters of the places"
            rest.put(JOB, JobStatus.FINISHED, modified=2000)
            assert all(one.answer().startswith(ANSWERED) for one in (first, second, third))
            with Client(rest) as next_one:
                assert next_one.asks(), "those that rest give their places"


def test_who_polls_has_half_of_the_places_of_his_address(
    parser: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R49: whatever the option says. Above that he is answered, and so are others there."""
    del parser
    monkeypatch.setattr("runtime.rest.server.connections_max", lambda: 8)
    poll = REQUEST.replace(b"/overview", f"/jobs/{JOB}/status?wait=60&since=1000".encode())
    with RestThread(limits=LimitSettings(1000, 500)) as rest:
        assert "max-running-requests is 500, and 3 holds here" in caplog.text
        rest.put(JOB, JobStatus.RUNNING)
        polls = [Client(rest) for _ in range(3)]
        for one in polls:
            one.send(poll)
        reached(lambda: rest.do(lambda: rest.dispatcher.polls) == 3, "all poll")
        for _ in range(5):
            with Client(rest) as late:
                late.send(poll)
                answer = late.answer()
                assert answer.startswith(b"HTTP/1.1 429")
                assert b"3 requests that are not answered yet" in answer
        rest.put(JOB, JobStatus.FINISHED, modified=2000)
        assert all(one.answer().startswith(ANSWERED) for one in polls)
        for one in polls:
            one.socket.close()


def test_what_is_left_of_a_refused_body_is_read_for_its_answer(
    rest: RestThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client reads its refusal behind a long body only if that is taken off it."""
    head = b"PUT /blobs/" + b"1" * 64 + b" HTTP/1.1\r\nhost: a\r\ncontent-length: 4000000\r\n\r\n"
    with Client(rest) as client:
        client.send(head)
        assert client.answer().startswith(b"HTTP/1.1 401")
        client.send(b"x" * 4_000_000)
        assert client.asks(), "the connection is as good as before"
    with Client(rest) as idle:
        idle.send(head)
        assert b" 401 " in idle.answer()
        idle.send(b"x")
        hurry(rest, monkeypatch)
        assert idle.rest_of_it() == b"", "one that sends next to nothing is closed"


def test_who_takes_nothing_of_an_answer_is_gone(rest: RestThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_connections, "STALLED_SECONDS", 0.2)
    size = 64 * 1024 * 1024
    sha = "1" * 64
    rest.do(lambda: rest.fakes.blobs.stored.__setitem__(sha, b"x" * size))
    with Client(rest) as client:
        client.send(REQUEST.replace(b"/overview", f"/blobs/{sha}-u1".encode()))
        assert client.head().startswith(ANSWERED)
        reached(lambda: rest.do(lambda: _open(rest)) == 0, "the connection is closed")


def _open(rest: RestThread) -> int:
    return len(rest.server.connections)


def test_strangers_do_not_fill_the_log(rest: RestThread, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        with Client(rest) as client:
            client.send(b"nonsense\r\n\r\n")
            assert b" 400 " in client.rest_of_it()
        with Client(rest) as client:
            client.send(REQUEST.replace(b"host:", b"connection: upgrade\r\nupgrade: websocket\r\nhost:"))
            assert client.answer().startswith(ANSWERED)
    said = [record.message for record in caplog.records if record.name == "uvicorn.error"]
    assert len(said) == len(set(said))


OFFER = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAAB\r\n"
"""What Java's client sends with the first request of a connection, and curl --http2 with each."""


@pytest.mark.parametrize("offer", [b"", OFFER], ids=["plain", "offer"])
@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunks"])
def test_an_offer_of_another_protocol_is_ignored(
    rest: RestThread, offer: bytes, size: int, *, is_chunked: bool
) -> None:
    """Nothing of the body is lost, however it comes, nor of the requests behind it."""
    body = json.dumps({"program": "x" * 300}).encode()
    if is_chunked:
        framed = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (7, body[:7], len(body) - 7, body[7:])
        framing = b"transfer-encoding: chunked"
    else:
        framed, framing = body, b"content-length: %d" % len(body)
    head = REQUEST.replace(b"GET /overview", b"POST /jobs").removesuffix(b"\r\n") + offer
    request = head + b"content-type: application/json\r\n" + framing + b"\r\n\r\n" + framed
    with Client(rest) as client:
        for _ in range(2):
            for begin in range(0, len(request), size):
                client.send(request[begin : begin + size])
            answer = client.answer()
            assert answer.startswith(b"HTTP/1.1 400")
            assert b"program" in answer, "the body was read"
            assert client.asks()
        client.send(REQUEST.replace(b"host:", offer + b"host:") * 2)
        said = b""
        while said.count(ANSWERED) < 2:
            said += client.piece()


class Places:
    """A connection as `Connections` sees it."""

    def __init__(self) -> None:
        self.loop: Any = self
        self.transport: Any = self
        self.is_aborted = False
        self.is_sending = False

    def time(self) -> float:
        return 0.0

    def abort(self) -> None:
        self.is_aborted = True


def test_no_peer_has_all_places() -> None:
    found = Connections(total_max=4, peer_max=3)
    made: list[Any] = [Places() for _ in range(6)]
    assert [found.admit(one, "a") for one in made[:3]] == [True] * 3
    for one in made[:3]:
        found.runs(one)
    assert not found.admit(made[3], "a"), "all of this peer are in use"
    assert found.admit(made[4], "b"), "another peer has a place"
    assert found.admit(made[5], "c"), "and who waits gives it to a third"
    assert [one.is_aborted for one in made] == [False, False, False, False, True, False]
    made[5].is_sending = True
    assert not found.admit(Places(), "d"), "who still takes its answer keeps its place"
    made[5].is_sending = False
    found.waits(made[4])
    assert found.admit(Places(), "b"), "who was closed counts no more"
    assert made[5].is_aborted


def test_the_protocol_is_of_its_endpoint() -> None:
    mine, other = Connections(1, 1), Connections(1, 1)
    assert (protocol_among(mine).places, protocol_among(other).places) == (mine, other)  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", ["/overview", "/ui/taskmanagers", "/no-such-page"])
def test_no_answer_is_taken_for_something_else_or_shown_within_another_page(rest: RestThread, path: str) -> None:
    with Client(rest) as client:
        client.send(REQUEST.replace(b"/overview", path.encode()))
        head = client.head().lower()
    assert b"\r\nx-content-type-options: nosniff\r\n" in head
    assert (b"frame-ancestors 'none'" in head) == (path == "/ui/taskmanagers"), head
