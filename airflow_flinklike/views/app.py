"""The application in Airflow's API server: the dashboard's pages of jobs, for whom Airflow lets read their DAGs.

It passes on what `PASSED_ON` names, of jobs whose ids prove whose they are, and no request of a browser decides which
host is asked, or with which headers (R56, D-117).
"""

# Annotations are no texts here: FastAPI resolves those of functions within functions in this module only.
import asyncio
import json
import logging
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from airflow_flinklike.views import rights
from airflow_flinklike.views.clusters import ClusterProblemError, cluster_of
from airflow_flinklike.views.documents import FOR_GOOD, HEADERS, document, media_type, plain_page, static_files
from airflow_flinklike.views.job_lists import ListQuery, list_jobs
from airflow_flinklike.views.task_jobs import TaskJob, TaskPlace, find
from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId, parse_job_id
from runtime.common.json_text import parse_json

logger = logging.getLogger(__name__)

_OF_STREAMS = ("checkpoints", "streams")
PASSED_ON = ("accumulators", "attempts", "config", "exceptions", "execution-result", "plan", "spark", *_OF_STREAMS)
"""What of a job is passed on, beside the job itself and its logs."""
_ASKED_FOR = {"spark": {"plans": "true"}}
"""The query of a part: that of the page is not passed on."""
LOGS_BODY_BYTES_MAX = 256 * 1024
_LOGS_FIELDS = ("streams", "vertex", "subtask", "attempt", "position", "limit")
REFRESH_MILLIS = 3000
CHANGES_SECONDS = 5.0
"""So long a page waits before it looks again: nobody tells this process of changes."""
_SENTENCE_OF_CSRF = "this takes a request of the dashboard's own page"

User = Annotated[Any, Depends(get_user)]


def make_app() -> FastAPI:
    """The application, which Airflow mounts."""
    app = FastAPI(title="flinklike", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_exception_handler(HTTPException, _on_refusal)
    app.add_exception_handler(ClusterProblemError, _on_problem)
    _add_pages(app)
    _add_lists(app)
    _add_job(app)
    return app


async def _on_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refused(request, error.status_code, str(error.detail))


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ClusterProblemError)
    return _refused(request, error.status, str(error))


def _refused(request: Request, status: int, sentence: str) -> Response:
    """In Flink's shape for scripts, and a page for a browser."""
    if "text/html" in request.headers.get("accept", ""):
        title = "Not signed in" if status == 401 else "This page cannot be shown"
        return HTMLResponse(plain_page(title, sentence, root=_root(request)), status_code=status, headers=HEADERS)
    return JSONResponse({"errors": [sentence]}, status_code=status, headers=HEADERS)


def _below(request: Request) -> str:
    """The path of the request below where this application is mounted."""
    root = request.scope.get("root_path", "")
    path: str = request.scope["path"]
    return (path.removeprefix(root) if root else path).lstrip("/")


def _root(request: Request) -> str:
    """Back to where this application is mounted, relative to the address: a proxy may have put a path in front."""
    return "../" * _below(request).count("/") or "./"


def _answer(body: Any) -> Response:
    return JSONResponse(body, headers=HEADERS)


# --- pages ----------------------------------------------------------------------------------------------------


