"""Follows all keys under a prefix: list, watch from there, list again when the history is gone.

Level-triggered: what comes out is always the whole, so a follower that is slow misses steps but never the state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeVar

from runtime.aio.retry import RetryPolicy
from runtime.common.entropy import Entropy
from runtime.common.errors import RetryableError
from runtime.highavailability.kv import CompactedError, KeyValue, KeyValueStore, RangeResult, WatchBatch

logger = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY = RetryPolicy(delay_initial=0.05, delay_max=2.0)


async def patiently(ask: Callable[[], Awaitable[T]], entropy: Entropy) -> T:
    """Repeat a read, or an idempotent write, until the store answers."""
    attempt = 0
    while True:
        try:
            return await ask()
        except CompactedError:
            raise
        except RetryableError as error:
            logger.debug("the store does not answer, trying again: %s", error)
        await asyncio.sleep(_RETRY.delay(attempt, entropy))
        attempt += 1


async def follow(
    kv: KeyValueStore, prefix: str, *, timeout: float, entropy: Entropy
) -> AsyncIterator[Mapping[str, KeyValue]]:
    """All keys under `prefix`, now and after each change. Never ends; raises UnauthenticatedError."""

    async def read() -> RangeResult:
        return await kv.range(prefix, is_prefix=True, timeout=timeout)

    while True:
        listed = await patiently(read, entropy)
        current = {found.key: found for found in listed.kvs}
        yield dict(current)
        try:
            async for batch in kv.watch(prefix, start_revision=listed.revision + 1):
                _apply(current, batch)
                yield dict(current)
        except CompactedError as error:
            logger.info("listing %s again: %s", prefix, error)


def _apply(current: dict[str, KeyValue], batch: WatchBatch) -> None:
    for event in batch.events:
        if event.is_delete:
            current.pop(event.kv.key, None)
        else:
            current[event.kv.key] = event.kv
