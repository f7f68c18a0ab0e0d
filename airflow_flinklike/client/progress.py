"""The progress of a job as one line, when it has changed, at most every few seconds. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

INTERVAL_SECONDS = 5.0
_VERTICES_SHOWN_MAX = 5


class ProgressLines:
    """The progress lines of one job."""

    def __init__(self) -> None:
        self._said = ""
        self._said_at = float("-inf")

    def take(self, vertices: Sequence[Mapping[str, Any]], now: float) -> str:
        """The line to log now, or ""."""
        if now - self._said_at < INTERVAL_SECONDS:
            return ""
        line = progress_line(vertices)
        if not line or line == self._said:
            return ""
        self._said, self._said_at = line, now
        return line


def progress_line(vertices: Sequence[Mapping[str, Any]]) -> str:
    """`1 of 3 vertices finished; read 2/10, Spark 2 stages, 30/40 tasks`; "" when no vertex is under way."""
    begun = [one for one in vertices if _is_begun(one)]
    if not begun or (len(vertices) == 1 and not _has_news(begun[0])):
        return ""
    parts = [_vertex(one) for one in begun[:_VERTICES_SHOWN_MAX]]
    if len(begun) > len(parts):
        parts.append(f"{len(begun) - len(parts)} more vertices")
    finished = sum(_finished(one) == int(one["parallelism"]) for one in vertices)
    head = f"{finished} of {len(vertices)} vertices finished; " if len(vertices) > 1 else ""
    return head + "; ".join(parts)


def _finished(vertex: Mapping[str, Any]) -> int:
    return int(vertex["tasks"].get("FINISHED", 0))


def _is_begun(vertex: Mapping[str, Any]) -> bool:
    """True if subtasks run or have run, and not all have finished."""
    waiting = sum(int(vertex["tasks"].get(state, 0)) for state in ("CREATED", "SCHEDULED"))
    total = int(vertex["parallelism"])
    return waiting < total and _finished(vertex) < total


def _has_news(vertex: Mapping[str, Any]) -> bool:
    """A single task without Spark tasks and reported progress has nothing to show."""
    progress = vertex["progress"]
    return bool(
        int(vertex["parallelism"]) > 1 or progress["text"] or progress["fraction"] or progress["spark-tasks-total"]
    )


def _vertex(vertex: Mapping[str, Any]) -> str:
    progress = vertex["progress"]
    parts = [f"{vertex['name']} {_finished(vertex)}/{vertex['parallelism']}"]
    if failed := int(vertex["tasks"].get("FAILED", 0)):
        parts.append(f"{failed} failed")
    if progress["fraction"] or progress["text"]:
        parts.append(f"{100 * progress['fraction']:.0f} % {progress['text']}".rstrip())
    if progress["spark-tasks-total"]:
        stages = int(progress.get("spark-stages-active", 0))
        tasks = f"{progress['spark-tasks-completed']}/{progress['spark-tasks-total']} tasks"
        parts.append(f"Spark {stages} stage{'' if stages == 1 else 's'}, {tasks}")
    return ", ".join(parts)
