"""Runs of uploaded programs: the graph of a run, where a pipeline's graph comes from a job of its own (D-113)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from runtime.common.errors import ConflictError, ForbiddenError, InvalidInputError, UnavailableError
from runtime.common.failure_words import with_class
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.gateways.dispatcher import JobRequest, JobSummary
from runtime.highavailability.records import JarRecord
from runtime.jobgraph.graph import Artifact, JobGraph
from runtime.rest.context import RestContext
from runtime.rest.routes.seen_savepoints import check_savepoint
from runtime.rest.routes.submission import verify_graph
from runtime.rest.uploads import programs
from runtime.rest.uploads.known_scripts import KnownScripts
from runtime.rest.uploads.library import Library

CLIENT_OF_PLANS = "jars/plan"


class RunBy(NamedTuple):
    """Whose run it is, the queue of its job, and its priority there. `doubts`: what looks like a slip in these."""

    submitter: str
    namespace: str
    queue: str
    priority: int = 0
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The graph of a run, and what the caller should know about it."""

    graph: JobGraph
    warnings: tuple[str, ...] = ()


class JarRuns:
    """Makes and submits the jobs of uploaded programs."""

    def __init__(self, context: RestContext) -> None:
        self._context = context
        self._scripts = KnownScripts()

    async def graph(self, record: JarRecord, wish: programs.RunWish, job_id: JobId, by: RunBy) -> Plan:
        """The graph of a run; `wish` has its entry. A pipeline's takes a slot. Raises InvalidInputError, and
        UnavailableError for a plan that is not ready yet: the same request, with the same `jobId`, goes on waiting.
        """
        library = Library(self._context.components, self._context.clock, self._context.entropy, self._scripts)
        program = await library.open(record, wish.entry)
        if programs.is_pipeline(wish.entry):
            return await self._planned(record, wish, job_id, by, program.archive)
        return Plan(programs.application_graph(record, wish, program.archive, program.script))

    async def find(self, job_id: JobId, submitter: str) -> JobSummary | None:
        """The job that has the id which a request names (R54). Raises ForbiddenError for one of somebody else (R48)."""
        found = await self._context.dispatcher.find_job(job_id)
        if found is not None and found.submitter != submitter:
            message = f"job id {job_id} is taken by a job of somebody else"
            raise ForbiddenError(message)
        return found

    async def submit(self, graph: JobGraph, job_id: JobId, by: RunBy, *, client: str, program_run: str) -> None:
        """Submit, durable on return. Idempotent for the same graph, and for the same request (`is_same_run`)."""
        offers = self._context.components.resource_manager.spark_offers()
        verified = verify_graph(graph, job_id, offers, client=client, namespace=by.namespace)
        request = replace(verified.request, submitter=by.submitter, program_run=program_run)
        request = replace(request, queue=by.queue, priority=by.priority)
        await check_savepoint(
            verified.graph, request.job_id, self._context.dispatcher, runs_by_split=self._context.runs_by_split
        )
        await self._context.dispatcher.submit_verified(request, verified.graph)

    async def _planned(
        self, record: JarRecord, wish: programs.RunWish, job_id: JobId, by: RunBy, archive: Artifact
    ) -> Plan:
        planning = programs.planning_id(record, wish, job_id)
        if await self._context.dispatcher.find_job(planning) is None:
            graph = programs.planning_graph(wish, archive)
            # Its id is a digest of the request.
            await self.submit(graph, planning, by, client=CLIENT_OF_PLANS, program_run=planning)
        summary = await self._end_of(planning, by.submitter)
        if (summary.submitter, summary.namespace) != by[:2]:
            message = f"job {planning}, which would build the graph, is of somebody else: ask with another jobId"
            raise ConflictError(message)
        if not summary.status.is_globally_terminal:
            message = (
                f"the graph of {wish.entry} is not built yet: job {planning} is {summary.status.value}"
                f"{', ' + summary.pending_reason if summary.pending_reason else ''}. "
                f'Ask again, with "jobId": "{job_id}", to wait for it'
            )
            raise UnavailableError(message)
        response = await self._context.dispatcher.request_job(JobRequest(planning))
        found = ArchivedExecutionGraph.from_json(response.archived_graph)
        if summary.status is not JobStatus.FINISHED:
            raise _failed(wish, planning, found)
        built, warnings = programs.read_plan(found.result)
        return Plan(programs.planned_graph(built, wish, archive), warnings)

    async def _end_of(self, planning: JobId, principal: str) -> JobSummary:
        deadline = self._context.clock.monotonic() + self._context.long_poll_max
        while True:
            summary = await self._context.dispatcher.find_job(planning)
            if summary is None:
                message = f"job {planning}, which built the graph, is not known any more: ask again with another jobId"
                raise ConflictError(message)
            left = deadline - self._context.clock.monotonic()
            if summary.status.is_globally_terminal or left <= 0:
                return summary
            known = {planning: summary.last_modification_millis}
            await self._context.dispatcher.wait_for_jobs(known, timeout=left, principal=principal)


def with_entry(record: JarRecord, wish: programs.RunWish) -> programs.RunWish:
    """The wish with the program's own entry where it names none. Raises InvalidInputError."""
    if wish.entry:
        if not programs.is_zip(record.name) and wish.entry != record.name and not programs.is_pipeline(wish.entry):
            message = (
                f"entryClass {wish.entry[:120]!r}: {record.name} is a script; leave it out, or name module:pipeline"
            )
            raise InvalidInputError(message)
        return wish
    if record.entries[1:] and record.entries[0] != "__main__.py":
        names = ", ".join(record.entries[:10])
        message = (
            f"{record.name} has {len(record.entries)} scripts: name one in entryClass ({names}), or module:pipeline"
        )
        raise InvalidInputError(message)
    if not record.entries and not programs.is_jar(record.name):
        message = f"{record.name} has no script: name module:pipeline in entryClass"
        raise InvalidInputError(message)
    return replace(wish, entry=record.entries[0] if record.entries else "")


def _failed(wish: programs.RunWish, planning: JobId, found: ArchivedExecutionGraph) -> InvalidInputError:
    failure = found.exceptions[0].failure if found.exceptions else None
    why = with_class(failure.class_name, failure.message) if failure else found.status.value
    return InvalidInputError(f"the graph of {wish.entry} cannot be built: {why[:2000]} (job {planning} has the rest)")
