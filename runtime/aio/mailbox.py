"""A bounded queue from many senders to one receiver. Full = BackpressureError at the sender, never memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from runtime.common.errors import BackpressureError, UnavailableError

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Messages in order of `put`. One receiver at a time."""

    def __init__(self, name: str, *, capacity: int, retry_after: float = 1.0) -> None:
        assert capacity > 0, f"{name}: {capacity}"
        self._name = name
        self._capacity = capacity
        self._retry_after = retry_after
        self._items: deque[T] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_closed = False
        self.depth_max = 0

    @property
    def depth(self) -> int:
        """How many messages wait."""
        return len(self._items)

    def put(self, item: T) -> None:
        """Add a message. Raises BackpressureError when full, UnavailableError when closed."""
        if self._is_closed:
            message = f"mailbox {self._name} is closed"
            raise UnavailableError(message)
        if len(self._items) >= self._capacity:
            message = f"mailbox {self._name} is full: {self._capacity} messages wait"
            raise BackpressureError(message, retry_after=self._retry_after)
        self._items.append(item)
        self.depth_max = max(self.depth_max, len(self._items))
        self._wake()

    def close(self) -> None:
        """Refuse new messages; the receiver gets the waiting ones, then UnavailableError. Idempotent."""
        self._is_closed = True
        self._wake()

    async def get(self) -> T:
        """The next message."""
        await self._wait()
        return self._items.popleft()

    async def get_all(self) -> Sequence[T]:
        """All waiting messages, at least one."""
        await self._wait()
        items = list(self._items)
        self._items.clear()
        return items

    async def _wait(self) -> None:
        while not self._items:
            if self._is_closed:
                message = f"mailbox {self._name} is closed"
                raise UnavailableError(message)
            assert self._waiter is None, f"mailbox {self._name} has two receivers"
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
