"""What a job has counted: of each subtask the attempt that counts, over restarts and owners (D-116)."""

from __future__ import annotations

from runtime.common.accumulators import AccumulatorKind, UserAccumulator
from runtime.common.states import ExecutionState, JobStatus
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.executiongraph.core import accumulators as bounds
from runtime.gateways.task import TaskProgress
from tests.kit.control_plane.failing_jobs import settle, wide
from tests.kit.control_plane.job_graphs import diamond, lone
from tests.kit.control_plane.job_master_driver import THREE_RESTARTS, JobMasterDriver, user_failure

E = ExecutionState


def rows(count: int, name: str = "rows") -> tuple[UserAccumulator, ...]:
    return (UserAccumulator(name, AccumulatorKind.COUNTER, count),)


def counted(job: JobMasterDriver) -> dict[str, int]:
    archived = ArchivedExecutionGraph.from_json(job.core.archived().to_json())
    return {one.name: one.count for one in archived.accumulators()}


def test_live_values_are_shown_and_replaced_by_those_of_the_report() -> None:
    job = JobMasterDriver(wide(2))
    job.offer(1, 2)
    first, second = job.running()
    job.progresses(TaskProgress(first, 0.0, "", 0, 0, 0, 0, rows(5)))
    job.progresses(TaskProgress(second, 0.0, "", 0, 0, 0, 0, rows(7)))
    assert counted(job) == {"rows": 12}
    job.report(first, accumulators=rows(6))
    assert counted(job) == {"rows": 13}
    job.progresses(TaskProgress(first, 0.0, "", 0, 0, 0, 0, rows(1)))
    assert counted(job) == {"rows": 13}, "a late progress of an attempt that has ended"


def test_a_restarted_subtask_does_not_count_twice() -> None:
    job = JobMasterDriver(lone(), failover=THREE_RESTARTS)
    job.offer(1)
    (first,) = job.running()
    job.progresses(TaskProgress(first, 0.0, "", 0, 0, 0, 0, rows(40)))
    job.report(first, E.FAILED, failure=user_failure(), accumulators=rows(50))
    assert counted(job) == {}
    settle(job)
    (second,) = job.running()
    job.report(second, accumulators=rows(60))
    job.result_durable()
    assert job.status() is JobStatus.FINISHED
    assert counted(job) == {"rows": 60}


def test_a_failed_job_counts_what_has_finished() -> None:
    job = JobMasterDriver(wide(2))
    job.offer(1, 2)
    first, second = job.running()
    job.report(first, accumulators=rows(1))
    job.report(second, E.FAILED, failure=user_failure(), accumulators=rows(100))
    assert counted(job) == {"rows": 1}


def test_the_next_owner_knows_what_accepted_attempts_have_counted() -> None:
    job = JobMasterDriver(diamond())
    job.offer(1, 2)
    for attempt_id in job.running():
        job.report(attempt_id, accumulators=rows(3))
        job.events_durable()
    before = counted(job)
    assert before["rows"] >= 3
    job.change_owner([0])
    assert counted(job) == before


def test_what_a_job_shows_is_bounded_and_says_so() -> None:
    job = JobMasterDriver(wide(60))
    job.offer(*range(60))
    for number, attempt_id in enumerate(job.running()):
        names = [f"rows of {number} {one}" for one in range(100)]
        job.report(attempt_id, accumulators=tuple(one for name in names for one in rows(1, name)))
    archived = job.core.archived()
    (vertex,) = archived.vertices
    assert len(vertex.accumulators) == bounds.ENTRIES_OF_VERTICES_MAX
    assert archived.accumulators_left_out == 6000 - bounds.ENTRIES_OF_VERTICES_MAX
    assert not any(subtask.current.accumulators for subtask in vertex.subtasks)
