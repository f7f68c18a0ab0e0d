"""A server that a client takes for a JobManager, over real sockets: it answers as one does, and one request otherwise.

What is right comes from the real REST application over fakes; `turn` says which request of a series gets `answer`.
"""

from __future__ import annotations

import asyncio
import re
import threading
from dataclasses import dataclass, field
from typing import Self

import httpx
from starlette.types import ASGIApp

from runtime.common.states import JobStatus
from runtime.rest.app import create_app
from tests.kit.rest.fakes import JOB, RestFakes, shown
from tests.kit.rest.server import ObedientDispatcher

TOKEN = "the-token"
_LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)
_ASKED_MAX = 40
_PATIENCE = 20.0
_OVER = b'{"errors": ["it is over"]}'


@dataclass
class FalseJobManager:
    """Serves between `__enter__` and `__exit__`. Request number `turn` of a series is answered otherwise.

    `answer`: by all of this. `instead`: as the real one would, with this as its body. `asked`: the heads of the
    requests of the series, `told`: the bodies of the real one's answers.
    """

    turn: int = -1
    answer: bytes | None = None
    instead: bytes | None = None
    asked: list[bytes] = field(default_factory=list)
    told: list[bytes] = field(default_factory=list)
    address: str = ""

    def begin_series(self, turn: int = -1, *, answer: bytes | None = None, instead: bytes | None = None) -> None:
        """From here on requests are counted from 0."""
        self.turn, self.answer, self.instead = turn, answer, instead
        self.asked, self.told = [], []

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(_PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_PATIENCE)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(app=_application()), base_url="http://test")
        async with await asyncio.start_server(self._connected, "127.0.0.1", 0) as server:
            self.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            self._ready.set()
            await self._stop.wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await reader.readexactly(int(length[1])) if length else b""
            writer.write(await self._answer(head, body))
            await writer.drain()
        except (OSError, EOFError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: bytes, body: bytes) -> bytes:
        number = len(self.asked)
        self.asked.append(head)
        if number >= _ASKED_MAX:
            return _whole(404, _OVER)
        if number == self.turn and self.answer is not None:
            return self.answer
        line, *headers = head.decode("latin-1").split("\r\n")
        method, path, _ = line.split(" ")
        names = dict(one.split(": ", 1) for one in headers if ": " in one)
        names = {key: value for key, value in names.items() if key.lower() in {"authorization", "content-type"}}
        found = await self._http.request(method, path, content=body, headers=names)
        self.told.append(found.content)
        right = found.content if self.instead is None or number != self.turn else self.instead
        return _whole(found.status_code, right, {k: v for k, v in found.headers.items() if k.startswith("x-")})


def _whole(status: int, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n{more}\r\n"
    return head.encode("latin-1") + body


def _application() -> ASGIApp:
    fakes = RestFakes()
    fakes.dispatcher = ObedientDispatcher()
    fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    return create_app(fakes.context(), sign_in=shown(TOKEN), content_length_max=1 << 22, hosts={"test"})
