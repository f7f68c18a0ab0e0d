"""TaskLog: the job in the task's log while it runs, that is, the output of its attempts within a limit, and progress.

No I/O: a worker drives it with the blocking client, a trigger with the asyncio client. A deferral hands the position
over as small JSON, without any output.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from airflow_flinklike.client.attempt_logs import AttemptLogs, LogChunk
from airflow_flinklike.client.progress import ProgressLines
from airflow_flinklike.client.protocol import Operation
from runtime.common.ids import JobId
from runtime.common.printable import printable, printable_output

LOG_LIMIT = 1_000_000
LINE_COST = 100
"""About the bytes that Airflow adds to a line (time, level, logger), so that the limit holds for short lines too."""

ATTEMPTS_MAX = 500
"""Attempts that write at the same time; the position of more would be large."""

_FIRST_SECONDS = 0.5
_BUSY_SECONDS = 2.0

_LEVELS = {
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.ERROR,
    "CRITICAL": logging.ERROR,
}
_LEVEL = re.compile(r"\d{2,4}[-/]\d\d[-/]\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? ([A-Z]+) ")
"""The beginning of a line of Python's logging in a slot, and of Spark's log4j."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line for the task's log. `level` is a level of `logging`."""

    text: str
    level: int = logging.INFO


class TaskLog:
    """The log of one task about one job. Times are in seconds of one clock.

    Between two looks at a quiet job the pause is half as long as the job has been quiet, at most `quiet_seconds`.
    """

    def __init__(
        self,
        job_id: JobId,
        job_url: str,
        *,
        now: float,
        limit: int = LOG_LIMIT,
        kept: Mapping[str, Any] | None = None,
        quiet_seconds: float = 30.0,
    ) -> None:
        self.job_id = job_id
        self._job_url = job_url
        self._limit = limit
        kept = kept or {}
        self._used = int(kept.get("used", 0))
        self._logs = AttemptLogs(job_id, position=kept)
        self._progress = ProgressLines()
        self._quiet_seconds = quiet_seconds
        self._heard_at = now
        self._next = now + _FIRST_SECONDS
        self._head = ""
        if self._is_used_up:
            self._stop()

    @property
    def is_reading(self) -> bool:
        """False when the limit is used up, and no further output is read."""
        return bool(self._logs.streams)

    @property
    def has_more(self) -> bool:
        """True when another look would find more at once."""
        return self._logs.has_more and self.is_reading

    @property
    def _is_used_up(self) -> bool:
        return self._used >= self._limit

    def kept(self) -> dict[str, Any]:
        """The numbers from which another process goes on."""
        position = {} if self._is_used_up else self._logs.position()
        return {"used": self._used, **position}

    def seconds_to_look(self, now: float) -> float:
        """Seconds until the next look; 0 when it is due."""
        return max(0.0, self._next - now)

    def look(self) -> Operation[dict[str, Any]]:
        """One request for new output and progress. `take` reads its answer."""
        return self._logs.look()

    def postpone(self, now: float) -> None:
        """After a failed look: the next one is due as for a quiet job."""
        self._next = now + self._quiet_seconds

    def take(self, answer: Mapping[str, Any], now: float, *, is_last: bool = False) -> list[LogLine]:
        """The lines to log for an answer."""
        chunks = self._logs.take(answer, is_last=is_last)
        is_wide = sum(int(one["parallelism"]) for one in answer["vertices"]) > 1
        lines = list(self._said(chunks, is_wide=is_wide))
        if not is_last and (progress := self._progress.take(answer["vertices"], now)):
            lines.append(LogLine(printable(f"Progress: {progress}")))
        if lines:
            self._heard_at = now
        if self.has_more:
            self._next = now
        else:
            self._next = now + min(max((now - self._heard_at) / 2, _BUSY_SECONDS), self._quiet_seconds)
        return lines

    def _said(self, chunks: Sequence[LogChunk], *, is_wide: bool) -> Iterator[LogLine]:
        """The chunks as lines. A vertex of several subtasks is a group, which Airflow's pages fold."""
        for _, members in groupby(chunks, key=lambda chunk: chunk.key.vertex_id):
            group = list(members)
            if is_wide:
                subtasks = len({chunk.key.subtask for chunk in group})
                vertex = printable(group[0].vertex)
                yield LogLine(f"::group::{vertex}: {_counted(group)} of {subtasks} of {group[0].parallelism}")
            yield from self._bounded(self._lines_of(group))
            if is_wide:
                self._head = ""
                yield LogLine("::endgroup::")
            if self._is_used_up:
                break
        if self.is_reading and (self._is_used_up or self._logs.live > ATTEMPTS_MAX):
            self._used = max(self._used, self._limit)
            self._stop()
            rest = f"{self._job_url}, or flinklike logs {self.job_id}"
            yield LogLine(f"The output goes on (log_limit={self._limit} is used up): {rest}")

    def _bounded(self, lines: Iterable[LogLine]) -> Iterator[LogLine]:
        for line in lines:
            if self._is_used_up:
                return
            self._used += len(line.text) + LINE_COST
            yield line

    def _lines_of(self, chunks: Iterable[LogChunk]) -> Iterator[LogLine]:
        for chunk in chunks:
            if chunk.notice:
                yield LogLine(printable(f"The log of {chunk.title} cannot be read: {chunk.notice}"), logging.WARNING)
                continue
            head = printable(f"==> {chunk.title} {chunk.stream}")
            if head != self._head:
                self._head = head
                yield LogLine(head)
            if chunk.loss:
                yield LogLine(printable(chunk.loss), logging.WARNING)
            level = logging.INFO
            for text in chunk.lines() if chunk.data else ():
                begin = _LEVEL.match(text) if chunk.stream != "stdout" else None
                # A line without a time continues the line before it, as in a stack trace.
                level = _LEVELS.get(begin.group(1), logging.INFO) if begin else level
                yield LogLine(printable_output(text), level)

    def _stop(self) -> None:
        """Read no more output. Progress goes on."""
        self._logs = AttemptLogs(self.job_id, ())


def _counted(chunks: Iterable[LogChunk]) -> str:
    count = sum(len(chunk.lines()) for chunk in chunks if not chunk.notice)
    return f"{count} line{'' if count == 1 else 's'}"
