"""The waiters of many jobs, and the question of the one poll that serves them all. No I/O, no clock.

Invariants: the latest poll asks for the job of each waiter with the last modification that the waiter knows, or
`needs_poll` is True. The end of a job answers all its waiters. From the answer of a replaced poll only ends count,
because the poll that has replaced it asks for everything else again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_flinklike.client.model import JobNews, JobState
from runtime.common.ids import JobId


class PollBoard:
    """The waiters, each as a token."""

    def __init__(self) -> None:
        self._waiting: dict[JobId, dict[int, int]] = {}
        self._job_of: dict[int, JobId] = {}
        self._tokens = 0
        self._polls = 0
        self._asked: Mapping[JobId, int] | None = None
        self._is_covered = True

    def __len__(self) -> int:
        return len(self._job_of)

    def tokens(self) -> list[int]:
        """The tokens of all waiters."""
        return list(self._job_of)

    def join(self, job_id: JobId, since: int) -> int:
        """Add a waiter for a change of a job after the last modification `since`; 0 for its current state."""
        self._tokens += 1
        self._job_of[self._tokens] = job_id
        self._waiting.setdefault(job_id, {})[self._tokens] = since
        self._is_covered = self._is_covered and self._asked is not None and self._asked.get(job_id) == since
        return self._tokens

    def leave(self, token: int) -> None:
        """Remove a waiter. Idempotent."""
        job_id = self._job_of.pop(token, None)
        if job_id is None:
            return
        waiting = self._waiting[job_id]
        del waiting[token]
        if not waiting:
            del self._waiting[job_id]

    @property
    def needs_poll(self) -> bool:
        """True when the poll under way does not serve all waiters, or no poll is under way."""
        return bool(self._job_of) and (self._asked is None or not self._is_covered)

    def begin_poll(self) -> tuple[int, Mapping[JobId, int]]:
        """The number of a new poll, which replaces the one under way, and the last modification to ask for by job."""
        self._polls += 1
        asked = {job_id: _known_to_all(set(waiting.values())) for job_id, waiting in self._waiting.items()}
        self._asked, self._is_covered = asked, True
        return self._polls, asked

    def end_poll(self, number: int, news: JobNews | None) -> Iterator[tuple[int, JobId, JobState | None]]:
        """Remove the waiters that a poll answers, and yield them with the state; None for an unknown job.

        `news` is None when the poll got no answer.
        """
        is_latest = number == self._polls
        if is_latest:
            self._asked = None
        if news is None:
            return
        for state in news.changed:
            for token, since in list(self._waiting.get(state.job_id, {}).items()):
                is_news = is_latest and state.last_modification != since
                if is_news or state.status.is_globally_terminal:
                    self.leave(token)
                    yield token, state.job_id, state
        for job_id in sorted(news.unknown):
            for token in list(self._waiting.get(job_id, {})):
                self.leave(token)
                yield token, job_id, None


def _known_to_all(known: set[int]) -> int:
    """0 when waiters know different modifications: no job has that, so the poll answers at once."""
    return known.pop() if len(known) == 1 else 0
