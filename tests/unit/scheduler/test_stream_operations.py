"""Checkpoints on request, savepoints and stops in the core of a job: from the wish to the word (R61)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runtime.common.checkpoint_settings import CheckpointSettings
from runtime.common.ids import ExecutionAttemptId
from runtime.common.states import ExecutionState, JobStatus
from runtime.common.stream_progress import StreamPosition
from runtime.executiongraph.archived_checkpoints import NO_SIZE
from runtime.gateways.job_master import (
    CheckpointAnswer,
    CheckpointAnswered,
    EndedQuery,
    EndSavepoint,
    FinishSavepoint,
    HeldAttempt,
    JobCensus,
    SavepointAnswered,
    SavepointFinished,
    SlotOffer,
    TriggerCheckpoint,
    TriggerSavepoint,
)
from runtime.gateways.operations import OperationKind, OperationState, StreamOperation, TriggerOperation
from runtime.gateways.task import TaskProgress
from runtime.jobgraph.graph import JobGraph, JobVertex
from runtime.jobmaster.core.job_master_core import JobMasterCore
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.effects import WriteOperation
from runtime.scheduler.core.stream_checkpoints import NO_DRAIN, NO_QUERIES
from tests.kit.control_plane.job_graphs import graph, vertex
from tests.kit.control_plane.job_master_driver import EPOCH, JOB_ID, JobMasterDriver, location, user_failure
from tests.kit.control_plane.streaming_jobs import query, streaming_job, told
from tests.unit.scheduler.test_streaming_jobs import ONE_RESTART, settle, streaming_script

E = ExecutionState
ONE, TWO = "1" * 32, "2" * 32
SAVEPOINT, STOP, CHECKPOINT = OperationKind.SAVEPOINT, OperationKind.STOP, OperationKind.CHECKPOINT


class Operated(JobMasterDriver):
    """A job of two queries that run on two TaskManagers, or another one."""

    def __init__(self, interval: float = 0.0, *queries: JobVertex, made: JobGraph | None = None) -> None:
        self._settings = CheckpointSettings(interval=interval, timeout=60.0)
        made = made or (graph(*queries) if queries else streaming_job("orders", "alerts"))
        super().__init__(made, failover=ONE_RESTART)
        self.offer(1, tm=0)
        self.offer(2, tm=1)
        for attempt_id in self.running():
            self.report(attempt_id, E.RUNNING)
        settle(self)

    def _new_core(self) -> JobMasterCore:
        return JobMasterCore(
            JOB_ID,
            self.epoch,
            digest="d" * 64,
            submit_millis=1000,
            is_first_owner=self.epoch == EPOCH,
            failover=self.failover,
            validate=True,
            checkpointing=self._settings,
        )

    def want(self, trigger_id: str, kind: OperationKind, *, target: str = "/s", drains: bool = False) -> None:
        request = TriggerOperation(JOB_ID, trigger_id, kind, "" if kind is CHECKPOINT else target, drains)
        self.handle(ev.OperationWanted(request, self.at()))

    def written(self) -> StreamOperation:
        """The oldest write of an operation succeeds."""
        written: WriteOperation = self.pending_operations.pop(0)
        self.handle(ev.OperationWritten(written.operation, written.dropped, self.at()))
        return written.operation

    def sent_of(self, kind: type[Any]) -> list[Any]:
        return [one for _, messages in self.sent for one in messages if isinstance(one, kind)]

    def copied(self, trigger_id: str, *tms: int, declined: str = "") -> None:
        for tm in tms:
            for attempt_id in [one for one in self.running() if self.whereabouts(one) == location(tm)]:
                position = None if declined else StreamPosition("q", 3)
                answers = (CheckpointAnswer(attempt_id, position, declined),)
                self.says(SavepointAnswered(JOB_ID, self.epoch, trigger_id, answers), tm)

    def finished(self, trigger_id: str, failure: str = "", size_bytes: int = 0) -> None:
        self.says(SavepointFinished(JOB_ID, self.epoch, trigger_id, failure, size_bytes))

    def words(self) -> dict[ExecutionAttemptId, bool]:
        """The last word to each attempt: does it finish?"""
        return {attempt_id: one.finishes for one in self.sent_of(EndSavepoint) for attempt_id in one.attempts}

    def held_census(self, tm: int, hold: str) -> None:
        place = location(tm)
        there = [one for one in self.running() if self.whereabouts(one) == place]
        held = tuple(
            HeldAttempt(one, self.deployed[one].ordinal, E.RUNNING, self.deployed[one].allocation_id, 1, 1, hold)
            for one in there
        )
        slots = tuple(SlotOffer(self.deployed[one].allocation_id, 0) for one in there)
        self.cut.discard(place.incarnation)
        self.says(JobCensus(JOB_ID, self.epoch, slots, held, is_complete=True), tm)

    def next_owner(self, operations: Iterable[StreamOperation], hold: str) -> None:
        self.begin_next_owner()
        self.pending_operations.clear()
        self.sent.clear()
        everyone = frozenset(location(tm).incarnation for tm in (0, 1))
        self.handle(ev.TaskManagersRegistered(everyone, self.at()))
        assert self.graph is not None
        self.handle(ev.JobRead(self.graph, (), self.at(), operations=tuple(operations)))
        for tm in (0, 1):
            self.held_census(tm, hold)


def test_a_savepoint_from_the_wish_to_its_end() -> None:
    job = Operated()
    job.want(ONE, SAVEPOINT)
    assert not job.sent_of(TriggerSavepoint), "nothing is asked before the wish is durable"
    assert job.answers == []
    wanted = job.written()
    assert job.answers[-1].operation == wanted
    assert (wanted.state, wanted.checkpoint_id) == (OperationState.IN_PROGRESS, 1)
    asked = job.sent_of(TriggerSavepoint)
    assert [(len(one.attempts), one.holds) for one in asked] == [(1, False), (1, False)]
    job.copied(ONE, 0)
    assert not job.sent_of(FinishSavepoint)
    job.copied(ONE, 1)
    (last,) = job.sent_of(FinishSavepoint)
    assert last.part == asked[0].part
    assert last.directory == wanted.directory
    assert wanted.directory.startswith(f"/s/savepoint-{JOB_ID[:6]}-")
    job.finished(ONE, size_bytes=1234)
    done = job.written()
    assert (done.state, done.directory) == (OperationState.COMPLETED, wanted.directory)
    assert set(job.words().values()) == {False}
    assert job.core.status is JobStatus.RUNNING
    job.want(TWO, SAVEPOINT)
    assert job.written().checkpoint_id == 2
    shown = job.core.archived().checkpoints
    assert shown is not None
    assert shown.latest_savepoint is not None
    assert (shown.latest_savepoint.savepoint, shown.latest_savepoint.checkpoint_id) == (wanted.directory, 1)
    assert [(one.checkpoint_id, one.tasks_total) for one in shown.history] == [(2, 2), (1, 2)]
    assert [one.state_bytes for one in shown.history] == [NO_SIZE, 1234], "of one that is whole that of its files"
    assert (shown.in_progress_count, shown.completed_count, shown.failed_count) == (1, 1, 0), "as Flink counts them"


def test_what_has_ended_is_part_of_a_savepoint_and_holds_nothing() -> None:
    job = Operated(0.0, query("backlog", ends=True), query("orders"))
    (ended,) = [one for one in job.running() if one.vertex_id == query("backlog").id]
    (other,) = set(job.running()) - {ended}
    streams = (told(committed_batch=4),)
    job.progresses(TaskProgress(ended, 0.0, "", 0, 0, 0, 0, streams=streams))
    job.report(ended)
    settle(job)
    job.want(ONE, STOP)
    job.written()
    (asked,) = job.sent_of(TriggerSavepoint)
    assert asked.attempts == (other,)
    assert asked.ended == (EndedQuery(ended, "backlog", 1, b"[]", 4),)
    job.copied(ONE, 0, 1)
    assert not job.sent_of(FinishSavepoint), "the one that has ended is not copied yet"
    job.says(SavepointAnswered(JOB_ID, job.epoch, ONE, (CheckpointAnswer(ended, StreamPosition("", 4)),)), 1)
    (last,) = job.sent_of(FinishSavepoint)
    assert last.queries == 2
    job.finished(ONE)
    job.written()
    assert job.words() == {other: True}


def test_a_stop_lets_queries_finish_when_its_savepoint_is_durable() -> None:
    job = Operated(interval=10.0)
    job.want(ONE, STOP, drains=True)
    job.written()
    assert {(one.holds, one.drains) for one in job.sent_of(TriggerSavepoint)} == {(True, True)}
    job.now += 30.0
    job.handle(ev.RestartDue(job.at()))
    assert not job.sent_of(TriggerCheckpoint), "held queries have no checkpoints"
    job.copied(ONE, 0, 1)
    job.finished(ONE)
    assert job.words() == {}
    job.written()
    assert set(job.words().values()) == {True}
    for attempt_id in job.running():
        job.report(attempt_id)
    settle(job)
    job.result_durable()
    assert job.core.status is JobStatus.FINISHED


def test_a_cancel_behind_a_completed_stop_ends_the_job_canceled_and_the_savepoint_stays() -> None:
    job = Operated()
    job.want(ONE, STOP)
    job.written()
    job.copied(ONE, 0, 1)
    job.finished(ONE)
    assert job.written().state is OperationState.COMPLETED
    job.handle(ev.CancelWanted(job.at()))
    for attempt_id in job.running():
        job.report(attempt_id, E.CANCELED)
    settle(job)
    job.result_durable()
    assert job.status() is JobStatus.CANCELED
    assert job.pending_operations == [], "the record of the stop says COMPLETED for good"


def test_what_fails_a_stop_lets_queries_go_on() -> None:
    def declined(job: Operated) -> None:
        job.copied(ONE, 0, declined="no space")

    def expired(job: Operated) -> None:
        job.now += 61.0
        job.handle(ev.RestartDue(job.at()))

    def unfinished(job: Operated) -> None:
        job.copied(ONE, 0, 1)
        job.finished(ONE, "no space")

    for happens, cause in ((declined, "no space"), (expired, "have not answered"), (unfinished, "no space")):
        job = Operated()
        job.want(ONE, STOP)
        job.written()
        happens(job)
        assert set(job.words().values()) == {False}, "it can be completed no more"
        failed = job.written()
        assert failed.state is OperationState.FAILED
        assert cause in failed.cause
        job.finished(ONE)
        assert not job.pending_operations, "late news changes nothing"
        assert job.core.status is JobStatus.RUNNING
        job.want(TWO, STOP)
        job.written()
        assert job.sent_of(TriggerSavepoint)[-1].operation == TWO


def test_an_attempt_that_ends_fails_the_stop() -> None:
    job = Operated()
    job.want(ONE, STOP)
    job.written()
    job.report(job.running()[0], E.FAILED, failure=user_failure())
    failed = job.written()
    assert "Task has failed. query '" in failed.cause
    assert "', subtask 0 of 1 has ended" in failed.cause
    assert (failed.queries, failed.answered) == (2, 0)
    assert False in job.words().values()


def test_a_lost_stream_fails_it_and_the_census_brings_the_word() -> None:
    job = Operated()
    job.want(ONE, STOP)
    job.written()
    job.copied(ONE, 0)
    job.cut_off(1)
    assert job.written().state is OperationState.FAILED
    job.sent.clear()
    job.held_census(1, ONE)
    assert set(job.words().values()) == {False}


def test_a_census_during_the_record_of_a_stop_brings_the_word_after_it() -> None:
    job = Operated()
    job.want(ONE, STOP)
    job.written()
    job.copied(ONE, 0, 1)
    job.finished(ONE)
    job.cut_off(1)
    job.held_census(1, ONE)
    assert job.words() == {}
    job.written()
    assert set(job.words().values()) == {True}


def test_a_new_owner_fails_what_it_finds_and_lets_queries_go_on() -> None:
    job = Operated()
    job.want(ONE, STOP)
    wanted = job.written()
    job.next_owner([wanted], ONE)
    assert set(job.words().values()) == {False}
    failed = job.written()
    assert (failed.state, failed.checkpoint_id) == (OperationState.FAILED, 1)
    assert "JobMaster of the job was lost" in failed.cause
    job.want(TWO, SAVEPOINT)
    assert job.written().checkpoint_id == 2, "no number is used twice"


def test_a_new_owner_ends_a_stop_that_is_durable() -> None:
    job = Operated()
    job.want(ONE, STOP)
    job.written()
    job.copied(ONE, 0, 1)
    job.finished(ONE)
    done = job.pending_operations[0].operation
    job.next_owner([done], ONE)
    assert set(job.words().values()) == {True}
    assert job.core.graph.finishes_queries
    job.want(TWO, STOP)
    assert "is being stopped" in job.answers[-1].refusal


def test_a_query_that_starts_again_after_the_stop_ends_at_once() -> None:
    job = Operated()
    job.want(ONE, STOP)
    job.written()
    job.copied(ONE, 0, 1)
    job.finished(ONE)
    lost = job.running()[0]
    job.report(lost, E.FAILED, failure=user_failure())
    settle(job)
    job.restart_due()
    settle(job)
    assert lost in job.deployed
    assert len(job.running()) == 1, "nothing is deployed before it is known whether the job is stopped"
    job.written()
    again = [one for one in job.running() if one.epoch == lost.epoch and one.counter > lost.counter]
    assert [job.deployed[one].is_stopped for one in again] == [True]


def test_a_checkpoint_on_request() -> None:
    job = Operated()
    job.want(ONE, CHECKPOINT)
    job.written()
    (asked, other) = job.sent_of(TriggerCheckpoint)
    for one, tm in ((asked, 0), (other, 1)):
        answers = tuple(CheckpointAnswer(attempt_id, StreamPosition("q", 5)) for attempt_id in one.attempts)
        job.says(CheckpointAnswered(JOB_ID, EPOCH, one.checkpoint_id, answers), tm)
    assert not job.pending_operations
    job.handle(ev.CheckpointWritten(job.pending_checkpoints[-1].checkpoint.checkpoint_id, job.at()))
    done = job.written()
    assert (done.state, done.checkpoint_id) == (OperationState.COMPLETED, 1)


def test_the_same_trigger_is_asked_once() -> None:
    job = Operated()
    job.want(ONE, SAVEPOINT)
    job.want(ONE, SAVEPOINT)
    assert len(job.pending_operations) == 1
    job.written()
    job.want(ONE, SAVEPOINT)
    assert job.answers[-1].operation is not None
    assert len(job.sent_of(TriggerSavepoint)) == 2
    job.want(ONE, SAVEPOINT, target="/other")
    assert "is taken by another operation" in job.answers[-1].refusal


def test_a_trigger_is_one_operation() -> None:
    job = Operated()
    job.want(ONE, SAVEPOINT)
    job.written()
    for kind, drains in ((STOP, False), (CHECKPOINT, False), (STOP, True)):
        job.want(ONE, kind, drains=drains)
        assert "is taken by another operation" in job.answers[-1].refusal


def test_operations_wait_for_each_other_and_end_with_the_job() -> None:
    job = Operated()
    job.want(ONE, SAVEPOINT)
    job.want(TWO, SAVEPOINT)
    job.written()
    job.written()
    assert {one.operation for one in job.sent_of(TriggerSavepoint)} == {ONE}
    job.handle(ev.CancelWanted(job.at()))
    assert "The job is ending." in job.written().cause


def test_a_script_is_stopped_with_all_of_its_queries() -> None:
    job = Operated(made=streaming_script())
    job.want(TWO, STOP, drains=True)
    assert job.answers[-1].refusal == NO_DRAIN
    job.want(ONE, STOP)
    job.written()
    (asked,) = job.sent_of(TriggerSavepoint)
    assert asked.holds
    (attempt_id,) = job.running()
    positions = (StreamPosition("a", 3, name="orders"), StreamPosition("b", 7, name="alerts"))
    answer = CheckpointAnswer(attempt_id, None, queries=positions)
    job.says(SavepointAnswered(JOB_ID, EPOCH, ONE, (answer,)))
    (last,) = job.sent_of(FinishSavepoint)
    assert last.queries == 2, "so many copies have to be there"
    job.finished(ONE)
    assert job.words() == {}, "nothing ends before it is durable (R61)"
    done = job.written()
    assert (done.queries, done.answered) == (2, 2), "queries are counted, not scripts"
    assert job.words() == {attempt_id: True}
    job.report(attempt_id, E.FAILED, failure=user_failure())
    settle(job)
    job.restart_due()
    job.offer(2)
    again = job.deployed[job.running()[0]]
    assert again.is_stopped, "its script is not begun again"


def test_a_batch_job_has_no_state_to_save() -> None:
    job = JobMasterDriver(graph(vertex("only")))
    job.handle(ev.OperationWanted(TriggerOperation(JOB_ID, ONE, SAVEPOINT, "/s"), job.at()))
    assert job.answers[-1].refusal == NO_QUERIES
