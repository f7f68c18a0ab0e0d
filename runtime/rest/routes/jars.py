"""Routes of /jars: programs that are uploaded once and run many times, as Flink's dashboard does it (R54, D-113)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from runtime.common.errors import ConflictError, ForbiddenError, InvalidInputError
from runtime.common.ids import JobId, parse_job_id
from runtime.common.shares import Submitter
from runtime.gateways.dispatcher import is_same_run
from runtime.highavailability.jars import StoredJar
from runtime.highavailability.records import JarRecord
from runtime.jobgraph.savepoints import PATH_LENGTH_MAX, ClaimMode, SavepointRestoreSettings, claim_mode_of
from runtime.rest.access.authorized_routes import (
    HiddenError,
    authorized_router,
    check_namespace_of_submit,
    set_more,
    set_object,
)
from runtime.rest.access.sign_in import check_still_signed_in, principal_of
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.graph_plans import plan_of_graph
from runtime.rest.bodies.request_bodies import JarRunBody, parse_body
from runtime.rest.bodies.schema import jars as schema
from runtime.rest.bodies.schema.applications import StartedApplication
from runtime.rest.bodies.schema.common import Empty
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers, takes, takes_file
from runtime.rest.routes.jar_runs import JarRuns, RunBy, with_entry
from runtime.rest.uploads.library import Library, not_found
from runtime.rest.uploads.multipart import FilePart
from runtime.rest.uploads.programs import RunWish, run_of_content, run_of_id, split_args, with_configuration
from runtime.security.principals import Principal, Role

Namespace = Annotated[str, Query(description="of the program; default: that of the principal")]


def jars_router(context: RestContext) -> APIRouter:
    """All routes of /jars."""
    router = authorized_router(context, prefix="/jars", tags=["jars"])
    _add_files(router, context)
    _add_runs(router, context)
    return router


def _add_files(router: APIRouter, context: RestContext) -> None:
    @router.get("", responses=answers(schema.Jars))
    async def jars(request: Request) -> Response:
        """The uploaded programs of the namespaces that the caller sees, the newest first."""
        principal = principal_of(request)
        files = [_file(one) for one in await _library(context).all() if _sees(principal, one)]
        body: schema.Jars = {"address": f"{request.url.scheme}://{context.components.rest_address}", "files": files}
        return JsonAnswer(body)

    @router.post("/upload", responses=answers(schema.UploadedJar), openapi_extra=takes_file("jarfile"))
    async def upload(request: Request, namespace: Namespace = "") -> Response:
        """Store a .py, .zip, .whl, .egg or .jar; durable when answered."""
        principal = principal_of(request)
        library = _library(context)
        of = check_namespace_of_submit(principal, namespace)
        part = FilePart(request.headers.get("content-type", ""), request.stream())
        await part.begin()
        set_object(request, part.file_name[:128])
        record = await library.add(part.file_name, part.chunks(), namespace=of, uploader=principal.submitter)
        set_object(request, record.jar_id)
        set_more(request, namespace=of, sha256=record.key.partition("-")[0])
        body: schema.UploadedJar = {"filename": f"/jars/{record.jar_id}", "status": "success"}
        return JsonAnswer(body)

    @router.delete("/{jar_id}", responses=answers(Empty))
    async def delete(jar_id: str, request: Request) -> Response:
        """Forget a program. Jobs that run it go on, and keep its bytes."""
        principal = principal_of(request)
        found = await _found(context, principal, jar_id)
        record = found.record
        if principal.role is Role.SUBMITTER and (record is None or record.uploader != principal.submitter):
            message = f"{jar_id} was uploaded by somebody else: to delete it takes the role operator"
            raise ForbiddenError(message)
        await _library(context).delete(jar_id)
        return JsonAnswer({})


def _add_runs(router: APIRouter, context: RestContext) -> None:
    runs = JarRuns(context)

    async def _plan(jar_id: str, request: Request) -> Response:
        record = await _readable(context, principal_of(request), jar_id)
        asked = await _asked(request)
        job_id = _job_id(context, asked)
        wish = with_entry(record, _wish(request, asked))
        made = await runs.graph(record, wish, job_id, _run_by(context, request, record, asked))
        body: schema.JarPlan = {"plan": plan_of_graph(job_id, made.graph)}
        if made.warnings:
            body["warnings"] = list(made.warnings)
        return JsonAnswer(body)

    body_of_plan = takes(JarRunBody, is_required=False)

    @router.get("/{jar_id}/plan", responses=answers(schema.JarPlan), openapi_extra=body_of_plan)
    async def plan(jar_id: str, request: Request) -> Response:
        """The plan of a run."""
        return await _plan(jar_id, request)

    @router.post("/{jar_id}/plan", responses=answers(schema.JarPlan), openapi_extra=body_of_plan)
    async def plan_with_body(jar_id: str, request: Request) -> Response:
        """The plan of a run, for clients that send no body with a GET."""
        return await _plan(jar_id, request)

    @router.post(
        "/{jar_id}/run",
        responses=answers(schema.StartedJar),
        openapi_extra=takes(JarRunBody, is_required=False),
    )
    async def run(jar_id: str, request: Request) -> Response:
        """Run a program as a job of its namespace, submitted by the caller.

        Idempotent with a `jobId` as long as the job is known, also when the program is uploaded anew or deleted.
        Another request with that `jobId` is a 409, or a 403 where the job is of somebody else.
        """
        job_id, warnings = await _run(context, runs, jar_id, request)
        body: schema.StartedJar = {"jobid": job_id, "applicationId": job_id}
        if warnings:
            body["warnings"] = list(warnings)
        return JsonAnswer(body)

    @router.post(
        "/{jar_id}/run-application",
        status_code=202,
        responses=answers(StartedApplication, 202),
        openapi_extra=takes(JarRunBody, is_required=False),
    )
    async def run_application(jar_id: str, request: Request) -> Response:
        """The same: an application is one job."""
        job_id, _ = await _run(context, runs, jar_id, request)
        body: StartedApplication = {"applicationid": job_id}
        return JsonAnswer(body, status_code=202)


async def _run(context: RestContext, runs: JarRuns, jar_id: str, request: Request) -> tuple[JobId, Sequence[str]]:
    """Have the job that a request asks for, with the warnings of its plan. None is begun twice, whoever dies (R54)."""
    principal = principal_of(request)
    asked = await _asked(request)
    job_id = _job_id(context, asked)
    wish = _wish(request, asked)
    set_more(request, job=job_id)
    # R54: the job before the program, which may be deleted by now.
    is_repeatable = bool(asked.job_id or asked.application_id)
    found = await runs.find(job_id, principal.submitter) if is_repeatable else None
    by_id = run_of_id(jar_id, wish)
    if found is not None and is_same_run(found.program_run, by_id):
        return job_id, ()
    record = await _readable(context, principal, jar_id)
    wish = with_entry(record, wish)
    program_run = f"{by_id}/{run_of_content(record, wish)}"
    if found is not None and found.program_run:
        if is_same_run(found.program_run, program_run):
            return job_id, ()
        message = f"job id {job_id} is taken by a job of another request: give another jobId, or none"
        raise ConflictError(message)
    by = _run_by(context, request, record, asked)
    made = await runs.graph(record, wish, job_id, by)
    check_still_signed_in(request.scope)  # the plan may have taken long
    await runs.submit(made.graph, job_id, by, client="jars", program_run=program_run)
    return job_id, (*made.warnings, *by.doubts)


def _library(context: RestContext) -> Library:
    return Library(context.components, context.clock, context.entropy)


def _sees(principal: Principal, one: StoredJar) -> bool:
    """An unreadable one belongs to no namespace."""
    return principal.is_of_all if one.record is None else principal.sees(one.record.namespace)


async def _found(context: RestContext, principal: Principal, jar_id: str) -> StoredJar:
    found = await _library(context).get(jar_id)
    if not _sees(principal, found):
        whose = found.record.namespace if found.record else "nobody"
        reason = f"program {jar_id} is of the namespace {whose}, {principal.name} sees {principal.namespace} only"
        raise HiddenError(str(not_found(jar_id)), reason)
    return found


async def _readable(context: RestContext, principal: Principal, jar_id: str) -> JarRecord:
    found = await _found(context, principal, jar_id)
    if found.record is None:
        message = f"the record of {jar_id} cannot be read: {found.problem}. Delete it, and upload the program again"
        raise InvalidInputError(message)
    return found.record


def _run_by(context: RestContext, request: Request, record: JarRecord, asked: JarRunBody) -> RunBy:
    """Whose run it is, and where it waits. Raises InvalidInputError and ForbiddenError for a queue that cannot be."""
    principal = principal_of(request)
    namespace = check_namespace_of_submit(principal, record.namespace)
    submitter = Submitter(principal.submitter, namespace, principal.is_of_all)
    unread = sorted({"queue", "priority"} & request.query_params.keys())
    if unread:
        message = f"{unread[0]}: name it in the body of the request, {{{unread[0]!r}: ...}}"
        raise InvalidInputError(message)
    queue = context.queues.queue_for(submitter, asked.queue or "")
    doubts = context.queues.doubts(submitter, asked.queue or "", "")
    return RunBy(submitter.name, namespace, queue, asked.priority or 0, tuple(doubts))


async def _asked(request: Request) -> JarRunBody:
    return parse_body(JarRunBody, await request.body() or b"{}")


def _job_id(context: RestContext, asked: JarRunBody) -> JobId:
    """The id of the job, which is that of its application. Raises InvalidInputError."""
    if asked.job_id and asked.application_id and asked.job_id != asked.application_id:
        message = "jobId and applicationId: an application is one job here, give one id"
        raise InvalidInputError(message)
    return parse_job_id(asked.job_id or asked.application_id or context.entropy.hex_id())


def _wish(request: Request, asked: JarRunBody) -> RunWish:
    """What the body asks for, and the query where the body does not. Raises InvalidInputError."""
    query = request.query_params
    text = asked.program_args or ""
    args = tuple(asked.program_args_list or ()) or split_args(text)
    if not args and (given := query.get("programArg") or query.get("program-args")):
        args = split_args(given) if "program-args" in query else tuple(given.split(","))
    # Flink's dashboard writes the arguments into `savepointPath` of the query.
    of_query = query.get("savepointPath", "")
    savepoint = _savepoint(asked, query, "" if of_query in {text, " ".join(args)} else of_query)
    parallelism = asked.parallelism
    if parallelism is None and (number := query.get("parallelism")):
        if not (number.isascii() and number.isdigit()) or not 0 < len(number) < 6:
            message = f"parallelism: {number[:40]!r} is no positive number"
            raise InvalidInputError(message)
        parallelism = int(number)
    entry = (asked.entry_class or query.get("entry-class") or "").strip()
    return with_configuration(RunWish(entry, args, parallelism, savepoint=savepoint), asked.flink_configuration or {})


def _savepoint(asked: JarRunBody, query: Mapping[str, str], of_query: str) -> SavepointRestoreSettings | None:
    """What a run is started from. Raises InvalidInputError."""
    path = asked.savepoint_path or of_query
    mode = claim_mode_of(asked.claim_mode or asked.restore_mode or ClaimMode.NO_CLAIM.value)
    is_allowed = asked.allow_non_restored_state
    if is_allowed is None:
        is_allowed = query.get("allowNonRestoredState", "").lower() == "true"
    if not path:
        return None
    if len(path) > PATH_LENGTH_MAX:
        message = f"savepointPath: it has {len(path)} characters, the limit is {PATH_LENGTH_MAX}"
        raise InvalidInputError(message)
    return SavepointRestoreSettings(path=path, allow_non_restored_state=is_allowed, claim_mode=mode)


def _file(one: StoredJar) -> schema.JarFile:
    record = one.record
    if record is None:
        return {
            "id": one.jar_id, "name": one.jar_id, "uploaded": 0, "entry": [], "size": 0, "namespace": "",
            "uploader": "", "problem": one.problem,
        }  # fmt: skip
    return {
        "id": record.jar_id,
        "name": record.name,
        "uploaded": record.uploaded_millis,
        "entry": [{"name": name, "description": None} for name in record.entries],
        "size": record.size_bytes,
        "namespace": record.namespace,
        "uploader": record.uploader,
    }
