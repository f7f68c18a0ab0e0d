"""The report of a migration: for a terminal, as Markdown, and as JSON. docs/migrate.md describes the JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from airflow_flinklike.migrate.analysis import FileReport
from airflow_flinklike.migrate.confs import ENVIRONMENTS_BYTES, is_own
from airflow_flinklike.migrate.model import Judgement, Place, Verdict
from airflow_flinklike.migrate.noting import size_text
from airflow_flinklike.migrate.summary import IDLE_MINUTES, Summary, rounded
from runtime.common.printable import printable

JSON_VERSION = 1
_KEY_LENGTH = 8
"""As TaskManagers name the logs of an environment."""


def as_json(reports: Sequence[FileReport], summary: Summary) -> dict[str, Any]:
    """The whole report for programs."""
    return {
        "version": JSON_VERSION,
        "assumptions": {"start_seconds": summary.start_seconds, "environment_idle_minutes": IDLE_MINUTES},
        "summary": {
            "files": summary.files,
            "problems": summary.problems,
            "places": {verdict.value: number for verdict, number in summary.places.items()},
            "tasks": {verdict.value: number for verdict, number in summary.tasks.items()},
            "is_at_least": summary.is_at_least,
            "unscheduled_tasks": summary.unscheduled,
            "unseen_scripts": summary.unseen_scripts,
            "jvm_starts_per_day": {"before": summary.starts_before, "after": summary.starts_after},
            "seconds_saved_per_day": summary.seconds_saved,
            "connections": summary.connections,
            "memory_bytes": {"environments": summary.environment_bytes, "own_jvm": summary.own_jvm_bytes},
            "own_jvms": summary.own_jvms,
            "tasks_of_largest_run": summary.largest_run[1],
        },
        "environments": [
            {
                "key": one.key,
                "places": one.places,
                "tasks": one.tasks,
                "memory_bytes": one.memory_bytes,
                "conf": _texts(one.conf),
            }
            for one in summary.environments.values()
        ],
        "files": [_file(report) for report in reports if report.tasks or report.others or report.problem],
    }


def _file(report: FileReport) -> dict[str, Any]:
    return {
        "path": str(report.path),
        "problem": report.problem,
        "changed": report.is_changed,
        "written": report.is_written,
        "tasks": [_task(place, judgement) for place, judgement in report.tasks],
        "advice": report.advice,
        "others": [{"class": name, "line": line} for name, line in report.others],
    }


def _task(place: Place, judgement: Judgement) -> dict[str, Any]:
    dags = {id(one.dag): one.dag for one in place.placements if one.dag is not None}.values()
    return {
        "line": place.line,
        "task_id": place.task_id,
        "kind": place.kind.value,
        "count": place.count,
        "dags": [
            {"dag_id": dag.dag_id, "schedule": dag.schedule.text, "runs_per_day": dag.schedule.runs_per_day}
            for dag in dags
        ],
        "verdict": judgement.verdict.value,
        "environments": list(judgement.environments),
        "reasons": list(judgement.reasons),
        "notes": list(judgement.notes),
    }


def _texts(conf: Any) -> dict[str, str]:
    return {key: str(value) for key, value in conf.items()}


def as_text(reports: Iterable[FileReport], summary: Summary) -> str:
    """The report for a terminal: a block for each file with Spark tasks, and the totals."""
    lines: list[str] = []
    for report in reports:
        if report.problem:
            lines += [f"{report.path}: {report.problem}", ""]
        if not (report.tasks or report.others):
            continue
        lines.append(f"{report.path}{'  (written)' if report.is_written else ''}")
        lines += _table([_row(place, judgement, summary) for place, judgement in report.tasks], report)
        lines += [f"  {line:>5}  {name}: no task of this class is moved" for name, line in report.others]
        lines += [f"  {line}" for line in report.advice]
        lines.append("")
    lines += summary_lines(summary)
    return "\n".join(printable(line) for line in lines) + "\n"


def _table(rows: Sequence[tuple[str, str, str, str]], report: FileReport) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(3)] if rows else []
    for row, (_, judgement) in zip(rows, report.tasks, strict=True):
        line, name, kind = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        yield f"  {line:>5}  {name}  {kind}  {row[3]}"
        yield from (f"{'':11}{text}" for text in (*judgement.reasons, *judgement.notes))


def _row(place: Place, judgement: Judgement, summary: Summary) -> tuple[str, str, str, str]:
    return str(place.line or "-"), _name(place), place.kind.value, verdict_text(judgement, summary)


def _name(place: Place) -> str:
    """The task's id, with how many tasks the place makes."""
    count = place.count
    several = " (several)" if count is None else f" ({count} tasks)" if count != 1 else ""
    return (place.task_id or "?") + several


def verdict_text(judgement: Judgement, summary: Summary) -> str:
    """The verdict in words, with the environment and who shares it."""
    words = judgement.verdict.in_words
    if judgement.verdict is not Verdict.ENVIRONMENT:
        return words
    keys = [_environment_text(key, summary) for key in judgement.environments]
    return f"{words}: {', '.join(keys)}"


