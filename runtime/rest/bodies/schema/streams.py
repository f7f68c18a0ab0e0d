"""Bodies of streaming queries: what each does now. Times are milliseconds, rates rows per second."""

from __future__ import annotations

from typing_extensions import TypedDict

StreamQuery = TypedDict(
    "StreamQuery",
    {
        "query-id": str,
        "run-id": str,
        "batch-id": int,
        "batches": int,
        "rows": int,
        "input-rows-per-second": float,
        "processed-rows-per-second": float,
        "trigger-millis": int,
        "phases": dict[str, int],
        "state-rows": int,
        "state-bytes": int,
        "watermark": int,
        "backlog": int,
        "progressed": int,
        "has-triggered": bool,
        "idle": bool,
        "busy-since": int,
        "name": str,
        "interval-millis": int,
        "back-pressured": bool,
        "thread": str,
        "stage": str,
    },
)
"""As of its last completed batch. `batch-id` -1: none yet. `backlog` -1: the sources do not say what is left.

`batches` and `rows` are those of the attempt. `watermark` and `progressed` 0: there is none, or not yet. `busy-since`:
when the trigger began that it is in, 0 as long as that takes less than ten seconds. `name`: as
Spark knows it, "" before the first batch. `interval-millis`: of its trigger, 0 for one without; `back-pressured`: the
last batch has taken longer, the query is not idle, and its attempt has not ended. `thread`, `stage`: where a query with
`busy-since` is, in Spark's JVM and its work.
"""

StreamsOfSubtask = TypedDict(
    "StreamsOfSubtask",
    {
        "subtask": int,
        "attempt": int,
        "status": str,
        "endpoint": str,
        "taskmanager-id": str,
        "queries": list[StreamQuery],
        "stalled": bool,
        "tasks-completed": int,
        "tasks-total": int,
    },
)
"""`stalled`: a query of it is in one trigger for longer than `execution.streaming.stall-timeout`. Tasks are Spark's, of
the jobs that run now.
"""


class StreamsOfVertex(TypedDict):
    """The current attempts of a vertex. `uid` names the query's state, "" where other code has started queries."""

    id: str
    name: str
    uid: str
    parallelism: int
    subtasks: list[StreamsOfSubtask]


StreamsOfJob = TypedDict("StreamsOfJob", {"jid": str, "now": int, "job-type": str, "vertices": list[StreamsOfVertex]})

StreamSums = TypedDict(
    "StreamSums",
    {
        "queries": int,
        "batches": int,
        "rows": int,
        "input-rows-per-second": float,
        "processed-rows-per-second": float,
        "state-bytes": int,
        "backlog": int,
    },
)
"""Of a vertex. Rates are those of attempts that run; `backlog` -1: no query says what is left."""
