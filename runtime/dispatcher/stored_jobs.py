"""Stored records as the registry takes them over, and what is shown of jobs that have no owner to ask."""

from __future__ import annotations

from dataclasses import replace

from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId
from runtime.common.namespaces import DEFAULT_NAMESPACE, UNKNOWN_NAMESPACE
from runtime.common.states import JobStatus
from runtime.dispatcher.core.events import NO_PROCESS, JobOwner, JobSource, RecoveredJob
from runtime.dispatcher.core.retention import FinishedJob
from runtime.dispatcher.core.shown_summary import initial_summary, of_submitter
from runtime.executiongraph.archived import (
    ARCHIVE_SCHEMA_VERSION,
    NO_CONFIG,
    ArchivedException,
    ArchivedExecutionGraph,
)
from runtime.executiongraph.core.archive import FailurePolicy, archive
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.dispatcher import JobSummary
from runtime.gateways.task import FailureInfo
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record, encode_record
from runtime.highavailability.records import DoneRecord, JobRecordKind, StoredJob
from runtime.jobgraph.parsing import parse_job_graph


def encode_summary(summary: JobSummary) -> bytes:
    """The form in which results carry a summary."""
    return encode_record(summary)


def recovered_job(stored: StoredJob) -> RecoveredJob:
    """A stored job as the registry takes it over. A job whose result cannot be read has failed for that reason."""
    graph = stored.graph
    source = JobSource(
        job_id=stored.job_id,
        digest=graph.graph.sha256,
        name=graph.name,
        graph=graph.graph.inline,
        graph_key=graph.graph.object_key,
        submit_millis=graph.submit_millis,
        client=graph.client,
        submitter=graph.submitter,
        namespace=graph.namespace,
        trace=graph.trace,
        program_run=graph.program_run,
        checkpoint_name=graph.checkpoint_name,
        savepoint=graph.savepoint,
        queue=graph.queue,
        priority=graph.priority,
    )
    owner = None
    if stored.owner is not None:
        owner = JobOwner(stored.owner.incarnation, stored.owner.address, stored.epoch)
    elif stored.epoch:
        # Which process the record names cannot be read, its epoch can: another one gets the job under a later epoch.
        owner = JobOwner(NO_PROCESS, "", stored.epoch)
    wants_cancel = stored.wanted is not None and stored.wanted.wants_cancel
    move_to = NO_PROCESS
    if stored.wanted is not None and stored.wanted.move_epoch == stored.epoch:
        move_to = stored.wanted.move_to
    return RecoveredJob(
        source=source,
        graph_revision=stored.graph_revision,
        owner=owner,
        wants_cancel=wants_cancel,
        ended=_ended(stored, source),
        move_to=move_to,
        cancel_reason=stored.wanted.reason if stored.wanted is not None else "",
        client_expires_millis=stored.client.expires_millis if stored.client is not None else 0,
        takeovers=stored.owner.takeovers if stored.owner is not None else (),
    )


def _ended(stored: StoredJob, source: JobSource) -> JobSummary | None:
    if stored.result is not None:
        return of_submitter(decode_summary(stored.result.summary, source, stored.result.status), source)
    if stored.unreadable is JobRecordKind.RESULT:
        return replace(
            initial_summary(source), status=JobStatus.FAILED, pending_reason=stored.problem, keeps_outputs=True
        )
    return None


def decode_summary(data: bytes, source: JobSource, status: JobStatus) -> JobSummary:
    """The summary of a result. If it cannot be read, it is made from `source` and `status`, and says so."""
    try:
        return decode_record(JobSummary, data, key=f"summary of job {source.job_id}")
    except UnreadableRecordError as error:
        return replace(initial_summary(source), status=status, pending_reason=str(error), keeps_outputs=True)


def finished_job(job_id: JobId, done: DoneRecord) -> FinishedJob:
    """A cleaned job, as it is kept in memory. If its summary cannot be read, it belongs to no submitter (R48)."""
    source = JobSource(job_id, done.graph_digest, "", b"", "", 0, "", namespace=UNKNOWN_NAMESPACE)
    summary = decode_summary(done.summary, source, done.status)
    if not summary.namespace:
        summary = replace(summary, namespace=DEFAULT_NAMESPACE)  # cleaned by an earlier release
    return FinishedJob(summary, done.graph_digest)


def empty_archive(
    source: JobSource, summary: JobSummary, exceptions: tuple[ArchivedException, ...] = ()
) -> ArchivedExecutionGraph:
    """The execution graph of a job of which this process knows the summary only."""
    return ArchivedExecutionGraph(
        schema_version=ARCHIVE_SCHEMA_VERSION,
        job_id=source.job_id,
        name=source.name,
        epoch=0,
        graph_digest=source.digest,
        status=summary.status,
        timestamps=_timestamps(source, summary),
        last_modification_millis=summary.last_modification_millis,
        pending_reason=summary.pending_reason,
        vertices=(),
        edges=(),
        exceptions=exceptions,
        config=NO_CONFIG,
        result="",
    )


def unowned_archive(
    source: JobSource, graph: bytes, summary: JobSummary, failure: FailureInfo | None = None
) -> ArchivedExecutionGraph:
    """The execution graph of a job without an owner, as if nothing had run; without tasks if it cannot be read."""
    exceptions = () if failure is None else (ArchivedException(failure, "", "", "", labels={"type": failure.kind}),)
    try:
        job_graph = parse_job_graph(graph)
    except InvalidInputError as error:
        reason = f"the job graph cannot be read: {error}"
        return replace(empty_archive(source, summary, exceptions), pending_reason=reason)
    execution_graph = ExecutionGraph(source.job_id, 0, submit_millis=source.submit_millis)
    execution_graph.attach(job_graph, source.submit_millis)
    return archive(
        execution_graph,
        digest=source.digest,
        status=summary.status,
        timestamps=_timestamps(source, summary),
        last_modification_millis=summary.last_modification_millis,
        pending_reason=summary.pending_reason,
        exceptions=exceptions,
        policy=FailurePolicy(
            str(job_graph.restart_strategy or "as the cluster's configuration says"), job_graph.user_failures or ""
        ),
        result="",
    )


def _timestamps(source: JobSource, summary: JobSummary) -> dict[JobStatus, int]:
    timestamps = {JobStatus.INITIALIZING: source.submit_millis}
    if summary.end_millis >= 0:
        timestamps[summary.status] = summary.end_millis
    return timestamps
