"""The upgrade of a job that all runs of a task share (`ensure_running`), when the code of its pipeline, or of its
streaming script, has changed.

The job is stopped with a savepoint, and the next one is started from it. Nothing but the cluster knows of it: the job
says which code it has, and the id of the stop follows from the job. So whoever comes next, after a lost worker or in
another run, finds the stop under way, or its savepoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from airflow_flinklike.api.code_digest import DIGEST_LENGTH, code_digest
from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.api.start_options import restore_settings, restored_job
from airflow_flinklike.client.operations import get_json
from airflow_flinklike.client.protocol import Operation
from airflow_flinklike.client.requested_once import StreamRequest, completed, request_once, savepoint_of
from airflow_flinklike.triggers.stream_conditions import query_uids, streams_path
from runtime.common.ids import JobId
from runtime.common.states import JobStatus, SchedulerType

_LABEL_MAX = 256
_CODE = re.compile(rf" code ([0-9a-f]{{{DIGEST_LENGTH}}})\Z")


@dataclass(frozen=True, slots=True)
class UpgradeSettings:
    """`directory`: for the savepoints, "" for that of the cluster."""

    directory: str = ""
    allow_non_restored_state: bool = False


def label_with_code(label: str, program: JobProgram) -> str:
    """What a job says of its client, with the digest of its code at the end."""
    mark = f" code {code_digest(program)}"
    return label[: _LABEL_MAX - len(mark)] + mark


def code_in(label: str) -> str:
    """The digest in the label of a job, "" for one without."""
    found = _CODE.search(label)
    return "" if found is None else found[1]


def keeps_state(program: JobProgram) -> bool:
    """True for a job of streaming queries, or a streaming script: the next one can go on from its savepoint."""
    return any(vertex.runs_queries for vertex in program.graph.vertices)


def is_outdated(job_id: JobId, label: str) -> Operation[bool | None]:
    """True for a job whose code is another one than that in `label`; None for a job that does not say its code."""
    details = yield from get_json(f"/jobs/{job_id}")
    has = code_in(str(details.get("client", "")))
    return has != code_in(label) if has else None


def misfit(job_id: JobId, program: JobProgram, settings: UpgradeSettings) -> Operation[str]:
    """Why queries of `program` could not go on where those of the job are, "" if they can, as far as a graph tells.

    Which queries a script starts no graph tells: the job that goes on from the savepoint fails if they are others.
    """
    if any(vertex.is_streaming_script for vertex in program.graph.vertices):
        return ""
    document = yield from get_json(streams_path(job_id))
    has = {uid: int(one.get("parallelism", 0)) for one in document.get("vertices", ()) for uid in query_uids(one)}
    wanted = program.graph.queries
    for uid in sorted(has.keys() & wanted.keys()):
        if has[uid] != wanted[uid] and not (uid in program.graph.query_splits and (yield from _follows_slots(job_id))):
            return (
                f"the query {uid!r} of job {job_id} has parallelism {has[uid]}, and the changed code gives it "
                f"{wanted[uid]}: state keeps its parallelism. Give it {has[uid]}, or another uid"
            )
    gone = sorted(has.keys() - wanted.keys())
    if not gone or settings.allow_non_restored_state or program.graph.checkpoint_name:
        return ""
    return (
        f"job {job_id} has state of {', '.join(map(repr, gone))}, and the changed code has no query of that uid, but "
        f"{', '.join(map(repr, sorted(wanted)))}. Give the queries their uids (uid= of stream_sink()), or leave that "
        "state behind with allow_non_restored_state=True: a query of a new uid begins from its sources"
    )


def _follows_slots(job_id: JobId) -> Operation[bool]:
    """True for a job whose queries with splits keep their state by split, so that any parallelism goes on."""
    details = yield from get_json(f"/jobs/{job_id}")
    return str(details.get("schedulerType", "")) == SchedulerType.ADAPTIVE.value


def stop_for_upgrade(job_id: JobId, settings: UpgradeSettings) -> Operation[str]:
    """Stop the job, or go on with a stop of an earlier try. The location of the savepoint, once the job has ended."""
    request = _stop_of(job_id, settings.directory)
    trigger_id = yield from request_once(request)
    return (yield from savepoint_of(request, trigger_id))


def origin_of(number: int, ids: Mapping[int, JobId], states: Mapping[JobId, JobStatus]) -> Operation[str]:
    """The savepoint from which the job of that number of a task goes on, "" when it begins.

    It is that of the job before, if an upgrade has stopped it. A job that has FAILED was perhaps started from one too.
    """
    for job_id in _before(number, ids):
        if job_id not in states:
            return ""
        if location := (yield from completed(_stop_of(job_id, ""))):
            return location
        if states[job_id] is not JobStatus.FAILED:
            return ""
    return ""


def upgraded(program: JobProgram, location: str, settings: UpgradeSettings) -> JobProgram:
    """The job, started from the savepoint; one with a checkpoint name goes on from what lies there. PipelineError."""
    if not location or program.graph.checkpoint_name:
        return program
    allowed = settings.allow_non_restored_state
    return restored_job(program, restore_settings(location, "", allow_non_restored_state=allowed))


def _before(number: int, ids: Mapping[int, JobId]) -> Iterator[JobId]:
    for step in range(1, len(ids)):
        yield ids[(number - 1 - step) % len(ids) + 1]


def _stop_of(job_id: JobId, directory: str) -> StreamRequest:
    """The directory is no part of the ids of requests."""
    return StreamRequest(job_id, ("upgrade",), is_stop=True, directory=directory)
