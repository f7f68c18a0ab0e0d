"""R12 where splits are handed out on demand: each is read by one attempt that counts, whatever happens between."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.common.exchange import ExchangeMode
from runtime.common.ids import ExecutionAttemptId, Incarnation, PartitionId
from runtime.common.states import ExecutionState, JobStatus
from runtime.executiongraph.core.handed_splits import SplitCounts
from runtime.gateways.job_master import (
    AnswerSplits,
    JobMasterToTaskManager,
    SplitRequest,
    SplitsRequested,
)
from runtime.gateways.task import PartitionDescriptor, PartitionKind
from runtime.jobgraph.graph import JobGraph, OperatorKind
from runtime.jobgraph.restart_strategy import FixedDelayRestartStrategy
from runtime.jobgraph.splits import NO_SPLIT
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.failover.settings import FailoverSettings
from runtime.scheduler.core.job_events import SplitsHandedOut
from runtime.scheduler.core.speculation.speculative_execution import may_speculate
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex
from tests.kit.control_plane.job_master_driver import (
    JOB_ID,
    UNCONFIRMED_WAIT,
    JobMasterDriver,
    inline,
    location,
    unreadable,
    user_failure,
)

MANY = FailoverSettings(
    restart_strategy=FixedDelayRestartStrategy(attempts=1000, delay_seconds=0.0),
    user_failures="restart",
    unconfirmed_wait=UNCONFIRMED_WAIT,
)
LATER = replace(MANY, restart_strategy=FixedDelayRestartStrategy(attempts=1000, delay_seconds=1000.0))
"""What has failed is not replaced for a while."""
READ = "read"


def reading(splits: int = 5, parallelism: int = 2, **fields: Any) -> JobGraph:
    """A source that takes so many splits on demand, and one task that reads what it has written."""
    read = source(READ, splits=tuple(range(splits)), splits_on_demand=True, parallelism=parallelism, **fields)
    return graph(read, vertex("write", OperatorKind.SINK), edges=(edge(READ, "write", ExchangeMode.GATHER),))


class SplitJob(JobMasterDriver):
    """Plays the slots of such a job too: what each attempt has got, and whether it was told that none is left."""

    def __init__(self, made: JobGraph, failover: FailoverSettings) -> None:
        self.got: defaultdict[ExecutionAttemptId, list[int]] = defaultdict(list)
        self.asking: dict[ExecutionAttemptId, int] = {}
        self.told_end: set[ExecutionAttemptId] = set()
        super().__init__(made, failover=failover)

    def ask(self, attempt_id: ExecutionAttemptId) -> None:
        """Its code wants the next split."""
        self.asking[attempt_id] = len(self.got[attempt_id])
        self.repeat(attempt_id)

    def repeat(self, attempt_id: ExecutionAttemptId) -> None:
        """Its TaskManager says once more that it waits."""
        place = self.whereabouts(attempt_id)
        if place.incarnation not in self.cut and attempt_id in self.asking:
            wanted = SplitRequest(attempt_id, self.asking[attempt_id])
            self.handle(ev.TaskManagerSpoke(place, SplitsRequested(JOB_ID, self.epoch, (wanted,)), self.at()))

    def repeat_all(self) -> None:
        """New streams begin with what is waited for."""
        for attempt_id in [one for one in self.asking if one in self.running()]:
            self.repeat(attempt_id)

    def _deliver(self, incarnation: Incarnation, message: JobMasterToTaskManager) -> None:
        if not isinstance(message, AnswerSplits):
            super()._deliver(incarnation, message)
            return
        for answer in message.answers:
            if self.asking.get(answer.attempt_id) != answer.sequence or answer.attempt_id not in self.running():
                continue
            del self.asking[answer.attempt_id]
            if answer.split == NO_SPLIT:
                self.told_end.add(answer.attempt_id)
            else:
                assert answer.split in self.durably(answer.attempt_id), "R12: told before it is durable"
                self.got[answer.attempt_id].append(answer.split)

    def durably(self, attempt_id: ExecutionAttemptId) -> list[int]:
        """The splits that are an attempt's by events that are durable."""
        handed = [one for batch in self.durable for one in batch if isinstance(one, SplitsHandedOut)]
        return [one.split for event in handed for one in event.handouts if one.attempt_id == attempt_id]

    def readers(self) -> list[ExecutionAttemptId]:
        """Attempts of the source that run."""
        return [one for one in self.running() if self.deployed[one].task.vertex_name == READ]

    def take(self, attempt_id: ExecutionAttemptId) -> int:
        """It asks and gets a split, NO_SPLIT for none."""
        self.ask(attempt_id)
        self.settle()
        return NO_SPLIT if attempt_id in self.told_end else self.got[attempt_id][-1]

    def settle(self) -> None:
        """All writes are durable."""
        while self.pending_events is not None:
            self.events_durable()

    def finish(self, attempt_id: ExecutionAttemptId) -> None:
        """Its code has ended; what got no split says nothing."""
        partitions: tuple[PartitionDescriptor, ...] | None = None
        if self.deployed[attempt_id].task.vertex_name == READ:
            none = PartitionDescriptor(PartitionId(attempt_id, 0), PartitionKind.NOTHING, "", "", (), b"")
            partitions = (inline(attempt_id, 0, b"1") if self.got[attempt_id] else none,)
        self.report(attempt_id, partitions=partitions)

    def read_all(self) -> None:
        """Everything works from now on: to the end of the job."""
        for step in range(200):
            self.offer(1000 + 2 * step, 1001 + 2 * step, tm=9)
            self.restart_due()
            self.settle()
            for attempt_id in self.running():
                if attempt_id in self.told_end or self.deployed[attempt_id].task.vertex_name != READ:
                    self.finish(attempt_id)
                else:
                    self.ask(attempt_id)
            self.settle()
            if self.has_result():
                return
        message = f"the job does not end: {self.running()}, {self.asking}"
        raise AssertionError(message)

    def accepted(self) -> list[int]:
        """The splits of the attempts of the source that were accepted."""
        executions = [one for one in self.core.graph.executions() if one.is_accepted]
        return sorted(split for one in executions for split in self.got[one.attempt_id])


