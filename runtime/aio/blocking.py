"""Blocking calls off the loop: in a small pool of threads of their own, so that neither the loop nor others wait.

Three kinds of blocking work are done otherwise. A single short call that nothing can hold up takes
`asyncio.to_thread`. A function of a plug-in may never come back: `runtime.aio.thread_calls` gives it a thread that
keeps no process alive. A commit of outputs has threads of its own in `taskexecutor/outputs`, whose end it awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4


class BlockingIo:
    """Runs blocking calls on at most `threads` threads with this name. One for each kind of work that may block."""

    def __init__(self, name: str = "blob-io", *, threads: int = THREADS) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `call`. A cancelled caller leaves the call running to its end.

        Raises RuntimeError when no thread can be started, and after the end.
        """
        return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: call(*args, **kwargs))

    def close(self) -> None:
        """Wait for running calls and end the threads. Idempotent."""
        self._executor.shutdown(wait=True)

    def abandon(self) -> None:
        """End the threads without waiting: calls that have not begun are dropped, the others run on. Idempotent."""
        self._executor.shutdown(wait=False, cancel_futures=True)
