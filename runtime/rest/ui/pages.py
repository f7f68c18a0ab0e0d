"""Plain pages, rendered here, without scripts: a job with its log, JobMaster processes, TaskManagers."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from runtime.common.errors import FlinklikeError
from runtime.common.ids import ExecutionAttemptId, JobId, parse_job_id
from runtime.common.restart_strategies import in_words
from runtime.common.states import ExecutionState
from runtime.executiongraph.archived import ArchivedExecution, ArchivedExecutionGraph, ArchivedVertex
from runtime.gateways.dispatcher import JobSummary
from runtime.gateways.overview import JobMasterInfo, Takeover
from runtime.gateways.resource_manager import TaskManagerInfo
from runtime.gateways.task_executor import AttemptLogRequest, AttemptLogResponse, LogStream
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.access.sign_in import principal_of
from runtime.rest.bodies.job_bodies import duration
from runtime.rest.context import RestContext
from runtime.rest.routes.cluster import task_manager_state
from runtime.rest.routes.jobs import archived_graph, known_summary, seen
from runtime.rest.routes.vertices import LOG_LIMIT_MAX, find_attempt, find_subtask, find_vertex, read_log
from runtime.rest.ui.markup import Page, escape, seconds_text, state_html, table_html, time_text
from runtime.rest.ui.page_sign_in import sign_out_html
from runtime.security.principals import ADMIN_NAME

_TAIL_BYTES = 8192
_JOBS_SHOWN_MAX = 50
_ATTEMPTS_SHOWN_MAX = 100


def ui_router(context: RestContext) -> APIRouter:
    """The pages."""
    router = authorized_router(context, prefix="/ui")
    refresh = max(1, context.refresh_interval_millis // 1000)

    @router.get("/jobs/{job_id}")
    async def job_page(job_id: str, request: Request) -> HTMLResponse:
        """One job."""
        job = parse_job_id(job_id)
        summary = await known_summary(context, job)
        graph = await archived_graph(context, job)
        log = await _log_tail(context, graph)
        owner = context.dispatcher.job_owner(graph.job_id)
        body = render_job(graph, owner, log, summary, now=context.clock.epoch_millis())
        body += sign_out_html(request.scope)
        return Page(graph.name, body, 0 if graph.status.is_globally_terminal else refresh).answer()

    @router.get("/jobs/{job_id}/logs/{vertex_id}/{index}/{attempt}/{stream}")
    async def log_page(
        job_id: str, vertex_id: str, index: int, attempt: int, stream: LogStream, request: Request
    ) -> HTMLResponse:
        """The end of one log."""
        vertex = await find_vertex(context, job_id, vertex_id)
        found = find_attempt(find_subtask(vertex, index), attempt)
        asked = AttemptLogRequest(ExecutionAttemptId.parse(found.attempt_id), stream, -LOG_LIMIT_MAX, LOG_LIMIT_MAX)
        body = render_log(vertex, index, found, stream, await read_log(context, found, asked))
        body += sign_out_html(request.scope)
        return Page(vertex.name, body, 0 if found.state.is_terminal else refresh).answer()

    @router.get("/jobmasters")
    async def job_masters_page(request: Request) -> HTMLResponse:
        """JobMaster processes and their jobs."""
        dispatcher, principal = context.dispatcher, principal_of(request)
        found = [(one, seen(principal, dispatcher.jobs_of(one.incarnation))) for one in dispatcher.job_masters()]
        body = render_job_masters(found) + sign_out_html(request.scope)
        return Page("JobMaster processes", body, refresh).answer()

    @router.get("/taskmanagers")
    async def task_managers_page(request: Request) -> HTMLResponse:
        """TaskManagers and their slots."""
        body = render_task_managers(context.components.resource_manager.task_managers()) + sign_out_html(request.scope)
        return Page("TaskManagers", body, refresh).answer()

    return router


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
    graph: ArchivedExecutionGraph, owner: JobMasterInfo | None, log: tuple[str, str], summary: JobSummary, *, now: int
) -> str:
    """The page as HTML; everything that came from outside is escaped."""
    spent = duration(graph.start_millis, graph.end_millis, now)
    reason = f'<p class="muted">{escape(graph.pending_reason)}</p>' if graph.pending_reason else ""
    result = f"<h2>Result</h2><pre>{escape(graph.result)}</pre>" if graph.result else ""
    config = graph.config
    restarts = in_words(config.restart_strategy, config.user_failures) if config.restart_strategy else ""
    header = ("name", "state", "subtasks", "restarts", "progress", "time")
    return (
        f"<h1>{escape(graph.name)} {state_html(graph.status.value)}</h1>"
        f'<p class="muted">{graph.job_id} &middot; started {time_text(graph.start_millis)}'
        f" &middot; {seconds_text(spent)}{_whose(summary)}</p>{reason}{_ownership(owner, graph.takeovers)}"
        f'<p class="muted">{escape(restarts)}</p>'
        f"<h2>Vertices</h2>{table_html(header, [_vertex_row(vertex, now) for vertex in graph.vertices])}"
        f"{result}{_exceptions(graph)}{_attempts(graph, now)}"
        f"<h2>{escape(log[0])}</h2><pre>{escape(log[1])}</pre>"
    )


def render_log(
    vertex: ArchivedVertex, index: int, attempt: ArchivedExecution, stream: LogStream, piece: AttemptLogResponse
) -> str:
    """One stream of one attempt, as HTML."""
    text = piece.data.decode("utf-8", "replace")
    is_all = len(piece.data) == piece.size_bytes and not piece.dropped_bytes
    cut = "" if is_all else f'<p class="muted">The last {len(piece.data)} of {piece.size_bytes} bytes.</p>'
    return (
        f"<h1>{escape(vertex.name)} {state_html(attempt.state.value)}</h1>"
        f'<p class="muted">{stream.value} of subtask {index}, attempt {attempt.attempt}</p>{cut}'
        f"<pre>{escape(text) if text else '(empty)'}</pre>"
    )


def render_job_masters(processes: Sequence[tuple[JobMasterInfo, Sequence[JobSummary]]]) -> str:
    """All JobMaster processes, each with its first jobs."""
    header = ("process", "address", "state", "running", "so far", "jobs")
    return f"<h1>JobMaster processes</h1>{table_html(header, [_job_master_row(*one) for one in processes])}"


def render_task_managers(managers: Sequence[TaskManagerInfo]) -> str:
    """All TaskManagers."""
    header = ("TaskManager", "address", "state", "free slots", "tasks")
    return f"<h1>TaskManagers</h1>{table_html(header, [_task_manager_row(one) for one in managers])}"


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


def _attempts(graph: ArchivedExecutionGraph, now: int) -> str:
    """The attempts that were deployed, with links to their logs: failed ones first, then running ones, newest first."""
    found = [
        (vertex, subtask.index, attempt)
        for vertex in graph.vertices
        for subtask in vertex.subtasks
        for attempt in (subtask.current, *subtask.prior)
        if attempt.task_manager_id
    ]
    found.sort(key=lambda one: (_urgency(one[2]), -one[2].start_millis))
    shown = found[:_ATTEMPTS_SHOWN_MAX]
    more = f'<p class="muted">and {len(found) - len(shown)} more attempts</p>' if len(found) > len(shown) else ""
    header = ("vertex", "subtask", "attempt", "state", "TaskManager", "started", "time", "logs")
    rows = [_attempt_row(graph.job_id, *one, now) for one in shown]
    return f"<h2>Attempts</h2>{table_html(header, rows)}{more}" if rows else ""


def _urgency(attempt: ArchivedExecution) -> int:
    if attempt.state is ExecutionState.FAILED:
        return 0
    return 2 if attempt.state.is_terminal else 1


def _attempt_row(job_id: JobId, vertex: ArchivedVertex, index: int, attempt: ArchivedExecution, now: int) -> str:
    place = f"{job_id}/logs/{quote(vertex.id)}/{index}/{attempt.attempt}"
    logs = " ".join(f'<a href="{escape(place)}/{one.value}">{one.value}</a>' for one in LogStream)
    spent = seconds_text(duration(attempt.start_millis, attempt.end_millis, now))
    return (
        f"<tr><td>{escape(vertex.name)}</td><td>{index}</td><td>{attempt.attempt}</td>"
        f"<td>{state_html(attempt.state.value)}</td><td>{escape(attempt.task_manager_id)}</td>"
        f"<td>{time_text(attempt.start_millis)}</td><td>{spent}</td><td>{logs}</td></tr>"
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
