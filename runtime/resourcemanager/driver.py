"""ResourceManagerDriver: what starts and ends TaskManagers for the ResourceManager (Flink's term)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from runtime.common.errors import RetryableError


class DriverError(RetryableError):
    """The driver cannot do or say what it was asked, with the reason."""


class ResourceManagerDriver(Protocol):
    """Starts workers, which are TaskManagers with a label, the worker id, which names their profile too (D-141). A
    label outlives the process that gave it: the driver of a later leader sees the workers of an earlier one.
    """

    async def workers(self) -> Collection[str]:
        """The labels of all workers that run now, registered or not. DriverError."""

    async def start(self, worker_id: str, /, *, is_wanted: Callable[[], bool]) -> None:
        """Start a worker, and return when it runs, as `workers` says from then on; it registers later. DriverError.

        `is_wanted` is asked, in any thread, in the last moment before the start: a leader may have lost its term.
        """

    async def release(self, worker_id: str, /, *, kills: bool) -> None:
        """End a worker, at once where it `kills`; else the worker drains for `taskmanager.drain-timeout`.

        Returns at once; idempotent. DriverError.
        """

    async def last_words(self, worker_id: str, /) -> str:
        """What is known of the end of a worker, in a sentence; "" when nothing is."""
