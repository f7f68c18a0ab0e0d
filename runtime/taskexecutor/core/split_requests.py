"""Attempts that wait for their next split, until their owner has told them (R12).

Invariant: a request is told to each owner, and on each of its streams, until it is answered or its attempt has ended;
an answer counts once.
"""

from __future__ import annotations

from collections.abc import Iterator

from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.gateways.job_master import SplitAnswer, SplitRequest


class SplitRequests:
    """Of all jobs."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[JobId, dict[ExecutionAttemptId, SplitRequest]] = {}

    def add(self, request: SplitRequest) -> None:
        """An attempt waits."""
        self._open.setdefault(request.attempt_id.job_id, {})[request.attempt_id] = request

    def of(self, job_id: JobId) -> tuple[SplitRequest, ...]:
        """What a new owner, or a new stream to it, is told."""
        return tuple(self._open.get(job_id, {}).values())

    def answered(self, answers: tuple[SplitAnswer, ...]) -> Iterator[SplitAnswer]:
        """Those that are waited for. The others are repeated, or their attempts have ended."""
        for answer in answers:
            waiting = self._open.get(answer.attempt_id.job_id, {})
            asked = waiting.get(answer.attempt_id)
            if asked is not None and asked.sequence == answer.sequence:
                del waiting[answer.attempt_id]
                yield answer

    def end(self, attempt_id: ExecutionAttemptId) -> None:
        """The attempt has ended. Idempotent."""
        self._open.get(attempt_id.job_id, {}).pop(attempt_id, None)

    def end_job(self, job_id: JobId) -> None:
        """The job has left. Idempotent."""
        self._open.pop(job_id, None)
