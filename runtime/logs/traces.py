"""Which trace a job belongs to, for log lines that name the job. Of this process, and bounded."""

from __future__ import annotations

_JOBS_MAX = 20_000
_known: dict[str, str] = {}


def note_trace(job_id: str, trace_id: str) -> None:
    """From now on lines about the job have that trace. Of many jobs the first ones are forgotten."""
    _known[job_id] = trace_id
    if len(_known) > _JOBS_MAX:
        _ = _known.pop(next(iter(_known)), None)  # another thread may write a line meanwhile


def trace_of(job_id: str) -> str:
    """The trace, "" for none."""
    return _known.get(job_id, "")
