"""Streaming jobs in the core: what a failure does to a query, and a checkpoint from its question to the archive."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType
from typing import Any

import pytest

from runtime.checkpoint.core.checkpoint_statistics import HISTORY_MAX, SAMPLES_MAX
from runtime.common.checkpoint_settings import CheckpointRetention, CheckpointSettings
from runtime.common.ids import ExecutionAttemptId
from runtime.common.states import ExecutionState, JobStatus, JobType
from runtime.common.stream_progress import StreamPosition
from runtime.common.waiting import Waiting, WaitingKind
from runtime.executiongraph.archived_checkpoints import ArchivedCheckpoints, CheckpointStatus
from runtime.gateways.job_master import CheckpointAnswer, CheckpointAnswered, TaskProgresses, TriggerCheckpoint
from runtime.gateways.task import TaskProgress
from runtime.jobgraph.graph import Artifact, JobGraph, JobVertex, Operator, OperatorKind, ScriptCode, vertex_id_of
from runtime.jobgraph.restart_strategy import FixedDelayRestartStrategy
from runtime.jobgraph.savepoints import ClaimMode, QueryRestoreSettings, SavepointRestoreSettings, parse_query_settings
from runtime.jobgraph.validate_streams import stream_problems
from runtime.jobmaster.core.job_master_core import JobMasterCore
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.failover.settings import NO_FAILOVER, FailoverSettings
from runtime.scheduler.core.slots.deployment import job_information
from runtime.scheduler.core.stream_checkpoints import NOT_STARTED
from tests.kit.control_plane.job_graphs import lone
from tests.kit.control_plane.job_master_driver import EPOCH, JOB_ID, JobMasterDriver, location, user_failure
from tests.kit.control_plane.streaming_jobs import streaming_job, told

E = ExecutionState
ONE_RESTART = FailoverSettings(restart_strategy=FixedDelayRestartStrategy(attempts=1, delay_seconds=0.0))


class StreamingDriver(JobMasterDriver):
    """A job with a checkpoint every ten seconds."""

    def _new_core(self) -> JobMasterCore:
        return JobMasterCore(
            JOB_ID,
            self.epoch,
            digest="d" * 64,
            submit_millis=1000,
            failover=self.failover,
            checkpointing=CheckpointSettings(interval=10.0),
        )

    def committed(self, attempt_id: ExecutionAttemptId, batch: int | None, tm: int = 0) -> None:
        """The query of an attempt tells what its directory has."""
        progress = TaskProgress(attempt_id, 0.0, "", 0, 0, 0, 0, streams=(told(committed_batch=batch),))
        self.says(TaskProgresses(JOB_ID, self.epoch, (progress,)), tm)

    def required(self) -> list[int | None]:
        """Which batch the directory of each deployed attempt must have, in order of deployment."""
        return [task.committed_batch for task in self.deployed.values()]

    def queries_run(self) -> None:
        """Each deployed attempt has told that it runs."""
        for attempt_id in self.running():
            self.report(attempt_id, E.RUNNING)

    def asked(self) -> list[TriggerCheckpoint]:
        """Every question for positions so far."""
        return [one for _, messages in self.sent for one in messages if isinstance(one, TriggerCheckpoint)]

    def checkpoint(self, batch: int) -> None:
        """The next one is asked for, answered and durable."""
        self.now += 10.0
        self.handle(ev.RestartDue(self.at()))
        question = self.asked()[-1]
        answers = tuple(CheckpointAnswer(one, StreamPosition("query", batch, 3, 100)) for one in question.attempts)
        self.says(CheckpointAnswered(JOB_ID, EPOCH, question.checkpoint_id, answers))
        self.handle(ev.CheckpointWritten(self.pending_checkpoints[-1].checkpoint.checkpoint_id, self.at()))

    def shown(self) -> ArchivedCheckpoints:
        """What the archive has of them."""
        found = self.core.archived().checkpoints
        assert found is not None
        return found


def settle(job: JobMasterDriver) -> None:
    """Every write in flight is durable."""
    while job.pending_events is not None:
        job.events_durable()


def fail(job: JobMasterDriver) -> JobStatus:
    """User code of the only attempt raises, and what follows has happened."""
    job.report(job.running()[0], E.FAILED, failure=user_failure())
    settle(job)
    job.restart_due()
    settle(job)
    return job.core.status


def test_a_failure_of_user_code_restarts_a_query() -> None:
    assert ONE_RESTART.user_failures == "final-when-exclusive"
    job = JobMasterDriver(streaming_job("orders"), failover=ONE_RESTART)
    job.offer(1)
    (first,) = job.running()
    assert fail(job) is JobStatus.RUNNING
    job.offer(2)
    (second,) = job.running()
    assert str(second) != str(first)
    job.report(second, E.FAILED, failure=user_failure())
    job.result_durable()
    assert job.core.summary().status is JobStatus.FAILED, "the strategy allows one"


def streaming_script(*, starts_queries: bool = True) -> JobGraph:
    """A job of one script."""
    code = ScriptCode(script=Artifact.of_bytes("orders.py", b""), starts_queries=starts_queries)
    operator = Operator(name="orders.py", kind=OperatorKind.SCRIPT, code=code)
    vertex = JobVertex(id=vertex_id_of("orders.py"), name="orders.py", operators=(operator,), max_parallelism=1)
    return JobGraph(name="orders", vertices=(vertex,))


def test_a_failure_of_user_code_restarts_a_streaming_script() -> None:
    job = JobMasterDriver(streaming_script(), failover=ONE_RESTART)
    job.offer(1)
    assert fail(job) is JobStatus.RUNNING
    job = JobMasterDriver(streaming_script(starts_queries=False), failover=ONE_RESTART)
    job.offer(1)
    assert fail(job) is not JobStatus.RUNNING


def test_a_streaming_script_has_the_type() -> None:
    assert streaming_script().job_type is JobType.STREAMING
    assert streaming_script(starts_queries=False).job_type is JobType.BATCH
    named = streaming_script().model_copy(update={"checkpoint_name": "orders"}).without_caches()
    assert not list(stream_problems(named))
    other = streaming_script(starts_queries=False).model_copy(update={"checkpoint_name": "orders"}).without_caches()
    assert "has no effect" in "; ".join(stream_problems(other))


def test_a_streaming_script_is_started_from_a_savepoint_that_it_does_not_claim() -> None:
    def problems(**more: Any) -> str:
        settings = SavepointRestoreSettings(path="/s", **more)
        graph = streaming_script().model_copy(update={"savepoint": settings}).without_caches()
        return "; ".join(stream_problems(graph))

    assert problems() == ""
    assert problems(state_partitions={"orders": 4}) == "", "its queries are known when they start"
    assert "there are 1 to" in problems(state_partitions={"orders": 0})
    assert "cannot be claimed" in problems(claim_mode=ClaimMode.CLAIM)


def test_a_checkpoint_of_a_script_is_of_the_queries_that_it_has_started() -> None:
    job = StreamingDriver(streaming_script())
    job.offer(1)
    job.queries_run()
    (attempt_id,) = job.running()

    def answer(*queries: StreamPosition) -> None:
        job.now += 10.0
        job.handle(ev.RestartDue(job.at()))
        said = CheckpointAnswer(attempt_id, None, queries=queries)
        job.says(CheckpointAnswered(JOB_ID, EPOCH, job.asked()[-1].checkpoint_id, (said,)))

    answer()
    failed = job.shown().latest_failed
    assert failed is not None
    assert failed.failure.endswith(NOT_STARTED)
    assert job.core.status is JobStatus.RUNNING, "it counts for no tolerable-failed-checkpoints"
    answer(StreamPosition("a", 3, 1, 10, "orders"), StreamPosition("b", 7, 2, 20, "alerts"))
    job.handle(ev.CheckpointWritten(job.pending_checkpoints[-1].checkpoint.checkpoint_id, job.at()))
    (one, _) = job.shown().history
    assert [(position.uid, position.batch_id) for position in one.positions] == [("alerts", 7), ("orders", 3)]
    assert (one.status, one.tasks_total, one.state_bytes) == (CheckpointStatus.COMPLETED, 2, 30)
    job.report(attempt_id, E.FAILED, failure=user_failure())
    assert job.required() == [None], "its directories alone tell what it has"


def test_a_checkpoint_is_in_the_archive_also_when_the_job_has_ended() -> None:
    job = StreamingDriver(streaming_job("orders", "alerts"))
    job.offer(1, 2)
    job.queries_run()
    assert job.core.summary().job_type is JobType.STREAMING
    assert job.shown().interval_millis == 10_000
    job.checkpoint(7)
    (one,) = job.shown().history
    assert (one.status, one.tasks_acknowledged, one.state_bytes) == (CheckpointStatus.COMPLETED, 2, 200)
    assert {(position.uid, position.batch_id) for position in one.positions} == {("orders", 7), ("alerts", 7)}
    job.handle(ev.CancelWanted(job.at()))
    for attempt_id in job.running():
        job.report(attempt_id, E.CANCELED)
    job.result_durable()
    ended = job.shown()
    assert job.core.status is JobStatus.CANCELED
    assert (ended.completed_count, ended.latest_completed) == (1, one)


def test_the_checkpoint_before_a_restart_is_shown_as_restored() -> None:
    job = StreamingDriver(streaming_job("orders"), failover=ONE_RESTART)
    job.offer(1)
    job.queries_run()
    job.checkpoint(7)
    assert job.shown().restored is None
    at = job.at().millis
    fail(job)
    shown = job.shown()
    assert shown.restored is not None
    assert (shown.restored.checkpoint_id, shown.restored_count, shown.restored_millis) == (1, 1, at)


def reachable(root: object) -> int:
    """How many objects it holds on to."""
    seen, waiting = {id(root)}, [root]
    while waiting:
        for one in gc.get_referents(waiting.pop()):
            if id(one) not in seen and not isinstance(one, type | ModuleType | FunctionType):
                seen.add(id(one))
                waiting.append(one)
    return len(seen)


def test_a_day_of_restarts_fills_what_is_bounded_and_nothing_else() -> None:
    """A simulated day: each minute a checkpoint, and a failure that restarts the query. Summaries keep 1,000."""
    often = FailoverSettings(restart_strategy=FixedDelayRestartStrategy(attempts=10_000, delay_seconds=0.0))
    job, day, held = StreamingDriver(streaming_job("orders"), failover=often), 24 * 60, []
    for minute in range(1, day + 1):
        job.offer(minute)
        job.queries_run()
        job.checkpoint(minute)
        job.now += 50.0
        assert fail(job) is JobStatus.RUNNING
        if minute in {SAMPLES_MAX + 20, day}:
            held.append(reachable(job.core))
    assert (job.shown().restored_count, job.shown().completed_count) == (day, day)
    assert len(job.shown().history) == HISTORY_MAX
    full, after_a_day = held
    assert after_a_day <= full * 1.01 < 5000, held


def test_a_later_attempt_must_find_what_was_committed() -> None:  # R59
    job = StreamingDriver(streaming_job("orders"), failover=ONE_RESTART)
    job.offer(1)
    (first,) = job.running()
    job.committed(first, None)
    job.committed(first, 7)
    job.committed(first, 5)  # late
    fail(job)
    job.offer(2)
    assert job.required() == [None, 7]


def test_the_position_in_a_checkpoint_must_be_found_too() -> None:  # R59
    job = StreamingDriver(streaming_job("orders"), failover=ONE_RESTART)
    job.offer(1)
    job.queries_run()
    job.committed(job.running()[0], 3)
    job.checkpoint(7)
    fail(job)
    job.offer(2)
    assert job.required() == [None, 7]


def test_that_something_was_committed_outlives_owner_and_task_manager() -> None:  # R59
    job = StreamingDriver(streaming_job("orders"), failover=ONE_RESTART)
    job.offer(1)
    job.committed(job.running()[0], 2)
    job.committed(job.running()[0], 3)
    job.handle(ev.Ticked(job.at()))
    settle(job)
    job.lose_task_manager(is_reaped=True)
    job.change_owner([])
    job.offer(2, tm=1)
    assert job.required() == [None, 2]
    job.committed(job.running()[0], 4, tm=1)
    assert not job.core.wants_tick, "it is durable already"


def test_what_is_told_while_an_owner_takes_over_is_not_lost() -> None:
    job = StreamingDriver(streaming_job("orders"), failover=ONE_RESTART)
    job.offer(1)
    (first,) = job.running()
    job.begin_next_owner()
    job.handle(ev.TaskManagersRegistered(frozenset({location().incarnation}), job.at()))
    job.handle(job.census_of(location()))
    job.committed(first, 4)
    job.committed(first, 5)
    job.handle(ev.JobRead(streaming_job("orders"), (), job.at()))
    assert job.core.status is JobStatus.RUNNING
    execution = job.core.graph.execution(first)
    assert execution is not None
    assert execution.progress is not None
    fail(job)
    job.offer(2)
    assert job.required() == [None, 5]


def test_the_savepoint_that_a_job_was_started_from_is_shown_until_a_checkpoint_is_restored() -> None:
    settings = SavepointRestoreSettings(path="/savepoints/savepoint-1", allow_non_restored_state=True)
    graph = streaming_job("orders", parallelism=2).model_copy(update={"savepoint": settings}).without_caches()
    job = StreamingDriver(graph, failover=ONE_RESTART)
    told = job_information(graph, JOB_ID, EPOCH, "").savepoint
    assert parse_query_settings(told) == QueryRestoreSettings(**dict(settings), queries={"orders": 2})
    job.offer(1, 2)
    assert job.shown().restored_savepoint == "", "no query runs yet"
    at = job.at().millis
    job.queries_run()
    shown = job.shown()
    assert (shown.restored_savepoint, shown.restored_count, shown.restored_millis) == (settings.path, 1, at)
    job.checkpoint(7)
    fail(job)
    shown = job.shown()
    assert shown.restored is not None
    assert (shown.restored.checkpoint_id, shown.restored_savepoint) == (1, "")


def test_what_the_submission_has_settled_holds_under_every_owner() -> None:
    settled = CheckpointSettings(interval=3.0, retained=2)
    job = StreamingDriver(failover=ONE_RESTART)
    job.handle(ev.JobGraphLoaded(streaming_job("orders"), job.at(), settled))
    assert job.shown().interval_millis == 3000
    job.graph = streaming_job("orders")
    job.begin_next_owner()
    job.handle(ev.TaskManagersRegistered(frozenset(), job.at()))
    job.handle(ev.JobRead(job.graph, (), job.at(), checkpointing=settled))
    assert job.shown().interval_millis == 3000


R = CheckpointRetention


@pytest.mark.parametrize(
    ("retention", "deleted"),
    [
        (R.RETAIN_ON_CANCELLATION, {JobStatus.FINISHED}),
        (R.DELETE_ON_CANCELLATION, {JobStatus.FINISHED, JobStatus.CANCELED}),
        (R.NO_EXTERNALIZED_CHECKPOINTS, {JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED}),
    ],
)
def test_the_result_says_whether_directories_go(retention: CheckpointRetention, deleted: set[JobStatus]) -> None:
    found = set()
    for end in (E.FINISHED, E.CANCELED, E.FAILED):
        job = StreamingDriver(failover=NO_FAILOVER)
        job.handle(
            ev.JobGraphLoaded(streaming_job("orders", ends=True), job.at(), CheckpointSettings(retention=retention))
        )
        job.offer(1)
        if end is E.CANCELED:
            job.handle(ev.CancelWanted(job.at()))
        job.report(job.running()[0], end, failure=user_failure() if end is E.FAILED else None)
        assert job.pending_result is not None
        if job.pending_result.summary.deletes_checkpoints:
            found.add(job.pending_result.status)
    assert found == deleted


def test_a_job_without_queries_has_no_directories() -> None:
    job = JobMasterDriver(lone())
    job.offer(1)
    job.report(job.running()[0])
    assert job.pending_result is not None
    assert not job.pending_result.summary.deletes_checkpoints


def test_a_query_that_gets_no_slot_says_so_beside_queries_that_run() -> None:
    """Those do not end, so it would wait for ever and nobody knew."""
    job = StreamingDriver(streaming_job("orders", "alerts"))
    job.offer(1, tm=0)
    job.queries_run()
    job.handle(
        ev.ResourcesNotified(Waiting(WaitingKind.SLOTS, "no free slot: all 1 slots that fit are in use"), job.at())
    )
    reason = job.core.summary().pending_reason
    assert reason == (
        "waiting for slots (1 of the job's queries run, and keep their slots): "
        "no free slot: all 1 slots that fit are in use"
    )
    job.offer(2, tm=1)
    job.queries_run()
    assert job.core.summary().pending_reason == ""
