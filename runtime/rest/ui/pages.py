"""Plain pages, rendered here, without scripts: a job with its log, JobMaster processes, TaskManagers."""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from runtime.common.errors import FlinklikeError
from runtime.common.ids import ExecutionAttemptId, parse_job_id
from runtime.common.printable import printable
from runtime.common.restart_strategies import in_words
from runtime.common.states import ExecutionState
from runtime.executiongraph.archived import ArchivedExecution, ArchivedExecutionGraph, ArchivedVertex
from runtime.gateways.dispatcher import JobSummary
from runtime.gateways.overview import JobMasterInfo, Takeover
from runtime.gateways.resource_manager import TaskManagerInfo
from runtime.gateways.task_executor import AttemptLogRequest, LogStream
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.access.sign_in import principal_of
from runtime.rest.bodies.job_bodies import duration
from runtime.rest.context import RestContext
from runtime.rest.routes.cluster import task_manager_state
from runtime.rest.routes.jobs import archived_graph, known_summary, seen
from runtime.rest.routes.vertices import read_log
from runtime.security.principals import ADMIN_NAME

_TAIL_BYTES = 8192
_JOBS_SHOWN_MAX = 50
_COLORS = {
    "FINISHED": "#2e7d32",
    "RUNNING": "#1565c0",
    "FAILED": "#c62828",
    "CANCELED": "#6d4c41",
    "CANCELLING": "#6d4c41",
    "FAILING": "#c62828",
    "ready": "#2e7d32",
    "draining": "#ef6c00",
    "drained": "#6d4c41",
    "disconnected": "#c62828",
}
_STYLE = Path(__file__).with_name("ui.css").read_text(encoding="utf-8")


