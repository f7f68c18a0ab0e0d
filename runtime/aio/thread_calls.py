"""Blocking calls that may never come back: a few at a time, in threads that do not keep the process alive."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from runtime.common.errors import UnavailableError

T = TypeVar("T")


def in_own_thread(name: str, function: Callable[[], T]) -> tuple[threading.Thread, asyncio.Future[T]]:
    """Call the function in a thread of its own, which no end of a process waits for; and where its result will be."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(give: Callable[[], None]) -> None:
        if not future.done():
            give()

    def work() -> None:
        try:
            give = partial(future.set_result, function())
        except Exception as error:  # noqa: BLE001 - it is told by who awaits it
            give = partial(future.set_exception, error)
        try:
            loop.call_soon_threadsafe(deliver, give)
        except RuntimeError:
            return  # the loop has ended, and with it everybody who waits

    # No thread of a pool: the end of the process would wait for it.
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread, future


class LongCalls(Generic[T]):
    """Calls of one kind, one after the other. One that takes long goes on, and the next asker gets its result."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._future: asyncio.Future[T] | None = None

    async def call(self, function: Callable[[], T], *, patience: float) -> T:
        """The result of `function`, or of the call before that went on; its errors pass.

        Raises UnavailableError when it has not come back within `patience` seconds, and at once where an earlier asker
        has waited for it already.
        """
        if self._future is None:
            _, self._future = in_own_thread(self._name, function)
            await asyncio.wait([self._future], timeout=patience)
        if not self._future.done():
            message = f"it has not answered in {patience:g} s, and is waited for"
            raise UnavailableError(message)
        future, self._future = self._future, None
        return future.result()


class ThreadCalls:
    """The calls of one plug-in, or of one kind, `threads` at once. Calls that hang delay later ones of it only."""

    def __init__(self, name: str, timeout: float, *, threads: int = 1) -> None:
        self._name = name
        self._timeout = timeout
        self._threads_max = threads
        self._threads: list[threading.Thread] = []

    async def call(self, function: Callable[[], T]) -> T:
        """Call the function; its errors pass. Raises UnavailableError after the timeout, and at once while earlier
        calls have all threads.
        """
        self._threads = [one for one in self._threads if one.is_alive()]
        if len(self._threads) >= self._threads_max:
            message = "an earlier call has not come back yet"
            raise UnavailableError(message)
        thread, future = in_own_thread(self._name, function)
        self._threads.append(thread)
        done, _ = await asyncio.wait([future], timeout=self._timeout)
        if not done:
            future.cancel()
            message = f"it has not answered in {self._timeout:g} s"
            raise UnavailableError(message)
        self._threads = [one for one in self._threads if one is not thread]  # nothing is left of it but its end
        return future.result()
