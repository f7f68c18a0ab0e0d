"""Renders bodies of REST as tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.highlighter import JSONHighlighter
from rich.table import Table
from rich.text import Text

from runtime.common.namespaces import ALL_NAMESPACES
from runtime.common.printable import printable
from runtime.common.shares import DEFAULT_QUEUE

_PIPE_WIDTH = 4000
"""The width of output that is not a terminal, so that no line is broken for a program that reads it."""

_STEERING_IN_JSON = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_ACCUMULATORS_MAX = 50
_VALUE_LENGTH_MAX = 200
COLORS = {
    "FINISHED": "green",
    "RUNNING": "blue",
    "FAILED": "red",
    "FAILING": "red",
    "CANCELED": "yellow",
    "COMPLETED": "green",
}


class _PlainConsole(Console):
    """A console that makes each str `printable`, and prints other objects as they are."""

    def print(self, *objects: Any, **how: Any) -> None:
        super().print(*(printable(one) if isinstance(one, str) else one for one in objects), **how)


def value_text(value: Any) -> Text:
    """A result as JSON. Characters that would control the terminal are escaped as JSON allows."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:  # with an indent, Python refuses a depth that it can read
        text = json.dumps(value, ensure_ascii=False)
    return JSONHighlighter()(_STEERING_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def console(*, stderr: bool = False) -> Console:
    """The console of stdout or stderr, without markup: names may hold brackets and colons."""
    found = _PlainConsole(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not found.is_terminal:
        found.width = _PIPE_WIDTH
    return found


def state_text(state: str) -> Text:
    """A state in its colour."""
    return Text(state, style=COLORS.get(state, ""))


def time_text(millis: int) -> str:
    """The local date and time; "" for a negative value: not yet."""
    if millis < 0:
        return ""
    return datetime.fromtimestamp(millis / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration_text(millis: int) -> str:
    """Seconds, or minutes and seconds, or hours and minutes; "" for a negative value: not yet."""
    if millis < 0:
        return ""
    if millis < 60_000:
        return f"{millis / 1000:.2f} s"
    minutes, seconds = divmod(millis // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"


def table(header: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """A table of plain columns."""
    found = Table(box=None, pad_edge=False, header_style="bold")
    for name in header:
        found.add_column(name, overflow="fold")
    for row in rows:
        found.add_row(*(printable(cell) if isinstance(cell, str) else cell for cell in row))
    return found


def one_line(text: str) -> str:
    """The text in a cell of its own: no name of a job makes a line that looks like another job's."""
    return printable(text).translate({ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"})


def jobs_table(jobs: Sequence[Mapping[str, Any]]) -> Table:
    """One line for each job."""
    rows = [
        (
            str(job["jid"]),
            one_line(str(job["name"])),
            state_text(job["state"]),
            time_text(job["start-time"]),
            duration_text(job["duration"]),
            f"{job['tasks']['finished']}/{job['tasks']['total']}",
            whose_text(job),
            _why(job),
        )
        for job in jobs
    ]
    return table(("job", "name", "state", "started", "time", "tasks", "of", ""), rows)


def history_table(jobs: Sequence[Mapping[str, Any]]) -> Table:
    """One line for each job of a history server."""
    rows = [
        (
            str(job["jid"]),
            one_line(str(job.get("cluster", ""))),
            one_line(str(job["name"])),
            state_text(job["state"]),
            time_text(job["start-time"]),
            duration_text(job["duration"]),
            whose_text(job),
            _why(job),
        )
        for job in jobs
    ]
    return table(("job", "cluster", "name", "state", "started", "time", "of", ""), rows)


def _why(job: Mapping[str, Any]) -> str:
    """What a job waits for, or why it has failed."""
    return one_line(str(job.get("failure") or job.get("pending-reason", "")))


def whose_text(job: Mapping[str, Any]) -> str:
    """`namespace/submitter`; a job without submitter is the admin's. "" in answers of earlier releases."""
    return f"{job['namespace']}/{job.get('submitter') or 'admin'}" if job.get("namespace") else ""


def principals_table(principals: Sequence[Mapping[str, Any]], now_millis: int) -> Table:
    """One line for each principal, at that time."""
    rows = [(one["name"], one["role"], one["namespace"], _tokens_text(one, now_millis)) for one in principals]
    return table(("name", "role", "namespace", "tokens"), rows)


def _tokens_text(principal: Mapping[str, Any], now_millis: int = 0) -> str:
    if principal.get("problem"):  # missing in answers of older releases
        return f"unreadable, revoke replaces it: {printable(principal['problem'])}"
    ends = [one["expires"] for one in principal["tokens"]]
    shown = [
        f"{'until' if end > now_millis else 'ended'} {time_text(end)}" if end else "without an end" for end in ends
    ]
    if principal.get("certificate"):  # the same
        shown.append(f"certificate {printable(principal['certificate'])}")
    return ", ".join(shown) or "revoked"


def granted_in_words(principal: Mapping[str, Any]) -> str:
    """One line about the rights of a principal."""
    namespace = principal["namespace"]
    where = "all namespaces (*)" if namespace == ALL_NAMESPACES else f"namespace {namespace}"
    return f"{principal['name']}: role {principal['role']}, {where}, {_tokens_text(principal)}"


def ownership_lines(details: Mapping[str, Any]) -> list[str]:
    """Who has submitted a job with what, its JobMaster process, its takeovers, newest first.

    Answers of older releases have none of them.
    """
    lines = []
    if details.get("client"):
        lines.append(f"submitted by {details.get('submitter') or 'admin'} with {one_line(str(details['client']))}")
    if details.get("queue", DEFAULT_QUEUE) != DEFAULT_QUEUE or details.get("priority"):
        priority = f" with priority {details['priority']}" if details.get("priority") else ""
        lines.append(f"queue {one_line(str(details['queue']))}{priority}")
    if details.get("jobmaster-id"):
        lines.append(f"JobMaster process {details['jobmaster-id']} at {details.get('jobmaster', '')}")
    for one in details.get("takeovers", ()):
        when = time_text(one["timestamp"])
        lines.append(f"{when}: taken over from {one['from']} by {one['to']} because {one['reason']}")
    return lines


def failure_title(entry: Mapping[str, Any]) -> str:
    """Time, task and place of a failure."""
    place = f" on {entry['taskManagerId']}" if entry.get("taskManagerId") else ""
    return f"{time_text(entry['timestamp'])}  {entry.get('taskName', 'job')}{place}"


def vertices_table(details: Mapping[str, Any]) -> Table:
    """One line for each vertex of a job."""
    rows = [
        (
            str(vertex["name"]),
            state_text(vertex["status"]),
            f"{vertex['tasks']['FINISHED']}/{_subtasks(vertex)}",
            str(vertex.get("restarts", "")),
            duration_text(vertex["duration"]),
            spark_progress(vertex),
        )
        for vertex in details["vertices"]
    ]
    return table(("vertex", "state", "subtasks", "restarts", "time", "progress"), rows)


def _subtasks(vertex: Mapping[str, Any]) -> str:
    """How many a vertex has; "?" until the cluster has chosen that."""
    number = int(vertex["parallelism"])
    return str(number) if number > 0 else "?"


def decision_lines(details: Mapping[str, Any]) -> list[str]:
    """Of each vertex whose parallelism the cluster has chosen or will choose: from which numbers. Of a source whose
    subtasks take their splits on demand: where these are.
    """
    lines = []
    for vertex in details["vertices"]:
        if vertex.get("parallelism-decision"):
            lines.append(f"parallelism of {vertex['name']!r}: {vertex['parallelism-decision']}")
        elif int(vertex["parallelism"]) < 0:
            lines.append(f"parallelism of {vertex['name']!r}: chosen when what it reads is finished")
        if splits := vertex.get("splits"):
            lines.append(
                f"splits of {vertex['name']!r}: {splits['finished']} of {splits['total']} read, "
                f"{splits['running']} being read, {splits['left']} left"
            )
    return lines


def spark_progress(vertex: Mapping[str, Any]) -> str:
    """The reported progress of a vertex, and that of its Spark tasks while it runs: the last report is older."""
    progress = vertex.get("progress") or {}
    parts = [str(progress["text"])] if progress.get("text") else []
    if progress.get("spark-tasks-total") and vertex["status"] != "FINISHED":
        parts.append(f"Spark {progress['spark-tasks-completed']}/{progress['spark-tasks-total']} tasks")
    return ", ".join(parts)


def accumulators_table(body: Mapping[str, Any]) -> Group:
    """One line for each counter, gauge and histogram of the job's code, and how many are not shown."""
    found = body["user-task-accumulators"]
    rows = [(str(one["name"]), str(one["type"]), _counted(one["value"])) for one in found[:_ACCUMULATORS_MAX]]
    left = max(0, len(found) - _ACCUMULATORS_MAX)
    more = [f"and {left} more, which --json has"] if left else []
    if body.get("left-out"):
        more.append(f"{body['left-out']} more entries than the cluster keeps of one job")
    return Group(table(("counted by its code", "", ""), rows), *(Text(one, style="dim") for one in more))


def _counted(value: str) -> str:
    """A number of a counter; of a gauge or a histogram what is kept of its values."""
    try:
        told = json.loads(value)
    except (ValueError, RecursionError):
        return value[:_VALUE_LENGTH_MAX]
    if isinstance(told, dict):
        return ", ".join(f"{name} {one}" for name, one in told.items())[:_VALUE_LENGTH_MAX]
    return value[:_VALUE_LENGTH_MAX]


def log_files_table(files: Sequence[Mapping[str, Any]]) -> Table:
    """One line for each log file of a process."""
    rows = [(str(one["name"]), str(one["size"]), time_text(one["mtime"])) for one in files]
    return table(("file", "bytes", "changed"), rows)


def task_managers_table(managers: Sequence[Mapping[str, Any]]) -> Table:
    """One line for each TaskManager."""
    rows = [
        (
            str(one["id"]),
            str(one["path"]),
            f"{one.get('state', '')}: {one['problem']}" if one.get("problem") else str(one.get("state", "")),
            f"{one['freeSlots']}/{one['slotsNumber']}",
            _whom_it_serves(one),
            "yes" if one.get("spark") else "no",
            "yes" if one.get("warm") else "no",
            _environments(one.get("spark-environments", ())),
            " ".join(one.get("labels", ())) or "-",
            one.get("profile") or "-",
            " ".join(one.get("not-enforced", ())) or "-",
            time_text(one["timeSinceLastHeartbeat"]),
        )
        for one in managers
    ]
    columns = (
        "taskmanager",
        "address",
        "state",
        "free slots",
        "serves",
        "spark",
        "warm",
        "environments",
        "labels",
        "profile",
        "not enforced",
    )
    return table((*columns, "last heard"), rows)


def _environments(found: Sequence[Mapping[str, Any]]) -> str:
    """How many Spark environments there are beside the default one, how many of them are used, and their memory."""
    if not found:
        return "-"
    used = sum(1 for one in found if one["users"])
    return f"{used}/{len(found)} used, {sum(one['memory-bytes'] for one in found) >> 20} MiB"


def _whom_it_serves(manager: Mapping[str, Any]) -> str:
    if manager.get("tenancy", "shared") == "shared":
        return "all"
    return str(manager.get("tenant")) or "one namespace"


def job_masters_table(processes: Sequence[Mapping[str, Any]]) -> Table:
    """One line for each JobMaster process."""
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


def events_table(events: Sequence[Mapping[str, Any]]) -> Table:
    """One line for each event, oldest first."""
    rows = [(time_text(one["timestamp"]), str(one["kind"]), str(one["message"])) for one in events]
    return table(("time", "event", ""), rows)


# --- for `flinklike top` ------------------------------------------------------------------------------------------

_SHORT_ID = 8


def section(title: str, content: RenderableType) -> Group:
    """A part of a screen."""
    return Group(Text(""), Text(title, style="bold cyan"), content)


def _one_line(header: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """A table whose cells are cut where they do not fit: each row is one line."""
    found = table(header, rows)
    for column in found.columns:
        column.overflow, column.no_wrap = "ellipsis", True
    return found


def short_jobs_table(jobs: Sequence[Mapping[str, Any]], *, is_narrow: bool) -> Table:
    """One line for each job; in a narrow terminal without its whole id and its submitter."""
    rows = []
    for job in jobs:
        job_id = str(job["jid"])[:_SHORT_ID] if is_narrow else str(job["jid"])
        tasks = f"{job['tasks']['finished']}/{job['tasks']['total']}"
        cells: list[str | Text] = [
            job_id,
            one_line(str(job["name"])),
            state_text(job["state"]),
            duration_text(job["duration"]),
            tasks,
        ]
        rows.append([*cells, *([] if is_narrow else [whose_text(job)]), str(job.get("pending-reason", ""))])
    return _one_line(("job", "name", "state", "time", "tasks", *([] if is_narrow else ["of"]), "waits for"), rows)


def short_job_masters_table(processes: Sequence[Mapping[str, Any]], *, is_narrow: bool) -> Table:
    """One line for each JobMaster process."""
    rows = [
        (
            str(one["id"])[: _SHORT_ID if is_narrow else None],
            str(one["address"]),
            str(one["state"]),
            f"{one['jobs-running']}/{one['capacity']}",
            f"{100 * float(one.get('cpu-fraction', 0)):.0f} %",
            f"{one['memory-bytes'] >> 20} MiB",
        )
        for one in processes
    ]
    return _one_line(("jobmaster", "address", "state", "jobs", "cpu", "memory"), rows)


def short_task_managers_table(managers: Sequence[Mapping[str, Any]], *, is_narrow: bool) -> Table:
    """One line for each TaskManager."""
    rows = []
    for one in managers:
        used = one["slotsNumber"] - one["freeSlots"]
        slots = f"{used}/{one['slotsNumber']}"
        spark = ("warm" if one.get("warm") else "starting") if one.get("spark") else "-"
        more = [] if is_narrow else [str(one["path"]), _environments(one.get("spark-environments", ()))]
        rows.append([str(one["id"]), str(one.get("state", "")), slots, spark, *more, str(one.get("problem", ""))])
    wide = [] if is_narrow else ["address", "environments"]
    return _one_line(("taskmanager", "state", "slots used", "spark", *wide, ""), rows)
