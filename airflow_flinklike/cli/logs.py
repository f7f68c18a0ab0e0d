"""`flinklike logs` shows the output of a job's attempts, once or live."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.client.attempt_logs import AttemptLogs, LogChunk
from airflow_flinklike.exceptions import PipelineError
from runtime.common.ids import JobId
from runtime.common.log_position import STREAMS
from runtime.common.printable import printable, printable_output
from runtime.common.states import JobStatus

_PAUSE_SECONDS = 0.5
_PAUSE_SECONDS_MAX = 4.0
_ATTEMPT_DIGITS_MAX = 10


@dataclass(slots=True)
class LogFollower:
    """Writes the logs of the attempts of a job. The longer no output comes, the longer are its pauses."""

    client: FlinklikeClient
    job_id: JobId
    streams: Sequence[str]
    vertex: str | None
    subtask: int | None
    attempt: int | None = None
    as_json: bool = False
    last_head: str = ""
    shown: dict[tuple[str, int], set[int]] = field(default_factory=dict)

    def run(self, *, follow: bool) -> None:
        """Write all output; with `follow` until the job has ended."""
        self._check_streams()
        logs = AttemptLogs(self.job_id, self.streams, vertex=self.vertex, subtask=self.subtask, attempt=self.attempt)
        if (self.vertex, self.subtask, self.attempt) != (None, None, None):
            self._check_filter()
        pause, since = 0.0, 0
        while True:
            answer = self.client.run(logs.look(wait=pause, since=since))
            has_ended = JobStatus(answer["state"]).is_globally_terminal
            chunks = logs.take(answer, is_last=not follow or has_ended)
            for chunk in chunks:
                self._write(chunk)
            if logs.has_more:
                pause = 0.0
            elif has_ended or not follow:
                break
            else:
                pause = _PAUSE_SECONDS if chunks or not pause else min(2 * pause, _PAUSE_SECONDS_MAX)
            since = int(answer["last-modification"])
        for note in self._notes():
            sys.stderr.write(f"{note}\n")

    def _notes(self) -> list[str]:
        """A note about several attempts, whose output looks like that of one."""
        most = max(self.shown.values(), key=max, default={0})
        first, last = min(most), max(most)
        if self.attempt is not None or last == 0:
            return []
        notes = [f"These are {len(most)} attempts, {first} to {last}: --attempt N shows one of them."]
        if first > 0:
            notes.append(
                f"What was before attempt {first} is not kept, or wrote nothing "
                "(jobmanager.execution.attempts-history-size)."
            )
        return notes

    def _check_streams(self) -> None:
        wrong = [one for one in self.streams if one not in STREAMS]
        if wrong or not self.streams:
            message = f"--stream {','.join(wrong) or '(nothing)'}: expected {', '.join(STREAMS)}"
            raise PipelineError(message)

    def _check_filter(self) -> None:
        vertices: Sequence[Mapping[str, Any]] = self.client.get(f"/jobs/{self.job_id}")["vertices"]
        found = [one for one in vertices if self.vertex in {None, one["id"], one["name"]}]
        if not found:
            names = ", ".join(repr(one["name"]) for one in vertices)
            message = f"--vertex {self.vertex!r}: job {self.job_id} has {names}"
            raise PipelineError(message)
        widest = max(found, key=lambda one: int(one["parallelism"]))
        is_chosen = all(int(one["parallelism"]) > 0 for one in found)
        if self.subtask is not None and is_chosen and self.subtask >= int(widest["parallelism"]):
            message = (
                f"--subtask {self.subtask}: vertex {widest['name']!r} has {widest['parallelism']} subtasks, from 0"
            )
            raise PipelineError(message)
        if self.attempt is not None:
            self._check_attempt(found)

    def _check_attempt(self, vertices: Sequence[Mapping[str, Any]]) -> None:
        last = 0
        for one in vertices:
            details = self.client.get(f"/jobs/{self.job_id}/vertices/{one['id']}")
            last = max(last, *(int(member["attempt"]) for member in details["subtasks"]))
        if self.attempt is not None and self.attempt > last:
            message = f"--attempt {self.attempt}: the last attempt is {last}, and the first one 0"
            raise PipelineError(message)

    def _write(self, chunk: LogChunk) -> None:
        self.shown.setdefault((chunk.key.vertex_id, chunk.key.subtask), set()).add(chunk.key.attempt)
        if chunk.notice:
            sys.stderr.write(printable(f"the log of {chunk.title}: {chunk.notice}\n"))
        elif self.as_json:
            self._write_json(chunk)
        else:
            self._write_text(chunk)

    def _write_text(self, chunk: LogChunk) -> None:
        head = printable(f"==> {chunk.title} {chunk.stream}")
        if head != self.last_head:
            sys.stdout.write(f"{head}\n")
            sys.stdout.flush()
            self.last_head = head
        if chunk.loss:
            sys.stdout.write(printable(f"[{chunk.loss}]\n"))
            sys.stdout.flush()
        if _is_terminal():
            sys.stdout.write(printable_output(chunk.data.decode("utf-8", "replace")))
            sys.stdout.flush()
        else:
            sys.stdout.buffer.write(chunk.data)
            sys.stdout.buffer.flush()

    def _write_json(self, chunk: LogChunk) -> None:
        document = {
            "vertex": chunk.vertex,
            "subtask": chunk.key.subtask,
            "attempt": chunk.key.attempt,
            "stream": chunk.stream,
            "text": chunk.data.decode("utf-8", "replace"),
            "beginning_was_dropped": chunk.dropped_bytes > 0,
            "dropped_bytes": chunk.dropped_bytes,
        }
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def parse_attempt(text: str) -> int | None:
    """The number of an attempt, from 0; None for `all`. Raises PipelineError."""
    if text == "all":
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < _ATTEMPT_DIGITS_MAX):
        message = f"--attempt {text!r}: expected the number of an attempt, from 0, or all"
        raise PipelineError(message)
    return int(text)
