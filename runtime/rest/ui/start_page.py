"""The first answers of the endpoint: `/` redirects a browser to `/ui`, and lists the main paths for other clients."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from runtime.common.version import VERSION
from runtime.gateways.dispatcher import JobSummary
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.access.sign_in import principal_of
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.job_bodies import duration
from runtime.rest.bodies.schema.cluster import ClusterOverview, Start
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers
from runtime.rest.routes.cluster import cluster_overview
from runtime.rest.routes.jobs import seen
from runtime.rest.ui.markup import Page, escape, seconds_text, state_html, table_html, time_text
from runtime.rest.ui.page_sign_in import sign_out_html
from runtime.security.principals import ADMIN_NAME

_JOBS_SHOWN_MAX = 50


def start_router(context: RestContext) -> APIRouter:
    """`/` and `/ui`."""
    router = authorized_router(context)

    @router.get("/", responses=answers(Start))
    async def start(request: Request) -> Response:
        """The main paths; a browser is redirected to `/ui`."""
        if "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("ui")
        body: Start = {
            "flinklike-version": VERSION,
            "page": "/ui",
            "overview": "/overview",
            "jobs": "/jobs/overview",
            "taskmanagers": "/taskmanagers",
            "jobmasters": "/jobmasters",
            "openapi": "/openapi.json",
        }
        return JsonAnswer(body)

    @router.get("/ui", include_in_schema=False)
    async def start_page(request: Request) -> Response:
        """The numbers of the cluster and its latest jobs."""
        principal = principal_of(request)
        newest = list(islice(seen(principal, context.dispatcher.job_summaries()), _JOBS_SHOWN_MAX))
        refresh = max(1, context.refresh_interval_millis // 1000)
        now = context.clock.epoch_millis()
        overview = cluster_overview(context, principal)
        body = render_start(overview, newest, now=now) + sign_out_html(request.scope)
        return Page(f"flinklike {VERSION}", body, refresh).answer()

    return router


def render_start(overview: ClusterOverview, newest: Sequence[JobSummary], *, now: int) -> str:
    """The page as HTML; links are relative, so that it works behind a proxy's path."""
    numbers = [
        f"{overview['jobs-running']} running jobs",
        f"{overview['jobs-finished']} finished",
        f"{overview['jobs-failed']} failed",
        f"{overview['jobs-cancelled']} cancelled",
        f"{overview['slots-available']} free slots",
    ]
    numbers += [
        f'<a href="ui/taskmanagers">{overview["taskmanagers"]} TaskManagers</a>',
        f'<a href="ui/jobmasters">{overview["jobmasters"]} JobMaster processes</a>',
    ]
    jobs = overview["jobs-running"] + overview["jobs-finished"] + overview["jobs-failed"] + overview["jobs-cancelled"]
    more = f"<p class=muted>and {jobs - len(newest)} older jobs</p>" if jobs > len(newest) else ""
    above = f"<p>{' &middot; '.join(numbers)}</p>"
    below = more or ("" if newest else "<p class=muted>no jobs yet: flinklike run, or an Airflow task</p>")
    rows = [_job_row(one, now) for one in newest]
    header = ("job", "state", "started", "time", "namespace", "submitter")
    return f"<h1>flinklike {VERSION}</h1>{above}{table_html(header, rows)}{below}"


def _job_row(summary: JobSummary, now: int) -> str:
    spent = seconds_text(duration(summary.start_millis, summary.end_millis, now))
    link = f'<a href="ui/jobs/{summary.job_id}">{escape(summary.name)}</a>'
    reason = f" <span class=muted>{escape(summary.pending_reason)}</span>" if summary.pending_reason else ""
    state = state_html(summary.status.value)
    whose = f"<td>{escape(summary.namespace)}</td><td>{escape(summary.submitter or ADMIN_NAME)}</td>"
    times = f"<td>{time_text(summary.start_millis)}</td><td>{spent}</td>"
    return f"<tr><td>{link}</td><td>{state}{reason}</td>{times}{whose}</tr>"
