"""What streaming queries do, for `flinklike info`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from airflow_flinklike.cli import render
from airflow_flinklike.client import FlinklikeClient
from runtime.common.size_text import size_text

_HEAD = ("query", "batch", "rows", "rows/s in", "rows/s done", "trigger", "state", "backlog", "watermark", "progressed")


def streams_of(client: FlinklikeClient, details: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The vertices with streaming queries of a job; none are asked for where the job has none."""
    if not any("streams" in vertex for vertex in details["vertices"]):
        return ()
    vertices: Sequence[Mapping[str, Any]] = client.get(f"/jobs/{details['jid']}/streams")["vertices"]
    return vertices


def streams_table(vertices: Sequence[Mapping[str, Any]], now_millis: int) -> Table:
    """One line for each query, and for each subtask that has told of none yet."""
    return render.table(_HEAD, (row for vertex in vertices for row in _rows(vertex, now_millis)))


def _rows(vertex: Mapping[str, Any], now_millis: int) -> Iterator[tuple[str, ...]]:
    for subtask in vertex["subtasks"]:
        name = f"{vertex['uid'] or vertex['name']} {subtask['subtask']}"
        if not subtask["queries"]:
            yield (name, f"none yet, {subtask['status']}", *[""] * (len(_HEAD) - 2))
        for query in subtask["queries"]:
            named = name if vertex["uid"] else query.get("name") or name  # a script starts several
            yield _row(named, query, now_millis, _stalled(subtask, query, now_millis))


def _stalled(subtask: Mapping[str, Any], query: Mapping[str, Any], now_millis: int) -> str:
    """What there is to say of a query that does not get on; "" of others, and by clusters of earlier releases."""
    if not subtask.get("stalled") or not query.get("busy-since"):
        return ""
    tasks = f", Spark {subtask['tasks-completed']}/{subtask['tasks-total']} tasks" if subtask["tasks-total"] else ""
    place = ", ".join(filter(None, (query.get("stage"), query.get("thread"))))
    told = f"STALLED for {render.duration_text(max(0, now_millis - query['busy-since']))}{tasks}"
    return render.one_line(f"{told}: {place}" if place else told)


def _late(query: Mapping[str, Any]) -> str:
    """Of a query whose last batch took longer than its trigger's interval; "" by clusters of earlier releases."""
    return (
        f"late: its trigger is {render.duration_text(query['interval-millis'])}" if query.get("back-pressured") else ""
    )


def _row(name: str, query: Mapping[str, Any], now_millis: int, stalled: str) -> tuple[str, ...]:
    progressed, backlog = query["progressed"], query["backlog"]
    ago = f"{render.duration_text(max(0, now_millis - progressed))} ago" if progressed else ""
    return (
        name,
        str(query["batch-id"]) if query["batch-id"] >= 0 else "none yet",
        str(query["rows"]),
        f"{query['input-rows-per-second']:.1f}",
        f"{query['processed-rows-per-second']:.1f}",
        render.duration_text(query["trigger-millis"]),
        f"{query['state-rows']} rows, {size_text(query['state-bytes'])}" if query["state-bytes"] else "",
        str(backlog) if backlog >= 0 else "",
        render.time_text(query["watermark"]) if query["watermark"] else "",
        ", ".join(filter(None, (ago, "idle" if query["idle"] else "", _late(query), stalled))),
    )
