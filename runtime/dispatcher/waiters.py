"""Long polls on jobs: a poll is woken by exactly the jobs that it waits for, and its answer says which have changed.

A poll costs something when it begins and when it ends, nothing in between, however many jobs it is for. A poll with a
name ends the earlier poll of that name, so that a client can wait for more jobs without leaving a poll behind. The
polls of one principal take at most half of the room that the polls of others leave (R49).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from runtime.common.errors import BackpressureError, FlinklikeError
from runtime.common.ids import JobId

WAITERS_MAX = 200_000
RETRY_SECONDS = 5.0


@dataclass(eq=False, slots=True)
class _Poll:
    """One call that waits for `size` jobs. `news`: the jobs of these that have changed."""

    future: asyncio.Future[None]
    size: int
    principal: str
    is_counted: bool = True
    news: set[JobId] = field(default_factory=set)

    def end(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class JobWaiters:
    """The polls of one term, by job: at most `count_max` pairs of poll and job. A job without polls costs nothing."""

    def __init__(self, count_max: int = WAITERS_MAX) -> None:
        self._waiting: dict[JobId, dict[_Poll, None]] = {}
        self._named: dict[str, _Poll] = {}
        self._count_max = count_max
        self.count = 0
        self._counts: Counter[str] = Counter()

    def wake(self, job_id: JobId) -> None:
        """Something about the job changed."""
        for poll in self._waiting.get(job_id, ()):
            poll.news.add(job_id)
            poll.end()

    def end(self, name: str) -> None:
        """End the poll of that name: its client does not wait for the answer any more."""
        if (poll := self._named.get(name)) is not None:
            poll.end()
            self._uncount(poll)  # the poll that replaces it may begin in this very step

    def fail(self, error: FlinklikeError) -> None:
        """End all polls with an error: the term is over."""
        for waiters in self._waiting.values():
            for poll in waiters:
                if not poll.future.done():
                    poll.future.set_exception(error)

    async def wait(
        self, jobs: Collection[JobId], timeout: float, name: str = "", *, principal: str = ""
    ) -> frozenset[JobId]:
        """Which of `jobs` have changed, as soon as one has; none after `timeout` seconds. Raises BackpressureError."""
        own = self._counts[principal]
        share = (self._count_max - (self.count - own)) // 2
        if own + len(jobs) > share:
            message = (
                f"a long poll for {len(jobs)} jobs is refused for now: you wait for {own} already, and {share} is your "
                "share as long as others wait as they do"
            )
            raise BackpressureError(message, retry_after=RETRY_SECONDS)
        self.count += len(jobs)
        self._counts[principal] += len(jobs)
        poll = _Poll(asyncio.get_running_loop().create_future(), len(jobs), principal)
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

    def _uncount(self, poll: _Poll) -> None:
        if poll.is_counted:
            poll.is_counted = False
            self.count -= poll.size
            self._counts[poll.principal] -= poll.size
            if not self._counts[poll.principal]:
                del self._counts[poll.principal]

    def _forget(self, jobs: Collection[JobId], poll: _Poll, name: str) -> None:
        self._uncount(poll)
        for job_id in jobs:
            waiters = self._waiting[job_id]
            del waiters[poll]
            if not waiters:
                del self._waiting[job_id]
        if name and self._named[name] is poll:
            del self._named[name]
