"""Jobs of process tests that need no Spark, and how to submit any."""

from __future__ import annotations

import time
from pathlib import Path

from airflow_flinklike import FlinklikeClient, JobHandle, TaskContext, function_job
from airflow_flinklike.api.program import Program
from airflow_flinklike.client import SubmittedJob, new_job_id
from runtime.common.ids import JobId


def submit(client: FlinklikeClient, program: Program) -> JobHandle:
    """Submit under a new id, over the connection of `client`."""
    job_id = new_job_id()
    submit_as(client, program, job_id)
    return JobHandle(client, job_id)


def submit_as(client: FlinklikeClient, program: Program, job_id: JobId) -> SubmittedJob:
    """Submit under this id."""
    built = program.build()
    return client.submit(built.graph, job_id=job_id, contents=built.uploads)


def note(ctx: TaskContext, path: str, answer: int) -> int:
    """Appends a line to a file, so that runs can be counted."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{ctx.job_id}\n")
    return answer


def hold(ctx: TaskContext, gate: str) -> str:
    """Runs until the gate exists, or until it is cancelled."""
    while not Path(gate).exists() and not ctx.cancelled:
        time.sleep(0.02)
    return "released"


def noting(path: Path, answer: int) -> Program:
    """A job that notes that it ran and returns `answer`."""
    return function_job(note, args=[str(path), answer])


def holding(gate: Path) -> Program:
    """A job that runs until `gate` exists."""
    return function_job(hold, args=[str(gate)])


def runs_of(path: Path, job_id: JobId) -> int:
    """How often a noting job has run."""
    return path.read_text(encoding="utf-8").split().count(job_id) if path.exists() else 0
