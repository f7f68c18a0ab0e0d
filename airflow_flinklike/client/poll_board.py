"""Who waits for which job, and what one poll for all of them has to ask. No I/O, no clock.

Invariants: whoever waits is in the latest poll with the last modification that he knows, or another poll is needed; an
end is told to everybody who waits for that job, whatever he knows; what a poll says that another one has replaced
counts for ends only, because the newer one asks for the rest again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_flinklike.client.model import JobNews, JobState
from runtime.common.ids import JobId


class PollBoard:
    """Tokens stand for who waits."""

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
        """Everybody who waits."""
        return list(self._job_of)

    def join(self, job_id: JobId, since: int) -> int:
        """Somebody waits for a change of a job after the last modification `since`; 0 for its state now."""
        self._tokens += 1
        self._job_of[self._tokens] = job_id
        self._waiting.setdefault(job_id, {})[self._tokens] = since
        self._is_covered = self._is_covered and self._asked is not None and self._asked.get(job_id) == since
        return self._tokens

    def leave(self, token: int) -> None:
        """He does not wait any more. Idempotent."""
        job_id = self._job_of.pop(token, None)
        if job_id is None:
            return
        waiting = self._waiting[job_id]
        del waiting[token]
        if not waiting:
            del self._waiting[job_id]

    @property
    def needs_poll(self) -> bool:
        """True when somebody waits whom no poll under way is for."""
        return bool(self._job_of) and (self._asked is None or not self._is_covered)

    def begin_poll(self) -> tuple[int, Mapping[JobId, int]]:
        """The number of a poll that replaces the one under way, and what it asks."""
        self._polls += 1
        asked = {job_id: _known_to_all(set(waiting.values())) for job_id, waiting in self._waiting.items()}
        self._asked, self._is_covered = asked, True
        return self._polls, asked

    def end_poll(self, number: int, news: JobNews | None) -> Iterator[tuple[int, JobId, JobState | None]]:
        """Who is answered, and with what: None for a job that is not known. They have left. `news` None: no answer."""
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
    """Those who know different things of a job are answered at once: no job was last modified at 0."""
    return known.pop() if len(known) == 1 else 0