def running(splits: int = 5, parallelism: int = 2, failover: FailoverSettings = MANY, **fields: Any) -> SplitJob:
    job = SplitJob(reading(splits, parallelism, **fields), failover)
    for number in range(parallelism):
        job.offer(number + 1, tm=number + 1)
    for attempt_id in job.running():
        job.report(attempt_id, ExecutionState.RUNNING)
    return job


def test_who_is_faster_reads_more() -> None:
    """One subtask sits on its first split: the other one reads all others."""
    job = running(5)
    slow, fast = job.readers()
    assert job.take(slow) == 0
    assert [job.take(fast) for _ in range(5)] == [1, 2, 3, 4, NO_SPLIT]
    job.finish(fast)
    assert job.take(slow) == NO_SPLIT
    job.read_all()
    assert job.accepted() == [0, 1, 2, 3, 4]


def test_each_attempt_is_told_all_splits_and_takes_them_by_number() -> None:
    job = running(3)
    for attempt_id in job.readers():
        assert job.deployed[attempt_id].splits == b"[0,1,2]"
        assert job.deployed[attempt_id].task.splits_on_demand


def test_a_split_is_told_when_it_is_durable_and_not_before() -> None:
    job = running()
    first, second = job.readers()
    job.ask(first)
    assert job.pending_events is not None
    job.ask(second)
    assert not job.got[first]
    job.events_durable()
    assert job.got[first] == [0]
    assert not job.got[second], "its hand-out joins the next write"
    job.events_durable()
    assert job.got[second] == [1]


def test_requests_that_come_together_are_one_write() -> None:
    job = running(9, 3)
    for one in job.readers():
        job.asking[one] = 0
    job.says(SplitsRequested(JOB_ID, job.epoch, tuple(SplitRequest(one, 0) for one in job.readers())))
    before = len(job.durable)
    job.settle()
    assert len(job.durable) == before + 1
    assert sorted(split for one in job.readers() for split in job.got[one]) == [0, 1, 2]


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_repeated_request_has_the_same_answer(*, is_durable: bool) -> None:
    job = running()
    first, _ = job.readers()
    job.ask(first)
    if is_durable:
        job.settle()
        assert job.got.pop(first) == [0]  # the answer is lost
        job.asking[first] = 0
    job.repeat(first)
    job.repeat(first)
    job.settle()
    assert job.got[first] == [0]
    assert job.durably(first) == [0]


