"""Routes of /jobs: submit, list, details, results, cancel, long polls."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from runtime.common.errors import ConflictError, InvalidInputError, NotFoundError
from runtime.common.ids import Incarnation, JobId, parse_job_id
from runtime.common.shares import Submitter
from runtime.common.states import JobStatus
from runtime.common.waiting import WaitingKind
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.gateways.dispatcher import JobRequest, JobSummary, SubmitJobResponse
from runtime.gateways.overview import DispatcherView
from runtime.rest.access.authorized_routes import (
    authorized_router,
    check_namespace_of_submit,
    set_more,
    set_object,
    tell_done,
    tell_hidden,
)
from runtime.rest.access.sign_in import check_still_signed_in, principal_of
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies import job_bodies
from runtime.rest.bodies.job_rows import SLICE_ROWS, changed_jobs
from runtime.rest.bodies.request_bodies import ClientHeartbeat, MoveRequest, WaitRequest, parse_body
from runtime.rest.bodies.schema import jobs as schema
from runtime.rest.bodies.schema.common import Empty
from runtime.rest.bodies.schema.vertices import AttemptsOfJob
from runtime.rest.bodies.vertex_bodies import attempts_of_job
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers, takes
from runtime.rest.routes.chosen_parallelism import parallelism_doubts
from runtime.rest.routes.seen_savepoints import check_savepoint
from runtime.rest.routes.speculation import speculation_doubts
from runtime.rest.routes.submission import Submission, read_submission
from runtime.security.principals import Principal

logger = logging.getLogger(__name__)

_SOON_MILLIS = 10_000
"""A client that is to be back so soon may as well cancel."""

FLINK_PREFIX = "/v1/"
"""Flink's Java clients ask below it, and deserialize the failure of a job as a Java object. Others need not."""

_BY_TURN = frozenset({WaitingKind.SLOTS.value, WaitingKind.QUEUE.value})

Wait = Annotated[float, Query(ge=0, description="long poll: answer at the latest after this many seconds")]
Since = Annotated[int, Query(ge=0, description="long poll: the last-modification already known")]


async def archived_graph(context: RestContext, job_id: JobId) -> ArchivedExecutionGraph:
    """The execution graph of a job, from its owner or the archive. NotFoundError."""
    response = await context.dispatcher.request_job(JobRequest(job_id))
    try:
        graph = ArchivedExecutionGraph.from_json(response.archived_graph)
    except InvalidInputError as error:
        if context.history is None:
            raise
        message = f"the archive of job {job_id} cannot be read: {error}"
        logger.warning("%s", message)
        raise NotFoundError(message) from error
    if graph.job_id != job_id:  # only who writes into a history could do that
        message = f"the archive of job {job_id} is that of another job"
        raise NotFoundError(message)
    return graph


async def known_summary(context: RestContext, job_id: JobId) -> JobSummary:
    """What is known of a job. Raises NotFoundError in Flink's words."""
    summary = await context.dispatcher.find_job(job_id)
    if summary is None:
        message = f"Job {job_id} not found"
        raise NotFoundError(message)
    return summary


def is_by_turn(summary: JobSummary) -> bool:
    """True if the job waits for its turn in its queue."""
    return summary.pending_kind in _BY_TURN and not summary.status.is_globally_terminal


def now_waiting(context: RestContext, summary: JobSummary) -> JobSummary:
    """The summary of a job that waits for its turn, with the reason and its place in its queue at this moment."""
    if not is_by_turn(summary):
        return summary
    waiting = context.components.resource_manager.waiting_of(summary.job_id)
    return replace(summary, pending_reason=waiting.reason) if waiting else summary


def with_places(context: RestContext, jobs: Iterable[JobSummary]) -> Sequence[JobSummary]:
    """The reasons of this moment, of so many jobs that no other request waits for them."""
    shown = list(jobs)
    for number in islice((number for number, one in enumerate(shown) if is_by_turn(one)), SLICE_ROWS):
        shown[number] = now_waiting(context, shown[number])
    return shown


async def wait_for_change(context: RestContext, job_id: JobId, *, wait: float, since: int, of: Principal) -> JobSummary:
    """The summary once it is newer than `since`, or after `wait` seconds."""
    summary = await known_summary(context, job_id)
    if wait > 0 and summary.last_modification_millis <= since and not summary.status.is_globally_terminal:
        timeout = min(wait, context.long_poll_max)
        known = summary.last_modification_millis
        await context.dispatcher.wait_for_jobs({job_id: known}, timeout=timeout, principal=of.name)
        summary = await known_summary(context, job_id)
    return summary


