"""TaskOutput shows the output of an attached run live, as spark-submit does: stdout on stdout, the rest on stderr.

Output that cannot be read, or written (`lasting_streams`), is dropped, and does not fail the run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.client.attempt_logs import AttemptLogs, LogChunk, loss_in_words
from airflow_flinklike.exceptions import AuthenticationError, ClusterUnavailableError, FlinklikeClientError
from runtime.common.ids import JobId
from runtime.common.printable import printable_output
from runtime.common.states import JobStatus

_PAUSE_SECONDS = 0.25
_PAUSE_SECONDS_MAX = 1.0
_REMEMBERED_BYTES = 128 * 1024


class TaskOutput:
    """The output of one job. Without `uses_stdout` all of it goes to stderr."""

    def __init__(self, client: FlinklikeClient, job_id: JobId, errors: Console, *, uses_stdout: bool) -> None:
        self._client = client
        self._errors = errors
        self._logs = AttemptLogs(job_id)
        self._uses_stdout = uses_stdout
        self._pause, self._since = 0.0, 0
        self._title: str | None = None
        self._on_stderr = b""
        self._lost: dict[str, int] = {}
        self.has_ended = False
        """True when the job has ended and all its output is shown."""
        self.is_readable = True
        self.vertices: list[Mapping[str, Any]] = []

    def has_shown(self, text: str) -> bool:
        """True if the text is in the last output of the tasks to stderr."""
        return text.strip().encode() in self._on_stderr

    def losses(self) -> list[str]:
        """A sentence for each log of which output was dropped, for the end: at the places there are marks only."""
        return [loss_in_words(dropped, whose) for whose, dropped in self._lost.items()]

    def look(self) -> None:
        """Wait a moment for a change of the job, and show new output."""
        try:
            answer = self._client.run(self._logs.look(wait=self._pause, since=self._since))
        except (ClusterUnavailableError, AuthenticationError):
            raise
        except FlinklikeClientError as error:
            self.is_readable = False
            self._errors.print(f"The output of the job cannot be read now: {error}")
            return
        is_over = JobStatus(answer["state"]).is_globally_terminal
        self.vertices = answer["vertices"]
        is_lone = [int(one["parallelism"]) for one in self.vertices] == [1]
        chunks = self._logs.take(answer, is_last=is_over)
        for chunk in chunks:
            self._show(chunk, is_lone=is_lone)
        self._since = int(answer["last-modification"])
        self.has_ended = is_over and not self._logs.has_more
        if self._logs.has_more:
            self._pause = 0.0
        else:
            self._pause = _PAUSE_SECONDS if chunks else min(2 * (self._pause or _PAUSE_SECONDS), _PAUSE_SECONDS_MAX)

    def _show(self, chunk: LogChunk, *, is_lone: bool) -> None:
        if chunk.notice:
            self._errors.print(f"The output of {chunk.title} cannot be read any more: {chunk.notice}")
            return
        if self._title is None and is_lone:
            self._title = chunk.title
        if chunk.title != self._title:
            self._title = chunk.title
            self._errors.print(f"==> {chunk.title}", style="dim")
        if chunk.loss:
            whose = f"{chunk.stream} of {chunk.title}"
            self._errors.print(
                f"-- {chunk.dropped_bytes / (1 << 20):.1f} mb of the {whose} are missing here --", style="yellow"
            )
            self._lost[whose] = self._lost.get(whose, 0) + chunk.dropped_bytes
        if chunk.stream == "stdout" and self._uses_stdout:
            self._write_stdout(chunk)
        else:
            self._on_stderr = (self._on_stderr + chunk.data)[-_REMEMBERED_BYTES:]
            self._write_stderr(chunk)

    def _write_stdout(self, chunk: LogChunk) -> None:
        if self._errors.is_terminal and sys.stdout.isatty():
            self._write_stderr(chunk)  # on one screen, the progress has to stay below
            return
        sys.stdout.buffer.write(chunk.data)
        sys.stdout.buffer.flush()

    def _write_stderr(self, chunk: LogChunk) -> None:
        if self._errors.is_terminal:
            for line in chunk.lines():
                self._errors.print(Text.from_ansi(printable_output(line)), soft_wrap=True)
        else:
            sys.stderr.buffer.write(chunk.data)
            sys.stderr.buffer.flush()
