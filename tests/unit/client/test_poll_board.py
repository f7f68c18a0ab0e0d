"""The question of the shared poll, and the waiters that its answer ends."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from airflow_flinklike.client.model import JobNews, JobState
from airflow_flinklike.client.poll_board import PollBoard
from runtime.common.ids import JobId
from runtime.common.states import JobStatus

A, B, C = (JobId(letter * 32) for letter in "abc")


def state(job_id: JobId, modified: int, status: JobStatus = JobStatus.RUNNING) -> JobState:
    return JobState(job_id, status, modified, "")


def news(*changed: JobState, unknown: frozenset[JobId] = frozenset()) -> JobNews:
    return JobNews(changed, unknown)


def answered(board: PollBoard, number: int, found: JobNews | None) -> dict[int, JobState | None]:
    return {token: outcome for token, _, outcome in board.end_poll(number, found)}


def test_nobody_waits() -> None:
    board = PollBoard()
    assert not board.needs_poll
    board.leave(board.join(A, 5))
    assert (board.needs_poll, len(board), board.begin_poll()[1]) == (False, 0, {})


def test_one_poll_is_for_all() -> None:
    board = PollBoard()
    first, second = board.join(A, 0), board.join(B, 7)
    number, asked = board.begin_poll()
    assert (asked, board.needs_poll) == ({A: 0, B: 7}, False)
    assert answered(board, number, news(state(A, 3))) == {first: state(A, 3)}
    assert board.tokens() == [second]
    assert board.needs_poll
    assert board.begin_poll()[1] == {B: 7}


def test_who_is_covered_needs_no_other_poll() -> None:
    board = PollBoard()
    first = board.join(A, 5)
    board.begin_poll()
    board.leave(first)
    board.join(A, 5)
    assert not board.needs_poll, "he has come back knowing the same"
    board.join(A, 6)
    assert board.needs_poll


def test_those_who_know_different_things_are_answered_at_once() -> None:
    board = PollBoard()
    new, up_to_date = board.join(A, 0), board.join(A, 5)
    number, asked = board.begin_poll()
    assert asked == {A: 0}
    assert answered(board, number, news(state(A, 5))) == {new: state(A, 5)}
    assert board.begin_poll()[1] == {A: 5}
    assert board.tokens() == [up_to_date]


def test_an_end_is_for_everybody() -> None:
    board = PollBoard()
    one, other = board.join(A, 5), board.join(A, 5)
    number, _ = board.begin_poll()
    end = state(A, 5, JobStatus.FINISHED)
    assert answered(board, number, news(end)) == {one: end, other: end}
    assert not board.needs_poll


def test_a_job_that_is_not_known() -> None:
    board = PollBoard()
    lost, found = board.join(A, 5), board.join(B, 5)
    number, _ = board.begin_poll()
    assert answered(board, number, news(unknown=frozenset({A, C}))) == {lost: None}
    assert board.tokens() == [found]


def test_a_poll_that_was_replaced_counts_for_ends_only() -> None:
    board = PollBoard()
    running, ending = board.join(A, 1), board.join(B, 1)
    old, _ = board.begin_poll()
    board.join(C, 1)
    new, _ = board.begin_poll()
    end = state(B, 2, JobStatus.FAILED)
    assert answered(board, old, news(state(A, 2), end)) == {ending: end}
    assert not board.needs_poll, "the new one is under way"
    assert answered(board, new, news(state(A, 3))) == {running: state(A, 3)}


def test_a_poll_without_an_answer_is_made_again() -> None:
    board = PollBoard()
    token = board.join(A, 1)
    number, _ = board.begin_poll()
    assert answered(board, number, None) == {}
    assert board.needs_poll
    assert board.tokens() == [token]


def is_news(one: JobState, known: int) -> bool:
    return one.status.is_globally_terminal or one.last_modification != known


class BoardMachine(RuleBasedStateMachine):
    """The board against a cluster of three jobs, whose polls answer in any order or get lost."""

    def __init__(self) -> None:
        super().__init__()
        self.board = PollBoard()
        self.cluster = {job_id: state(job_id, 1) for job_id in (A, B, C)}
        self.known: dict[int, tuple[JobId, int]] = {}
        self.polls: dict[int, dict[JobId, int]] = {}

    @rule(job_id=st.sampled_from([A, B, C]), is_new=st.booleans())
    def join(self, job_id: JobId, is_new: bool) -> None:
        since = 0 if is_new else self.cluster[job_id].last_modification
        self.known[self.board.join(job_id, since)] = (job_id, since)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.known:
            token = data.draw(st.sampled_from(sorted(self.known)))
            self.board.leave(token)
            del self.known[token]

    @rule(job_id=st.sampled_from([A, B, C]), ends=st.booleans())
    def change(self, job_id: JobId, ends: bool) -> None:
        before = self.cluster[job_id]
        status = JobStatus.FINISHED if ends else before.status
        self.cluster[job_id] = state(job_id, before.last_modification + 1, status)

    @rule()
    def poll(self) -> None:
        if self.board.needs_poll:
            number, asked = self.board.begin_poll()
            self.polls[number] = dict(asked)

    @rule(data=st.data(), is_lost=st.booleans())
    def answer(self, data: st.DataObject, is_lost: bool) -> None:
        if self.polls:
            self.settle(data.draw(st.sampled_from(sorted(self.polls))), is_lost=is_lost)

    def settle(self, number: int, *, is_lost: bool) -> None:
        asked = self.polls.pop(number)
        found = [self.cluster[job_id] for job_id, known in asked.items() if is_news(self.cluster[job_id], known)]
        for token, job_id, outcome in self.board.end_poll(number, None if is_lost else news(*found)):
            assert outcome == self.cluster[job_id]
            assert outcome is not None
            assert is_news(outcome, self.known.pop(token)[1]), "no waiter is told a state that it knows"

    def missing(self) -> list[int]:
        return [token for token, (job_id, since) in self.known.items() if is_news(self.cluster[job_id], since)]

    @invariant()
    def whoever_waits_is_asked_for(self) -> None:
        assert sorted(self.known) == sorted(self.board.tokens())
        assert not self.known or self.polls or self.board.needs_poll

    def teardown(self) -> None:
        """No waiter misses a change."""
        for number in list(self.polls):
            self.settle(number, is_lost=False)
        while self.missing():
            assert self.board.needs_poll
            self.poll()
            self.settle(max(self.polls), is_lost=False)


TestPollBoardModel = BoardMachine.TestCase
TestPollBoardModel.settings = settings(max_examples=150, stateful_step_count=30, deadline=None, derandomize=True)
