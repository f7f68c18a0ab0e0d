"""Which guards are dialled, and which TaskManagers have ended (R13)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.ids import Incarnation
from runtime.highavailability.leadership.registration import GuardedTaskManager
from runtime.highavailability.records import GuardRecord, TaskManagerRecord
from runtime.resourcemanager.core.liveness import Liveness, Question, described

ONE, OTHER = Incarnation("a" * 32), Incarnation("b" * 32)
PROCESS = TaskManagerRecord(ONE, "tm-1", "host-1:6125", "host-1:7000", "boot", 4)


def second(process: TaskManagerRecord = PROCESS) -> TaskManagerRecord:
    return replace(process, incarnation=OTHER, task_manager_id="tm-2")


def stored(record: TaskManagerRecord, *, is_reached: bool | None = None) -> GuardedTaskManager:
    """`is_reached` None: no leader has used it."""
    return GuardedTaskManager(record, None if is_reached is None else GuardRecord(is_reached))


@pytest.mark.parametrize(
    ("looked_for", "is_heard", "question"),
    [
        (None, True, Question.IS_IT_THERE),
        (None, False, None),
        (False, True, Question.IS_IT_THERE),
        (False, False, Question.IS_IT_THERE),
        (True, True, None),
        (True, False, Question.IS_IT_DEAD),
    ],
)
def test_what_to_ask(looked_for: bool | None, question: Question | None, *, is_heard: bool) -> None:
    liveness = Liveness()
    assert liveness.question(ONE, is_heard=is_heard) is None, "nobody knows it"
    liveness.registered(PROCESS)
    if looked_for is not None:
        liveness.looked_for(ONE, is_reached=looked_for)
    assert liveness.question(ONE, is_heard=is_heard) is question
    assert liveness.is_used(ONE) is (looked_for is not None), "used only when that is durable"


def test_what_an_earlier_leader_has_reached_proves_something_to_the_next() -> None:
    liveness = Liveness()
    found = [stored(PROCESS, is_reached=True), stored(second(), is_reached=False)]
    assert liveness.stored(found) == ([ONE, OTHER], [])
    assert liveness.question(ONE, is_heard=False) is Question.IS_IT_DEAD
    assert liveness.question(OTHER, is_heard=False) is Question.IS_IT_THERE
    found = [stored(PROCESS, is_reached=False), stored(second(), is_reached=True)]
    assert liveness.stored(found) == ([], [])
    assert liveness.question(ONE, is_heard=False) is Question.IS_IT_DEAD, "what was reached stays so"
    assert liveness.question(OTHER, is_heard=False) is Question.IS_IT_DEAD


def test_whose_key_goes_is_gone_and_who_never_had_one_is_not() -> None:
    liveness = Liveness()
    liveness.registered(PROCESS)
    liveness.registered(second())
    assert liveness.stored([stored(PROCESS)]) == ([], [])
    assert liveness.stored([]) == ([], [PROCESS])
    assert liveness.incarnations == [OTHER], "its key is on its way, or there are no keys"
    assert liveness.stored([]) == ([], []), "told once"


def test_who_was_found_dead_is_not_told_again_by_the_store() -> None:
    liveness = Liveness()
    _ = liveness.stored([stored(PROCESS, is_reached=True)])
    liveness.died(ONE)
    liveness.died(ONE)
    assert liveness.stored([]) == ([], [])
    assert liveness.question(ONE, is_heard=False) is None


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("looked_for", [None, False, True])
def test_who_is_given_up_is_forgotten_only_if_nothing_can_be_found_out(
    looked_for: bool | None, *, is_stored: bool
) -> None:
    liveness = Liveness()
    liveness.registered(PROCESS)
    if is_stored:
        _ = liveness.stored([stored(PROCESS)])
    if looked_for is not None:
        liveness.looked_for(ONE, is_reached=looked_for)
    liveness.given_up(ONE)
    assert (liveness.incarnations == []) == (not is_stored and not looked_for)


@pytest.mark.parametrize("is_heard", [False, True])
@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("looked_for", [None, False, True])
def test_who_has_a_key_for_nothing(looked_for: bool | None, *, is_stored: bool, is_heard: bool) -> None:
    liveness = Liveness()
    liveness.registered(PROCESS)
    if is_stored:
        _ = liveness.stored([stored(PROCESS)])
    if looked_for is not None:
        liveness.looked_for(ONE, is_reached=looked_for)
    is_superfluous = is_stored and looked_for is None and not is_heard
    assert liveness.is_superfluous(ONE, is_heard=is_heard) is is_superfluous


def test_a_name_for_people() -> None:
    assert described(PROCESS) == "TaskManager tm-1 on host host-1"


@given(st.lists(st.sampled_from(["registered", "stored", "not stored", "reached", "given up", "died"]), max_size=12))
def test_nobody_is_asked_whether_it_is_dead_whose_guard_was_never_reached(steps: list[str]) -> None:
    liveness, is_reached = Liveness(), False
    for step in steps:
        match step:
            case "registered":
                liveness.registered(PROCESS)
            case "stored":
                _ = liveness.stored([stored(PROCESS)])
            case "not stored":
                _ = liveness.stored([])
            case "reached":
                is_reached = is_reached or bool(liveness.incarnations)
                liveness.looked_for(ONE, is_reached=True)
            case "given up":
                liveness.given_up(ONE)
            case _:
                liveness.died(ONE)
        is_asked = liveness.question(ONE, is_heard=False) is Question.IS_IT_DEAD
        assert not is_asked or is_reached
        assert liveness.question(ONE, is_heard=True) is not Question.IS_IT_DEAD
