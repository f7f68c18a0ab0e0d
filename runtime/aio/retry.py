"""Retries: full jitter from the injected Entropy, bounded by a deadline. For idempotent calls only.

Retry in exactly one layer: what calls `retry` must not call something that retries by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from runtime.common.clock import Clock, Deadline
from runtime.common.entropy import Entropy
from runtime.common.errors import BackpressureError, RetryableError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delay before attempt n+1: uniform in [0, min(delay_max, delay_initial * 2^n))."""

    delay_initial: float
    delay_max: float

    def delay(self, attempt: int, entropy: Entropy) -> float:
        """How long to wait after failed attempt number `attempt` (from 0)."""
        # An exponent of 64 is beyond every delay_max; higher ones overflow a float.
        ceiling = min(self.delay_max, self.delay_initial * 2.0 ** min(attempt, 64))
        return entropy.uniform(0.0, ceiling)


async def retry(
    operation: Callable[[], Awaitable[T]],
    *,
    policy: RetryPolicy,
    clock: Clock,
    entropy: Entropy,
    deadline: Deadline | None,
    on_retry: Callable[[Exception, float], None] | None = None,
) -> T:
    """Call `operation` until it succeeds, fails with what is no RetryableError, or the time runs out.

    Raises the last error. A BackpressureError's `retry_after` is waited for at least. `on_retry` sees each error that
    is retried, and the delay that follows.
    """
    attempt = 0
    while True:
        try:
            return await operation()
        except RetryableError as error:
            delay = policy.delay(attempt, entropy)
            if isinstance(error, BackpressureError):
                delay = max(delay, error.retry_after)
            attempt += 1
            if deadline is not None and deadline.remaining(clock) <= delay:
                raise
            if on_retry is not None:
                on_retry(error, delay)
        await asyncio.sleep(delay)


def is_worth_logging(failures: int) -> bool:
    """Of failures that repeat, the 1st, 2nd, 3rd, 5th, 9th ... : enough to see that it goes on."""
    return failures & (failures - 1) == 0