def _environment_text(key: str | None, summary: Summary) -> str:
    if key is None:
        return "key known when it runs"
    if not key:
        return "the warm one"
    if is_own(key):
        return key
    if key not in summary.environments:  # one of several of a mapped task
        return key[:_KEY_LENGTH]
    tasks = summary.environments[key].tasks
    return f"{key[:_KEY_LENGTH]} ({'for it alone' if tasks == 1 else f'{tasks} tasks share it'})"


def summary_lines(summary: Summary) -> list[str]:
    """The totals as sentences."""
    least = "at least " if summary.is_at_least else ""
    total = sum(summary.tasks.values())
    lines = [f"{summary.files} files read, {least}{total} Spark tasks:"]
    lines += [
        f"  {number:>6}  {verdict.in_words}{_environments(summary) if verdict is Verdict.ENVIRONMENT else ''}"
        for verdict, number in summary.tasks.items()
    ]
    used = ", ".join(f"{name} ({number})" for name, number in sorted(summary.connections.items()))
    lines += [f"Connections that tasks use now: {used}."] if used else []
    before, after = rounded(summary.starts_before), rounded(summary.starts_after)
    lines.append(f"JVM starts a day: {least}{before} now, about {after} after the move.")
    lines.append(
        f"Saved: {least}{rounded(summary.seconds_saved)} seconds a day, at {summary.start_seconds:g} s a start "
        "(--start-seconds)."
    )
    lines.append(
        f"Assumed: an environment starts once for each run of a DAG, unless runs come within {IDLE_MINUTES} minutes."
    )
    lines += _room_lines(summary)
    if summary.unscheduled:
        lines.append(f"Not counted: {summary.unscheduled} tasks without a schedule that the file tells.")
    if summary.unseen_scripts:
        lines.append(
            f"Not read: the scripts of {summary.unseen_scripts} tasks, as their lines say; static conf of their "
            "builders gives them a Spark environment."
        )
    if summary.problems:
        lines.append(f"{summary.problems} files could not be read or written.")
    return lines


def _room_lines(summary: Summary) -> Iterator[str]:
    """What the tasks that move need of the cluster, as far as the files tell."""
    name, tasks = summary.largest_run
    if tasks:
        of = f" ({name})" if name else ""
        yield (
            f"Slots: up to {tasks} tasks that move are in one run of a DAG{of}. How many run at once depends on how "
            "long they take, which no file tells."
        )
    several = len(summary.environments)
    if several:
        largest = max(one.memory_bytes for one in summary.environments.values())
        yield (
            f"Memory: the environments ({several}) take {size_text(summary.environment_bytes)} if all are there at "
            f"once, the largest {size_text(largest)}, each with its overhead."
        )
    if summary.own_jvms:
        yield f"Memory: JVMs of one task alone ({summary.own_jvms}) take up to {size_text(summary.own_jvm_bytes)} each."
    if several or summary.own_jvms:
        yield (
            f"A TaskManager has {size_text(ENVIRONMENTS_BYTES)} for them beside its warm Spark; "
            "taskmanager.memory.spark.total gives it more."
        )


def _environments(summary: Summary) -> str:
    number = len(summary.environments)
    return f" ({number} {'environment' if number == 1 else 'environments'})" if number else ""


def as_markdown(reports: Iterable[FileReport], summary: Summary) -> str:
    """The report as a page: the totals, the environments, and a table of all tasks."""
    lines = ["# Spark tasks and the cluster", ""]
    lines += [f"{line}  " for line in summary_lines(summary)]
    if summary.environments:
        lines += ["", "| environment | tasks | conf |", "|---|---|---|"]
        lines += [
            f"| `{one.key}` | {one.tasks} | {_cell(', '.join(f'{k}={v}' for k, v in one.conf.items()))} |"
            for one in summary.environments.values()
        ]
    lines += [
        "",
        "| file | line | task | now | what becomes of it | why, and what changes |",
        "|---|---|---|---|---|---|",
    ]
    for report in reports:
        lines += _markdown_rows(report, summary)
    return "\n".join(printable(line) for line in lines) + "\n"


def _markdown_rows(report: FileReport, summary: Summary) -> Iterator[str]:
    path = _cell(str(report.path))
    if report.problem:
        yield f"| {path} | | | | not read or written | {_cell(report.problem)} |"
    for place, judgement in report.tasks:
        why = _cell("; ".join((*judgement.reasons, *judgement.notes)))
        what = _cell(verdict_text(judgement, summary))
        yield f"| {path} | {place.line or '-'} | {_cell(_name(place))} | {place.kind} | {what} | {why} |"
    for name, line in report.others:
        yield f"| {path} | {line} | | {name} | stays | no task of this class is moved |"
    for text in report.advice:
        yield f"| {path} | | | | | {_cell(text)} |"


def _cell(text: str) -> str:
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").split())
