"""Bodies of REST as tables for people, or as JSON for programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPE_WIDTH = 4000
"""Columns when nobody looks: no line of a table or a message is broken for a program that reads it."""

COLORS = {"FINISHED": "green", "RUNNING": "blue", "FAILED": "red", "FAILING": "red", "CANCELED": "yellow"}


_CONTROLS = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    r"""What jobs have named or said, with control characters as `\x1b`: it may not steer the reader's terminal."""
    return _CONTROLS.sub(lambda control: f"\\x{ord(control[0]):02x}", text)


class _PlainConsole(Console):
    """Prints texts `plain`; what is not a str is printed as it is."""

    def print(self, *objects: Any, **how: Any) -> None:
        super().print(*(plain(one) if isinstance(one, str) else one for one in objects), **how)


def console(*, stderr: bool = False) -> Console:
    """stdout or stderr. Texts are shown as they are: brackets and colons in names are no markup."""
    found = _PlainConsole(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not found.is_terminal:
        found.width = _PIPE_WIDTH
    return found


def state_text(state: str) -> Text:
    """A state in its colour."""
    return Text(state, style=COLORS.get(state, ""))


def time_text(millis: int) -> str:
    """Local time of day with date, "" when it has not happened."""
    if millis < 0:
        return ""
    return datetime.fromtimestamp(millis / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration_text(millis: int) -> str:
    """Seconds, or minutes and seconds, or hours and minutes; "" when it has not begun."""
    if millis < 0:
        return ""
    if millis < 60_000:
        return f"{millis / 1000:.2f} s"
    minutes, seconds = divmod(millis // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"


def table(header: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Plain columns."""
    found = Table(box=None, pad_edge=False, header_style="bold")
    for name in header:
        found.add_column(name, overflow="fold")
    for row in rows:
        found.add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in row))
    return found


def jobs_table(jobs: Sequence[Mapping[str, Any]]) -> Table:
    """One line a job."""
    rows = [
        (
            str(job["jid"]),
            str(job["name"]),
            state_text(job["state"]),
            time_text(job["start-time"]),
            duration_text(job["duration"]),
            f"{job['tasks']['finished']}/{job['tasks']['total']}",
            str(job.get("pending-reason", "")),
        )
        for job in jobs
    ]
    return table(("job", "name", "state", "started", "time", "tasks", ""), rows)


def ownership_lines(details: Mapping[str, Any]) -> list[str]:
    """Who runs a job, and each change of that, newest first. A cluster of an older release does not tell."""
    lines = []
    if details.get("jobmaster-id"):
        lines.append(f"JobMaster process {details['jobmaster-id']} at {details['jobmaster']}")
    for one in details.get("takeovers", ()):
        when = time_text(one["timestamp"])
        lines.append(f"{when}: taken over from {one['from']} by {one['to']} because {one['reason']}")
    return lines


def failure_title(entry: Mapping[str, Any]) -> str:
    """When something failed, what, and where."""
    place = f" on {entry['taskManagerId']}" if entry.get("taskManagerId") else ""
    return f"{time_text(entry['timestamp'])}  {entry.get('taskName', 'job')}{place}"


def vertices_table(details: Mapping[str, Any]) -> Table:
    """One line a vertex of a job."""
    rows = [
        (
            str(vertex["name"]),
            state_text(vertex["status"]),
            f"{vertex['tasks']['FINISHED']}/{vertex['parallelism']}",
            str(vertex.get("restarts", "")),
            duration_text(vertex["duration"]),
            spark_progress(vertex),
        )
        for vertex in details["vertices"]
    ]
    return table(("vertex", "state", "subtasks", "restarts", "time", "progress"), rows)


def spark_progress(vertex: Mapping[str, Any]) -> str:
    """What a running vertex is doing."""
    progress = vertex.get("progress") or {}
    parts = [str(progress["text"])] if progress.get("text") else []
    if progress.get("spark-tasks-total"):
        parts.append(f"Spark {progress['spark-tasks-completed']}/{progress['spark-tasks-total']} tasks")
    return ", ".join(parts)


def task_managers_table(managers: Sequence[Mapping[str, Any]]) -> Table:
    """One line a TaskManager."""
    rows = [
        (
            str(one["id"]),
            str(one["path"]),
            f"{one.get('state', '')}: {one['problem']}" if one.get("problem") else str(one.get("state", "")),
            f"{one['freeSlots']}/{one['slotsNumber']}",
            "yes" if one.get("spark") else "no",
            "yes" if one.get("warm") else "no",
            time_text(one["timeSinceLastHeartbeat"]),
        )
        for one in managers
    ]
    return table(("taskmanager", "address", "state", "free slots", "spark", "warm", "last heard"), rows)


def job_masters_table(processes: Sequence[Mapping[str, Any]]) -> Table:
    """One line a JobMaster process."""
    rows = [
        (
            str(one["id"]),
            str(one["address"]),
            str(one["state"]),
            f"{one['jobs-running']}/{one['capacity']}",
            str(one["jobs-assigned"]),
            f"{one['memory-bytes'] / (1 << 20):.0f} MB",
            time_text(one["last-heartbeat"]),
        )
        for one in processes
    ]
    return table(("jobmaster", "address", "state", "running", "jobs so far", "memory", "last heard"), rows)
