"""Who has to answer a census, and when it is complete (R6)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtime.common.ids import ExecutionAttemptId, Incarnation, JobId, VertexId
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.gateways.job_master import HeldAttempt, JobCensus, SlotOffer
from runtime.jobmaster.core.census import Census
from tests.kit.control_plane.job_master_driver import allocation, location

JOB = JobId("1" * 32)


def attempt(subtask: int) -> HeldAttempt:
    attempt_id = ExecutionAttemptId(JOB, VertexId("e" * 32), subtask, 7, 0)
    return HeldAttempt(attempt_id, 0, ExecutionState.RUNNING, allocation(subtask))


def incarnations(*numbers: int) -> list[Incarnation]:
    return [location(number).incarnation for number in numbers]


def answer(census: Census, number: int, *subtasks: int, is_last: bool = True) -> None:
    slots = tuple(SlotOffer(allocation(subtask), subtask) for subtask in subtasks)
    attempts = tuple(map(attempt, subtasks))
    census.answered(location(number), JobCensus(JOB, 7, slots, attempts, is_complete=is_last))


def test_it_is_not_complete_before_it_has_begun() -> None:
    census = Census()
    answer(census, 1)
    assert not census.is_complete
    census.registered(incarnations(1))
    assert census.is_complete


def test_without_task_managers_nothing_runs() -> None:
    census = Census()
    census.registered(())
    assert census.is_complete
    assert census.answers() == ()


def test_everyone_has_to_answer_whole() -> None:
    census = Census()
    census.registered(incarnations(1, 2))
    answer(census, 1, 0)
    answer(census, 2, 1, is_last=False)
    assert (census.is_complete, census.awaited) == (False, frozenset(incarnations(2)))
    answer(census, 2, 2)
    assert census.is_complete
    named = {one.location: [held.attempt_id.subtask_index for held in one.attempts] for one in census.answers()}
    assert named == {location(1): [0], location(2): [1, 2]}


def test_one_that_goes_is_not_waited_for_and_its_answer_counts_no_more() -> None:
    census = Census()
    census.registered(incarnations(1, 2, 3))
    answer(census, 1, 0)
    answer(census, 3, 1)
    census.registered(incarnations(3, 4))
    assert census.is_complete, "2 is gone, and 4 came when lower epochs could start nothing any more (R7)"
    assert [one.location for one in census.answers()] == [location(3)]


def test_one_that_is_disconnected_has_to_answer_again() -> None:
    census = Census()
    census.registered(incarnations(1))
    answer(census, 1, 0)
    census.disconnected(location(1).incarnation)
    assert not census.is_complete
    answer(census, 1, 5)
    [only] = census.answers()
    assert [held.attempt_id.subtask_index for held in only.attempts] == [5]


def test_a_part_of_an_answer_is_nothing_when_the_stream_is_lost() -> None:
    census = Census()
    census.registered(incarnations(1))
    answer(census, 1, 0, is_last=False)
    census.disconnected(location(1).incarnation)
    answer(census, 1, 1)
    [only] = census.answers()
    assert [held.attempt_id.subtask_index for held in only.attempts] == [1]


numbers = st.integers(0, 3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("registered"), st.frozensets(numbers)),
        st.tuples(st.just("answered"), numbers),
        st.tuples(st.just("part"), numbers),
        st.tuples(st.just("disconnected"), numbers),
    ),
    max_size=30,
)


@given(steps)
def test_complete_means_that_all_who_were_there_all_along_have_a_whole_answer_that_stands(
    steps: list[tuple[str, int | frozenset[int]]],
) -> None:
    census = Census()
    stayed: set[TaskManagerLocation] | None = None
    whole: set[TaskManagerLocation] = set()
    for what, argument in steps:
        if isinstance(argument, frozenset):
            present = {location(number) for number in argument}
            census.registered([one.incarnation for one in present])
            stayed = present if stayed is None else stayed & present
            whole &= present
        elif what == "disconnected":
            census.disconnected(location(argument).incarnation)
            whole.discard(location(argument))
        else:
            answer(census, argument, argument, is_last=what == "answered")
            (whole.add if what == "answered" else whole.discard)(location(argument))
        assert not census.is_complete or (stayed is not None and stayed <= whole)
