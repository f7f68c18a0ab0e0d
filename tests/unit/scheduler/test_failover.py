"""Failed tasks of a job that goes on: what restarts, what stands, what is counted, and what ends the job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.common.exchange import ExchangeMode
from runtime.common.restart_strategies import UserFailures
from runtime.common.states import ExecutionState, JobStatus
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.dispatcher import FAILURE_LENGTH_MAX, LABELS_MAX
from runtime.gateways.job_master import AcknowledgeReports, CancelTasks, ReleasePartitions
from runtime.gateways.task import FailureInfo, Fault
from runtime.jobgraph.graph import vertex_id_of
from runtime.jobgraph.restart_strategy import (
    NO_RESTART,
    ExponentialDelayRestartStrategy,
    FixedDelayRestartStrategy,
    RestartStrategy,
)
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.acceptance import Acceptance
from runtime.scheduler.core.failover.failover import PARTITION_LOSSES_MAX, Failover
from runtime.scheduler.core.failover.failover_strategy import FailoverStrategy
from runtime.scheduler.core.failover.settings import FailoverSettings
from runtime.scheduler.core.job_events import FailureHandled, PartitionsLost, SubtasksReset
from runtime.scheduler.core.slots.placement import Placement
from runtime.scheduler.core.task_managers.fencing import Fences
from runtime.scheduler.core.task_managers.outbox import Outbox
from tests.kit.control_plane.failing_jobs import names, partition_of, second_stage, settle, two_stages, wide
from tests.kit.control_plane.job_graphs import edge, graph, lone, source, vertex
from tests.kit.control_plane.job_master_driver import (
    EPOCH,
    JOB_ID,
    JobMasterDriver,
    durable_view,
    unreadable,
    user_failure,
)

E = ExecutionState
J = JobStatus

AT_ONCE = FailoverSettings(FixedDelayRestartStrategy(attempts=2, delay_seconds=0.0), user_failures="restart")
AFTER_A_SECOND = FailoverSettings(restart_strategy=FixedDelayRestartStrategy(attempts=2), user_failures="restart")


# --- restarts --------------------------------------------------------------------------------------------------------


def test_only_the_failed_task_restarts() -> None:
    job = JobMasterDriver(wide(3), failover=AT_ONCE)
    job.offer(1, 2, 3)
    first, second, third = job.running()
    job.report(second, E.FAILED, failure=user_failure())
    assert job.status() is J.RESTARTING
    assert job.running() == [first, third]
    settle(job)
    assert job.status() is J.RUNNING
    assert job.cancelled == []
    assert names(job.running()) == [("wide", 0, 0), ("wide", 1, 1), ("wide", 2, 0)]
    job.finish_all()
    job.result_durable()
    subtask = job.core.archived().vertices[0].subtasks[1]
    assert (subtask.current.attempt, subtask.current.state) == (1, E.FINISHED)
    assert [(one.attempt, one.state) for one in subtask.prior] == [(0, E.FAILED)]


def test_nothing_restarts_before_the_failure_is_durable_and_the_pause_is_over() -> None:  # R10
    job = JobMasterDriver(lone(), failover=AFTER_A_SECOND)
    job.offer(1)
    (attempt_id,) = job.running()
    job.report(attempt_id, E.FAILED, failure=user_failure())
    assert job.restarts == [1.0]
    assert job.core.summary().pending_reason == "1 tasks wait for their restart after ValueError: boom"
    assert job.core.summary().pending_kind == "restart"
    job.restart_due()
    assert job.pending_events is not None
    assert [type(event) for event in job.pending_events.events] == [FailureHandled]
    job.events_durable()
    assert job.pending_events is not None
    assert job.pending_events.events == (SubtasksReset(attempt_id.vertex_id, (0,), (1,)),)
    assert job.status() is J.RESTARTING
    job.events_durable()
    assert job.status() is J.RUNNING
    assert attempt_id in job.messages(AcknowledgeReports)[-1].attempts


def test_an_early_timer_changes_nothing() -> None:
    job = JobMasterDriver(lone(), failover=AFTER_A_SECOND)
    job.offer(1)
    job.report(job.running()[0], E.FAILED, failure=user_failure())
    job.events_durable()
    job.now = 0.9
    job.handle(ev.RestartDue(job.at()))
    assert job.pending_events is None
    assert job.status() is J.RESTARTING


def test_too_many_failures_end_the_job() -> None:
    job = JobMasterDriver(lone(), failover=AT_ONCE)
    for number in range(3):
        job.offer(number)
        job.report(job.running()[0], E.FAILED, failure=user_failure(f"boom {number}"))
        job.events_durable()
        job.events_durable()
    assert job.has_result()
    job.result_durable()
    exceptions = job.core.archived().exceptions
    assert [one.failure.message for one in exceptions] == ["boom 2", "boom 1", "boom 0"]
    assert [one.task_name for one in exceptions] == [f"noop (1/1) - execution #{number}" for number in (2, 1, 0)]
    last = exceptions[0].failure.stack_trace
    why = "the restart strategy allows no more (at most 2 restarts, at once)"
    assert last.startswith(f"Recovery is suppressed: {why}\nCaused by:")


def test_the_jobs_own_strategy_wins() -> None:
    own = JobMasterDriver(lone(restart_strategy=NO_RESTART), failover=AT_ONCE)
    own.offer(1)
    own.report(own.running()[0], E.FAILED, failure=user_failure())
    assert own.pending_result is not None
    assert own.pending_result.archived.failure == user_failure()
    assert own.pending_result.archived.config.restart_strategy == "no restarts"
    other = JobMasterDriver(lone(restart_strategy=FixedDelayRestartStrategy(delay_seconds=0.0)))
    other.offer(1)
    other.report(other.running()[0], E.FAILED, failure=user_failure())
    assert other.status() is J.RESTARTING


NEVER = replace(user_failure(), is_recoverable=False)
NOT_SOON = replace(user_failure(), is_restart_vain=True)


@pytest.mark.parametrize("failure", [NEVER, NOT_SOON], ids=["never", "not-soon"])
@pytest.mark.parametrize("failover", [AT_ONCE, FailoverSettings(ExponentialDelayRestartStrategy(), "restart")])
def test_a_failure_that_would_come_again_ends_the_job_whatever_the_strategy(
    failover: FailoverSettings, failure: FailureInfo
) -> None:
    job = JobMasterDriver(lone(), failover=failover)
    job.offer(1)
    job.report(job.running()[0], E.FAILED, failure=failure)
    assert job.pending_result is not None
    assert job.pending_result.status is J.FAILED
    assert job.durable == []


def test_the_summary_of_a_failed_job_has_the_cause_and_its_labels() -> None:
    labels = {"zone": "z" * 200, "type": "USER"} | {f"k{number}": "v" for number in range(9)}
    job = JobMasterDriver(lone(), failover=FailoverSettings(NO_RESTART, enrich=lambda _: labels))
    job.offer(1)
    job.report(job.running()[0], E.FAILED, failure=user_failure("no such table\n" * 50))
    assert job.pending_result is not None
    told = job.pending_result.summary
    assert told.failure.startswith("ValueError: no such table no such table")
    assert len(told.failure) <= FAILURE_LENGTH_MAX
    assert told.failure_labels == tuple(f"k{number}=v" for number in range(LABELS_MAX))
    job.result_durable()
    assert job.summaries[-1].failure == told.failure
    done = JobMasterDriver(lone())
    done.offer(1)
    done.finish_all()
    assert done.pending_result is not None
    assert (done.pending_result.summary.failure, done.pending_result.summary.failure_labels) == ("", ())


def test_failures_within_one_pause_count_once_and_are_concurrent() -> None:
    strategy = ExponentialDelayRestartStrategy(attempts_before_reset_backoff=1)
    settings = FailoverSettings(restart_strategy=strategy, user_failures="restart")
    job = JobMasterDriver(wide(3), failover=settings)
    job.offer(1, 2, 3)
    for number, attempt_id in enumerate(job.running()):
        job.report(attempt_id, E.FAILED, failure=user_failure(str(number)))
    while job.pending_events is not None:
        job.events_durable()
    (root,) = job.core.archived().exceptions
    assert root.failure.message == "0"
    assert [one.failure.message for one in root.concurrent] == ["1", "2"]
    job.restart_due()
    settle(job)
    assert names(job.running()) == [("wide", number, 1) for number in range(3)]
    assert len(job.recovered().counted) == 1


def test_the_exception_history_is_bounded() -> None:
    settings = FailoverSettings(
        restart_strategy=FixedDelayRestartStrategy(attempts=100, delay_seconds=0.0),
        user_failures="restart",
        exceptions_max=3,
        prior_attempts_max=2,
    )
    job = JobMasterDriver(lone(), failover=settings)
    for number in range(5):
        settle(job)
        job.report(job.running()[0], E.FAILED, failure=user_failure(str(number)))
    settle(job)
    archived = job.core.archived()
    assert [one.failure.message for one in archived.exceptions] == ["4", "3", "2"]
    assert [one.attempt for one in archived.vertices[0].subtasks[0].prior] == [3, 4]


def test_full_restarts_every_task_that_runs() -> None:
    job = JobMasterDriver(wide(3), failover=replace(AT_ONCE, is_full=True))
    job.offer(1, 2)
    first, second = job.running()
    job.report(first, E.FAILED, failure=user_failure())
    assert job.cancelled == [second]
    job.events_durable()
    assert job.status() is J.RESTARTING
    job.report(second, E.CANCELED)
    job.events_durable()
    assert job.status() is J.RUNNING
    job.offer(3, 4)
    assert names(job.running()) == [("wide", 0, 1), ("wide", 1, 1), ("wide", 2, 1)]


def test_a_cancelled_job_restarts_nothing() -> None:
    job = JobMasterDriver(lone(), failover=AFTER_A_SECOND)
    job.offer(1)
    job.report(job.running()[0], E.FAILED, failure=user_failure())
    job.handle(ev.CancelWanted(job.at()))
    job.events_durable()
    assert job.pending_result is not None
    assert job.pending_result.status is J.CANCELED


def test_cancel_while_the_reset_is_written() -> None:
    job = JobMasterDriver(lone(), failover=AT_ONCE)
    job.offer(1)
    job.report(job.running()[0], E.FAILED, failure=user_failure())
    assert job.pending_events is not None
    job.handle(ev.CancelWanted(job.at()))
    job.events_durable()
    assert job.pending_result is not None
    assert job.pending_result.status is J.CANCELED


def test_the_execution_timeout_ends_a_job_that_waits_for_a_restart() -> None:
    job = JobMasterDriver(lone(execution_timeout_seconds=0.5), failover=AFTER_A_SECOND)
    job.offer(1)
    job.report(job.running()[0], E.FAILED, failure=user_failure())
    job.events_durable()
    job.now = 0.5
    job.handle(ev.DeadlineReached(job.at()))
    assert job.pending_result is not None
    assert job.pending_result.archived.exceptions[0].failure.class_name == "JobExecutionTimeoutError"


@pytest.mark.parametrize(
    ("joined", "expected"),
    [
        (False, [("use", 0, 0)]),
        (True, [("read", 0, 0), ("read", 1, 0), ("use", 0, 0), ("use", 1, 0)]),
    ],
)
def test_what_is_joined_by_pipelined_edges_restarts_together(
    *, joined: bool, expected: list[tuple[str, int, int]]
) -> None:
    made = ExecutionGraph(JOB_ID, EPOCH, submit_millis=1)
    made.attach(two_stages(), 1)
    for execution in made.executions():
        made.transition(execution, E.SCHEDULED, 1)
    strategy = FailoverStrategy(made, is_full=False, pipelined=lambda _: joined)
    failed = made.vertices[vertex_id_of("use")].executions[0]
    assert names([one.attempt_id for one in strategy.tasks_to_restart([failed])]) == expected


# --- lost TaskManagers -----------------------------------------------------------------------------------------------


def test_a_lost_task_manager_is_one_failure() -> None:
    job = JobMasterDriver(
        graph(vertex("wide", parallelism=3, exclusive=False)),
        failover=FailoverSettings(restart_strategy=FixedDelayRestartStrategy(attempts=1, delay_seconds=0.0)),
    )
    job.offer(1, 2, tm=1)
    job.offer(3, tm=2)
    job.lose_task_manager(1)
    job.events_durable()
    job.offer(4, 5, tm=2)
    assert names(job.running()) == [("wide", 0, 1), ("wide", 1, 1), ("wide", 2, 0)]
    (root,) = job.core.archived().exceptions
    assert root.failure.class_name == "TaskManagerLostError"
    assert len(root.concurrent) == 1


@pytest.mark.parametrize("is_reaped", [True, False])
def test_an_exclusive_task_restarts_only_when_its_process_is_known_to_be_gone(*, is_reaped: bool) -> None:  # R13
    job = JobMasterDriver(lone(), failover=AT_ONCE)
    job.offer(1, tm=1)
    job.lose_task_manager(1, is_reaped=is_reaped)
    assert job.status() is (J.RESTARTING if is_reaped else J.FAILING)


@pytest.mark.parametrize("strategy", [NO_RESTART, FixedDelayRestartStrategy(attempts=0)])
@pytest.mark.parametrize(
    "failure",
    [replace(user_failure(), is_isolation=True), replace(user_failure(), kind="SYSTEM", fault=Fault.NOBODY)],
    ids=["isolated", "anothers-doing"],
)
def test_a_task_that_ended_by_no_fault_of_its_job_runs_again_and_nothing_counts(  # R14, R36
    strategy: RestartStrategy, failure: FailureInfo
) -> None:
    job = JobMasterDriver(lone(), failover=FailoverSettings(restart_strategy=strategy))
    for number in range(3):
        job.offer(number)
        (attempt_id,) = job.running()
        job.report(attempt_id, E.FAILED, failure=failure)
        job.restart_due()
        settle(job)
    assert job.status() is J.RUNNING
    assert not [event.backoff_seconds for batch in job.durable for event in batch
                if isinstance(event, FailureHandled) and event.backoff_seconds is not None]  # fmt: skip


@pytest.mark.parametrize(
    ("of_cluster", "of_job", "own_strategy", "exclusive", "inner"),
    [
        ("final-when-exclusive", None, None, J.FAILING, J.RESTARTING),
        ("restart", None, None, J.RESTARTING, J.RESTARTING),
        ("final", None, None, J.FAILING, J.FAILING),
        ("final", None, FixedDelayRestartStrategy(), J.RESTARTING, J.RESTARTING),
        ("restart", "final", None, J.FAILING, J.FAILING),
        ("final-when-exclusive", "restart", None, J.RESTARTING, J.RESTARTING),
        ("restart", "final-when-exclusive", FixedDelayRestartStrategy(), J.FAILING, J.RESTARTING),
        ("restart", None, NO_RESTART, J.FAILING, J.FAILING),
    ],
)
def test_a_failure_of_user_code_is_final_unless_somebody_asked_for_a_restart(  # R36
    of_cluster: UserFailures,
    of_job: UserFailures | None,
    own_strategy: RestartStrategy | None,
    exclusive: JobStatus,
    inner: JobStatus,
) -> None:
    settings = replace(AT_ONCE, user_failures=of_cluster)
    for is_exclusive, expected in ((True, exclusive), (False, inner)):
        lonely = source("read", exclusive=is_exclusive)
        job = JobMasterDriver(graph(lonely, restart_strategy=own_strategy, user_failures=of_job), failover=settings)
        job.offer(1)
        job.report(job.running()[0], E.FAILED, failure=user_failure())
        assert job.status() is expected, is_exclusive


@pytest.mark.parametrize("fault", [Fault.SYSTEM, Fault.NOBODY])
def test_what_is_not_the_users_fault_restarts_also_where_user_failures_are_final(fault: Fault) -> None:  # R36
    job = JobMasterDriver(lone(), failover=replace(AT_ONCE, user_failures="final"))
    job.offer(1)
    job.report(job.running()[0], E.FAILED, failure=replace(user_failure(), fault=fault))
    assert job.status() is J.RESTARTING


def test_a_job_says_why_a_failure_of_its_code_was_its_last() -> None:
    job = JobMasterDriver(lone(), failover=replace(AT_ONCE, user_failures="final-when-exclusive"))
    job.offer(1)
    job.report(job.running()[0], E.FAILED, failure=user_failure())
    (exception,) = job.core.archived().exceptions
    assert exception.failure.stack_trace.startswith("Recovery is suppressed: a failure of user code is final here")
    config = job.core.archived().config
    assert (config.restart_strategy, config.user_failures) == (
        "at most 2 restarts, at once",
        "final-when-exclusive",
    )


def test_what_an_earlier_release_has_reported_is_judged_by_its_kind() -> None:
    told = user_failure()
    assert told.at_fault is Fault.USER
    assert replace(told, kind="SYSTEM").at_fault is Fault.SYSTEM
    assert replace(told, kind="RESOURCE").at_fault is Fault.SYSTEM
    assert replace(told, kind="SYSTEM", is_isolation=True).at_fault is Fault.NOBODY


def test_an_attempt_that_was_replaced_is_cancelled_when_heard_of() -> None:
    job = JobMasterDriver(graph(vertex("wide", exclusive=False)), failover=AT_ONCE)
    job.offer(1, tm=1)
    (old,) = job.running()
    job.lose_task_manager(1)
    job.events_durable()
    job.offer(2, tm=2)
    (new,) = job.running()
    job.offer(3, tm=1)
    job.report(old, E.RUNNING)
    assert [message.attempts for message in job.messages(CancelTasks)] == [(old,)]
    job.report(old, E.FINISHED)
    assert old in job.messages(AcknowledgeReports)[-1].attempts
    assert job.running() == [new]
    assert not job.has_result()


# --- partitions ------------------------------------------------------------------------------------------------------


def test_a_finished_producer_whose_partition_is_there_is_not_run_again() -> None:
    job = JobMasterDriver(two_stages(), failover=AT_ONCE)
    first, _ = second_stage(job)
    job.report(first, E.FAILED, failure=user_failure())
    settle(job)
    assert names(job.running()) == [("use", 0, 1), ("use", 1, 0)]


def test_a_partition_that_cannot_be_read_is_written_again_and_nobody_is_blamed_for_reading() -> None:
    job = JobMasterDriver(two_stages(), failover=AT_ONCE)
    first, second = second_stage(job)
    lost = partition_of("read", 1)
    job.report(first, E.FAILED, failure=unreadable(lost))
    assert job.cancelled == [second]
    job.report(second, E.CANCELED)
    settle(job)
    assert names(job.running()) == [("read", 1, 1)]
    events = [event for batch in job.durable for event in batch]
    assert PartitionsLost((lost,)) in events
    assert lost in job.messages(ReleasePartitions)[-1].partitions
    assert job.recovered().counted == []
    while not job.has_result():
        job.finish_all()
        settle(job)
    read = [one.partition_id for one in job.deployed[max(job.deployed)].inputs[0].partitions]
    assert read == [partition_of("read", 0), partition_of("read", 1, counter=1)]
    assert job.has_result()


def test_a_restart_that_another_one_took_along_is_not_waited_for() -> None:
    job = JobMasterDriver(two_stages(), failover=AFTER_A_SECOND)
    first, second = second_stage(job)
    job.report(first, E.FAILED, failure=user_failure())
    job.now = 0.5
    job.report(second, E.FAILED, failure=unreadable(partition_of("read", 0)))
    while not job.has_result():
        settle(job)
        job.finish_all()
    assert job.now == 0.5
    job.result_durable()
    assert job.status() is J.FINISHED


def test_what_has_finished_counts_before_what_failed_in_the_same_message() -> None:  # R17
    both = graph(vertex("both", parallelism=2, exclusive=True))
    job = JobMasterDriver(both, failover=replace(AT_ONCE, is_full=True))
    job.offer(1, 2)
    failed, finished = job.running()
    job.reports(job.make_report(failed, E.FAILED, failure=user_failure()), job.make_report(finished))
    assert not job.cancelled
    assert [one.state for one in job.core.graph.executions()] == [E.FAILED, E.FINISHED]


def test_finished_consumers_read_again_unless_they_are_exclusive() -> None:  # R17
    for is_exclusive in (False, True):
        job = JobMasterDriver(two_stages(readers_are_exclusive=is_exclusive), failover=AT_ONCE)
        first, second = second_stage(job)
        job.report(first)
        job.report(second, E.FAILED, failure=unreadable(partition_of("read", 0)))
        while not job.has_result():
            settle(job)
            job.finish_all()
        again = {name for name in names(list(job.deployed)) if name[2] == 1}
        assert again == {("read", 0, 1), ("use", 1, 1)} | (set() if is_exclusive else {("use", 0, 1)})
        assert job.has_result()


def test_a_forward_partition_concerns_its_one_reader() -> None:
    job = JobMasterDriver(two_stages(mode=ExchangeMode.FORWARD), failover=AT_ONCE)
    first, second = second_stage(job)
    job.report(first, E.FAILED, failure=unreadable(partition_of("read", 0)))
    assert job.cancelled == []
    settle(job)
    assert names(job.running()) == [("read", 0, 1), ("use", 1, 0)]
    assert second in job.running()


def test_partitions_deleted_meanwhile_are_written_again_up_to_the_source() -> None:
    chain = graph(
        source("read"),
        vertex("middle"),
        vertex("use", exclusive=False),
        edges=(edge("read", "middle"), edge("middle", "use")),
    )
    job = JobMasterDriver(chain, failover=AT_ONCE)
    job.offer(1)
    for _ in range(2):
        job.report(job.running()[0])
        settle(job)
    job.report(job.running()[0], E.FAILED, failure=unreadable(partition_of("middle")))
    settle(job)
    assert names(job.running()) == [("read", 0, 1)]  # its partition went when `middle` had read it
    while not job.has_result():
        job.finish_all()
        settle(job)
    assert [name for name in names(list(job.deployed)) if name[2]] == [("middle", 0, 1), ("read", 0, 1), ("use", 0, 1)]


def test_a_result_that_is_gone_and_must_not_be_made_twice_ends_the_job() -> None:  # R17
    job = JobMasterDriver(
        graph(source("read", exclusive=True), vertex("use"), edges=(edge("read", "use"),)), failover=AT_ONCE
    )
    job.offer(1)
    job.report(job.running()[0])
    job.events_durable()
    job.report(job.running()[0], E.FAILED, failure=unreadable(partition_of("read")))
    assert job.pending_result is not None
    assert "must not run twice" in job.pending_result.archived.exceptions[0].failure.stack_trace


def test_a_producer_nobody_can_read_ends_the_job() -> None:
    job = JobMasterDriver(graph(source("read"), vertex("use"), edges=(edge("read", "use"),)), failover=AT_ONCE)
    job.offer(1)
    for number in range(PARTITION_LOSSES_MAX + 1):
        assert not job.has_result()
        job.report(job.running()[0])
        job.events_durable()
        job.report(job.running()[0], E.FAILED, failure=unreadable(partition_of("read", counter=number)))
        while job.pending_events is not None:
            job.events_durable()
        if not job.has_result():
            job.offer(number + 2)
    assert job.pending_result is not None
    assert "read (1) writes could not be read 4 times" in job.pending_result.archived.exceptions[0].failure.stack_trace
    assert job.recovered().losses == {(vertex_id_of("read"), 0): PARTITION_LOSSES_MAX}


def test_partitions_that_are_nobodys_input_count_as_any_failure() -> None:
    job = JobMasterDriver(lone(), failover=AT_ONCE)
    for number in range(3):
        job.offer(number)
        job.report(job.running()[0], E.FAILED, failure=unreadable(partition_of("read"), partition_of("noop", output=9)))
        job.events_durable()
    assert job.has_result()


def test_without_a_restart_strategy_nothing_runs_again() -> None:
    job = JobMasterDriver(graph(source("read"), vertex("use"), edges=(edge("read", "use"),)))
    job.offer(1)
    job.report(job.running()[0])
    job.events_durable()
    job.report(job.running()[0], E.FAILED, failure=unreadable(partition_of("read")))
    assert job.pending_result is not None
    assert job.pending_result.archived.failure == unreadable()  # the partitions are for the scheduler


# --- the next owner --------------------------------------------------------------------------------------------------


def test_the_next_owner_knows_what_was_durable_and_counts_anew() -> None:
    job = JobMasterDriver(two_stages(), failover=AT_ONCE)
    first, second = second_stage(job)
    job.report(first, E.FAILED, failure=user_failure())
    settle(job)
    job.report(second)
    job.handle(ev.Ticked(job.at()))
    job.events_durable()
    recovered = job.recovered()
    assert durable_view(recovered.graph) == durable_view(job.core.graph)
    use = recovered.graph.vertices[vertex_id_of("use")]
    assert [(one.ordinal, one.state) for one in use.executions] == [(1, E.CREATED), (0, E.FINISHED)]
    assert use.executions[0].attempt_id.epoch == job.core.graph.epoch + 1
    assert recovered.failures.archived() == job.core.archived().exceptions


@pytest.mark.parametrize("at_most", [2, 3])
def test_the_next_owner_counts_on(at_most: int) -> None:
    settings = FailoverSettings(
        ExponentialDelayRestartStrategy(jitter_factor=0.0, attempts_before_reset_backoff=at_most), "restart"
    )
    job = JobMasterDriver(lone(), failover=settings)
    for number in range(2):
        job.offer(number)
        job.now += 10
        job.report(job.running()[0], E.FAILED, failure=user_failure())
        while job.pending_events is not None:
            job.events_durable()
        job.restart_due()
        job.events_durable()
    recovered = job.recovered()
    outbox = Outbox(recovered.graph.job_id, recovered.graph.epoch)
    acceptance = Acceptance(recovered.graph)
    failover = Failover(
        recovered.graph, Placement(recovered.graph, outbox, Fences(None)), acceptance, recovered.failures, settings
    )
    # Another process, with another monotonic clock, ten seconds later.
    at = ev.Moment(5.0, job.at().millis + 10_000)
    failover.restore(recovered, at)
    (execution,) = recovered.graph.executions()
    assert execution.ordinal == 2
    for state in (E.SCHEDULED, E.DEPLOYING, E.FAILED):
        recovered.graph.transition(execution, state, at.millis)
    problem = failover.failed([execution], user_failure(), recovered.failures.exception(user_failure(), execution), at)
    assert bool(problem) == (at_most == 2)
    assert failover.dues_after(at.monotonic) == ([] if problem else [5.0 + 2.25])
