"""R52: a false JobManager neither blocks nor redirects a client, and the error says that it is not a JobManager."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from airflow_flinklike.cli.__main__ import main
from airflow_flinklike.client import AsyncFlinklikeClient, FlinklikeClient
from airflow_flinklike.client.operations import cancel
from airflow_flinklike.exceptions import ClusterUnavailableError, ForeignAnswerError
from tests.kit.rest.fakes import JOB
from tests.kit.strangers.false_job_manager import TOKEN, FalseJobManager

Say = Callable[[socket.socket, threading.Event], bool]
PAUSE = 0.02
PIECES = 1500
"""Half a minute of them, for a request of half a second."""


@contextmanager
def saying(say: Say) -> Iterator[tuple[str, list[bool]]]:
    """Serve these bytes to each connection. Gives the address, and whether a client has received all of them."""
    over, heard = threading.Event(), list[bool]()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while not over.is_set():
                with suppress(OSError):
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(1 << 16)
                        heard.append(say(connection, over))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", heard
        finally:
            over.set()
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            thread.join(20)


def repeating(first: bytes, then: bytes) -> Say:
    def say(connection: socket.socket, over: threading.Event) -> bool:
        connection.sendall(first)
        for _ in range(PIECES):
            connection.sendall(then)
            if over.wait(PAUSE):
                return False
        return True

    return say


DRIPS = {
    "a head": repeating(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
    "a line of a head": repeating(b"HTTP/1.1 200 OK\r\nx: ", b"y"),
    "beginnings": repeating(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a body": repeating(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n", b" "),
    "a chunk": repeating(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", b"x"),
}


@pytest.mark.parametrize("drips", DRIPS.values(), ids=DRIPS)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_answer_that_drips_ends_with_the_time_of_its_request(kind: str, drips: Say) -> None:
    with saying(drips) as (address, heard):
        with pytest.raises(ClusterUnavailableError, match="no JobManager answers at"):
            ask(kind, address)
        assert True not in heard


def ask(kind: str, address: str) -> None:
    """One request that may take half a second."""

    async def asked() -> None:
        async with AsyncFlinklikeClient([address], TOKEN, retry_for=0.0) as client:
            await client.run(cancel(JOB, timeout=0.5))

    if kind == "async":
        asyncio.run(asked())
    else:
        with FlinklikeClient([address], TOKEN, retry_for=0.0) as client:
            client.cancel(JOB, timeout=0.5)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_nobody_is_sent_elsewhere(status: int) -> None:
    with FalseJobManager() as false, FalseJobManager() as other:
        false.begin_series(0, answer=_sent_to(other.address, status))
        with (
            FlinklikeClient([false.address], TOKEN, retry_for=0.0) as client,
            pytest.raises(ForeignAnswerError, match=f"it is HTTP {status}, and this client goes nowhere else"),
        ):
            client.status(JOB)
        assert (len(false.asked), other.asked) == (1, [])


def _sent_to(address: str, status: int) -> bytes:
    return f"HTTP/1.1 {status} X\r\nlocation: {address}/jobs\r\ncontent-length: 2\r\n\r\n{{}}".encode()


@pytest.mark.parametrize(
    ("command", "answer", "what"),
    [
        (["list"], b"[]", "it is a list, expected an object"),
        (["list"], b'{"jobs": [{}]}', "jobs[0].jid is missing"),
        (["taskmanagers"], b'{"taskmanagers": 1e400}', "taskmanagers is inf, expected a list"),
        (["jobmasters"], b"null", "it is None, expected an object"),
        (["info", JOB], b'{"jid": "%s"}' % (b"b" * 32), "name is missing"),
        (["status", JOB], b'{"status": "ASLEEP"}', "status is 'ASLEEP', expected a state of a job"),
        (["logs", JOB], b'{"state": "FINISHED"}', "last-modification is missing"),
        (["logs", JOB], b"[" * 100_000, "it is not JSON but b'[["),
        (["tokens"], b'{"principals": {}}', "principals is an object, expected a list"),
    ],
)
def test_a_command_says_in_one_sentence_what_is_wrong(
    command: list[str],
    answer: bytes,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(answer)
    with FalseJobManager() as false:
        false.begin_series(0, answer=head + answer)
        monkeypatch.setenv("FLINKLIKE_ADDRESS", false.address)
        monkeypatch.setenv("FLINKLIKE_TOKEN", TOKEN)
        monkeypatch.setattr(sys, "argv", ["flinklike", *command])
        with pytest.raises(SystemExit) as ended:
            main()
    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert said.startswith(f"flinklike: the answer of {false.address}/")
    assert f" is not one of a JobManager: {what}" in said
    assert said.endswith("Is this the cluster's REST address?\n")
    assert said.count("\n") == 1
