"""`flinklike logs`: the output of a job's attempts, once or as it comes."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.exceptions import JobNotFoundError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus

_PAUSE_SECONDS = 0.5


@dataclass(slots=True)
class LogFollower:
    """Reads the logs of all attempts of a job from where it stopped last."""

    client: FlinklikeClient
    job_id: JobId
    streams: Sequence[str]
    vertex: str | None
    subtask: int | None
    offsets: dict[tuple[str, int, int, str], int] = field(default_factory=dict)
    last_head: str = ""

    def run(self, *, follow: bool) -> None:
        """Write what there is; with `follow` go on until the job has ended."""
        while True:
            details = self.client.get(f"/jobs/{self.job_id}")
            for vertex in details["vertices"]:
                if self.vertex is None or self.vertex in {vertex["id"], vertex["name"]}:
                    self._vertex(vertex)
            if not follow or JobStatus(details["state"]).is_globally_terminal:
                return
            time.sleep(_PAUSE_SECONDS)

    def _vertex(self, vertex: Mapping[str, Any]) -> None:
        body = self.client.get(f"/jobs/{self.job_id}/vertices/{vertex['id']}")
        for attempt in body["subtasks"]:
            if not attempt["taskmanager-id"] or self.subtask not in {None, attempt["subtask"]}:
                continue
            for stream in self.streams:
                self._attempt(vertex, attempt, stream, many=body["parallelism"] > 1)

    def _attempt(self, vertex: Mapping[str, Any], attempt: Mapping[str, Any], stream: str, *, many: bool) -> None:
        key = (str(vertex["id"]), int(attempt["subtask"]), int(attempt["attempt"]), stream)
        while True:
            offset = self.offsets.get(key, 0)
            try:
                piece = self.client.log(self.job_id, *key[:3], stream=stream, offset=offset)
            except JobNotFoundError as error:
                sys.stderr.write(f"{error}\n")
                return
            self.offsets[key] = piece.next_offset
            if not piece.data:
                return
            number = f" ({attempt['subtask']})" if many else ""
            self._head(
                f"==> {vertex['name']}{number} {stream}"
                + (" (its beginning was dropped)" if piece.is_truncated else "")
            )
            sys.stdout.buffer.write(piece.data)
            sys.stdout.buffer.flush()

    def _head(self, head: str) -> None:
        if head != self.last_head:
            sys.stdout.write(f"{head}\n")
            sys.stdout.flush()
            self.last_head = head
