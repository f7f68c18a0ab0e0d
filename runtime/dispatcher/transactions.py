"""The Dispatcher's transactions: each ends by posting its outcome.

A write that was surely not executed is repeated here where no client waits for the answer (assign, reload); submits and
cancels are answered with the error, and the client repeats them. StaleTokenError passes: the term is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar, assert_never

from runtime.aio.retry import RetryPolicy, retry
from runtime.aio.scope import Scope
from runtime.common.errors import (
    ConflictError,
    FlinklikeError,
    InvalidInputError,
    PermanentError,
    RetryableError,
    StaleTokenError,
)
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.job_reads import load_graph
from runtime.dispatcher.savepoint_disposals import is_same_savepoint, may_go
from runtime.dispatcher.services import DispatcherServices
from runtime.dispatcher.stored_jobs import encode_summary, finished_job, recovered_job, unowned_archive
from runtime.executiongraph.archived import CANCELLATION
from runtime.executiongraph.core.failures import system_failure
from runtime.gateways.cluster_events import EventKind
from runtime.gateways.overview import Takeover
from runtime.highavailability.jobs.job_store import AlreadyStored, Submitted
from runtime.highavailability.jobs.references import object_keys_in
from runtime.highavailability.records import (
    ClientRecord,
    GraphRecord,
    OwnerRecord,
    Payload,
    ResultRecord,
    WantedRecord,
)
from runtime.scheduler.core.job_events import decode_events
from runtime.scheduler.core.outputs.kept_outputs import Kept, what_is_kept

logger = logging.getLogger(__name__)

T = TypeVar("T")

REPEAT_POLICY = RetryPolicy(delay_initial=0.1, delay_max=2.0)


class JobTransactions:
    """The transactions of one term."""

    def __init__(
        self,
        services: DispatcherServices,
        post: Callable[[ev.DispatcherEvent], None],
        namespace_of: Callable[[JobId], str],
    ) -> None:
        self._services = services
        self._namespace_of = namespace_of
        self._store = services.store
        self._post = post

    def start(self, effect: ef.Transaction, scope: Scope) -> None:
        """Begin a transaction, in a task of that scope."""
        match effect:
            case ef.StoreJob():
                scope.spawn("submit", self.submit(effect))
            case ef.StoreOwner():
                scope.spawn("assign", self.assign(effect))
            case ef.StoreWanted():
                scope.spawn("want", self.want(effect))
            case ef.StoreMoveWish():
                scope.spawn("move", self.wish_move(effect))
            case ef.StorePromise():
                scope.spawn("promise", self.promise(effect))
            case ef.StoreEnd():
                scope.spawn("end", self.end_without_owner(effect))
            case ef.ReloadJob():
                scope.spawn("reload", self.reload(effect))
            case ef.SeekResult():
                scope.spawn("seek-result", self.seek_result(effect))
            case _:
                assert_never(effect)

    async def submit(self, effect: ef.StoreJob) -> None:
        """Write the graph, and the owner if there is one, in one transaction."""
        job_id = effect.source.job_id
        await self._answer(f"submit of job {job_id}", self._submit(effect), partial(ev.SubmitFailed, job_id))

    async def _submit(self, effect: ef.StoreJob) -> ev.DispatcherEvent:
        source = effect.source
        owner = OwnerRecord(effect.incarnation, effect.address) if effect.incarnation else None
        await self._check_references(source)
        await self._check_savepoint(source)
        payload = await self._services.payloads.spill(Payload(source.digest, source.graph, ""))
        record = GraphRecord(
            payload,
            source.name,
            source.submit_millis,
            source.client,
            source.submitter,
            source.namespace,
            source.trace,
            source.program_run,
            self._services.checkpointing(source.graph),
            source.checkpoint_name,
            source.savepoint,
            source.queue,
            source.priority,
        )
        outcome = await self._store.submit(source.job_id, record, owner)
        match outcome:
            case Submitted(epoch=epoch):
                return ev.SubmitStored(source.job_id, epoch, payload.object_key)
            case AlreadyStored(digest=digest, is_done=is_done, submitter=submitter, program_run=program_run):
                done = await self._store.done(source.job_id) if is_done else None
                status = JobStatus.INITIALIZING
                if done is not None:
                    summary = finished_job(source.job_id, done).summary
                    status, submitter, program_run = done.status, summary.submitter, summary.program_run
                return ev.SubmitFoundStored(source.job_id, digest, status, is_done, submitter, program_run)

    async def _check_references(self, source: ev.JobSource) -> None:
        """Check that the job refers to blobs of a short time ago only (R19). Raises InvalidInputError."""
        keys = sorted(object_keys_in(source.graph))
        refused = await self._services.blobs.not_referable(keys) if keys else ()
        if refused:
            message = f"job {source.job_id} refers to {len(refused)} blobs that must be uploaded again"
            raise InvalidInputError(message, tuple(f"blob {key}: missing, upload it again" for key in refused))

    async def _check_savepoint(self, source: ev.JobSource) -> None:
        """Check that it is not stored that the savepoint of the job may go. Raises ConflictError.

        This term knows the job already: who stores that later looks for its readers once more, and finds the job (R62).
        """
        if not source.savepoint or self._services.disposals is None:
            return
        for stored in await self._services.disposals.all():
            if may_go(stored.disposal) and is_same_savepoint(stored.disposal.path, source.savepoint):
                message = (
                    f"submit refused: savepoint {source.savepoint} is being deleted (savepoint disposal "
                    f"{stored.disposal.trigger_id}). Start the job from another savepoint"
                )
                raise ConflictError(message)

    async def assign(self, effect: ef.StoreOwner) -> None:
        """Name a process as owner."""
        await self._pause(effect.refusals)
        now = self._services.clock.epoch_millis()
        takeovers = tuple(replace(one, millis=one.millis or now) for one in effect.takeovers)
        owner = OwnerRecord(effect.incarnation, effect.address, takeovers)
        assigned = await self._repeat(
            lambda: self._store.assign(effect.job_id, owner, previous_epoch=effect.previous_epoch)
        )
        if assigned is not None:
            if effect.takeovers and not effect.takeovers[-1].millis:
                self._tell_takeover(effect.job_id, takeovers[-1])
            self._post(ev.OwnerStored(effect.job_id, assigned.epoch, takeovers))
        else:
            self._post(ev.OwnerNotStored(effect.job_id, await self._read(effect.job_id)))

    def _tell_takeover(self, job_id: JobId, takeover: Takeover) -> None:
        message = (
            f"job {job_id} goes from JobMaster process {takeover.former} at {takeover.former_address} to "
            f"{takeover.owner} at {takeover.owner_address}: {takeover.reason}"
        )
        self._tell(EventKind.JOB_TAKEN_OVER, message, job_id, takeover.owner)

    def _tell_cancel(self, job_id: JobId, reason: str) -> None:
        """The cluster has cancelled a job by itself: the audit log and the events say so."""
        self._services.tell_cancel(job_id, reason)
        self._tell(EventKind.JOB_CANCELLED, f"the cluster cancels job {job_id}: {reason}", job_id)

    def _tell(self, kind: EventKind, message: str, job_id: JobId, subject: str = "") -> None:
        self._services.events.tell_of_job(kind, message, job_id, self._namespace_of(job_id), subject=subject)

    async def want(self, effect: ef.StoreWanted) -> None:
        """Make the wish to cancel durable."""
        job_id = effect.job_id
        await self._answer(f"cancel of job {job_id}", self._want(effect), partial(ev.CancelFailed, job_id))

    async def _want(self, effect: ef.StoreWanted) -> ev.DispatcherEvent:
        wanted = WantedRecord(wants_cancel=True, client="", reason=effect.reason)
        is_stored = await self._store.want(effect.job_id, wanted)
        if is_stored and effect.reason:
            self._tell_cancel(effect.job_id, effect.reason)
        return ev.WantedStored(effect.job_id, is_stored, effect.reason)

    async def promise(self, effect: ef.StorePromise) -> None:
        """Make durable when the job's client will be back."""
        job_id = effect.job_id
        await self._answer(f"heartbeat for job {job_id}", self._promise(effect), partial(ev.PromiseFailed, job_id))

    async def _promise(self, effect: ef.StorePromise) -> ev.DispatcherEvent:
        is_stored = await self._store.promise(effect.job_id, ClientRecord(effect.expires_millis))
        return ev.PromiseStored(effect.job_id, effect.expires_millis, is_stored)

    async def wish_move(self, effect: ef.StoreMoveWish) -> None:
        """Make the wish for another owner durable."""
        job_id = effect.job_id
        await self._answer(f"move of job {job_id}", self._wish_move(effect), partial(ev.MoveWishFailed, job_id))

    async def _wish_move(self, effect: ef.StoreMoveWish) -> ev.DispatcherEvent:
        wanted = WantedRecord(wants_cancel=False, client="", move_to=effect.target, move_epoch=effect.epoch)
        return ev.MoveWishStored(effect.job_id, await self._store.want(effect.job_id, wanted))

    async def end_without_owner(self, effect: ef.StoreEnd) -> None:
        """End a job that no process runs."""
        job_id = effect.source.job_id
        work = self._end_without_owner(effect)
        await self._answer(f"end of job {job_id}", work, partial(ev.EndFailed, job_id))

    async def _end_without_owner(self, effect: ef.StoreEnd) -> ev.DispatcherEvent:
        job_id = effect.source.job_id
        await self._pause(effect.refusals)
        if effect.can_run and self._services.stops is not None:
            there = await self._store.job(job_id)
            if there is None or there.epoch != effect.previous_epoch:
                return ev.EndStored(job_id, None)  # the job has another owner since: nothing is stopped
            # An owner that this leader does not know was written in an earlier term.
            last_epoch = effect.last_epoch or self._services.token.revision
            await self._services.stops.stop_everywhere(job_id, effect.previous_epoch, last_epoch)
        now = self._services.clock.epoch_millis()
        kept = await self._what_is_kept(job_id) if effect.can_run else Kept()
        is_failed = effect.status is JobStatus.FAILED or kept.is_decided  # R26
        summary = replace(
            effect.summary,
            status=JobStatus.FAILED if is_failed else effect.status,
            is_committing=False,
            keeps_outputs=bool(kept.text),
            end_millis=now,
            last_modification_millis=max(now, effect.summary.last_modification_millis + 1),
            sequence=effect.summary.sequence + 1,
            pending_reason="",
        )
        graph = await load_graph(self._services.payloads, effect.source)
        failure = None
        if is_failed:
            why = effect.summary.pending_reason if effect.status is JobStatus.CANCELED else effect.reason
            reason = "; ".join(filter(None, (f"nobody can run the job: {why}", kept.text)))
            failure = system_failure("JobMasterError", reason, now)
        elif effect.reason:
            failure = system_failure(CANCELLATION, effect.reason, now)
        archived = unowned_archive(effect.source, graph, summary, failure)
        archive = await self._services.payloads.store(archived.to_json())
        result = ResultRecord(summary.status, encode_summary(summary), archive)
        is_stored = await self._store.end_without_owner(job_id, result, previous_epoch=effect.previous_epoch)
        if is_stored:
            self._services.traces.ended(archived, effect.source)
        if is_stored and effect.reason and summary.status is JobStatus.CANCELED:
            self._tell_cancel(job_id, effect.reason)
        return ev.EndStored(job_id, summary if is_stored else None)

    async def _what_is_kept(self, job_id: JobId) -> Kept:
        """What outputs are kept: an owner may have decided the outcome, and committed some of them (R28)."""
        try:
            batches = [decode_events(stored) for stored in await self._store.events(job_id)]
        except StaleTokenError:
            raise
        except PermanentError as error:
            logger.warning("the events of job %s cannot be read: %s", job_id, error)
            return what_is_kept(job_id, None)
        return what_is_kept(job_id, batches)

    async def _answer(
        self,
        what: str,
        work: Awaitable[ev.DispatcherEvent],
        failed: Callable[[FlinklikeError], ev.DispatcherEvent],
    ) -> None:
        """Post the outcome of one request. A transaction that finds the term over ends the term."""
        try:
            event = await work
        except StaleTokenError as error:
            self._post(failed(error))
            raise
        except (RetryableError, PermanentError) as error:
            event = failed(error)
        except Exception as error:  # the boundary of one request: what cannot be stored for one job ends no other
            logger.exception("%s broke", what)
            message = f"{what} broke with {type(error).__name__}: see the JobManager's log"
            event = failed(PermanentError(message))
        self._post(event)

    async def reload(self, effect: ef.ReloadJob) -> None:
        """Read one job."""
        self._post(ev.JobReloaded(effect.job_id, await self._read(effect.job_id)))

    async def seek_result(self, effect: ef.SeekResult) -> None:
        """Post the end of the job if it has a result (R3)."""
        found = await self._read(effect.job_id)
        if found is not None and found.ended is not None:
            self._post(ev.EndStored(effect.job_id, found.ended))

    async def _read(self, job_id: JobId) -> ev.RecoveredJob | None:
        stored = await self._repeat(lambda: self._store.job(job_id))
        return None if stored is None else recovered_job(stored)

    async def _pause(self, refusals: int) -> None:
        """Wait before what was refused is tried again (R5)."""
        if refusals:
            await asyncio.sleep(REPEAT_POLICY.delay(refusals - 1, self._services.entropy))

    async def _repeat(self, operation: Callable[[], Awaitable[T]]) -> T:
        services = self._services
        return await retry(
            operation,
            policy=REPEAT_POLICY,
            clock=services.clock,
            entropy=services.entropy,
            deadline=None,
            on_retry=lambda error, delay: logger.warning("transaction repeated in %.1f s: %s", delay, error),
        )
