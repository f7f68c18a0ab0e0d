"""The span of the task in Airflow's own traces, below which the cluster tells the trace of the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def current_traceparent(carrier: Any) -> str:
    """The `traceparent` of this thread's span, else of `carrier`, which Airflow gives the task instance; "" for none.

    Also without a tracer Airflow has ids, which say that nobody samples them: a job of such a task has no trace.
    """
    try:
        from opentelemetry.propagate import inject  # noqa: PLC0415 - Airflow has it, and loads it where it traces
    except ModuleNotFoundError:
        found: dict[str, str] = {}
    else:
        found = {}
        inject(found)
    given = carrier if isinstance(carrier, Mapping) else {}
    return str(found.get("traceparent") or given.get("traceparent") or "")
