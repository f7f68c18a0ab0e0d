"""What a JobGraph says of a streaming query: its trigger, its output mode, and the uid of its state.

A streaming query is a vertex whose last operator is a stream sink. The vertex holds every operator that the query
reads from, since lazy DataFrames cross no exchange: what two sinks have in common stands in both vertices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum

from pydantic import Field

from runtime.jobgraph.code import JobGraphModel

UID_LENGTH_MAX = 200
_UID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=@+ -]*\Z")
_UNITS = "microsecond|millisecond|second|minute|hour|day|week|month|year"
_INTERVAL = re.compile(rf"\s*(interval\s+)?[+-]?\d+\s*({_UNITS})s?(\s+[+-]?\d+\s*({_UNITS})s?)*\s*\Z", re.IGNORECASE)
_TAKEN = frozenset({"_ended", "_metadata", "_tables"})
"""What savepoints, and the directory of a job's state, have beside the directories of uids."""
_UNSEEN = ".crc"
"""Checksums of Hadoop's, which are no state."""


class TriggerKind(Enum):
    """When the next batch of a query begins, in Spark's words."""

    PROCESSING_TIME = "processingTime"
    AVAILABLE_NOW = "availableNow"
    REAL_TIME = "realTime"


class StreamTrigger(JobGraphModel):
    """A trigger of Spark's. `interval` is Spark's text (`10 seconds`), "" for availableNow."""

    kind: TriggerKind
    interval: str = ""

    @property
    def ends(self) -> bool:
        """True if the query ends by itself when it has read what was there."""
        return self.kind is TriggerKind.AVAILABLE_NOW

    def as_keywords(self) -> dict[str, str | bool]:
        """The keyword arguments of `DataStreamWriter.trigger`."""
        return {self.kind.value: True if self.ends else self.interval}


class StreamSinkSpec(JobGraphModel):
    """What a stream sink asks for. None leaves a thing to its function, or to Spark.

    `uid` names the query's state in checkpoints and savepoints (Flink's operator uid). `is_batch_function`: the
    function takes `(ctx, batch, batch_id)` and is called for each batch; else it takes `(ctx, df)` and returns a
    DataStreamWriter.
    """

    uid: str
    trigger: StreamTrigger | None = Field(default=None, exclude_if=lambda trigger: trigger is None)
    output_mode: str = ""
    is_batch_function: bool = False


STREAM_MARKS = (b'"stream_sink"', b'"starts_queries"')
"""A graph that does not name one of them runs no query by itself, nor by a script that says so."""


def names_streams(graph: bytes) -> bool:
    """True for the JSON of a job whose queries keep state. Cheap: the graph is not parsed."""
    return any(mark in graph for mark in STREAM_MARKS)


def is_state_name(name: str) -> bool:
    """True for a name that may be the directory of a query's state."""
    return len(name) <= UID_LENGTH_MAX and _UID.match(name) is not None


def is_taken(name: str) -> bool:
    """True for the name of what lies beside the state of queries, in their directory or in a savepoint."""
    return name in _TAKEN or name.endswith(_UNSEEN)


def checkpoint_name_problems(name: str) -> Iterator[str]:
    """The problem of a name for the state of a job's queries, if it has one."""
    if not is_state_name(name):
        yield (
            f"checkpoint name {name[:80]!r} names a directory: it has 1 to {UID_LENGTH_MAX} letters, digits, blanks "
            "and '_.=@+-', and begins with a letter, a digit or '_'"
        )


def sink_spec_problems(label: str, spec: StreamSinkSpec) -> Iterator[str]:
    """Every problem of a stream sink as one sentence each."""
    if not is_state_name(spec.uid):
        yield (
            f"{label}: uid {spec.uid[:80]!r} names a directory: it has 1 to {UID_LENGTH_MAX} letters, digits, blanks "
            "and '_.=@+-', and begins with a letter, a digit or '_'"
        )
    if spec.output_mode not in {"", "append", "update", "complete"}:
        yield f"{label}: output mode {spec.output_mode[:40]!r} is none of append, update and complete"
    elif is_taken(spec.uid):
        yield f"{label}: uid {spec.uid!r} is the name of a file beside the state in savepoints: choose another one"
    trigger = spec.trigger
    if trigger is None:
        return
    if trigger.ends and trigger.interval:
        yield f"{label}: availableNow has no interval, this one has {trigger.interval[:40]!r}"
    if not trigger.ends and not _INTERVAL.match(trigger.interval):
        yield (
            f"{label}: the trigger interval {trigger.interval[:40]!r} is no interval, expected one like '10 seconds', "
            "or the trigger 'availableNow'"
        )