async def wait_for_end(context: RestContext, job_id: JobId, *, wait: float, of: Principal) -> JobSummary:
    """The summary once the job is terminal, or after `wait` seconds."""
    summary = await known_summary(context, job_id)
    deadline = context.clock.monotonic() + min(wait, context.long_poll_max)
    while not summary.status.is_globally_terminal:
        remaining = deadline - context.clock.monotonic()
        if remaining <= 0:
            break
        known = summary.last_modification_millis
        await context.dispatcher.wait_for_jobs({job_id: known}, timeout=remaining, principal=of.name)
        summary = await known_summary(context, job_id)
    return summary


def jobs_router(context: RestContext) -> APIRouter:
    """All routes that are about whole jobs. Lists come before it: the first match wins."""
    router = authorized_router(context, tags=["jobs"])
    _add_submit_and_wait(router, context)
    _add_one_job(router, context)
    _add_parts(router, context)
    return router


def _submitted(job_id: JobId, response: SubmitJobResponse, doubts: list[str]) -> schema.Submitted:
    answer: schema.Submitted = {
        "jobUrl": f"/jobs/{job_id}",
        "status": response.status.value,
        "outcome": response.outcome.value,
    }
    if doubts:
        answer["warnings"] = doubts
    return answer


def _add_submit_and_wait(router: APIRouter, context: RestContext) -> None:
    @router.post("/jobs", status_code=202, responses=answers(schema.Submitted, 202), openapi_extra=takes(Submission))
    async def submit(request: Request) -> Response:
        """Submit `{"job_id", "job_graph", "options"}`. Idempotent: the client chooses the id."""
        if request.headers.get("content-type", "").startswith("multipart/"):
            # Flink's client sends all of it before it reads: without this it sees a broken connection, and repeats.
            async for _ in request.stream():
                pass
            message = (
                "this cluster runs PySpark jobs, not Java job graphs: "
                'POST JSON {"job_id", "job_graph"}, or use flinklike run'
            )
            raise InvalidInputError(message)
        offers = context.components.resource_manager.spark_offers()
        verified = await read_submission(await request.body(), offers)
        submission = verified.request
        check_still_signed_in(request.scope)  # large ones wait for each other
        set_object(request, submission.job_id)
        principal = principal_of(request)
        namespace = check_namespace_of_submit(principal, submission.namespace)
        submitter = Submitter(principal.submitter, namespace, principal.is_of_all)
        queue = context.queues.queue_for(submitter, submission.queue, verified.team)
        doubts = context.queues.doubts(submitter, submission.queue, submission.namespace)
        doubts += speculation_doubts(verified.graph, is_cluster_enabled=context.speculates)
        doubts += parallelism_doubts(
            verified.graph, scheduler=context.scheduler, is_cluster_enabled=context.chooses_parallelism
        )
        set_more(request, namespace=namespace, queue=queue)
        trace = context.new_trace(submission.job_id, request.headers.get("traceparent", ""))
        submission = replace(submission, submitter=submitter.name, namespace=namespace, trace=trace, queue=queue)
        await check_savepoint(
            verified.graph, submission.job_id, context.dispatcher, runs_by_split=context.runs_by_split
        )
        response = await context.dispatcher.submit_verified(submission, verified.graph)
        return JsonAnswer(_submitted(submission.job_id, response, doubts), status_code=202)

    @router.post("/jobs/wait", responses=answers(schema.ChangedJobs), openapi_extra=takes(WaitRequest))
    async def wait_for_many(request: Request) -> Response:
        """Long poll for many jobs: those with news, and always those that have ended.

        `known` says of each job the last modification that is known, so nothing is missed. With `ids` and one `since`
        for all, changes may be missed while a job runs, because owners have clocks of their own; an end never is.
        A poll with a `name` ends an earlier one of that name. The reasons of the first 200 jobs that wait for their
        turn have their places in their queues.
        """
        asked = parse_body(WaitRequest, await request.body())
        dispatcher = context.dispatcher
        known = {parse_job_id(job_id): modified for job_id, modified in asked.known.items()}
        known |= {job_id: _known_by(dispatcher, job_id, asked.since) for job_id in map(parse_job_id, asked.ids)}
        principal = principal_of(request)
        timeout = min(asked.wait, context.long_poll_max)
        hidden = _hidden(dispatcher, principal, known)
        if hidden:
            timeout = 0.0  # the answer names those at once, like unknown ones
        name = f"{principal.submitter}/{asked.name}" if asked.name and principal.submitter else asked.name
        news = await dispatcher.wait_for_jobs(known, timeout=timeout, name=name, principal=principal.name)
        news |= hidden
        found = _seen_of(context, request, await dispatcher.find_jobs(sorted(news)))
        now = context.clock.epoch_millis()
        shown = with_places(context, found.values())
        return JsonAnswer(await changed_jobs(shown, sorted(news - found.keys()), now))


