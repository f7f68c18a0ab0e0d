"""Structured tasks: the only way to start one. Every task belongs to a scope, has a name, and ends with it.

Two forms of one thing. `async with Scope("dispatcher") as scope` for a term or an endpoint: it ends when the block
does, and the first failure cancels the rest and leaves the block as an ExceptionGroup. `ServiceScope` for objects
with `start()` and `stop()`: it lives in a task of its own, and keeps a failure until `wait_failed` or `stop` raises it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from runtime.common.errors import BugError

T = TypeVar("T")


class EternalTaskEndedError(BugError):
    """A task that must run as long as its scope has returned."""


class ScopeClosedError(BugError):
    """A task was to be started in a scope that is not open (any more)."""


async def without_end(name: str, coroutine: Coroutine[Any, Any, object]) -> None:
    """Run an eternal task: that it *returns* is an error. Cancellation and errors pass through."""
    await coroutine
    message = f"eternal task {name} has returned"
    raise EternalTaskEndedError(message)


class Scope:
    """A named TaskGroup. Tasks are named `scope/what`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._group: asyncio.TaskGroup | None = None
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._count = 0
        self._is_closed = False

    async def __aenter__(self) -> Self:
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._group is not None, self.name
        try:
            await self._group.__aexit__(kind, error, traceback)
        finally:
            self._is_closed = True

    def spawn(self, what: str, coroutine: Coroutine[Any, Any, object]) -> None:
        """Start a task of this scope. Its failure ends the scope."""
        _ = self.start(what, coroutine)

    def start(self, what: str, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """`spawn` for callers that want the task: to await its result or to cancel it alone."""
        if self._group is None or self._is_closed:
            coroutine.close()
            message = f"task {self.name}/{what} started outside of the life of its scope"
            raise ScopeClosedError(message)
        try:
            task = self._group.create_task(coroutine, name=f"{self.name}/{what}")
        except RuntimeError as error:
            coroutine.close()
            message = f"task {self.name}/{what} started while its scope is ending"
            raise ScopeClosedError(message) from error
        self._count += 1
        number = self._count
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number, None))
        return task

    def spawn_eternal(self, what: str, coroutine: Coroutine[Any, Any, object]) -> None:
        """Start a task that must not return before the scope ends."""
        task = self.start(what, without_end(f"{self.name}/{what}", coroutine))
        # A task that is cancelled before its first step never awaits the coroutine.
        task.add_done_callback(lambda _: coroutine.close())

    def cancel_all(self) -> None:
        """Cancel every running task of this scope, in the order in which they were started."""
        for task in list(self._tasks.values()):
            task.cancel()


class ServiceScope:
    """A scope for objects with a start and a stop: opened by one task, closed by any."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._scope = Scope(name)
        self._owner: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._open = asyncio.Event()

    async def open(self) -> None:
        """Make `spawn` possible."""
        assert self._owner is None, f"scope {self.name} is opened twice"
        # The one detached task of the system: it *is* the group, and close() awaits it.
        self._owner = asyncio.get_running_loop().create_task(self._hold(), name=f"{self.name}/scope")
        await self._open.wait()

    async def _hold(self) -> None:
        async with self._scope:
            self._open.set()
            await self._stopping.wait()
            self._scope.cancel_all()

    def spawn(self, what: str, coroutine: Coroutine[Any, Any, object]) -> None:
        """Start a task. Its failure cancels the other ones and is raised by `close` and `wait_failed`."""
        self._scope.spawn(what, coroutine)

    def start(self, what: str, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """`spawn` for callers that want the task: to await its result or to cancel it alone."""
        return self._scope.start(what, coroutine)

    def spawn_eternal(self, what: str, coroutine: Coroutine[Any, Any, object]) -> None:
        """Start a task that must not return before the scope is closed."""
        self._scope.spawn_eternal(what, coroutine)

    @property
    def is_open(self) -> bool:
        """True while tasks can be started."""
        return self._owner is not None and not self._owner.done() and not self._stopping.is_set()

    async def wait_failed(self) -> None:
        """Wait for the end of the scope. Raises the ExceptionGroup when a task has failed."""
        assert self._owner is not None, self.name
        await asyncio.shield(self._owner)

    async def close(self) -> None:
        """Cancel all tasks and wait for their end. Idempotent. Raises what a task has failed with."""
        self._stopping.set()
        if self._owner is not None:
            await asyncio.shield(self._owner)
