"""Long polls on jobs: who waits is woken by exactly the jobs it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from runtime.common.errors import BackpressureError, FlinklikeError
from runtime.common.ids import JobId

WAITERS_MAX = 200_000
RETRY_SECONDS = 5.0


class JobWaiters:
    """Futures by job, at most `count_max` pairs of them. Waking costs nothing when nobody waits."""

    def __init__(self, count_max: int = WAITERS_MAX) -> None:
        self._waiting: dict[JobId, dict[asyncio.Future[None], None]] = {}
        self._count_max = count_max
        self.count = 0

    def wake(self, job_id: JobId) -> None:
        """Something about the job changed."""
        for future in self._waiting.get(job_id, ()):
            _wake(future)

    def fail(self, error: FlinklikeError) -> None:
        """End all waiting with an error: the term is over."""
        for waiters in self._waiting.values():
            for future in waiters:
                if not future.done():
                    future.set_exception(error)

    async def wait(self, jobs: Collection[JobId], timeout: float) -> None:
        """Return at the next change of one of `jobs`, or after `timeout` seconds. Raises BackpressureError."""
        if self.count + len(jobs) > self._count_max:
            message = f"a long poll for {len(jobs)} jobs is refused for now: {self.count} waits are open"
            raise BackpressureError(message, retry_after=RETRY_SECONDS)
        self.count += len(jobs)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for job_id in jobs:
            self._waiting.setdefault(job_id, {})[future] = None
        timer = asyncio.get_running_loop().call_later(timeout, _wake, future)
        try:
            await future
        finally:
            timer.cancel()
            self.count -= len(jobs)
            for job_id in jobs:
                waiters = self._waiting[job_id]
                del waiters[future]
                if not waiters:
                    del self._waiting[job_id]


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