def _add_pages(app: FastAPI) -> None:
    @app.get("/static/icon.svg")
    def icon() -> Response:
        """Of the navigation. It says nothing of anybody."""
        return Response(static_files()[0]["icon.svg"], media_type="image/svg+xml", headers=HEADERS)

    @app.get("/static/{digest}/{name:path}")
    def static_file(digest: str, name: str) -> Response:
        """A file of the dashboard, which is that of a public package."""
        files, known = static_files()
        if digest != known or name not in files:
            raise HTTPException(404, "this is no file of this release's dashboard: load the page again")
        return Response(files[name], media_type=media_type(name), headers=FOR_GOOD)

    @app.get("/ui")
    @app.get("/ui/jobs")
    def list_page(request: Request, _: User) -> Response:
        """The jobs of the DAGs that the person may read."""
        root = _root(request)
        return HTMLResponse(document(base=root, root="", refresh_millis=REFRESH_MILLIS), headers=HEADERS)

    @app.get("/task")
    def task_page(request: Request, user: User, dag: str, run: str, task: str, map: str = "-1") -> Response:  # noqa: A002
        """The page of a task instance's job; until there is one, a page that says so and looks again."""
        place = TaskPlace(dag, run, task, _map_index(map))
        rights.check_reads(request, user, dag)
        found = find(place)
        if found is None:
            sentence = (
                "This task instance has no job on a cluster, or none of which Airflow still knows. This page looks "
                "again by itself."
            )
            page = plain_page("No job yet", sentence, root=_root(request), refresh_seconds=5)
            return HTMLResponse(page, headers=HEADERS)
        return RedirectResponse(f"{_root(request)}ti/{place.reference()}/ui/jobs/{found.job.job_id}", headers=HEADERS)

    @app.get("/ti/{reference}/ui/jobs/{job_id}")
    @app.get("/ti/{reference}/ui/jobs/{job_id}/{tab}")
    def job_page(request: Request, user: User, reference: str, job_id: str) -> Response:
        """The page of a job; its script asks below the same reference."""
        _task_job(request, user, reference, job_id)
        base = "../" * (_below(request).count("/") - 2)
        text = document(base=base, root="../../", refresh_millis=REFRESH_MILLIS)
        return HTMLResponse(text, headers=HEADERS)


def _map_index(text: str) -> int:
    """Airflow leaves the placeholder as it is for a task that is not mapped."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1


# --- what the pages ask for -----------------------------------------------------------------------------------


def _add_lists(app: FastAPI) -> None:
    @app.get("/jobs/overview")
    def overview(request: Request, user: User, wanted: Annotated[ListQuery, Query()]) -> Response:
        """The jobs of the DAGs that the person may read, of all clusters."""
        return _answer(list_jobs(rights.readable(request, user), wanted))

    for prefix in ("", "/ti/{reference}"):

        @app.get(f"{prefix}/principal")
        def principal(user: User) -> Response:
            """The person, as Airflow knows them. What they may do with a job is said with the job."""
            body = {"name": str(user.get_name()), "role": "submitter", "namespace": "", "via": "Airflow"}
            return _answer(body)

        @app.get(f"{prefix}/changes")
        async def changes(_: User, since: str = "", wait: float = 0) -> Response:
            """Another revision each time, after some seconds: the page looks again."""
            if since and wait > 0:
                await asyncio.sleep(min(wait, CHANGES_SECONDS))
            return _answer({"revision": "look again"})


def _add_job(app: FastAPI) -> None:
    @app.get("/ti/{reference}/jobs/{job_id}")
    def job(request: Request, user: User, reference: str, job_id: str) -> Response:
        """Everything about the job, and whether the person may cancel it."""
        found = _task_job(request, user, reference, job_id)
        with cluster_of(found.job.conn_id) as client:
            body = client.get(f"/jobs/{found.job.job_id}")
        return _answer({**body, "may-cancel": rights.may_edit(request, user, found.place.dag_id)})

    @app.get("/ti/{reference}/jobs/{job_id}/{part}")
    def part_of_job(request: Request, user: User, reference: str, job_id: str, part: str) -> Response:
        """A part of what is known of the job."""
        if part not in PASSED_ON:
            raise HTTPException(404, f"Airflow's pages do not show {part[:40]!r} of a job")
        found = _task_job(request, user, reference, job_id)
        with cluster_of(found.job.conn_id) as client:
            return _answer(client.get(f"/jobs/{found.job.job_id}/{part}", **_ASKED_FOR.get(part, {})))

    @app.post("/ti/{reference}/jobs/{job_id}/logs")
    async def logs(request: Request, user: User, reference: str, job_id: str) -> Response:
        """Pieces of the job's logs, for whom may read those of the DAG."""
        asked = await _logs_body(request)

        def read() -> Any:
            found = _task_job(request, user, reference, job_id)
            rights.check_reads_logs(request, user, found.place.dag_id)
            with cluster_of(found.job.conn_id) as client:
                return client.post(f"/jobs/{found.job.job_id}/logs", asked)

        return _answer(await run_in_threadpool(read))

    @app.patch("/ti/{reference}/jobs/{job_id}")
    def cancel(request: Request, user: User, reference: str, job_id: str, mode: str = "cancel") -> Response:
        """Cancel the job, for whom may change the state of the DAG's task instances."""
        _check_own_page(request)
        found = _task_job(request, user, reference, job_id)
        rights.check_edits(request, user, found.place.dag_id)
        if mode != "cancel":
            raise HTTPException(400, "the only mode is cancel")
        with cluster_of(found.job.conn_id) as client:
            client.cancel(found.job.job_id)
        problem = _note_cancel(user, found)
        return JSONResponse({"problem": problem} if problem else {}, status_code=202, headers=HEADERS)


