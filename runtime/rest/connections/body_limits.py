"""Bodies of requests: how large each may be, how many fit into memory at once, and how slowly they may come.

The declared length decides, before a byte is read; a body without one counts as its limit. Small
bodies are never refused for large ones. A large one that has been coming for long gives way to a new one (R41).
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.jobgraph.limits import GRAPH_BYTES_MAX
from runtime.rest.answers import answer_error

SUBMIT_BYTES_MAX = GRAPH_BYTES_MAX + 64 * 1024
SMALL_BYTES_MAX = 2 * 1024 * 1024
"""For every body that is no job: 10,000 digests or job ids fit."""

BODIES_BYTES_MAX = 4 * SUBMIT_BYTES_MAX
FREE_BYTES = 64 * 1024
"""Bodies up to it are taken whatever others hold; how many there are is bounded by the connections."""

GRACE_SECONDS = 10.0
BYTES_PER_SECOND_MIN = 16 * 1024
"""A body is waited for as long as its first bytes take, GRACE_SECONDS, and what has come so far at this rate."""


STOOD_STILL_SECONDS = 1.0
"""A timer that is so late was held up with the whole process (SIGSTOP, a host that sleeps): clients are not blamed."""


class BodyRefusedError(Exception):
    """A body that grew past its limit, or that did not come."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class BodyLimitsMiddleware:
    """Refuses bodies above the limit of their path (413), and more of them than fit into memory at once (429).

    A body that is streamed to the storage is limited there (blob.max-size); here only its pace is.
    """

    def __init__(
        self, app: ASGIApp, content_length_max: int, *, budget: int = BODIES_BYTES_MAX, free: int = FREE_BYTES
    ) -> None:
        self._app = app
        self._content_length_max = content_length_max
        self._free = free
        self._left = budget
        self._arriving: dict[_Body, None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count what arrives."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limit_of(scope["method"], scope["path"])
        size = 0 if limit is None else _declared_size(scope, limit)
        if limit is not None and size > limit:
            close = [(b"connection", b"close")]
            await answer_error(send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(limit), close)
            return
        body = _Body(receive, limit, size if size > self._free else 0)
        if not self._reserve(body):
            sentence = "The bodies of other requests take all the memory there is for them: try again."
            headers = [(b"connection", b"close"), (b"retry-after", b"1")]
            await answer_error(send, HTTPStatus.TOO_MANY_REQUESTS, sentence, headers)
            return
        try:
            await self._app(scope, body.receive, send)
        finally:
            self._release(body)

    def _reserve(self, body: _Body) -> bool:
        """Room for a body; bodies that have come for longer than GRACE_SECONDS give up theirs, the oldest first."""
        if not body.held:
            return True
        slow = [one for one in self._arriving if one.is_slow]
        if body.held > self._left + sum(one.held for one in slow):
            return False
        while body.held > self._left:
            given_up = slow.pop(0)
            self._release(given_up)
            given_up.give_way()
        self._left -= body.held
        self._arriving[body] = None
        return True

    def _release(self, body: _Body) -> None:
        if body in self._arriving:
            del self._arriving[body]
            self._left += body.held

    def _limit_of(self, method: str, path: str) -> int | None:
        """None: the body is streamed."""
        path = path.removeprefix("/v1")
        if (method == "PUT" and path.startswith("/blobs/")) or (method == "POST" and path == "/jars/upload"):
            return None
        return min(self._content_length_max, SUBMIT_BYTES_MAX if path == "/jobs" else SMALL_BYTES_MAX)


class _Body:
    """A body that arrives. `held`: the bytes of the common memory that it may take."""

    def __init__(self, receive: Receive, limit: int | None, held: int) -> None:
        self.held = held
        self._source = receive
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._seen, self._waited = 0, 0.0
        self._is_complete = False
        self._gives_way = False
        self._timeout: asyncio.Timeout | None = None

    @property
    def is_slow(self) -> bool:
        """True if it still arrives after GRACE_SECONDS."""
        return not self._is_complete and self._loop.time() - self._begun > GRACE_SECONDS

    def give_way(self) -> None:
        """Refuse the rest of the body."""
        self._gives_way = True
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(self._loop.time())

    async def receive(self) -> Message:
        """The next piece. Raises BodyRefusedError."""
        if self._is_complete:
            return await self._source()
        message = await self._next()
        self._seen += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        if self._limit is not None and self._seen > self._limit:
            raise BodyRefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(self._limit))
        return message

    async def _next(self) -> Message:
        while True:
            asked = self._loop.time()
            patience = 0.0 if self._gives_way else GRACE_SECONDS + self._seen / BYTES_PER_SECOND_MIN - self._waited
            try:
                async with asyncio.timeout(patience) as self._timeout:
                    return await self._source()
            except TimeoutError as error:
                waited = self._loop.time() - asked
                if self._gives_way or waited - max(0.0, patience) < STOOD_STILL_SECONDS:
                    raise self._refusal(waited) from error
                asked = self._loop.time()  # what came while this process stood still has not been read
            finally:
                self._timeout = None
                self._waited += self._loop.time() - asked

    def _refusal(self, waited: float) -> BodyRefusedError:
        if self._gives_way:
            sentence = "The request's body came slowly, and others needed the room that it held: try again."
            return BodyRefusedError(HTTPStatus.TOO_MANY_REQUESTS, sentence)
        sentence = (
            f"The request's body came too slowly: {self._seen} bytes in {self._waited + waited:.0f} seconds. After "
            f"the first {GRACE_SECONDS:g} seconds {BYTES_PER_SECOND_MIN} bytes a second are the least."
        )
        return BodyRefusedError(HTTPStatus.REQUEST_TIMEOUT, sentence)


def _declared_size(scope: Scope, limit: int) -> int:
    headers = dict(scope["headers"])
    declared = headers.get(b"content-length")
    if declared is None:
        return limit if b"transfer-encoding" in headers else 0
    return int(declared) if declared.isdigit() and len(declared) < 20 else limit + 1


def _too_large(limit: int) -> str:
    return (
        f"The request is larger than the {limit} bytes that this path takes (rest.server.max-content-length can only "
        "lower that): upload large files to /blobs first and refer to them."
    )