def ui_router(context: RestContext) -> APIRouter:
    """The pages."""
    router = authorized_router(context, prefix="/ui")

    @router.get("/jobs/{job_id}")
    async def job_page(job_id: str) -> HTMLResponse:
        """One job."""
        job = parse_job_id(job_id)
        summary = await known_summary(context, job)
        graph = await archived_graph(context, job)
        log = await _log_tail(context, graph)
        is_over = graph.status.is_globally_terminal
        refresh = 0 if is_over else max(1, context.refresh_interval_millis // 1000)
        owner = context.dispatcher.job_owner(graph.job_id)
        page = render_job(graph, owner, log, summary, now=context.clock.epoch_millis(), refresh_seconds=refresh)
        return html_page(page)

    @router.get("/jobmasters")
    async def job_masters_page(request: Request) -> HTMLResponse:
        """JobMaster processes and their jobs."""
        dispatcher, principal = context.dispatcher, principal_of(request)
        found = [(one, seen(principal, dispatcher.jobs_of(one.incarnation))) for one in dispatcher.job_masters()]
        return html_page(render_job_masters(found, refresh_seconds=max(1, context.refresh_interval_millis // 1000)))

    @router.get("/taskmanagers")
    async def task_managers_page() -> HTMLResponse:
        """TaskManagers and their slots."""
        found = context.components.resource_manager.task_managers()
        return html_page(render_task_managers(found, refresh_seconds=max(1, context.refresh_interval_millis // 1000)))

    return router


_POLICY = "; ".join(
    [f"{what} 'none'" for what in ("default-src", "frame-ancestors", "base-uri", "form-action")]
    + ["style-src 'unsafe-inline'"]
)


def html_page(page: str) -> HTMLResponse:
    """A page that loads nothing, no frame may hold, and no referrer names: its address may hold the token."""
    return HTMLResponse(page, headers={"content-security-policy": _POLICY, "referrer-policy": "no-referrer"})


async def _log_tail(context: RestContext, graph: ArchivedExecutionGraph) -> tuple[str, str]:
    """(title, text) of the log that a person wants first: of a failed attempt, else of the latest deployed one."""
    attempts = [subtask.current for vertex in graph.vertices for subtask in vertex.subtasks]
    deployed = [one for one in attempts if one.task_manager_id]
    if not deployed:
        return "Log", "(nothing has been deployed yet)"
    failed = [one for one in deployed if one.state is ExecutionState.FAILED]
    chosen: ArchivedExecution = failed[0] if failed else max(deployed, key=lambda one: one.start_millis)
    title = f"Log of attempt {chosen.attempt_id}"
    try:
        texts = [await _tail(context, chosen, stream) for stream in (LogStream.STDOUT, LogStream.STDERR, LogStream.LOG)]
    except FlinklikeError as error:
        return title, f"({error})"
    return title, "\n".join(text for text in texts if text) or "(empty)"


async def _tail(context: RestContext, attempt: ArchivedExecution, stream: LogStream) -> str:
    request = AttemptLogRequest(ExecutionAttemptId.parse(attempt.attempt_id), stream, -_TAIL_BYTES, _TAIL_BYTES)
    piece = await read_log(context, attempt, request)
    text = piece.data.decode("utf-8", "replace")
    return f"--- {stream.value} ---\n{text}" if text else ""


def render_job(
    graph: ArchivedExecutionGraph,
    owner: JobMasterInfo | None,
    log: tuple[str, str],
    summary: JobSummary,
    *,
    now: int,
    refresh_seconds: int,
) -> str:
    """The page as HTML; everything that came from outside is escaped."""
    refresh = f'<meta http-equiv="refresh" content="{refresh_seconds}">' if refresh_seconds else ""
    spent = duration(graph.start_millis, graph.end_millis, now)
    reason = f'<p class="muted">{escape(graph.pending_reason)}</p>' if graph.pending_reason else ""
    result = f"<h2>Result</h2><pre>{escape(graph.result)}</pre>" if graph.result else ""
    config = graph.config
    restarts = in_words(config.restart_strategy, config.user_failures) if config.restart_strategy else ""
    rows = "".join(_vertex_row(vertex, now) for vertex in graph.vertices)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{refresh}<title>{escape(graph.name)}</title>'
        f"<style>{_STYLE}</style></head><body>"
        f"<h1>{escape(graph.name)} {state_html(graph.status.value)}</h1>"
        f'<p class="muted">{graph.job_id} &middot; started {time_text(graph.start_millis)}'
        f" &middot; {seconds_text(spent)}{_whose(summary)}</p>{reason}{_ownership(owner, graph.takeovers)}"
        f'<p class="muted">{escape(restarts)}</p>'
        "<h2>Vertices</h2><table><tr><th>name</th><th>state</th><th>subtasks</th><th>restarts</th><th>progress</th><th>time</th></tr>"
        f"{rows}</table>{result}{_exceptions(graph)}<h2>{escape(log[0])}</h2><pre>{escape(log[1])}</pre></body></html>"
    )


def render_job_masters(processes: Sequence[tuple[JobMasterInfo, Sequence[JobSummary]]], *, refresh_seconds: int) -> str:
    """All JobMaster processes, each with its first jobs."""
    header = ("process", "address", "state", "running", "so far", "jobs")
    rows = [_job_master_row(info, jobs) for info, jobs in processes]
    return table_html("JobMaster processes", header, rows, refresh_seconds)


def render_task_managers(managers: Sequence[TaskManagerInfo], *, refresh_seconds: int) -> str:
    """All TaskManagers."""
    header = ("TaskManager", "address", "state", "free slots", "tasks")
    return table_html("TaskManagers", header, [_task_manager_row(one) for one in managers], refresh_seconds)


def table_html(
    title: str, header: Sequence[str], rows: Sequence[str], refresh_seconds: int, *, above: str = "", below: str = ""
) -> str:
    """A page with a table; all but `title` is HTML."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="{refresh_seconds}"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{above}"
        f"<table><tr>{''.join(f'<th>{name}</th>' for name in header)}</tr>{''.join(rows)}</table>{below}</body></html>"
    )


def _task_manager_row(info: TaskManagerInfo) -> str:
    one = info.registration
    return (
        f"<tr><td>{escape(one.task_manager_id)}</td><td>{escape(one.address)}</td>"
        f"<td>{state_html(task_manager_state(info))}</td><td>{info.free_slots}/{one.slots}</td>"
        f"<td>{info.assigned_tasks}</td></tr>"
    )


def _job_master_row(info: JobMasterInfo, jobs: Sequence[JobSummary]) -> str:
    lines = [f"{escape(one.name)} {state_html(one.status.value)} {one.job_id}" for one in jobs[:_JOBS_SHOWN_MAX]]
    if len(jobs) > len(lines):
        lines.append(f"and {len(jobs) - len(lines)} more")
    return (
        f"<tr><td>{escape(info.incarnation)}</td><td>{escape(info.address)}</td><td>{state_html(info.state)}</td>"
        f"<td>{info.jobs_running}/{info.capacity}</td><td>{info.jobs_assigned}</td><td>{'<br>'.join(lines)}</td></tr>"
    )


def _vertex_row(vertex: ArchivedVertex, now: int) -> str:
    counts = vertex.counts()
    states = ", ".join(f"{count} {state.value.lower()}" for state, count in counts.items())
    percent = 100 * counts[ExecutionState.FINISHED] // max(1, vertex.parallelism)
    spent = duration(vertex.start_millis, vertex.end_millis, now)
    return (
        f"<tr><td>{escape(vertex.name)}</td><td>{state_html(vertex.state.value)}</td><td>{states}</td><td>{vertex.restarts}</td>"
        f'<td><div class="bar"><div style="width:{percent}%"></div></div></td><td>{seconds_text(spent)}</td></tr>'
    )


def _whose(summary: JobSummary) -> str:
    submitter = escape(summary.submitter or ADMIN_NAME)
    return f" &middot; namespace {escape(summary.namespace)} &middot; submitted by {submitter}"


def _ownership(owner: JobMasterInfo | None, takeovers: Sequence[Takeover]) -> str:
    lines = [f"JobMaster process {escape(owner.incarnation)} at {escape(owner.address)}"] if owner else []
    lines += [
        f"{time_text(one.millis)}: taken over from {escape(one.former_address)} by {escape(one.owner_address)}"
        f" because {escape(one.reason)}"
        for one in reversed(takeovers)
    ]
    return f'<p class="muted">{"<br>".join(lines)}</p>' if lines else ""


def _exceptions(graph: ArchivedExecutionGraph) -> str:
    if not graph.exceptions:
        return ""
    parts = [
        f"<p>{escape(one.task_name or 'job')} <span class=muted>{time_text(one.failure.timestamp_millis)}"
        f" {escape(one.task_manager_id)}</span></p>"
        f"<pre>{escape(one.failure.stack_trace or one.failure.message)}</pre>"
        for one in graph.exceptions
    ]
    return f"<h2>Exceptions</h2>{''.join(parts)}"


def escape(text: str) -> str:
    """Text of others within a page."""
    return html.escape(printable(text))


def state_html(name: str) -> str:
    """A state in its colour."""
    return f'<span class="state" style="background:{_COLORS.get(name, "#757575")}">{name}</span>'


def time_text(millis: int) -> str:
    """A moment, for people."""
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if millis >= 0 else "not yet"


def seconds_text(millis: int) -> str:
    """How long something took, "" if it has not begun."""
    return f"{millis / 1000:.1f} s" if millis >= 0 else ""
