"""One look at what many want to see: who asks within a moment of another's look gets its answer."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_flinklike.exceptions import FlinklikeClientError

Ask = Callable[[str, float], Awaitable[Any]]
"""Asks for a path, and tries that for so many seconds."""


@dataclass(slots=True)
class _Look:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    ended: float = float("-inf")
    answer: Any = None
    error: FlinklikeClientError | None = None


class SharedLooks:
    """Of one event loop. No task of its own: whoever comes first asks, and the next one if that one is cancelled."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._looks: dict[str, _Look] = {}

    async def get(self, path: str, *, age: float, patience: float = 0.0) -> Any:
        """What the path answers, from a look that ended at most `age` seconds before. Nobody may change the answer.

        Raises what the look has raised; `patience` is how long it tries a cluster that does not answer.
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
