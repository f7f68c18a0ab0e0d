"""Follows all keys under a prefix: list, watch from there, list again when history is compacted or a change is missed.

Level-triggered: each step yields all keys, so a slow follower misses steps but never the present state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TypeVar

from runtime.aio.retry import RetryPolicy
from runtime.common.entropy import Entropy
from runtime.common.errors import RetryableError
from runtime.highavailability.kv.key_value_store import (
    CompactedError,
    KeyValue,
    KeyValueStore,
    PrefixState,
    RangeResult,
    WatchBatch,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY = RetryPolicy(delay_initial=0.05, delay_max=2.0)

LOOK_SECONDS = 10.0
"""Seconds after which a follower finds a change that its watch has not reported."""


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


class Listed(dict[str, KeyValue]):
    """All keys as of `revision`, confirmed by a read: at that revision there was no other key."""

    def __init__(self, found: Mapping[str, KeyValue], revision: int) -> None:
        super().__init__(found)
        self.revision = revision


async def follow(
    kv: KeyValueStore, prefix: str, *, timeout: float, entropy: Entropy, tells_lists: bool = False
) -> AsyncIterator[Mapping[str, KeyValue]]:
    """All keys under `prefix`, now and after each change. Never ends; raises UnauthenticatedError.

    After LOOK_SECONDS, and when the watch was interrupted, the state is compared with the store, which finds changes
    that the watch has not reported (R34). Count and youngest revision are compared; when a watch has changed the state,
    they do not suffice, and the prefix is listed again. `tells_lists`: also yield confirmations without a change, as
    `Listed`.
    """
    told: Mapping[str, KeyValue] | None = None
    async with aclosing(_states(kv, prefix, timeout, entropy)) as states:
        async for state in states:
            if tells_lists or state != told:
                yield state
            told = state


async def _states(
    kv: KeyValueStore, prefix: str, timeout: float, entropy: Entropy
) -> AsyncGenerator[Mapping[str, KeyValue], None]:
    """A state after each list, each change, and each comparison that found nothing missing."""

    async def read() -> RangeResult:
        return await kv.range(prefix, is_prefix=True, timeout=timeout)

    async def look() -> PrefixState:
        return await kv.prefix_state(prefix, timeout=timeout)

    while True:
        listed = await patiently(read, entropy)
        current = {found.key: found for found in listed.kvs}
        yield Listed(current, listed.revision)
        start_revision, is_whole, has_changed = listed.revision + 1, True, False
        while is_whole:
            try:
                async with aclosing(_watched(kv, prefix, start_revision, entropy)) as batches:
                    async for batch in batches:
                        start_revision = batch.revision + 1
                        if batch.events:
                            has_changed = True
                            _apply(current, batch)
                            yield dict(current)
                if has_changed:
                    break
                found = await patiently(look, entropy)
            except CompactedError as error:
                logger.info("listing %s again: %s", prefix, error)
                break
            youngest = max((kv.mod_revision for kv in current.values()), default=0)
            is_whole = (found.count, found.mod_revision) == (len(current), youngest)
            # The state at that revision is known. The watch begins there: an old revision could be compacted.
            start_revision = max(start_revision, found.revision + 1)
            if is_whole:
                yield Listed(current, found.revision)


async def _watched(
    kv: KeyValueStore, prefix: str, start_revision: int, entropy: Entropy
) -> AsyncGenerator[WatchBatch, None]:
    """Batches of a watch, until the next comparison is due or the watch was interrupted."""
    due = asyncio.get_running_loop().time() + LOOK_SECONDS * entropy.uniform(0.8, 1.2)
    async with aclosing(kv.watch(prefix, start_revision=start_revision)) as watch:
        while True:
            try:
                async with asyncio.timeout_at(due):
                    batch = await anext(watch)
            except TimeoutError:
                return
            yield batch
            if not batch.events:
                return


def _apply(current: dict[str, KeyValue], batch: WatchBatch) -> None:
    for event in batch.events:
        if event.is_delete:
            current.pop(event.kv.key, None)
        else:
            current[event.kv.key] = event.kv
