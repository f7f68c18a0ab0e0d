"""A value that many may wait on: only the latest counts, each change raises the generation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Watch(Generic[T]):
    """The latest value and how often it has changed. Setting never blocks; waiting is level-triggered."""

    def __init__(self, value: T) -> None:
        self._value = value
        self._generation = 0
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def value(self) -> T:
        """The latest value."""
        return self._value

    @property
    def generation(self) -> int:
        """How often `set` was called."""
        return self._generation

    def set(self, value: T) -> None:
        """Replace the value and wake all tasks that wait."""
        self._value = value
        self._generation += 1
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_changed(self, generation: int) -> T:
        """The latest value, as soon as its generation is above `generation`."""
        while self._generation <= generation:
            await self._next_set()
        return self._value

    async def wait_until(self, predicate: Callable[[T], bool]) -> T:
        """The first value that satisfies `predicate`, the present one included. Values in between may be missed."""
        while not predicate(self._value):
            await self._next_set()
        return self._value

    async def _next_set(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if not waiter.done() or waiter.cancelled():
                self._waiters = [other for other in self._waiters if other is not waiter]
