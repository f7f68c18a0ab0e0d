"""Long polls on jobs: who waits is woken by exactly the jobs it waits for, and told which they were.

A poll costs something when it begins and when it ends, nothing in between, however many jobs it is for. One with a
name ends an earlier one of that name, so that a client can wait for more jobs without leaving anything behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

from runtime.common.errors import BackpressureError, FlinklikeError
from runtime.common.ids import JobId

WAITERS_MAX = 200_000
RETRY_SECONDS = 5.0


@dataclass(eq=False, slots=True)
class _Poll:
    """One call that waits. `news`: the jobs that have changed."""

    future: asyncio.Future[None]
    news: set[JobId] = field(default_factory=set)

    def end(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class JobWaiters:
    """Polls by job, at most `count_max` pairs of them. Waking costs nothing when nobody waits."""

    def __init__(self, count_max: int = WAITERS_MAX) -> None:
        self._waiting: dict[JobId, dict[_Poll, None]] = {}
        self._named: dict[str, _Poll] = {}
        self._count_max = count_max
        self.count = 0

    def wake(self, job_id: JobId) -> None:
        """Something about the job changed."""
        for poll in self._waiting.get(job_id, ()):
            poll.news.add(job_id)
            poll.end()

    def end(self, name: str) -> None:
        """Nobody waits for the answer to the poll of that name any more."""
        if (poll := self._named.get(name)) is not None:
            poll.end()

    def fail(self, error: FlinklikeError) -> None:
        """End all waiting with an error: the term is over."""
        for waiters in self._waiting.values():
            for poll in waiters:
                if not poll.future.done():
                    poll.future.set_exception(error)

    async def wait(self, jobs: Collection[JobId], timeout: float, name: str = "") -> frozenset[JobId]:
        """Which of `jobs` have changed, as soon as one has; none after `timeout` seconds. Raises BackpressureError."""
        if self.count + len(jobs) > self._count_max:
            message = f"a long poll for {len(jobs)} jobs is refused for now: {self.count} waits are open"
            raise BackpressureError(message, retry_after=RETRY_SECONDS)
        self.count += len(jobs)
        poll = _Poll(asyncio.get_running_loop().create_future())
        for job_id in jobs:
            self._waiting.setdefault(job_id, {})[poll] = None
        if name:
            self._named[name] = poll
        timer = asyncio.get_running_loop().call_later(timeout, poll.end)
        try:
            await poll.future
        finally:
            timer.cancel()
            self._forget(jobs, poll, name)
        return frozenset(poll.news)

    def _forget(self, jobs: Collection[JobId], poll: _Poll, name: str) -> None:
        self.count -= len(jobs)
        for job_id in jobs:
            waiters = self._waiting[job_id]
            del waiters[poll]
            if not waiters:
                del self._waiting[job_id]
        if name and self._named[name] is poll:
            del self._named[name]
