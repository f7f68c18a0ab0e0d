"""The listener cancels jobs of tasks that have no process, so that Airflow cannot call their `on_kill`.

Airflow kills a running task, and the trigger of a deferred one. But a job may run while its task is neither: the worker
is lost and the retry has not begun, or the task only submitted the job. The listener cancels such a job when the task
is marked, when its DAG run is set to a final state or deleted (also with its DAG), when its last try is lost with its
worker, and, for a task that has failed since its process was killed, when its DAG run has ended. It acts in the API
server and in the scheduler only, with one query, and asks the cluster in a thread of its own. It also makes components
that fork processes import what these need.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pluggy import HookimplMarker

from airflow_flinklike.task_instance.stored_job import STORE_KEY, StoredJob, parse_stored

if TYPE_CHECKING:
    from sqlalchemy.orm import ORMExecuteState, Session

hookimpl = HookimplMarker("airflow")
logger = logging.getLogger(__name__)

GRACE_SECONDS = 6.0
"""The listener waits so long: a killed process cancels its job itself, and says so in the task's log. A worker is told
within 5 s, a triggerer that has just started may need longer, and jobs are to be cancelled within 10 s."""
_RETRY_SECONDS = 60.0
_PENDING = "flinklike_jobs_of_deleted_runs"
_TIMED_OUT = "timed_out"
_OF_FORKED = ("airflow_flinklike.operators.submit", "airflow_flinklike.decorators.flinklike")


@hookimpl
def on_starting(component: Any) -> None:
    """Import early: the scheduler, the DAG processor and the triggerer fork processes, which inherit the modules."""
    if type(component).__module__ == "airflow.jobs.job":
        for module in _OF_FORKED:
            importlib.import_module(module)
        from airflow_flinklike.api.pickling import own_modules  # noqa: PLC0415 - the API server pickles nothing

        list(own_modules)


@hookimpl
def on_task_instance_failed(task_instance: Any) -> None:
    """A user has marked the task failed, or its worker is lost and no try is left."""
    if _is_of_server(task_instance) and task_instance.state == "failed":
        _cancel_job_of(task_instance, "its task has failed")


@hookimpl
def on_task_instance_success(task_instance: Any) -> None:
    """A user has marked the task success."""
    if _is_of_server(task_instance):
        _cancel_job_of(task_instance, "its task was marked success")


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:
    """A user has set the run to failed, or its time is over, or a task has failed."""
    if msg == _TIMED_OUT or _is_by_user(msg):
        cancel_later(_jobs_of_run(dag_run), f"its DAG run has failed: {msg}")
    else:
        _cancel_jobs_of_failed_tasks(dag_run)


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:
    """A user has set the run to success, or it has ended. Jobs of tasks that have succeeded run on."""
    if _is_by_user(msg):
        cancel_later(_jobs_of_run(dag_run, but_of="success"), f"its DAG run has ended: {msg}")
    else:
        _cancel_jobs_of_failed_tasks(dag_run)


def _cancel_jobs_of_failed_tasks(dag_run: Any) -> None:
    """A task whose process was killed in its last try (below Airflow 3.1 in any) has failed, and its job may run.

    No try adopts such a job: one after a clear ends it.
    """
    jobs = _jobs_of_run(dag_run, of="failed", dag_run_id=dag_run.id)
    cancel_later([job for job in jobs if not job.outlives_task], "its task has failed")


def _is_by_user(msg: str) -> bool:
    """The API server says so; below Airflow 3.3 it says nothing. The scheduler always gives a reason."""
    return not msg or "manually" in msg


def watch_deletions() -> None:
    """Watch deletions of the model DagRun in the API server, since Airflow has no hook for a deleted run."""
    if not _is_api_server():
        return
    from sqlalchemy import event  # noqa: PLC0415 - keeps plugins light
    from sqlalchemy.orm import Session  # noqa: PLC0415 - the same

    if not event.contains(Session, "before_flush", _before_flush):
        event.listen(Session, "before_flush", _before_flush)
        event.listen(Session, "do_orm_execute", _before_statement)


def _is_api_server() -> bool:
    """Airflow says so from 3.1 on, and 3.0 which applications its API server has."""
    return os.environ.get("_AIRFLOW_PROCESS_CONTEXT") == "server" or "AIRFLOW_API_APPS" in os.environ


def _before_flush(session: Session, context: Any, instances: Any) -> None:
    """A run is about to be deleted, and what its tasks have stored before it."""
    del context, instances
    if not session.deleted:
        return
    from airflow.models.dagrun import DagRun

    for one in session.deleted:
        if isinstance(one, DagRun):
            _remember(session, _stored(session, one))


def _before_statement(execution: ORMExecuteState) -> None:
    """Deleting a DAG deletes its runs by one statement."""
    if not execution.is_delete or execution.bind_mapper is None:
        return
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select  # noqa: PLC0415 - see watch_deletions

    if execution.bind_mapper.class_ is DagRun:
        statement: Any = execution.statement
        Stored = _model()  # noqa: N806 - a class
        runs = select(DagRun.id).where(statement.whereclause)
        _remember(execution.session, _stored_where(execution.session, [Stored.dag_run_id.in_(runs)]))


def _remember(session: Session, jobs: Sequence[StoredJob]) -> None:
    """Keep the jobs of deleted runs until the deletion is committed."""
    from sqlalchemy import event  # noqa: PLC0415 - see watch_deletions

    if not jobs:
        return
    session.info.setdefault(_PENDING, []).extend(jobs)
    event.listen(session, "after_commit", _after_commit, once=True)
    event.listen(session, "after_rollback", _after_rollback, once=True)


def _after_commit(session: Session) -> None:
    cancel_later(session.info.pop(_PENDING, ()), "its DAG run was deleted")


def _after_rollback(session: Session) -> None:
    session.info.pop(_PENDING, None)


def _is_of_server(task_instance: Any) -> bool:
    """False in the process of the task, where the operator acts."""
    return type(task_instance).__module__ == "airflow.models.taskinstance"


def _cancel_job_of(task_instance: Any, reason: str) -> None:
    jobs = _jobs_of_run(task_instance, task_id=task_instance.task_id, map_index=task_instance.map_index)
    cancel_later(jobs, reason)


def _jobs_of_run(seen: Any, *, of: str | None = None, but_of: str | None = None, **where: Any) -> list[StoredJob]:
    """The stored jobs of a DAG run or a task, read in the caller's session, whose changes are not committed yet."""
    from airflow.utils.session import create_session  # noqa: PLC0415 - see watch_deletions
    from sqlalchemy.orm import object_session  # noqa: PLC0415 - the same

    session = object_session(seen)
    if session is not None:
        return _stored(session, seen, of=of, but_of=but_of, **where)
    with create_session() as own:
        return _stored(own, seen, of=of, but_of=but_of, **where)


