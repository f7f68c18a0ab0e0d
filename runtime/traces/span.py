"""Spans and the context of a trace, as W3C and OpenTelemetry have them, without any library of theirs.

Ids of spans are derived from what they are about: whoever tells a span tells it under the same id, and a parent can be
named before it has ended, in whatever process it ends.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TRACE_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z")
_ID_DENOMINATOR = 1 << 64
NO_SPAN = "0" * 16


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Where the span of a job belongs. `parent_id`: NO_SPAN for the first one of its trace."""

    trace_id: str
    parent_id: str
    is_sampled: bool

    @property
    def text(self) -> str:
        """As `traceparent` has it; without a parent NO_SPAN stands for it, which is read here only."""
        return f"00-{self.trace_id}-{self.parent_id}-{'01' if self.is_sampled else '00'}"

    @classmethod
    def parse(cls, text: str) -> TraceContext | None:
        """What a client or a record has. None for what is none: W3C wants it ignored, not refused."""
        found = _TRACE_PARENT.match(text) if len(text) <= 128 else None
        if found is None or not int(found[1], 16) or (found[4] and text.startswith("00")):
            return None
        return cls(found[1], found[2], is_sampled=bool(int(found[3], 16) & 1))

    @classmethod
    def from_client(cls, text: str) -> TraceContext | None:
        """The same from outside, where a parent is named in any case."""
        found = cls.parse(text)
        return None if found is None or found.parent_id == NO_SPAN else found

    @classmethod
    def of_job(cls, job_id: str, ratio: float) -> TraceContext:
        """A trace of its own for a job, whose id it has; of all jobs that share is sampled."""
        return cls(job_id, NO_SPAN, is_sampled=int(job_id[16:], 16) < ratio * _ID_DENOMINATOR)


def span_id(job_id: str, *what: str) -> str:
    """The id of a span that is about this part of a job; of the job itself without one."""
    return hashlib.sha256("/".join((job_id, *what)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that has happened at a moment within a span."""

    name: str
    millis: int
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """One span, which has ended. Times in milliseconds since 1970. `error`: why it failed, "" if it did not."""

    name: str
    trace_id: str
    id: str
    parent_id: str
    start_millis: int
    end_millis: int
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)
    events: tuple[SpanEvent, ...] = ()
    error: str = ""


def without_trace(_job_id: str, _traceparent: str, /) -> str:
    """Nobody is told traces."""
    return ""
