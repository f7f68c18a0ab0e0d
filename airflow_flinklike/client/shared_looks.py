"""SharedLooks: tasks that ask for the same path within a moment share one request."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_flinklike.exceptions import FlinklikeClientError

Ask = Callable[[str, float], Awaitable[Any]]
"""Gets a path; retries for so many seconds."""


@dataclass(slots=True)
class _Look:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    ended: float = float("-inf")
    answer: Any = None
    error: FlinklikeClientError | None = None


class SharedLooks:
    """The shared requests of one event loop. The first caller sends one; if it is cancelled, the next caller does."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._looks: dict[str, _Look] = {}

    async def get(self, path: str, *, age: float, patience: float = 0.0) -> Any:
        """The answer of the path, at most `age` seconds old. It is shared: do not change it.

        Raises the error of the request. A cluster that does not answer is retried for `patience` seconds.
        """
        loop = asyncio.get_running_loop()
        look, came = self._looks.setdefault(path, _Look()), loop.time()
        async with look.lock:
            if look.ended < came - age:
                look.answer = look.error = None
                try:
                    look.answer = await self._ask(path, patience)
                except FlinklikeClientError as error:
                    look.error = error
                look.ended = loop.time()
            if look.error is not None:
                raise copy.copy(look.error)  # each with a traceback of its own
            return look.answer
