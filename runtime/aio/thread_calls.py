"""Calls of blocking functions of plug-ins: one at a time, in a thread that does not keep the process alive."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from runtime.common.errors import UnavailableError

T = TypeVar("T")


class ThreadCalls:
    """The calls of one plug-in. A call that hangs delays the later calls of that plug-in only."""

    def __init__(self, name: str, timeout: float) -> None:
        self._name = name
        self._timeout = timeout
        self._thread: threading.Thread | None = None

    async def call(self, function: Callable[[], T]) -> T:
        """Call the function; its errors pass. Raises UnavailableError after the timeout, and while an earlier call
        hangs.
        """
        if self._thread is not None and self._thread.is_alive():
            message = "an earlier call has not come back yet"
            raise UnavailableError(message)
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
        self._thread = threading.Thread(target=work, name=self._name, daemon=True)
        self._thread.start()
        done, _ = await asyncio.wait([future], timeout=self._timeout)
        if not done:
            future.cancel()
            message = f"it has not answered in {self._timeout:g} s"
            raise UnavailableError(message)
        self._thread = None  # nothing is left of it but its end
        return future.result()
