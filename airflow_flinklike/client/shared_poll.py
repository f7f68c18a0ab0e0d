"""SharedPoll: all waiters of an event loop share one long poll to a cluster, and one client with its retries.

A waiter that the poll under way does not serve has it replaced. The new poll gathers waiters for GATHER_SECONDS, so a
thousand waiters cost a few polls.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from airflow_flinklike.client import operations
from airflow_flinklike.client.asynchronous import AsyncFlinklikeClient
from airflow_flinklike.client.model import JobNews, JobState
from airflow_flinklike.client.poll_board import PollBoard
from airflow_flinklike.client.protocol import Operation
from airflow_flinklike.client.shared_looks import SharedLooks
from airflow_flinklike.exceptions import (
    AuthenticationError,
    ClusterUnavailableError,
    FlinklikeClientError,
    JobNotFoundError,
)
from runtime.common.ids import JobId

AccessT = TypeVar("AccessT")
T = TypeVar("T")

GATHER_SECONDS = 0.05
"""A poll waits so long for further waiters before it is sent."""

LINGER_SECONDS = 5.0
"""Connections stay open so long without waiters: a waiter that was answered may return."""

LOOK_SECONDS = 60.0
"""The addresses and the token of the cluster are looked up again after so long."""

_UNANSWERED_SECONDS = 1.0
"""The pause after a failed request."""

PATIENCE_SECONDS = 900.0
"""A cluster that does not answer is retried for so long."""


@dataclass(frozen=True, slots=True)
class _Waiter:
    future: asyncio.Future[JobState]
    patience: float


class SharedPoll(Generic[AccessT]):
    """The poll of one cluster in one event loop. `connect` makes a client from the access that `look_up` finds."""

    def __init__(
        self,
        look_up: Callable[[], Awaitable[AccessT]],
        connect: Callable[[AccessT], AsyncFlinklikeClient],
        *,
        gather: float = GATHER_SECONDS,
        linger: float = LINGER_SECONDS,
    ) -> None:
        self._look_up = look_up
        self._connect = connect
        self._gather = gather
        self._linger = linger
        self._board = PollBoard()
        self._waiters: dict[int, _Waiter] = {}
        self._changed = asyncio.Event()
        self._name = secrets.token_hex(16)
        self._task: asyncio.Task[None] | None = None
        self._poll: asyncio.Task[None] | None = None
        self._replaced: asyncio.Task[None] | None = None
        self._clients: list[AsyncFlinklikeClient] = []
        self._access: AccessT | None = None
        self._looking = asyncio.Lock()
        self._users = 0
        self._looked = float("-inf")
        self._heard = 0.0
        self._refusal: AuthenticationError | None = None
        self.looks = SharedLooks(self._get)
        """For users of `attached`."""

    @property
    def is_idle(self) -> bool:
        """True when there are no waiters and the connections are closed."""
        return self._task is None

    async def wait(
        self, job_id: JobId, since: int, timeout: float | None, *, patience: float = PATIENCE_SECONDS
    ) -> JobState | None:
        """The state of the job once it was modified after `since` (0: at once); None after `timeout` seconds.

        Raises JobNotFoundError, AuthenticationError, ClusterUnavailableError when the cluster has not answered for
        `patience` seconds, and the errors of `look_up`.
        """
        token = self._board.join(job_id, since)
        waiter = self._waiters[token] = _Waiter(asyncio.get_running_loop().create_future(), patience)
        self._start()
        if self._board.needs_poll:
            self._changed.set()
        try:
            async with asyncio.timeout(timeout):
                return await waiter.future
        except TimeoutError:
            return None
        finally:
            self._board.leave(token)
            del self._waiters[token]
            self._leave()

    @asynccontextmanager
    async def attached(self) -> AsyncIterator[Self]:
        """Keep the connections open within the block."""
        self._users += 1
        self._start()
        try:
            yield self
        finally:
            self._users -= 1
            self._leave()

    def _start(self) -> None:
        if self._task is None:
            self._heard = asyncio.get_running_loop().time()
            # It serves all waiters, so it has neither the cancellation nor the context of the first. It ends itself.
            self._task = asyncio.create_task(self._hold(), context=contextvars.Context())  # noqa: TID251

    def _leave(self) -> None:
        if not self._is_used:
            self._changed.set()

    @property
    def _is_used(self) -> bool:
        return bool(self._board) or self._users > 0

    # --- the task -----------------------------------------------------------------------------------------

    async def _hold(self) -> None:
        clients: list[AsyncFlinklikeClient] | None = None
        try:
            async with asyncio.TaskGroup() as group:
                await self._poll_while_somebody_waits(group)
                clients = self._let_go()
        except* Exception as broken:  # noqa: BLE001 - all waiters get it
            clients = self._let_go()
            self._fail(self._board.tokens(), broken.exceptions[0])
        finally:
            for client in self._let_go() if clients is None else clients:
                await client.close()

    def _let_go(self) -> list[AsyncFlinklikeClient]:
        """End the polls. The next waiter starts a new task. Returns the clients to close."""
        self._task = None
        for poll in (self._replaced, self._poll):
            if poll is not None:
                poll.cancel()
        self._replaced = self._poll = None
        clients, self._clients = self._clients, []
        return clients

    async def _poll_while_somebody_waits(self, group: asyncio.TaskGroup) -> None:
        while True:
            self._changed.clear()
            if self._board.needs_poll:
                await asyncio.sleep(self._gather)
                self._begin_poll(group, await self.client())
            try:
                async with asyncio.timeout(None if self._is_used else self._linger):
                    await self._changed.wait()
            except TimeoutError:
                if not self._is_used:
                    return

    async def client(self) -> AsyncFlinklikeClient:
        """A client of the current access, for users of `attached`. Raises AuthenticationError, errors of `look_up`."""
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if self._clients and now - self._looked < LOOK_SECONDS:
                return self._clients[-1]
            access = await self._look_up()
            self._looked = now
            refusal, self._refusal = self._refusal, None
            if not self._clients or access != self._access:
                # Earlier clients may be in use, and are closed at the end.
                self._access = access
                self._clients.append(self._connect(access))
            elif refusal is not None:
                raise refusal
            return self._clients[-1]

    async def run(self, make: Callable[[], Operation[T]], *, patience: float = 0.0) -> T:
        """Drive an operation, for users of `attached`. It is repeated after a change of the token, and for `patience`
        seconds when the cluster does not answer. Raises errors of the operation and of `look_up`.
        """
        begun = asyncio.get_running_loop().time()
        while True:
            self._start()
            client = await self.client()
            try:
                return await client.run(make())
            except AuthenticationError as error:
                self._refusal, self._looked = error, float("-inf")
            except ClusterUnavailableError:
                self._looked = float("-inf")
                if asyncio.get_running_loop().time() - begun >= patience:
                    raise
                await asyncio.sleep(_UNANSWERED_SECONDS)

    async def _get(self, path: str, patience: float) -> Any:
        return await self.run(lambda: operations.get_json(path), patience=patience)

    def _begin_poll(self, group: asyncio.TaskGroup, client: AsyncFlinklikeClient) -> None:
        """Send a poll. The cluster ends the poll before, which has the same name; the one before that is cancelled."""
        if self._replaced is not None:
            self._replaced.cancel()
        number, known = self._board.begin_poll()
        self._replaced, self._poll = self._poll, group.create_task(self._ask(client, number, known))

    async def _ask(self, client: AsyncFlinklikeClient, number: int, known: Mapping[JobId, int]) -> None:
        news: JobNews | None = None
        try:
            wait = operations.LONG_POLL_SECONDS
            news = await client.run(operations.wait_for_news(known, wait=wait, name=self._name))
            self._heard = asyncio.get_running_loop().time()
        except AuthenticationError as error:
            self._refusal, self._looked = error, float("-inf")
        except ClusterUnavailableError as error:
            self._looked = float("-inf")
            silence = asyncio.get_running_loop().time() - self._heard
            self._fail([token for token, one in self._waiters.items() if silence > one.patience], error)
            await asyncio.sleep(_UNANSWERED_SECONDS)
        except FlinklikeClientError as error:
            self._fail(self._board.tokens(), error)
        finally:
            for token, job_id, state in self._board.end_poll(number, news):
                self._settle(token, state or JobNotFoundError(f"Job {job_id} not found"))
            self._changed.set()

    def _settle(self, token: int, outcome: JobState | Exception) -> None:
        waiter = self._waiters.get(token)
        if waiter is None or waiter.future.done():
            return
        if isinstance(outcome, JobState):
            waiter.future.set_result(outcome)
        else:
            waiter.future.set_exception(outcome)

    def _fail(self, tokens: Sequence[int], error: Exception) -> None:
        for token in tokens:
            self._board.leave(token)
            self._settle(token, copy.copy(error))  # each with a traceback of its own
