"""A bounded queue from many senders to one receiver. A full one raises BackpressureError at the sender."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Generic, TypeVar

from runtime.common.errors import BackpressureError

T = TypeVar("T")

RETRY_AFTER_SECONDS = 1.0
"""What a sender is told when the queue is full."""


class Mailbox(Generic[T]):
    """Messages in order of `put`. One receiver at a time."""

    def __init__(self, name: str, *, capacity: int) -> None:
        assert capacity > 0, f"{name}: {capacity}"
        self._name = name
        self._capacity = capacity
        self._items: list[T] = []
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: T) -> None:
        """Add a message. Raises BackpressureError when full."""
        if len(self._items) >= self._capacity:
            message = f"mailbox {self._name} is full: {self._capacity} messages wait"
            raise BackpressureError(message, retry_after=RETRY_AFTER_SECONDS)
        self._items.append(item)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get_all(self) -> Sequence[T]:
        """All waiting messages, at least one."""
        await self._wait()
        items, self._items = self._items, []
        return items

    async def _wait(self) -> None:
        while not self._items:
            assert self._waiter is None, f"mailbox {self._name} has two receivers"
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