def _task_job(request: Request, user: Any, reference: str, job_id: str) -> TaskJob:
    """The job of a task instance that the person may read. Raises HTTPException."""
    place = TaskPlace.of_reference(reference)
    if place is None:
        raise HTTPException(404, "this address names no task instance")
    rights.check_reads(request, user, place.dag_id)
    asked = _job_id(job_id)
    found = find(place)
    if found is None or found.job.job_id != asked:
        sentence = "this is not the job of the task instance any more: it was cleared or tried again, so open its tab"
        raise HTTPException(404, sentence)
    return found


def _job_id(text: str) -> JobId:
    try:
        return parse_job_id(text)
    except InvalidInputError as error:
        raise HTTPException(400, str(error)) from error


def _check_own_page(request: Request) -> None:
    """No page of another origin sends this header, unless Airflow itself lets it. Raises HTTPException."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    if request.headers.get("x-requested-with") != "flinklike" or site != "same-origin":
        raise HTTPException(403, _SENTENCE_OF_CSRF)


async def _logs_body(request: Request) -> dict[str, Any]:
    """The fields that a page sends, and no others. The cluster checks their values. Raises HTTPException."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LOGS_BODY_BYTES_MAX:
            raise HTTPException(413, f"this takes at most {LOGS_BODY_BYTES_MAX} bytes")
    try:
        asked = parse_json(body)
    except ValueError as error:
        raise HTTPException(400, f"this is no JSON: {error}") from error
    if not isinstance(asked, dict):
        raise HTTPException(400, "this takes a JSON object")
    return {name: asked[name] for name in _LOGS_FIELDS if name in asked}


def _note_cancel(user: Any, found: TaskJob) -> str:
    """In Airflow's own audit log; the cluster's names the principal of the connection.

    The job is cancelled by now, whatever becomes of the line. Returns what is wrong about it, "" for nothing.
    """
    from airflow.models.log import Log
    from airflow.utils.session import create_session  # noqa: PLC0415
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    place, name = found.place, str(user.get_name())
    logger.info("%s has cancelled job %s of %s.%s", name, found.job.job_id, place.dag_id, place.task_id)
    extra = json.dumps({"job_id": found.job.job_id, "conn_id": found.job.conn_id})
    line = Log("flinklike_cancel", owner=name, owner_display_name=name, extra=extra)
    line.dag_id, line.task_id, line.run_id, line.map_index = place.dag_id, place.task_id, place.run_id, place.map_index
    try:
        with create_session() as session:
            session.add(line)
    except SQLAlchemyError:
        logger.exception("the cancel of job %s by %s is not in Airflow's audit log", found.job.job_id, name)
        return "the job is cancelled, but Airflow's audit log could not be written: the log of its API server has it"
    return ""
