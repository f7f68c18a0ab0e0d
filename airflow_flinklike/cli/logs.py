"""`flinklike logs`: the output of a job's attempts, once or as it comes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_flinklike.attempt_logs import AttemptLogs, LogChunk
from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.exceptions import PipelineError
from runtime.common.ids import JobId
from runtime.common.log_position import STREAMS
from runtime.common.states import JobStatus

_PAUSE_SECONDS = 0.5
_PAUSE_SECONDS_MAX = 4.0


@dataclass(slots=True)
class LogFollower:
    """Writes the logs of all attempts of a job; with `follow` looks less often the longer nothing comes."""

    client: FlinklikeClient
    job_id: JobId
    streams: Sequence[str]
    vertex: str | None
    subtask: int | None
    as_json: bool = False
    last_head: str = ""

    def run(self, *, follow: bool) -> None:
        """Write what there is; with `follow` go on until the job has ended."""
        self._check_streams()
        logs = AttemptLogs(self.job_id, self.streams, vertex=self.vertex, subtask=self.subtask)
        if self.vertex is not None or self.subtask is not None:
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
                return
            else:
                pause = _PAUSE_SECONDS if chunks or not pause else min(2 * pause, _PAUSE_SECONDS_MAX)
            since = int(answer["last-modification"])

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
        if self.subtask is not None and self.subtask >= int(widest["parallelism"]):
            message = (
                f"--subtask {self.subtask}: vertex {widest['name']!r} has {widest['parallelism']} subtasks, from 0"
            )
            raise PipelineError(message)

    def _write(self, chunk: LogChunk) -> None:
        if chunk.notice:
            sys.stderr.write(f"the log of {chunk.title}: {chunk.notice}\n")
        elif self.as_json:
            self._write_json(chunk)
        else:
            self._write_text(chunk)

    def _write_text(self, chunk: LogChunk) -> None:
        head = f"==> {chunk.title} {chunk.stream}"
        if head != self.last_head:
            sys.stdout.write(f"{head}\n")
            sys.stdout.flush()
            self.last_head = head
        if chunk.loss:
            sys.stdout.write(f"[{chunk.loss}]\n")
            sys.stdout.flush()
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
