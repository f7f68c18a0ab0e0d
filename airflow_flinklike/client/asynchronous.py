"""AsyncFlinklikeClient drives the operations with an asyncio httpx client."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from airflow_flinklike.client import operations
from airflow_flinklike.client.deadlines import AsyncBoundedTransport
from airflow_flinklike.client.model import NO_PLACE, JobExecutionResult, JobState, LogPiece, QueuePlace, SubmittedJob
from airflow_flinklike.client.protocol import AnswerLostError, Content, Operation, Pause, Request, Response, understood
from airflow_flinklike.client.receiving import Receiving, headers_of
from airflow_flinklike.client.renewed_transports import RenewedAsyncTransport
from airflow_flinklike.client.retrying import CONNECT_SECONDS, Attempts, check_addresses, needs_tls
from airflow_flinklike.client.tls import NO_FILES, ClientTls
from airflow_flinklike.client.token import Credential, bearer, shown_in_words
from runtime.common.ids import JobId
from runtime.jobgraph.graph import JobGraph

T = TypeVar("T")


class AsyncFlinklikeClient:
    """A client of one cluster, for any number of tasks of one event loop. Parameters as those of FlinklikeClient."""

    def __init__(
        self,
        addresses: Sequence[str],
        token: Credential,
        *,
        retry_for: float = 60.0,
        tls: ClientTls = NO_FILES,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.addresses = check_addresses(addresses)
        self.retry_for = retry_for
        self._sleep = sleep
        self._next = 0
        self._shown = shown_in_words(token, tls.cert)
        if transport is None:
            transport = RenewedAsyncTransport(tls) if needs_tls(self.addresses) else AsyncBoundedTransport()
        self._http = httpx.AsyncClient(
            auth=bearer(token),
            transport=transport,
            verify=False,  # noqa: S501 - plain http: its own transport loads no certificates
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def is_closed(self) -> bool:
        """True once the connections are closed."""
        return self._http.is_closed

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def submit(
        self,
        graph: JobGraph,
        *,
        job_id: JobId,
        contents: operations.BlobContents | None = None,
        client: str = "",
        namespace: str = "",
        place: QueuePlace = NO_PLACE,
        traceparent: str = "",
    ) -> SubmittedJob:
        """Submit the job: the cluster makes it durable before it answers. Idempotent by job id.

        `contents` holds the content of the graph's pending artifacts by sha256. `namespace` defaults to that of the
        principal, `place` to its queue. `traceparent`: the span of the caller (W3C), below which the cluster tells the
        trace of the job; only that of the first submit counts. Raises JobRefusedError, JobConflictError,
        AuthenticationError.
        """
        more = {"client": client, "namespace": namespace, "traceparent": traceparent}
        return await self.run(operations.submit(job_id, graph, contents or {}, place=place, **more))

    async def status(self, job_id: JobId, *, wait: float = 0.0, since: int = 0) -> JobState:
        """The state of a job. With `wait` in seconds, a long poll for a change after `since`."""
        return await self.run(operations.status(job_id, wait=wait, since=since))

    async def result_within(self, job_id: JobId, *, wait: float) -> JobExecutionResult | None:
        """The result if the job ends within `wait` seconds, else None."""
        return await self.run(operations.result_within(job_id, wait=wait))

    async def wait_for_result(self, job_id: JobId) -> JobExecutionResult:
        """Wait for the end of the job, and return its result."""
        found = await self.run(operations.wait_for_result(job_id))
        assert found is not None
        return found

    async def cancel(self, job_id: JobId) -> None:
        """Ask the cluster to cancel the job. Idempotent. Raises JobConflictError when the job has ended otherwise."""
        await self.run(operations.cancel(job_id))

    async def heartbeat(self, job_id: JobId, expires_millis: int) -> None:
        """Promise the next heartbeat by that time, in milliseconds since 1970, else the cluster cancels the job.

        0 withdraws the promise. Raises JobConflictError when the job is being cancelled.
        """
        await self.run(operations.heartbeat(job_id, expires_millis))

    async def get(self, path: str, **params: str) -> Any:
        """The JSON that a GET of any other path answers."""
        return await self.run(operations.get_json(path, params))

    async def log(
        self, job_id: JobId, vertex_id: str, subtask: int, attempt: int, *, stream: str, offset: int, limit: int = 65536
    ) -> LogPiece:
        """At most `limit` bytes of the log of an attempt from `offset`; a negative offset counts from the end."""
        return await self.run(
            operations.log(job_id, vertex_id, subtask, attempt, stream=stream, offset=offset, limit=limit)
        )

    async def run(self, operation: Operation[T]) -> T:
        """Drive an operation to its end."""
        answer: Response | AnswerLostError | None = None
        asked = ""
        while True:
            try:
                if isinstance(answer, AnswerLostError):
                    step = operation.throw(answer)
                elif answer is None:
                    step = operation.send(None)
                else:
                    with understood(asked):
                        step = operation.send(answer)
            except StopIteration as done:  # must not leave a coroutine
                value: T = done.value
                return value
            answer = await self._answer(step)
            if isinstance(step, Request) and isinstance(answer, Response):
                asked = f"{answer.address}{step.path}"

    async def _answer(self, step: Request | Pause) -> Response | AnswerLostError | None:
        if isinstance(step, Pause):
            await self._sleep(step.seconds)
            return None
        try:
            return await self._send(step)
        except AnswerLostError as lost:
            return lost

    async def _send(self, request: Request) -> Response:
        attempts = Attempts(self.addresses, self.retry_for, first=self._next)
        try:
            return await self._insist(request, attempts)
        finally:
            self._next = attempts.index

    async def _insist(self, request: Request, attempts: Attempts) -> Response:
        while True:
            try:
                response = await self._exchange(request, attempts.address)
            except ssl.SSLError as error:  # what is read: httpx passes it on as it is
                lost = httpx.ReadError(str(error))
                lost.__cause__ = error
                await self._sleep(attempts.pause_for_failure(request, lost))
                continue
            except httpx.RequestError as error:
                await self._sleep(attempts.pause_for_failure(request, error))
                continue
            pause = attempts.pause_for_answer(response)
            if pause is None:
                return response
            await self._sleep(pause)

    async def _exchange(self, request: Request, address: str) -> Response:
        async with self._http.stream(
            request.method,
            address + request.path,
            params=dict(request.params),
            content=_content(request),
            headers=headers_of(request),
            timeout=httpx.Timeout(request.timeout, connect=min(CONNECT_SECONDS, request.timeout)),
        ) as answer:
            received = Receiving(request, address, answer.headers)
            async for piece in answer.aiter_bytes():
                received.take(piece)
            return Response(answer.status_code, dict(answer.headers), received.body(), self._shown, address)


def _content(request: Request) -> bytes | AsyncIterator[bytes] | None:
    return request.body if isinstance(request.body, bytes | None) else _chunks(request.body)


async def _chunks(source: Content) -> AsyncIterator[bytes]:
    for chunk in source.chunks():
        yield chunk
