"""Lists of jobs as bytes: a row is made once for each change of its job, a long list in slices.

The loop runs other tasks between two slices: a list of ten thousand jobs delays no other request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from runtime.common.ids import JobId
from runtime.gateways.dispatcher import JobSummary
from runtime.rest.answers import encoded
from runtime.rest.bodies.job_bodies import duration, job_overview

SLICE_ROWS = 200
"""Rows that are made at most before the loop runs other tasks."""
_DURATION = b'"duration":'


@dataclass(frozen=True, slots=True)
class _Row:
    """The row of a job; `tail` is empty when the row does not depend on the time of the answer."""

    summary: JobSummary
    head: bytes
    tail: bytes

    def at(self, now: int) -> bytes:
        if not self.tail:
            return self.head
        return b"%b%d%b" % (self.head, duration(self.summary.start_millis, -1, now), self.tail)


class JobRows:
    """The rows of all jobs that are shown. `cluster_of`: what a history server says of each."""

    def __init__(self, cluster_of: Callable[[JobId], str] | None = None) -> None:
        self._cluster_of = cluster_of
        self._rows: dict[JobId, _Row] = {}
        self.made = 0
        """How many rows were made so far."""

    async def overview(self, summaries: Sequence[JobSummary], now: int, jobs: int = 0, more: bytes = b"") -> bytes:
        """The body of /jobs/overview; rows are kept for the next time. `jobs`: how many there are in all.

        `more`: further fields, with a comma in front.
        """
        if len(self._rows) > 2 * max(jobs, len(summaries)) + SLICE_ROWS:
            self._rows = {one.job_id: row for one in summaries if (row := self._rows.get(one.job_id)) is not None}
        return await _body(summaries, now, self._row, more)

    def _row(self, summary: JobSummary) -> _Row:
        row = self._rows.get(summary.job_id)
        if row is None or row.summary is not summary:
            row = self._rows[summary.job_id] = _make_row(summary, self._cluster_of)
            self.made += 1
        return row


async def changed_jobs(summaries: Sequence[JobSummary], unknown: Sequence[JobId], now: int) -> bytes:
    """The body of /jobs/wait. Its rows are not kept: a client hardly asks for the same ones again."""
    return await _body(summaries, now, _make_row, b',"unknown":' + encoded(unknown))


async def _body(summaries: Sequence[JobSummary], now: int, row: Callable[[JobSummary], _Row], more: bytes) -> bytes:
    rows: list[bytes] = []
    for start in range(0, len(summaries), SLICE_ROWS):
        if start:
            await asyncio.sleep(0)
        rows += [row(one).at(now) for one in summaries[start : start + SLICE_ROWS]]
    return _jobs(rows, more)


def _jobs(rows: list[bytes], more: bytes) -> bytes:
    """`{"jobs":[...]}`, in one copy: such a body has megabytes."""
    if not rows:
        return b'{"jobs":[]' + more + b"}"
    rows[0] = b'{"jobs":[' + rows[0]
    rows[-1] += b"]" + more + b"}"
    return b",".join(rows)


def _make_row(summary: JobSummary, cluster_of: Callable[[JobId], str] | None = None) -> _Row:
    overview = job_overview(summary, summary.start_millis)
    if cluster_of is not None:
        overview["cluster"] = cluster_of(summary.job_id)
    body = encoded(overview)
    if summary.end_millis >= 0 or summary.start_millis < 0:
        return _Row(summary, body, b"")
    # Texts cannot hold it: a quote in them is escaped.
    head, _, tail = body.partition(_DURATION + b"0,")
    return _Row(summary, head + _DURATION, b"," + tail)


async def ids_and_states(summaries: Sequence[JobSummary]) -> bytes:
    """The body of /jobs."""
    rows: list[bytes] = []
    for start in range(0, len(summaries), 10 * SLICE_ROWS):
        if start:
            await asyncio.sleep(0)
        rows += _pairs(summaries[start : start + 10 * SLICE_ROWS])
    return _jobs(rows, b"")


def _pairs(summaries: Iterable[JobSummary]) -> list[bytes]:
    return [f'{{"id":"{one.job_id}","status":"{one.status.value}"}}'.encode("ascii") for one in summaries]
