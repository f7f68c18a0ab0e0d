"""When the watcher asks a guard, and when it takes it for frozen (R14)."""

from __future__ import annotations

from runtime.taskexecutor.guard.held_guard import PATIENCE, HeldGuard


class Now:
    """A clock that is set."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_it_is_asked_when_the_deadline_has_passed_and_no_sooner() -> None:
    now = Now()
    assert HeldGuard(now).due is None, "before the first deadline"
    assert not HeldGuard(now).begin_to_ask()
    held = HeldGuard(now)
    held.note_deadline(160.0)
    assert held.due == 160.0
    now.time = 159.0
    assert not held.begin_to_ask()
    now.time = 160.0
    asked = [held.begin_to_ask() for _ in range(3)]
    assert asked == [True, False, False], "once"
    held.note_deadline(220.0)
    assert held.due == 220.0
    assert not held.take_for_frozen()


def test_one_that_does_not_answer_is_frozen() -> None:
    now = Now()
    held = HeldGuard(now)
    held.note_deadline(101.0)
    now.time = 101.0
    assert held.begin_to_ask()
    now.time += PATIENCE - 0.1
    assert not held.take_for_frozen()
    now.time += 0.1
    assert held.take_for_frozen()


def test_one_whose_deadline_has_passed_is_asked_again_and_again() -> None:
    now = Now()
    held = HeldGuard(now)
    for _ in range(3):
        held.note_deadline(101.0)
        assert held.due is not None
        assert held.due > now.time, "not at once"
        now.time = held.due
        assert held.begin_to_ask()


def test_a_watcher_that_was_frozen_itself_gives_the_guard_its_time_again() -> None:  # R4
    now = Now()
    held = HeldGuard(now)
    held.note_deadline(101.0)
    now.time = 101.0
    assert held.begin_to_ask()
    now.time += 3600
    assert not held.take_for_frozen()
    assert held.due == now.time + PATIENCE
    now.time += PATIENCE
    assert held.take_for_frozen()