def _add_one_job(router: APIRouter, context: RestContext) -> None:
    @router.get("/jobs/{job_id}", responses=answers(schema.Job))
    async def details(job_id: str, request: Request, wait: Wait = 0, since: Since = 0) -> Response:
        """Everything about a job; with `wait` and `since` a long poll."""
        job = parse_job_id(job_id)
        summary = await wait_for_change(context, job, wait=wait, since=since, of=principal_of(request))
        graph = await archived_graph(context, job)
        owner = context.dispatcher.job_owner(job)
        now = context.clock.epoch_millis()
        shown = now_waiting(context, summary)
        body = job_bodies.job_details(graph, owner, shown, now)
        if shown is not summary:
            body["pending-reason"] = shown.pending_reason
        if context.history is not None:
            body["cluster"] = context.history.cluster(job)
        return JsonAnswer(body)

    @router.patch("/jobs/{job_id}", status_code=202, responses=answers(Empty, 202))
    async def cancel(job_id: str, mode: str = "cancel") -> Response:
        """Cancel; idempotent."""
        if mode != "cancel":
            message = f"mode={mode[:40]}: the only mode is cancel"
            raise InvalidInputError(message)
        return await cancel_job(context, parse_job_id(job_id))

    @router.patch(
        "/jobs/{job_id}/clientHeartbeat",
        status_code=202,
        responses=answers(Empty, 202),
        openapi_extra=takes(ClientHeartbeat),
    )
    async def client_heartbeat(job_id: str, request: Request) -> Response:
        """Promise another heartbeat, or say that none has to come. Answered when that is durable; idempotent."""
        asked = parse_body(ClientHeartbeat, await request.body())
        job, expires = parse_job_id(job_id), asked.expired_timestamp
        await context.dispatcher.client_heartbeat(job, expires_millis=expires)
        summary = await context.dispatcher.find_job(job)
        is_own = summary is not None and summary.submitter == principal_of(request).submitter
        # Clients send this every few seconds; logged is what may end a job of another one, or ends it at once (R49).
        if not is_own or 0 < expires < context.clock.epoch_millis() + _SOON_MILLIS:
            tell_done(context, request, "promise", until=expires)
        return JsonAnswer({}, status_code=202)

    @router.get("/jobs/{job_id}/yarn-cancel", status_code=202, responses=answers(Empty, 202))
    async def cancel_by_get(job_id: str) -> Response:
        """The same for pages that can only GET."""
        return await cancel_job(context, parse_job_id(job_id))

    @router.post(
        "/jobs/{job_id}/move", status_code=202, responses=answers(Empty, 202), openapi_extra=takes(MoveRequest)
    )
    async def move(job_id: str, request: Request) -> Response:
        """Have another JobMaster process run the job; its tasks do not notice. Answered when the wish is durable."""
        asked = parse_body(MoveRequest, await request.body())
        set_more(request, to=asked.to)
        await context.dispatcher.move_job(parse_job_id(job_id), Incarnation(asked.to))
        return JsonAnswer({}, status_code=202)


