"""The times of attempts that a later owner knows from events: when things happened, not when it took over."""

import pytest

from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.states import ExecutionState
from runtime.executiongraph.archived import ArchivedException
from runtime.executiongraph.core.failures import system_failure
from runtime.jobgraph.graph import vertex_id_of
from runtime.scheduler.core.failover.settings import DEFAULT_FAILOVER
from runtime.scheduler.core.job_events import FailureHandled, JobStarted
from runtime.scheduler.core.takeover.job_recovery import recover
from tests.kit.control_plane.job_graphs import graph, source

JOB = JobId("a" * 32)
READ = vertex_id_of("read")


@pytest.mark.parametrize("deployed_millis", [3_000, -1])
def test_a_failed_attempt_was_deployed_and_has_failed_before_the_takeover(deployed_millis: int) -> None:
    attempt = ExecutionAttemptId(JOB, READ, 0, 1, 0)
    failure = ArchivedException(system_failure("Lost", "lost", 4_900), "read", "", "")
    handled = FailureHandled(
        failure,
        at_millis=5_000,
        is_concurrent=False,
        backoff_seconds=60.0,
        attempts=(attempt,),
        deployed_millis=(deployed_millis,),
    )
    recovered = recover(
        graph(source("read")),
        JOB,
        2,
        [JobStarted(2_000), handled],
        submit_millis=1_000,
        at_millis=50_000,
        settings=DEFAULT_FAILOVER,
    )
    recovered.put_failed(50_000)
    (execution,) = recovered.graph.vertices[READ].executions
    assert execution.state is ExecutionState.FAILED
    assert execution.timestamps[ExecutionState.FAILED] == 5_000
    assert execution.timestamps.get(ExecutionState.DEPLOYING, -1) == deployed_millis
    assert recovered.handled[READ, 0].due_millis == 65_000


def test_a_clock_that_is_ahead_gives_no_time_after_the_takeover() -> None:
    attempt = ExecutionAttemptId(JOB, READ, 0, 1, 0)
    failure = ArchivedException(system_failure("Lost", "lost", 4_900), "read", "", "")
    handled = FailureHandled(failure, at_millis=9_000, is_concurrent=False, backoff_seconds=None, attempts=(attempt,))
    recovered = recover(
        graph(source("read")), JOB, 2, [handled], submit_millis=1_000, at_millis=8_000, settings=DEFAULT_FAILOVER
    )
    recovered.put_failed(8_000)
    (execution,) = recovered.graph.vertices[READ].executions
    assert execution.timestamps[ExecutionState.FAILED] == 8_000
