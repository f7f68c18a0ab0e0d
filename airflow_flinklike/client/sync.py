"""FlinklikeClient drives the operations with a blocking httpx client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from airflow_flinklike.client import operations
from airflow_flinklike.client.connections import Connections
from airflow_flinklike.client.contact import Contact
from airflow_flinklike.client.model import NO_PLACE, JobExecutionResult, JobState, LogPiece, QueuePlace, SubmittedJob
from airflow_flinklike.client.protocol import AnswerLostError, Operation, Pause, Request, Response, understood
from airflow_flinklike.client.receiving import Receiving, headers_of
from airflow_flinklike.client.retrying import CONNECT_SECONDS, Attempts, check_addresses
from airflow_flinklike.client.tls import NO_FILES, ClientTls
from airflow_flinklike.client.token import Credential
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.jobgraph.graph import JobGraph

T = TypeVar("T")


class FlinklikeClient:
    """A blocking client of one cluster, for any number of threads.

    `retry_for`: for so many seconds a request to a cluster that does not answer is retried. `first_contact`: for so
    many seconds all requests together, until the first answer; None: `retry_for` holds from the beginning.
    `connections` are those of several clients, and stay open when this client is closed. `on_retry` sees the attempts
    of a request before each pause.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        token: Credential,
        *,
        retry_for: float = 60.0,
        first_contact: float | None = None,
        tls: ClientTls = NO_FILES,
        transport: httpx.BaseTransport | None = None,
        connections: Connections | None = None,
        sleep: Callable[[float], None] = time.sleep,
        on_retry: Callable[[Attempts], None] | None = None,
    ) -> None:
        self.addresses = check_addresses(addresses)
        self.retry_for = retry_for
        self.contact = Contact(first_contact)
        self._sleep = sleep
        self._on_retry = on_retry
        self._has_own = connections is None
        self._connections = connections or Connections(self.addresses, token, tls=tls, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of this client; shared ones stay open."""
        if self._has_own:
            self._connections.close()

    def submit(
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
        return self.run(operations.submit(job_id, graph, contents or {}, place=place, **more))

    def status(self, job_id: JobId, *, wait: float = 0.0, since: int = 0) -> JobState:
        """The state of a job. With `wait` in seconds, a long poll for a change after `since`."""
        return self.run(operations.status(job_id, wait=wait, since=since))

    def states(self, job_ids: Iterable[JobId]) -> dict[JobId, JobStatus]:
        """The states of those jobs that the cluster knows and shows to this client, by one request."""
        news = self.run(operations.wait_for_news(dict.fromkeys(job_ids, 0), wait=0.0, name=""))
        return {one.job_id: one.status for one in news.changed}

    def result_within(self, job_id: JobId, *, wait: float) -> JobExecutionResult | None:
        """The result if the job ends within `wait` seconds, else None."""
        return self.run(operations.result_within(job_id, wait=wait))

    def wait_for_result(self, job_id: JobId) -> JobExecutionResult:
        """Wait for the end of the job, and return its result."""
        found = self.run(operations.wait_for_result(job_id))
        assert found is not None
        return found

    def cancel(self, job_id: JobId, *, timeout: float = 30.0) -> None:
        """Ask the cluster to cancel the job; its answer may take `timeout` seconds. Idempotent."""
        self.run(operations.cancel(job_id, timeout=timeout))

    def heartbeat(self, job_id: JobId, expires_millis: int) -> None:
        """Promise the next heartbeat by that time, in milliseconds since 1970, else the cluster cancels the job.

        0 withdraws the promise. Raises JobConflictError when the job is being cancelled.
        """
        self.run(operations.heartbeat(job_id, expires_millis))

    @property
    def address(self) -> str:
        """The address that has answered last, the first one before any has."""
        return self.addresses[self._connections.preferred]

    def get(self, path: str, **params: str) -> Any:
        """The JSON that a GET of any other path answers: /jobs/overview, /jobs/:id, /taskmanagers, ..."""
        return self.run(operations.get_json(path, params))

    def post(self, path: str, document: Any = None) -> Any:
        """An idempotent POST: /jobmasters/:id/drain, /jobs/:id/move ..."""
        return self.run(operations.post_json(path, {} if document is None else document))

    def delete(self, path: str) -> Any:
        """An idempotent DELETE: /tokens/:name."""
        return self.run(operations.delete(path))

    def log(
        self, job_id: JobId, vertex_id: str, subtask: int, attempt: int, *, stream: str, offset: int, limit: int = 65536
    ) -> LogPiece:
        """At most `limit` bytes of the log of an attempt from `offset`; a negative offset counts from the end."""
        return self.run(operations.log(job_id, vertex_id, subtask, attempt, stream=stream, offset=offset, limit=limit))

    def run(self, operation: Operation[T]) -> T:
        """Drive an operation to its end."""
        try:
            step = next(operation)
            while True:
                step = self._advance(operation, step)
        except StopIteration as done:
            value: T = done.value
            return value

    def _advance(self, operation: Operation[T], step: Request | Pause) -> Request | Pause:
        if isinstance(step, Pause):
            self._sleep(step.seconds)
            return operation.send(None)
        try:
            response = self._send(step)
        except AnswerLostError as lost:
            return operation.throw(lost)
        with understood(f"{response.address}{step.path}"):
            return operation.send(response)

    def _send(self, request: Request) -> Response:
        patience = min(self.retry_for, self.contact.left())
        attempts = Attempts(self.addresses, patience, first=self._connections.preferred)
        try:
            return self._insist(request, attempts)
        finally:
            self._connections.preferred = attempts.index

    def _insist(self, request: Request, attempts: Attempts) -> Response:
        while True:
            try:
                response = self._exchange(request, attempts.address)
            except httpx.RequestError as error:
                attempts.is_late = self.contact.left() <= 0
                pause = attempts.pause_for_failure(request, error)
            else:
                self.contact.take(response)
                attempts.is_late = self.contact.left() <= 0
                answered = attempts.pause_for_answer(response)
                if answered is None:
                    return response
                pause = answered
            if self._on_retry is not None:
                self._on_retry(attempts)
            self._sleep(pause)

    def _exchange(self, request: Request, address: str) -> Response:
        timeout = min(request.timeout, max(CONNECT_SECONDS, self.contact.left()))
        with self._connections.http.stream(
            request.method,
            address + request.path,
            params=dict(request.params),
            content=_content(request),
            headers=headers_of(request),
            timeout=httpx.Timeout(timeout, connect=min(CONNECT_SECONDS, timeout)),
        ) as answer:
            received = Receiving(request, address, answer.headers)
            for piece in answer.iter_bytes():
                received.take(piece)
            return Response(answer.status_code, dict(answer.headers), received.body(), self._connections.shown, address)


def _content(request: Request) -> bytes | Iterator[bytes] | None:
    return request.body if isinstance(request.body, bytes | None) else request.body.chunks()
