"""DAGs for a whole Airflow. Each has one task, which stops at the steps that its run names, and whose job keeps a
ledger.

The run's conf names a folder and `stop_at`, a list of steps. At each of them the task writes `at-STEP`, with its pids,
and waits for `go-STEP`. `tasks` gets a line for each process of the task, `ledger` one for each begin and end of a job.
A job ends when `open` exists; a job that finds `fail` deletes it and fails.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from airflow_flinklike import Pipeline
from airflow_flinklike.airflow_version import TaskDeferred
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from airflow_flinklike.sensors.job import FlinklikeJobSensor
from airflow_flinklike.task_instance.stored_job import STORE_KEY

REFUSED_VALUES = 600_000
"""More than a job may bring along."""
STUBBORN_SECONDS = 600.0
"""No task waits longer at a step, no job longer for its gate: whatever a broken test leaves behind ends."""


class Steps:
    """The steps at which the task of this run stops."""

    def __init__(self, context: Any) -> None:
        conf = context["dag_run"].conf or {}
        self._folder = Path(conf["folder"])
        self._stops: list[str] = conf.get("stop_at", [])
        self._try = context["ti"].try_number

    def note_process(self) -> None:
        """The pids of the task's process and of its supervisor."""
        with (self._folder / "tasks").open("a", encoding="utf-8") as file:
            file.write(f"{self._try} {os.getpid()} {os.getppid()}\n")

    def at(self, step: str) -> None:
        """Stop here if the run names this step. Only the first process stops."""
        here = self._folder / f"at-{step}"
        if step not in self._stops or here.exists():
            return
        new = self._folder / f"new-{step}"
        new.write_text(f"{os.getpid()} {os.getppid()}", encoding="utf-8")
        new.rename(here)
        until = time.monotonic() + STUBBORN_SECONDS
        while not (self._folder / f"go-{step}").exists() and time.monotonic() < until:
            time.sleep(0.02)


class SteppingStore:
    """The task's state store, which stops after a `set`."""

    def __init__(self, store: Any, steps: Steps) -> None:
        self._store = store
        self._steps = steps

    def set(self, key: str, *arguments: Any, **named: Any) -> None:
        """Store the value, then stop."""
        self._store.set(key, *arguments, **named)
        self._steps.at("stored")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class SteppingTaskInstance:
    """The task instance, which stops after the submit, before it pushes the id of the job."""

    def __init__(self, instance: Any, steps: Steps) -> None:
        self._instance = instance
        self._steps = steps

    def xcom_push(self, key: str, *arguments: Any, **named: Any) -> None:
        """Stop, then push the XCom; below Airflow 3.3 one of them is the store."""
        if key != STORE_KEY:
            self._steps.at("submitted")
        self._instance.xcom_push(key, *arguments, **named)
        if key == STORE_KEY:
            self._steps.at("stored")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instance, name)


class SteppingSubmitOperator(FlinklikeSubmitOperator):
    """The operator, with stops between its steps.

    The steps, in their order: building (nothing is stored), stored, submitted, deferring, resumed, returning.
    """

    def execute(self, context: Any) -> Any:
        """Execute, with the stops of this run."""
        steps = Steps(context)
        steps.note_process()
        watched: MutableMapping[str, Any] = {**context, "ti": SteppingTaskInstance(context["ti"], steps)}
        if "task_state_store" in context:
            watched["task_state_store"] = SteppingStore(context["task_state_store"], steps)
        with _leaving(steps):
            return super().execute(watched)  # type: ignore[arg-type]  # a Context in all that the operator uses

    def build_program(self, context: Any) -> Any:
        """Build the job after a stop, before its id is stored. The rendered fields build it too."""
        steps = Steps(context)
        steps.note_process()
        steps.at("building")
        return super().build_program(context)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        """Go on after the trigger has fired, with the stops of this run."""
        steps = Steps(context)
        steps.note_process()
        steps.at("resumed")
        with _leaving(steps):
            return super().resume_execution(next_method, next_kwargs, context)


