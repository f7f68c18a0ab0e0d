"""R41: bodies that come slowly, and which of them gives up its room."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus

import pytest
from starlette.types import Message, Receive, Scope, Send

from runtime.rest.connections import body_limits
from runtime.rest.connections.body_limits import BodyLimitsMiddleware, BodyRefusedError
from tests.kit.control_plane.plane import eventually


class Sender:
    """One request whose body comes when the test says so."""

    def __init__(self, limits: BodyLimitsMiddleware, size: int, *, method: str = "POST", path: str = "/jobs") -> None:
        self._pieces: asyncio.Queue[Message] = asyncio.Queue()
        headers = [(b"content-length", str(size).encode())]
        scope = {"type": "http", "method": method, "path": path, "headers": headers}
        self.answers: list[Message] = []
        self.task = asyncio.ensure_future(limits(scope, self._pieces.get, self._answer))

    def send(self, data: bytes, *, more: bool = True) -> None:
        self._pieces.put_nowait({"type": "http.request", "body": data, "more_body": more})

    async def _answer(self, message: Message) -> None:
        self.answers.append(message)

    async def refusal(self) -> HTTPStatus:
        with pytest.raises(BodyRefusedError) as caught:
            await self.task
        return caught.value.status

    async def status(self) -> int:
        await self.task
        return int(self.answers[0]["status"])


class Reader:
    """An application that reads the body, and says how many it has begun with."""

    def __init__(self) -> None:
        self.begun = 0

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        self.begun += 1
        while (await receive()).get("more_body", False):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limits, "GRACE_SECONDS", 0.1)


async def _begun(reader: Reader, senders: Sequence[Sender]) -> None:
    await eventually(lambda: reader.begun == len(senders))


@pytest.mark.asyncio
@pytest.mark.usefixtures("quick")
async def test_a_process_that_stood_still_blames_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The body lay in the socket while the JobManager was frozen; one that does not come is refused all the same."""
    monkeypatch.setattr(body_limits, "STOOD_STILL_SECONDS", 0.2)
    reader = Reader()
    limits = BodyLimitsMiddleware(reader, 1 << 30)
    senders = [Sender(limits, 1000), Sender(limits, 1000)]
    await _begun(reader, senders)
    time.sleep(0.5)  # noqa: ASYNC251 - the whole process stands still
    asyncio.get_running_loop().call_later(0.05, partial(senders[0].send, b"x" * 1000, more=False))
    assert await senders[0].status() == 200
    assert await senders[1].refusal() is HTTPStatus.REQUEST_TIMEOUT


@pytest.mark.asyncio
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("method", "path"), [("POST", "/jobs"), ("POST", "/jobs/wait"), ("PUT", "/blobs/x")])
async def test_a_body_that_drips_is_refused(method: str, path: str) -> None:
    """Each piece is on time, the body is not; a long upload to the storage has its pace too."""
    reader = Reader()
    sender = Sender(BodyLimitsMiddleware(reader, 1 << 30), 1000, method=method, path=path)

    async def drip() -> None:
        while True:
            sender.send(b"x")
            await asyncio.sleep(0.02)

    dripping = asyncio.ensure_future(drip())
    try:
        assert await sender.refusal() is HTTPStatus.REQUEST_TIMEOUT
    finally:
        dripping.cancel()


@pytest.mark.asyncio
@pytest.mark.usefixtures("quick")
async def test_what_has_come_gives_time_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limits, "BYTES_PER_SECOND_MIN", 10)
    sender = Sender(BodyLimitsMiddleware(Reader(), 1 << 30), 1000)
    sender.send(b"x" * 999)
    await asyncio.sleep(0.3)
    sender.send(b"x", more=False)
    assert await sender.status() == 200


@pytest.mark.asyncio
async def test_held_large_bodies_give_way_to_who_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four of them gave everybody 429, for as long as they liked."""
    reader = Reader()
    limits = BodyLimitsMiddleware(reader, 1000, budget=4000, free=100)
    held = [Sender(limits, 1000) for _ in range(4)]
    await _begun(reader, held)
    for one in held:
        one.send(b"x" * 999)
    assert await Sender(limits, 1000).status() == 429, "they have just come"
    monkeypatch.setattr(body_limits, "GRACE_SECONDS", 0.0)
    next_one = Sender(limits, 1000)
    next_one.send(b"x" * 1000, more=False)
    assert await next_one.status() == 200
    assert await held[0].refusal() is HTTPStatus.TOO_MANY_REQUESTS, "the first gives way, and may try again"
    assert not any(one.task.done() for one in held[1:])
    for one in held[1:]:
        one.send(b"x", more=False)
        assert await one.status() == 200, "whose room nobody needs goes on"


@pytest.mark.asyncio
@pytest.mark.usefixtures("quick")
async def test_who_comes_as_a_held_body_runs_out_of_time_gets_its_room() -> None:
    """Whose time is over in that very moment cannot be told to hurry."""
    reader = Reader()
    limits = BodyLimitsMiddleware(reader, 1000, budget=1000, free=100)
    held, came = Sender(limits, 1000), []

    def come() -> None:
        came.append(Sender(limits, 1000))
        came[0].send(b"x" * 1000, more=False)

    await _begun(reader, [held])
    loop = asyncio.get_running_loop()
    loop.call_at(loop.time(), come)
    time.sleep(2 * body_limits.GRACE_SECONDS)  # noqa: ASYNC251 - a loop that is late finds both due at once
    await eventually(lambda: bool(came))
    assert await came[0].status() == 200
    assert await held.refusal() in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT}


@pytest.mark.asyncio
async def test_small_bodies_pass_whatever_is_held() -> None:
    reader = Reader()
    limits = BodyLimitsMiddleware(reader, 1000, budget=1000, free=100)
    held = Sender(limits, 1000)
    await _begun(reader, [held])
    assert await Sender(limits, 1000).status() == 429
    for path in ("/jobs", "/jobs/wait", "/blobs/missing"):
        small = Sender(limits, 100, path=path)
        small.send(b"x" * 100, more=False)
        assert await small.status() == 200
    held.send(b"", more=False)
    assert await held.status() == 200


class Worker:
    """An application that has read the body, and works on it until it is told to end."""

    def __init__(self) -> None:
        self.working = 0
        self.end = asyncio.Event()

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body", False):
            pass
        self.working += 1
        await self.end.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})


@pytest.mark.asyncio
async def test_nobody_gives_way_in_vain_and_nobody_who_has_sent_all(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    limits = BodyLimitsMiddleware(worker, 1000, budget=1000, free=100)
    whole, slow = Sender(limits, 800), Sender(limits, 200)
    whole.send(b"x" * 800, more=False)
    slow.send(b"x" * 199)
    await eventually(lambda: worker.working == 1)
    monkeypatch.setattr(body_limits, "GRACE_SECONDS", 0.0)
    assert await Sender(limits, 900).status() == 429, "the room of the slow one would not do"
    slow.send(b"x", more=False)
    await eventually(lambda: worker.working == 2)
    assert await Sender(limits, 200).status() == 429, "and it is slow no more"
    worker.end.set()
    assert (await whole.status(), await slow.status()) == (200, 200)