def _model() -> Any:
    """The model of the rows in which tasks store their jobs (`task_instance/job_store.py`)."""
    try:
        from airflow.models.task_state_store import TaskStateStoreModel
    except ModuleNotFoundError:
        from airflow.models.xcom import XComModel

        return XComModel
    return TaskStateStoreModel


def _stored(
    executor: Any, seen: Any, *, of: str | None = None, but_of: str | None = None, **where: Any
) -> list[StoredJob]:
    """The jobs that the tasks of a run have stored."""
    Stored = _model()  # noqa: N806 - a class
    names = {"dag_id": seen.dag_id, "run_id": seen.run_id, **where}
    conditions = [getattr(Stored, name) == value for name, value in names.items()]
    return _stored_where(executor, conditions, of=of, but_of=but_of)


def _stored_where(
    executor: Any, conditions: Sequence[Any], *, of: str | None = None, but_of: str | None = None
) -> list[StoredJob]:
    """The stored jobs that match: of tasks in the state `of`, or in any but `but_of`."""
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import and_, select  # noqa: PLC0415 - the same

    Stored = _model()  # noqa: N806 - a class
    names = ("dag_id", "run_id", "task_id", "map_index")
    same_task = and_(*(getattr(Stored, name) == getattr(TaskInstance, name) for name in names))
    query = select(Stored.value).join(TaskInstance, same_task, isouter=True).where(Stored.key == STORE_KEY, *conditions)
    if of is not None:
        query = query.where(TaskInstance.state == of)
    if but_of is not None:
        query = query.where(TaskInstance.state.is_distinct_from(but_of))
    found = map(parse_stored, executor.execute(query).scalars())
    return [job for job in found if job is not None and job.cancel_on_kill]


def cancel_later(jobs: Iterable[StoredJob], reason: str) -> threading.Thread | None:
    """Cancel the running ones in a thread, so that neither a page nor the scheduler waits for a cluster."""
    listed = list(jobs)
    if not listed:
        return None
    thread = threading.Thread(target=_cancel, args=(listed, reason), name="flinklike-cancel", daemon=True)
    thread.start()
    return thread


def _cancel(jobs: Sequence[StoredJob], reason: str) -> None:
    threading.Event().wait(GRACE_SECONDS)
    by_connection: dict[str, list[StoredJob]] = defaultdict(list)
    for job in jobs:
        by_connection[job.conn_id].append(job)
    for conn_id, group in by_connection.items():
        try:
            _cancel_there(conn_id, group, reason)
        except Exception as error:  # noqa: BLE001 - the end of this thread: the error would be lost
            ids = ", ".join(job.job_id for job in group)
            logger.warning("jobs %s could not be cancelled though %s: %s: %s", ids, reason, type(error).__name__, error)


def _cancel_there(conn_id: str, jobs: Sequence[StoredJob], reason: str) -> None:
    """List the jobs first: nearly always all have ended."""
    from airflow_flinklike.exceptions import JobConflictError, JobNotFoundError  # noqa: PLC0415 - keeps plugins light
    from airflow_flinklike.hooks.flinklike import DEFAULT_CONN_ID, FlinklikeHook  # noqa: PLC0415 - the same
    from runtime.common.states import JobStatus  # noqa: PLC0415 - the same

    with FlinklikeHook(conn_id or DEFAULT_CONN_ID, retry_for=_RETRY_SECONDS).get_conn() as client:
        overview = client.get("/jobs/overview")["jobs"]
        alive = {one["jid"] for one in overview if not JobStatus(one["state"]).is_globally_terminal}
        for job in jobs:
            if job.job_id not in alive:
                continue
            try:
                client.cancel(job.job_id)
            except (JobConflictError, JobNotFoundError):
                continue
            logger.info("job %s: cancellation requested, %s", job.job_id, reason)
