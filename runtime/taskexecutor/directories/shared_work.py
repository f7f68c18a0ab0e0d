"""SharedWork: one run of a piece of work, however many ask for it at once.

The work belongs to the scope, so an asker that is cancelled takes nothing away from the others. A failure is raised to
all callers that waited for that run; the next caller starts another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from runtime.aio.scope import ServiceScope

KeyT = TypeVar("KeyT", bound=Hashable)
T = TypeVar("T")


class SharedWork(Generic[KeyT, T]):
    """Runs by key. Results are not kept: that is the caller's business."""

    def __init__(self, name: str, scope: ServiceScope) -> None:
        self._name = name
        self._scope = scope
        self._running: dict[KeyT, asyncio.Future[T]] = {}

    async def run(self, key: KeyT, work: Callable[[], Awaitable[T]]) -> T:
        """The result of the run of `key` that is going on, or of a new one."""
        future = self._running.get(key)
        if future is None:
            future = self._running[key] = asyncio.get_running_loop().create_future()
            future.add_done_callback(_look_at_failure)
            self._scope.spawn(f"{self._name} {key}", self._settle(key, future, work))
        return await asyncio.shield(future)

    async def settle(self, concerns: Callable[[KeyT], bool]) -> None:
        """Wait until no run of these keys is going on, however it ends."""
        for future in [future for key, future in self._running.items() if concerns(key)]:
            await asyncio.wait([future])

    async def _settle(self, key: KeyT, future: asyncio.Future[T], work: Callable[[], Awaitable[T]]) -> None:
        try:
            result = await work()
        except asyncio.CancelledError:
            future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - raised to all callers that wait
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            del self._running[key]


def _look_at_failure(future: asyncio.Future[T]) -> None:
    """When all callers were cancelled a failure has no listener; that is no unhandled error."""
    if not future.cancelled():
        future.exception()