@contextmanager
def _leaving(steps: Steps) -> Iterator[None]:
    try:
        yield
    except TaskDeferred:
        steps.at("deferring")
        raise
    steps.at("returning")


def work(ctx: Any, where: str) -> dict[str, Any]:
    """Runs until the gate opens, or the job is cancelled."""
    folder = Path(where)

    def note(what: str) -> None:
        with (folder / "ledger").open("a", encoding="utf-8") as file:
            file.write(f"{what} {ctx.job_id}\n")

    note("begins")
    print(f"said by {ctx.job_id}", flush=True)
    logging.getLogger("work").warning("logged by %s", ctx.job_id)
    until = time.monotonic() + STUBBORN_SECONDS
    while not ctx.cancelled and time.monotonic() < until:
        if (folder / "fail").exists():
            (folder / "fail").unlink()
            note("fails")
            message = f"asked to fail, {ctx.job_id}"
            raise LookupError(message)
        if (folder / "open").exists():
            note("ends")
            return {"answer": 42, "job": ctx.job_id}
        time.sleep(0.02)
    note("stops")
    return {}


def job(folder: str, **params: Any) -> Pipeline:
    """One task, whose job has the name of the folder."""
    pipeline = Pipeline(Path(folder).name, params=params)
    return pipeline.source("work", lambda ctx: work(ctx, folder)).pipeline


def refused_job(folder: str) -> Pipeline:
    """A job that every cluster refuses."""
    return job(folder, numbers=list(range(REFUSED_VALUES)))


INLINE = {"deferrable": False}
DEFERRED = {"deferrable": True, "inline_timeout": 0.0}
HYBRID = {"deferrable": True, "inline_timeout": 2.0}
TIMED = {"execution_timeout": timedelta(seconds=15), "retries": 0}
CASES: dict[str, dict[str, Any]] = {
    "inline": INLINE,
    "deferred": DEFERRED,
    "hybrid": HYBRID,
    "inline_once": {**INLINE, "retries": 0},
    "deferred_once": {**DEFERRED, "retries": 0},
    "inline_timed": {**INLINE, **TIMED},
    "deferred_timed": {**DEFERRED, **TIMED},
    "impatient": {**INLINE, "orphan_timeout": 360.0},
    "late_again": {**INLINE, "orphan_timeout": 90.0, "retry_delay": timedelta(hours=1)},
    "insisting": {**INLINE, "orphan_timeout": 75.0},
    "late_deferring": {"deferrable": True, "inline_timeout": 600.0},
    "forgetful": {**INLINE, "durable": False},
    "refused": {**INLINE, "pipeline": refused_job},
    "not_waiting": {**INLINE, "wait_for_completion": False},
}
FOLDER = "{{ dag_run.conf['folder'] }}"
MANY_AT_ONCE: dict[str, Any] = {"schedule": None, "max_active_runs": 64, "max_active_tasks": 64}

for name, options in CASES.items():
    with DAG(dag_id=name, **MANY_AT_ONCE):
        SteppingSubmitOperator(
            **{
                "task_id": "job",
                "pipeline": job,
                "pipeline_params": {"folder": FOLDER},
                "retries": 2,
                "retry_delay": timedelta(0),
                **options,
            }
        )

with DAG(dag_id="sensed", **MANY_AT_ONCE):
    submit = FlinklikeSubmitOperator(
        task_id="job", pipeline=job, pipeline_params={"folder": FOLDER}, wait_for_completion=False
    )
    sensor = FlinklikeJobSensor(
        task_id="sensor",
        job_id="{{ ti.xcom_pull(task_ids='job', key='job_id') }}",
        deferrable=True,
        retries=2,
        retry_delay=timedelta(0),
    )
    submit >> sensor

with DAG(dag_id="decorated", **MANY_AT_ONCE):

    @task.flinklike(retries=2, retry_delay=timedelta(0))
    def decorated(ctx: Any, folder: str) -> dict[str, Any]:
        """The same job."""
        return work(ctx, folder)

    decorated.override(task_id="job")(folder=FOLDER)  # type: ignore[call-arg]  # `ctx` is filled in
