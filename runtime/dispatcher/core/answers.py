"""The registry's answers to requests about jobs that are stored or have ended, and to submits above a limit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from runtime.common.errors import BackpressureError, ConflictError, FlinklikeError, ForbiddenError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.job_entry import JobEntry
from runtime.dispatcher.core.retention import FinishedJob
from runtime.gateways.dispatcher import JobSummary, SubmitOutcome, is_same_run

SUBMIT_RETRY_SECONDS = 1.0


def refuse_for_now(request: int, job_id: JobId, unfinished: int, *, dirty: int, in_flight: int) -> ef.DispatcherEffect:
    """Answer a submit above a limit."""
    message = (
        f"submit of job {job_id} refused for now: {unfinished} jobs are not finished,"
        f" {dirty} finished ones are being archived, {in_flight} submits are being stored"
    )
    return ef.Refuse(request, BackpressureError(message, retry_after=SUBMIT_RETRY_SECONDS))


def refuse_cancels(entry: JobEntry, error: FlinklikeError) -> list[ef.DispatcherEffect]:
    """Refuse the cancels that wait. A wish to cancel that is durable stays."""
    requests = tuple(entry.cancel_requests)
    entry.cancel_requests.clear()
    entry.forget_wish()
    return [ef.Refuse(request, error) for request in requests]


@dataclass(frozen=True, slots=True)
class Taken:
    """What is known of the job that has an id. A graph without digest is unreadable: nobody knows its submitter."""

    digest: str
    submitter: str
    program_run: str


def answer_again(request: int, source: ev.JobSource, taken: Taken, status: JobStatus) -> ef.DispatcherEffect:
    """Answer a submit of an id that is taken (semantics.md, Identity).

    A client learns nothing of a job of another submitter, be its content the same or not (R48). A repeated run of a
    program may have made another graph than the first one, whose objects have other keys (R54).
    """
    if not taken.digest and taken.submitter != source.submitter:
        message = (
            f"job id {source.job_id} is taken by a job whose description in etcd cannot be read, so nobody knows whose "
            "job it is: submit under another id"
        )
        return ef.Refuse(request, ConflictError(message))
    if taken.submitter != source.submitter:
        return ef.Refuse(request, ForbiddenError(f"job id {source.job_id} is taken by a job of somebody else"))
    digest = taken.digest
    if digest in {source.digest, ""} or is_same_run(taken.program_run, source.program_run):
        return ef.ReplySubmitted(request, SubmitOutcome.ALREADY_SUBMITTED, status)
    message = (
        f"job id {source.job_id} is taken by another job: stored digest {digest[:12]}, submitted {source.digest[:12]}"
    )
    return ef.Refuse(request, ConflictError(message))


def answer_taken(request: int, source: ev.JobSource, entry: JobEntry) -> ef.DispatcherEffect:
    """Answer a submit of the id of a job that is not cleaned."""
    there = entry.source
    taken = Taken(there.digest, there.submitter, there.program_run)
    return answer_again(request, source, taken, entry.summary.status)


def answer_finished(request: int, source: ev.JobSource, finished: FinishedJob) -> ef.DispatcherEffect:
    """Answer a submit of the id of a cleaned job."""
    summary = finished.summary
    taken = Taken(finished.digest, summary.submitter, summary.program_run)
    return answer_again(request, source, taken, summary.status)


def answer_found(entry: JobEntry, found: ev.SubmitFoundStored) -> list[ef.DispatcherEffect]:
    """Answer the requests of a submit that has found its id taken, and the cancels too if that job is cleaned."""
    taken = Taken(found.digest, found.submitter, found.program_run)
    answers = [answer_again(request, entry.source, taken, found.status) for request in entry.submit_requests]
    if found.is_cleaned:
        ended = replace(entry.summary, status=found.status)
        answers += [answer_cancel_of_ended(request, ended) for request in entry.cancel_requests]
    return answers


def answer_cancel_of_ended(request: int, summary: JobSummary) -> ef.DispatcherEffect:
    """Answer the cancel of a job that has a result, or whose outcome is decided (R26)."""
    if summary.status is JobStatus.CANCELED:
        return ef.ReplyCancelled(request)
    if summary.is_committing:
        message = f"job {summary.job_id} cannot be cancelled any more: all has finished, its outputs become visible"
        return ef.Refuse(request, ConflictError(message))
    message = f"job {summary.job_id} cannot be cancelled: it is {summary.status.name}"
    return ef.Refuse(request, ConflictError(message))