def _add_parts(router: APIRouter, context: RestContext) -> None:
    @router.get("/jobs/{job_id}/status", responses=answers(schema.JobState))
    async def status(job_id: str, request: Request, wait: Wait = 0, since: Since = 0) -> Response:
        """The state, and whether the caller has submitted the job; with `wait` and `since` a long poll."""
        principal = principal_of(request)
        summary = await wait_for_change(context, parse_job_id(job_id), wait=wait, since=since, of=principal)
        body: schema.JobState = {
            "status": summary.status.value,
            "last-modification": summary.last_modification_millis,
            "pending-reason": now_waiting(context, summary).pending_reason,
            "is-own": summary.submitter == principal.submitter,
        }
        return JsonAnswer(body)

    @router.get("/jobs/{job_id}/execution-result", responses=answers(schema.ExecutionResult))
    async def execution_result(job_id: str, request: Request, wait: Wait = 0) -> Response:
        """The result once the job is terminal; `wait` waits for it."""
        summary = await wait_for_end(context, parse_job_id(job_id), wait=wait, of=principal_of(request))
        if not summary.status.is_globally_terminal:
            in_progress: schema.ExecutionResult = {"status": {"id": "IN_PROGRESS"}}
            return JsonAnswer(in_progress)
        is_for_flink = request.url.path.startswith(FLINK_PREFIX)
        graph = await archived_graph(context, summary.job_id)
        return JsonAnswer(job_bodies.execution_result(graph, is_for_flink=is_for_flink))

    @router.get("/jobs/{job_id}/attempts", responses=answers(AttemptsOfJob))
    async def attempts(job_id: str) -> Response:
        """All attempts that are remembered, earlier ones too, by vertex."""
        graph = await archived_graph(context, parse_job_id(job_id))
        return JsonAnswer(attempts_of_job(graph.vertices, context.clock.epoch_millis()))

    @router.get("/jobs/{job_id}/plan", responses=answers(schema.JobPlan))
    async def plan(job_id: str) -> Response:
        """The plan of vertices and edges."""
        body: schema.JobPlan = {"plan": job_bodies.plan(await archived_graph(context, parse_job_id(job_id)))}
        return JsonAnswer(body)

    @router.get("/jobs/{job_id}/config", responses=answers(schema.JobConfiguration))
    async def config(job_id: str) -> Response:
        """Parameters and Spark conf."""
        return JsonAnswer(job_bodies.job_config(await archived_graph(context, parse_job_id(job_id))))

    @router.get("/jobs/{job_id}/exceptions", responses=answers(schema.JobExceptions))
    async def exceptions(
        job_id: str, max_exceptions: Annotated[int, Query(alias="maxExceptions", ge=1)] = 16
    ) -> Response:
        """The failures of a job, newest first."""
        graph = await archived_graph(context, parse_job_id(job_id))
        return JsonAnswer(job_bodies.exceptions(graph, max_exceptions))


def seen(principal: Principal, summaries: Sequence[JobSummary]) -> Sequence[JobSummary]:
    """The jobs of the namespaces that this principal sees."""
    if principal.is_of_all:
        return summaries
    return [one for one in summaries if principal.sees(one.namespace)]


def _seen_of(context: RestContext, request: Request, found: Mapping[JobId, JobSummary]) -> dict[JobId, JobSummary]:
    """The jobs that the principal may see. A line of the audit log says that the request has named others."""
    principal = principal_of(request)
    tell_hidden(context, request, [one for one in found.values() if not principal.sees(one.namespace)])
    return {job_id: one for job_id, one in found.items() if principal.sees(one.namespace)}


def _hidden(dispatcher: DispatcherView, principal: Principal, jobs: Iterable[JobId]) -> frozenset[JobId]:
    if principal.is_of_all:
        return frozenset()
    shown = ((job_id, dispatcher.job_summary(job_id)) for job_id in jobs)
    return frozenset(job_id for job_id, one in shown if one is not None and not principal.sees(one.namespace))


def _known_by(dispatcher: DispatcherView, job_id: JobId, since: int) -> int:
    """The last modification that a client knows which has seen everything up to `since`."""
    summary = dispatcher.job_summary(job_id)
    return since if summary is None else min(since, summary.last_modification_millis)


async def cancel_job(context: RestContext, job_id: JobId) -> Response:
    """Cancel; idempotent. Raises ConflictError for a job that has ended in another way."""
    summary = await known_summary(context, job_id)
    if summary.status.is_globally_terminal and summary.status is not JobStatus.CANCELED:
        message = f"Job cancellation failed: the job already reached another terminal state ({summary.status.value})."
        raise ConflictError(message)
    if summary.status is not JobStatus.CANCELED:
        await context.dispatcher.cancel_job(JobRequest(job_id))
    return JsonAnswer({}, status_code=202)
