"""BlockingIo: file work runs in a small pool of threads, so that neither the loop nor other work waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4


class BlockingIo:
    """Runs blocking calls. One per process."""

    def __init__(self, *, threads: int = THREADS) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="blob-io")

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `call`. A cancelled caller leaves the call running to its end."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: call(*args, **kwargs))

    def close(self) -> None:
        """Wait for running calls and end the threads. Idempotent."""
        self._executor.shutdown(wait=True)
