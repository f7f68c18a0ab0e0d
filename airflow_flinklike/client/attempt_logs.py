"""Reads the logs of all attempts of a job, piece by piece, from a position. No I/O.

`flinklike logs`, the operator and its trigger use it. It takes whole lines only, so a position never lies within a
character. Another process can go on from a position, which is small JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_flinklike.client.operations import post_json
from airflow_flinklike.client.protocol import Operation
from runtime.common.ids import JobId
from runtime.common.log_position import STREAMS, SUBTASK_MAX, AttemptKey, LogPosition

LINE_BYTES_MAX = 8 * 1024
"""A longer line is taken in parts."""

_MISSED_LOOKS = 3


@dataclass(frozen=True, slots=True)
class LogChunk:
    """New lines of one stream of one attempt, or a `notice` why its log cannot be read any more.

    `dropped_bytes`: the TaskManager has dropped so many bytes between the chunk before and `data`.
    """

    vertex: str
    parallelism: int
    key: AttemptKey
    stream: str
    data: bytes
    dropped_bytes: int = 0
    notice: str = ""

    @property
    def title(self) -> str:
        """Vertex; subtask if there are several; attempt if it is not the first one."""
        subtask = f" ({self.key.subtask})" if self.parallelism > 1 else ""
        return f"{self.vertex}{subtask}" + (f" attempt {self.key.attempt}" if self.key.attempt else "")

    @property
    def loss(self) -> str:
        """One sentence about dropped output; "" when none was dropped."""
        return loss_in_words(self.dropped_bytes, f"{self.stream} of {self.title}") if self.dropped_bytes else ""

    def lines(self) -> list[str]:
        """The lines as text. Of a line that carriage returns overwrite, the last state is given."""
        text = self.data.decode("utf-8", "replace")
        return [line.rstrip("\r").rpartition("\r")[2] for line in text.removesuffix("\n").split("\n")]


def loss_in_words(dropped_bytes: int, whose: str) -> str:
    """How much output was dropped, why, and how to prevent it."""
    return (
        f"{dropped_bytes / (1 << 20):.1f} mb of the {whose} were dropped: a TaskManager keeps only the end of each log "
        "of an attempt (taskmanager.log.attempt.max-size). Raise that, or write large results to a file"
    )


class AttemptLogs:
    """Reads the attempt logs of one job. A caller alternates `look`, which asks, and `take`, which reads the answer."""

    def __init__(
        self,
        job_id: JobId,
        streams: Sequence[str] = STREAMS,
        *,
        vertex: str | None = None,
        subtask: int | None = None,
        attempt: int | None = None,
        position: Mapping[str, Any] | None = None,
    ) -> None:
        self.streams = tuple(streams)
        self._job_id = job_id
        wanted = {"vertex": vertex, "subtask": subtask, "attempt": attempt}
        self._filter = {name: value for name, value in wanted.items() if value is not None}
        self._position = LogPosition.from_json(position or {})
        self._missed: dict[AttemptKey, int] = {}
        self._has_moved = False
        self.has_more = False
        """True when another look would find more at once."""

    @property
    def live(self) -> int:
        """Number of attempts that have been read in part; the size of the position grows with it."""
        return self._position.live

    def position(self) -> dict[str, Any]:
        """The JSON from which another reader goes on."""
        return self._position.to_json()

    def look(self, *, limit: int = 256 * 1024, wait: float = 0.0, since: int = 0) -> Operation[dict[str, Any]]:
        """One request for about `limit` new bytes, answered at a change after `since`, or after `wait` seconds."""
        document: dict[str, Any] = {"streams": list(self.streams), "position": self.position(), **self._filter}
        document["limit"] = limit
        if wait > 0:
            document |= {"wait": wait, "since": since}
        answer: dict[str, Any] = yield from post_json(f"/jobs/{self._job_id}/logs", document)
        _check(answer)
        return answer

    def take(self, answer: Mapping[str, Any], *, is_last: bool = False) -> list[LogChunk]:
        """The new chunks, by vertex. `is_last`: also lines without an end, and notices of logs that are missing."""
        vertices = {one["id"]: one for one in answer["vertices"]}
        self._has_moved = False
        found = [chunk for one in answer["attempts"] for chunk in self._attempt(vertices[one["vertex"]], one, is_last)]
        self.has_more = bool(answer["more"]) and self._has_moved
        return found

    def _attempt(
        self,
        vertex: Mapping[str, Any],
        attempt: Mapping[str, Any],
        is_last: bool,  # noqa: FBT001 - handed through
    ) -> Iterator[LogChunk]:
        key = AttemptKey(attempt["vertex"], int(attempt["subtask"]), int(attempt["attempt"]))
        name, parallelism = str(vertex["name"]), int(vertex["parallelism"])
        is_read = attempt["ended"]
        for stream in self.streams:
            piece = attempt["logs"].get(stream)
            if piece is None:
                is_read = False
                continue
            data = base64.b64decode(piece["data"])
            is_whole = piece["next-offset"] >= piece["size"]
            taken = len(data) if is_whole and (attempt["ended"] or is_last) else _whole_lines(data)
            offset = piece["next-offset"] - len(data) + taken
            self._has_moved |= offset != self._position.offset(key, stream)
            self._position.move(key, stream, offset)
            is_read = is_read and is_whole
            dropped = int(piece.get("dropped", 0))  # a cluster of an older release says it in the data
            if taken or dropped:
                yield LogChunk(name, parallelism, key, stream, data[:taken], dropped_bytes=dropped)
        if attempt["missing"] and self._is_lost(key, is_last=is_last):
            yield LogChunk(name, parallelism, key, "", b"", notice=str(attempt["missing"]))
            is_read = True
        if is_read:
            self._has_moved = True
            self._position.drain(key)

    def _is_lost(self, key: AttemptKey, *, is_last: bool) -> bool:
        """False for the first looks: after a failover TaskManagers register one by one with the new leader."""
        self._missed[key] = self._missed.get(key, 0) + 1
        return is_last or self._missed[key] >= _MISSED_LOOKS


def _check(answer: Mapping[str, Any]) -> None:
    """Check what the shape of the answer cannot say. Raises ValueError."""
    vertices = {one["id"] for one in answer["vertices"]}
    for attempt in answer["attempts"]:
        if attempt["vertex"] not in vertices or attempt["subtask"] > SUBTASK_MAX:
            message = f"it has a log of {attempt['vertex'][:80]!r}, subtask {attempt['subtask']}, and no such task"
            raise ValueError(message)
        for piece in attempt["logs"].values():
            if len(base64.b64decode(piece["data"])) > piece["next-offset"]:
                message = f"it has a piece of a log that ends at {piece['next-offset']}, and is longer"
                raise ValueError(message)


def _whole_lines(data: bytes) -> int:
    """The number of bytes in whole lines; of a line above LINE_BYTES_MAX, in whole characters."""
    end = data.rfind(b"\n") + 1
    if end or len(data) < LINE_BYTES_MAX:
        return end
    end = len(data)
    while end > len(data) - 4 and data[end - 1] & 0xC0 == 0x80:
        end -= 1
    # `end - 1` is now the first byte of the last character, which is whole if as many bytes follow as it says.
    first = data[end - 1]
    length = 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2 if first >= 0xC0 else 1
    return len(data) if end - 1 + length <= len(data) else end - 1
