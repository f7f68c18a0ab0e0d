"""Blocking calls about one directory of histories. A mount that hangs holds up nothing but what lies on it.

Looks and reads have threads of their own, which keep no process alive: in a thread of a shared pool a call that hangs
would take the place of calls about other directories, and the end of the process would wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from runtime.aio.thread_calls import LongCalls, ThreadCalls
from runtime.common.errors import UnavailableError
from runtime.common.masking import without_login

LOOK_SECONDS = 10.0
"""A look that takes longer is waited for by nobody, and goes on: a directory may have a hundred thousand files."""
READ_SECONDS = 10.0
"""Within which one archive has to be read, and for which a reader waits for those before it."""

T = TypeVar("T")


class DirectoryCalls:
    """Those about the directory at `url`."""

    def __init__(self, url: str) -> None:
        self._url = without_login(url)
        self._looks: LongCalls[int] = LongCalls("history-look")
        self._reads = ThreadCalls("history-read", READ_SECONDS)
        self._turn = asyncio.Lock()

    async def look(self, function: Callable[[], int]) -> int:
        """The result of a look, or of one before that took longer. Raises UnavailableError while it takes longer."""
        return await self._looks.call(function, patience=LOOK_SECONDS)

    async def read(self, function: Callable[[], T]) -> T:
        """The result of a read of one file. Raises UnavailableError when the directory does not give it in time."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                await self._turn.acquire()
        except TimeoutError as late:
            message = f"{self._url} is slow: others have waited for {READ_SECONDS:g} s"
            raise UnavailableError(message) from late
        try:
            return await self._reads.call(function)
        except UnavailableError as error:
            message = f"{self._url} cannot be read now: {error}"
            raise UnavailableError(message) from error
        finally:
            self._turn.release()