@pytest.mark.parametrize("is_told", [True, False])
def test_the_next_owner_gives_the_same_answer(*, is_told: bool) -> None:
    job = running()
    first, second = job.readers()
    job.ask(first)
    job.events_applied()  # durable, and the owner never learns it
    job.change_owner([1, 2])
    if is_told:
        assert job.take(second) == 1, "the split of the first one is known"
    job.repeat_all()
    job.settle()
    assert job.got[first] == [0]


def test_what_was_not_durable_is_free_for_the_next_owner() -> None:
    job = running()
    first, second = job.readers()
    job.ask(first)
    job.change_owner([1, 2])
    assert job.take(second) == 0
    job.repeat_all()
    job.settle()
    assert job.got[first] == [1]


def test_what_is_asked_of_the_next_owner_while_it_takes_over_is_answered() -> None:
    """Its TaskManager says it once on the stream, before others have told what they have."""
    job = running()
    first, _ = job.readers()
    job.begin_next_owner()
    here, there = job.whereabouts(first), location(2)
    job.handle(ev.TaskManagersRegistered(frozenset({here.incarnation, there.incarnation}), job.at()))
    job.handle(ev.JobRead(reading(), (), job.at()))
    job.handle(job.census_of(here))
    job.ask(first)
    assert not job.got[first]
    job.handle(job.census_of(there))
    job.settle()
    assert job.got[first] == [0]


def test_splits_of_an_attempt_that_failed_are_read_by_others() -> None:
    job = running(4)
    first, second = job.readers()
    assert [job.take(first), job.take(first), job.take(second)] == [0, 1, 2]
    job.report(first, ExecutionState.FAILED, failure=user_failure())
    assert [job.take(second) for _ in range(4)] == [3, 0, 1, NO_SPLIT]
    job.read_all()
    assert job.accepted() == [0, 1, 2, 3]


def test_what_comes_back_late_is_read_by_the_attempt_in_its_place() -> None:
    """All others were told that none is left before the attempt with the splits failed."""
    job = running(3)
    first, second = job.readers()
    assert [job.take(first), job.take(first), job.take(second), job.take(second)] == [0, 1, 2, NO_SPLIT]
    job.finish(second)
    job.settle()
    job.report(first, ExecutionState.FAILED, failure=user_failure())
    job.read_all()
    assert job.accepted() == [0, 1, 2]


def test_who_was_told_that_none_is_left_gets_none_later() -> None:
    """It may have gone on, so that nobody would read it; a repeat of its request may have been on its way."""
    job = running(2)
    first, second = job.readers()
    assert [job.take(first), job.take(second), job.take(second)] == [0, 1, NO_SPLIT]
    job.report(first, ExecutionState.FAILED, failure=user_failure())
    job.asking[second] = 1
    job.repeat(second)
    job.settle()
    assert job.durably(second) == [1]


def test_an_attempt_that_comes_back_with_splits_of_another_one_is_stopped() -> None:
    """Its TaskManager was lost, and its split was given away durably; the next owner meets it alive."""
    job = running(3, failover=LATER)
    first, second = job.readers()
    assert [job.take(first), job.take(second)] == [0, 1]
    job.go_silent(1)
    assert [job.take(second), job.take(second)] == [2, 0]
    job.change_owner([1, 2])
    assert first in job.cancelled
    assert second not in job.cancelled
    job.report(first, ExecutionState.CANCELED)
    job.read_all()
    assert job.accepted() == [0, 1, 2]


def test_an_attempt_that_finished_unheard_with_splits_of_another_one_does_not_count() -> None:
    job = running(2, failover=LATER)
    first, second = job.readers()
    assert [job.take(first), job.take(second), job.take(first)] == [0, 1, NO_SPLIT]
    job.go_silent(1)
    job.finish(first)
    assert job.take(second) == 0
    job.change_owner([1, 2])
    job.read_all()
    assert job.accepted() == [0, 1]


def test_no_attempt_runs_beside_one_that_takes_its_splits() -> None:
    """The two would take splits from each other, and one of them would be thrown away with its own."""
    job = running()
    read = job.core.graph.vertices[job.readers()[0].vertex_id]
    assert not may_speculate(read)
    read.handed = None
    assert may_speculate(read)


