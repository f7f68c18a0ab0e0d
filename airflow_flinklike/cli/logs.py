"""`flinklike logs`: the output of a job's attempts, once or as it comes."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_flinklike.client import FlinklikeClient, LogPiece
from airflow_flinklike.exceptions import JobNotFoundError, PipelineError
from runtime.common.ids import JobId
from runtime.common.states import ExecutionState, JobStatus

STREAMS = ("stdout", "stderr", "log")
_PAUSE_SECONDS = 0.5
_PAUSE_SECONDS_MAX = 4.0


@dataclass(frozen=True, slots=True)
class _LogKey:
    """One stream of one attempt."""

    vertex_id: str
    subtask: int
    attempt: int
    stream: str


@dataclass(slots=True)
class LogFollower:
    """Reads the logs of all current attempts of a job from where it stopped last.

    A log that has ended is read once more and never again, the others less often the longer nothing comes: a job has as
    many logs as attempts, and each look at one goes to its TaskManager.
    """

    client: FlinklikeClient
    job_id: JobId
    streams: Sequence[str]
    vertex: str | None
    subtask: int | None
    as_json: bool = False
    offsets: dict[_LogKey, int] = field(default_factory=dict)
    unreadable: set[_LogKey] = field(default_factory=set)
    ended: set[_LogKey] = field(default_factory=set)
    decoders: dict[_LogKey, codecs.IncrementalDecoder] = field(default_factory=dict)
    last_head: str = ""

    def run(self, *, follow: bool) -> None:
        """Write what there is; with `follow` go on until the job has ended."""
        self._check_streams()
        details = self.client.get(f"/jobs/{self.job_id}")
        pause = _PAUSE_SECONDS
        while True:
            before = dict(self.offsets)
            for vertex in self._wanted(details["vertices"]):
                self._vertex(vertex)
            if not follow or JobStatus(details["state"]).is_globally_terminal:
                return
            pause = min(2 * pause, _PAUSE_SECONDS_MAX) if self.offsets == before else _PAUSE_SECONDS
            since = str(details["last-modification"])
            details = self.client.get(f"/jobs/{self.job_id}", wait=f"{pause:g}", since=since)

    def _check_streams(self) -> None:
        wrong = [one for one in self.streams if one not in STREAMS]
        if wrong or not self.streams:
            message = f"--stream {','.join(wrong) or '(nothing)'}: expected {', '.join(STREAMS)}"
            raise PipelineError(message)

    def _wanted(self, vertices: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        if self.vertex is None:
            return vertices
        found = [one for one in vertices if self.vertex in {one["id"], one["name"]}]
        if not found:
            names = ", ".join(repr(one["name"]) for one in vertices)
            message = f"--vertex {self.vertex!r}: job {self.job_id} has {names}"
            raise PipelineError(message)
        return found

    def _vertex(self, vertex: Mapping[str, Any]) -> None:
        body = self.client.get(f"/jobs/{self.job_id}/vertices/{vertex['id']}")
        if self.subtask is not None and self.subtask >= int(body["parallelism"]) and self.vertex is not None:
            message = f"--subtask {self.subtask}: vertex {vertex['name']!r} has {body['parallelism']} subtasks, from 0"
            raise PipelineError(message)
        for attempt in body["subtasks"]:
            if not attempt["taskmanager-id"] or self.subtask not in {None, attempt["subtask"]}:
                continue
            for stream in self.streams:
                key = _LogKey(str(vertex["id"]), int(attempt["subtask"]), int(attempt["attempt"]), stream)
                if key not in self.ended:
                    self._attempt(vertex, key, many=body["parallelism"] > 1)
                if ExecutionState(attempt["status"]).is_terminal:
                    self.ended.add(key)

    def _attempt(self, vertex: Mapping[str, Any], key: _LogKey, *, many: bool) -> None:
        while True:
            offset = self.offsets.get(key, 0)
            try:
                piece = self.client.log(
                    self.job_id, key.vertex_id, key.subtask, key.attempt, stream=key.stream, offset=offset
                )
            except JobNotFoundError as error:
                self._say_unreadable(key, error)
                return
            self.offsets[key] = piece.next_offset
            if not piece.data:
                return
            if self.as_json:
                self._write_json(vertex, key, piece)
            else:
                self._write_text(vertex, key, piece, many=many)

    def _say_unreadable(self, key: _LogKey, error: JobNotFoundError) -> None:
        """Once per log: it may come with the attempt's first line, or be gone with its TaskManager."""
        if key not in self.unreadable:
            self.unreadable.add(key)
            sys.stderr.write(f"{error}\n")

    def _write_text(self, vertex: Mapping[str, Any], key: _LogKey, piece: LogPiece, *, many: bool) -> None:
        head = f"==> {vertex['name']}{f' ({key.subtask})' if many else ''} {key.stream}"
        head += " (its beginning was dropped)" if piece.is_truncated else ""
        if head != self.last_head:
            sys.stdout.write(f"{head}\n")
            sys.stdout.flush()
            self.last_head = head
        sys.stdout.buffer.write(piece.data)
        sys.stdout.buffer.flush()

    def _write_json(self, vertex: Mapping[str, Any], key: _LogKey, piece: LogPiece) -> None:
        decoder = self.decoders.setdefault(key, codecs.getincrementaldecoder("utf-8")("replace"))
        document = {
            "vertex": vertex["name"],
            "subtask": key.subtask,
            "attempt": key.attempt,
            "stream": key.stream,
            "text": decoder.decode(piece.data),
            "beginning_was_dropped": piece.is_truncated,
        }
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()
