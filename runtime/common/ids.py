"""Identifiers as types. Every id is a plain string at run time, so it costs nothing on the wire or as a key.

Invariant: a value of one of these types has been validated by its `parse_*` function or was made by its
`new_*` function; nothing else may construct one from outside input.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

from runtime.common.errors import InvalidInputError

JobId = NewType("JobId", str)
"""32 lower-case hex digits, chosen by the client (Flink's JobID)."""

VertexId = NewType("VertexId", str)
"""32 lower-case hex digits, derived from the name of the vertex (Flink's JobVertexID)."""

AllocationId = NewType("AllocationId", str)
"""32 lower-case hex digits; names one allocation of one slot to one job."""

Incarnation = NewType("Incarnation", str)
"""One life of one process, 32 lower-case hex digits, never reused (protocol.md, words)."""

ClusterUuid = NewType("ClusterUuid", str)
"""Made once per cluster and kept in etcd under `cluster`; part of every fencing token (R1)."""

_HEX_32 = re.compile(r"[0-9a-f]{32}\Z")


def is_hex_id(text: str) -> bool:
    """True for 32 lower-case hex digits."""
    return _HEX_32.match(text) is not None


def parse_job_id(text: str) -> JobId:
    """Validate a job id from outside. Raises InvalidInputError with what a job id looks like."""
    if not is_hex_id(text):
        message = f"{text[:80]!r} is not a job id: expected 32 lower-case hex digits"
        raise InvalidInputError(message)
    return JobId(text)


def parse_vertex_id(text: str) -> VertexId:
    """Validate a vertex id from outside. Raises InvalidInputError."""
    if not is_hex_id(text):
        message = f"{text[:80]!r} is not a vertex id: expected 32 lower-case hex digits"
        raise InvalidInputError(message)
    return VertexId(text)


@dataclass(frozen=True, slots=True, order=True)
class ExecutionAttemptId:
    """Names one attempt of one subtask for ever (R9): output directory, log, Spark tag and every message.

    `epoch` is the epoch of the owner that created the attempt; an adopted attempt keeps it. `counter` counts
    the attempts of that subtask under that epoch, from 0. Users see a separate ordinal.
    """

    job_id: JobId
    vertex_id: VertexId
    subtask_index: int
    epoch: int
    counter: int

    def __str__(self) -> str:
        return f"{self.job_id}_{self.vertex_id}_{self.subtask_index}_{self.epoch}_{self.counter}"

    @classmethod
    def parse(cls, text: str) -> ExecutionAttemptId:
        """The inverse of `str()`. Raises InvalidInputError."""
        parts = text.split("_")
        if len(parts) != 5 or not all(part.isdecimal() for part in parts[2:]):
            message = f"{text[:160]!r} is not an execution attempt id"
            raise InvalidInputError(message)
        job_id, vertex_id = parse_job_id(parts[0]), parse_vertex_id(parts[1])
        return cls(job_id, vertex_id, int(parts[2]), int(parts[3]), int(parts[4]))


@dataclass(frozen=True, slots=True, order=True)
class PartitionId:
    """One result partition: the rows that attempt `producer` wrote for edge number `output` of its vertex."""

    producer: ExecutionAttemptId
    output: int

    def __str__(self) -> str:
        return f"{self.producer}_{self.output}"