def test_an_exclusive_attempt_keeps_its_splits_until_it_has_stopped() -> None:
    job = running(3, exclusive=True)
    first, second = job.readers()
    assert [job.take(first), job.take(second)] == [0, 1]
    job.go_silent(1)
    assert [job.take(second), job.take(second)] == [2, NO_SPLIT]
    job.write_fences()
    job.obey_fence(location(1).incarnation)
    job.read_all()
    assert job.accepted() == [0, 1, 2]


def test_when_written_rows_are_lost_their_splits_are_read_again() -> None:
    job = running(4)
    first, second = job.readers()
    assert [job.take(first), job.take(second), job.take(second), job.take(second)] == [0, 1, 2, 3]
    for one in (first, second):
        assert job.take(one) == NO_SPLIT
        job.finish(one)
    job.settle()
    job.offer(50, tm=3)
    (writer,) = job.running()

    job.report(writer, ExecutionState.FAILED, failure=unreadable(PartitionId(second, 0)))
    job.read_all()
    assert job.accepted() == [0, 1, 2, 3]
    again = [one for one in job.got if one.subtask_index == second.subtask_index and one != second]
    assert sorted(split for one in again for split in job.got[one]) == [1, 2, 3]


def half_read(mode: ExchangeMode) -> tuple[SplitJob, ExecutionAttemptId, ExecutionAttemptId]:
    """Both attempts have written, one of two exclusive readers has finished: the job, what was written, who reads."""
    read = source(READ, splits=(0, 1, 2), splits_on_demand=True, parallelism=2)
    keys = ("id",) if mode is ExchangeMode.HASH else ()
    use = vertex("use", parallelism=2, exclusive=True)
    made = graph(read, use, edges=(edge(READ, "use", mode, key_columns=keys),))
    job = SplitJob(made, MANY)
    for number in (1, 2):
        job.offer(number, tm=number)
    first, second = job.readers()
    assert [job.take(one) for one in (first, second, second)] == [0, 1, 2]
    for one in (first, second):
        assert job.take(one) == NO_SPLIT
        job.finish(one)
    job.settle()
    job.offer(50, 51, tm=3)
    done, reading_still = job.running()
    job.report(done)
    job.settle()
    return job, second, reading_still


def test_rows_are_not_divided_anew_for_a_part_of_the_readers_only() -> None:
    """Which splits an attempt reads again is open, so that rebalance() would give rows to both readers, or to none."""
    job, written, reader = half_read(ExchangeMode.REBALANCE)
    job.report(reader, ExecutionState.FAILED, failure=unreadable(PartitionId(written, 0)))
    job.settle()
    assert job.status() is JobStatus.FAILING
    told = job.core.archived().exceptions[0].failure.stack_trace
    assert "rebalance() divides its rows otherwise" in told


def test_rows_that_follow_their_keys_are_written_again_for_a_part_of_the_readers() -> None:
    job, written, reader = half_read(ExchangeMode.HASH)
    job.report(reader, ExecutionState.FAILED, failure=unreadable(PartitionId(written, 0)))
    job.read_all()
    assert job.accepted() == [0, 1, 2]


def test_a_vertex_does_not_finish_while_a_split_is_left() -> None:
    """What the slot process refuses already: the owner does not trust it."""
    job = running(2, 1)
    (first,) = job.readers()
    assert job.take(first) == 0
    job.finish(first)
    (failure,) = job.core.archived().exceptions
    assert failure.failure.class_name == "TaskEndedError"
    assert "left 1 splits" in failure.failure.message
    job.read_all()
    assert job.accepted() == [0, 1]


def test_requests_of_others_and_out_of_order_get_nothing() -> None:
    job = running()
    first, second = job.readers()
    job.report(first, ExecutionState.FAILED, failure=user_failure())
    wanted = (SplitRequest(first, 0), SplitRequest(second, 3))
    job.says(SplitsRequested(JOB_ID, job.epoch, wanted))
    job.settle()
    assert not job.messages(AnswerSplits)


