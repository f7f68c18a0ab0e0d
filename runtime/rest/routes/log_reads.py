"""Which logs of a job have something that a reader has not seen, and what the answer says of each. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from runtime.common.errors import UnavailableError
from runtime.common.ids import ExecutionAttemptId
from runtime.common.log_position import OFFSET_MAX, AttemptKey, LogPosition
from runtime.common.states import ExecutionState
from runtime.executiongraph.archived import ArchivedExecution, ArchivedExecutionGraph
from runtime.gateways.task_executor import AttemptLogRequest, AttemptLogResponse, AttemptLogsResponse, LogStream
from runtime.rest.bodies.schema.jobs import LogsOfAttempt
from runtime.rest.routes.log_places import deleted

ATTEMPTS_MAX = 1_000
PIECE_BYTES_MAX = 64 * 1024


@dataclass(slots=True)
class FollowedAttempt:
    """An attempt that a reader may want more of, and what was found. `missing`: why there is nothing."""

    key: AttemptKey
    attempt: ArchivedExecution
    pieces: dict[str, AttemptLogResponse] = field(default_factory=dict)
    missing: str = ""

    @property
    def has_ended(self) -> bool:
        """True when nothing more will be written."""
        return self.attempt.state.is_terminal

    @property
    def is_silent(self) -> bool:
        """True when it ended before user code could write."""
        return self.has_ended and ExecutionState.RUNNING not in self.attempt.timestamps

    def request(self, stream: str, position: LogPosition, limit: int) -> AttemptLogRequest:
        """The next piece of one stream."""
        attempt_id = ExecutionAttemptId.parse(self.attempt.attempt_id)
        return AttemptLogRequest(attempt_id, LogStream(stream), position.offset(self.key, stream), limit)

    def take(self, stream: str, piece: AttemptLogResponse | None) -> None:
        """What its TaskManager said."""
        if piece is not None:
            self.pieces[stream] = piece
        elif self.is_silent:
            self.pieces[stream] = AttemptLogResponse(b"", 0, 0, is_truncated=False)
        else:
            self.missing = deleted(self.attempt)

    def has_news(self, position: LogPosition) -> bool:
        """False when the answer need not name it. What has ended is named until the reader counts it as read."""
        return self.has_ended or any(
            piece.data or piece.next_offset != position.offset(self.key, stream)
            for stream, piece in self.pieces.items()
        )

    def body(self) -> LogsOfAttempt:
        """One element of `attempts`."""
        return {
            "vertex": self.key.vertex_id,
            "subtask": self.key.subtask,
            "attempt": self.key.attempt,
            "ended": self.has_ended,
            "missing": self.missing if self.has_ended else "",
            "logs": {
                stream: {
                    "data": base64.b64encode(piece.data).decode("ascii"),
                    "next-offset": piece.next_offset,
                    "size": piece.size_bytes,
                    "truncated": piece.is_truncated,
                    "dropped": piece.dropped_bytes,
                }
                for stream, piece in self.pieces.items()
            },
        }


def check_piece(piece: AttemptLogResponse, limit: int) -> None:
    """What a TaskManager answers is believed within bounds only (R52). Raises UnavailableError."""
    numbers = (piece.next_offset, piece.size_bytes, piece.dropped_bytes)
    if min(numbers) < 0 or max(numbers) > OFFSET_MAX or len(piece.data) > min(limit, piece.next_offset):
        message = "what it says of a log cannot be"
        raise UnavailableError(message)


def check_pieces(answer: AttemptLogsResponse, reads: int, limit: int) -> None:
    """`check_piece` of all pieces, and that each answers one of the `reads`. Raises UnavailableError."""
    if any(not 0 <= one.index < reads for one in answer.pieces):
        message = "it answers a read that was not asked for"
        raise UnavailableError(message)
    for one in answer.pieces:
        if one.piece is not None:
            check_piece(one.piece, limit)


def followed(
    graph: ArchivedExecutionGraph,
    position: LogPosition,
    *,
    vertex: str | None,
    subtask: int | None,
    attempt: int | None = None,
) -> Iterator[FollowedAttempt]:
    """Attempts that were deployed and are not read to their end, earlier ones of a subtask first."""
    for one in graph.vertices:
        if vertex is not None and vertex not in {one.id, one.name}:
            continue
        for member in one.subtasks:
            if subtask is not None and member.index != subtask:
                continue
            for execution in sorted(member.attempts(), key=attrgetter("attempt")):
                key = AttemptKey(one.id, member.index, execution.attempt)
                if attempt is not None and execution.attempt != attempt:
                    continue
                if execution.task_manager_id and not position.is_drained(key):
                    yield FollowedAttempt(key, execution)


def has_more(attempts: Sequence[FollowedAttempt], streams: Sequence[str]) -> bool:
    """True when another look at once would find more."""
    return any(
        not one.missing and (stream not in one.pieces or one.pieces[stream].next_offset < one.pieces[stream].size_bytes)
        for one in attempts
        for stream in streams
    )