def test_a_job_that_ends_answers_nobody() -> None:
    job = running()
    first, _ = job.readers()
    job.handle(ev.CancelWanted(job.at()))
    job.ask(first)
    assert job.status() is JobStatus.CANCELLING
    assert not job.messages(AnswerSplits)


def test_it_is_shown_where_the_splits_are() -> None:
    job = running(5)
    first, second = job.readers()
    counts = job.core.graph.vertices[first.vertex_id].split_counts
    assert [job.take(first), job.take(second), job.take(second)] == [0, 1, 2]
    assert counts() == SplitCounts(total=5, finished=0, running=3)
    assert [job.take(second) for _ in range(3)] == [3, 4, NO_SPLIT]
    job.finish(second)
    assert counts() == SplitCounts(total=5, finished=4, running=1)
    job.report(first, ExecutionState.FAILED, failure=user_failure())
    found = counts()
    assert found is not None
    assert found.left == 1


class Fate:
    """Steps that a drawn number says more about."""

    def __init__(self, job: SplitJob) -> None:
        self.job = job
        self.silent: set[int] = set()
        self.offered = 100

    def go(self, what: str, number: int) -> None:
        """One step, if it can be taken now."""
        if self.job.status() is JobStatus.RUNNING and not self.job.has_result():
            getattr(self, what)(number)

    def reader(self, number: int) -> ExecutionAttemptId | None:
        """An attempt of the source that nobody stops."""
        readers = [one for one in self.job.readers() if one not in self.job.cancelled]
        return readers[number % len(readers)] if readers else None

    def ask(self, number: int) -> None:
        one = self.reader(number)
        if one is not None and one not in self.job.told_end and one not in self.job.asking:
            self.job.ask(one)

    def durable(self, _number: int) -> None:
        self.job.events_durable()

    def finish(self, number: int) -> None:
        one = self.reader(number)
        if one is not None and one in self.job.told_end:
            self.job.finish(one)

    def fail(self, number: int) -> None:
        if (one := self.reader(number)) is not None:
            self.job.report(one, ExecutionState.FAILED, failure=user_failure())

    def lose(self, number: int) -> None:
        if (tm := 1 + number % 3) not in self.silent:
            self.job.lose_task_manager(tm, is_reaped=True)

    def hush(self, number: int) -> None:
        if (tm := 1 + number % 3) not in self.silent:
            self.job.go_silent(tm)
            self.silent.add(tm)

    def wake(self, number: int) -> None:
        if (tm := 1 + number % 3) in self.silent:
            self.job.reconnect(tm)
            self.silent.discard(tm)
            self.job.repeat_all()

    def fence(self, _number: int) -> None:
        self.job.write_fences()
        for incarnation in list(self.job.written_fences):
            self.job.obey_fence(incarnation)

    def owner(self, _number: int) -> None:
        self.job.change_owner([1, 2, 3, 9])
        self.silent.clear()
        self.job.repeat_all()

    def due(self, _number: int) -> None:
        if self.job.restarts:
            self.job.restart_due()

    def offer(self, number: int) -> None:
        if (tm := 1 + number % 3) not in self.silent:
            self.offered += 1
            self.job.offer(self.offered, tm=tm)

    def repeat(self, _number: int) -> None:
        self.job.repeat_all()

    def heal(self) -> None:
        """Everybody is there again, and what was to stop has stopped."""
        for tm in range(3):
            self.wake(tm)
        self.fence(0)
        for one in [one for one in self.job.running() if one in self.job.cancelled]:
            self.job.report(one, ExecutionState.CANCELED)
        self.job.repeat_all()


STEPS = (*("ask", "durable") * 3, "finish", "fail", "lose", "hush", "wake", "fence", "owner", "due", "offer", "repeat")


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5)), max_size=60),
    st.integers(1, 6),
    st.integers(1, 3),
    st.sampled_from([{}, {"exclusive": True}, {"failover": LATER}]),
)
def test_each_split_is_that_of_one_attempt_that_counts(
    steps: list[tuple[str, int]], splits: int, parallelism: int, fields: dict[str, Any]
) -> None:
    job = running(splits, parallelism, **fields)
    fate = Fate(job)
    for what, number in steps:
        fate.go(what, number)
    fate.heal()
    job.read_all()
    assert job.accepted() == list(range(splits))
