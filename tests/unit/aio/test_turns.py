"""Turns: one event at a time, whatever an event posts."""

from __future__ import annotations

import pytest

from runtime.aio.turns import Turns


def test_what_an_event_posts_waits_for_its_turn() -> None:
    seen: list[str] = []

    def handle(event: str) -> None:
        seen.append(f"{event} begins")
        if event == "first":
            turns.post("second")
            turns.post("third")
        seen.append(f"{event} ends")

    turns: Turns[str] = Turns(handle)
    turns.post("first")
    assert seen == ["first begins", "first ends", "second begins", "second ends", "third begins", "third ends"]


def test_a_failure_drops_what_waits_and_later_events_are_handled() -> None:
    seen: list[str] = []

    def handle(event: str) -> None:
        seen.append(event)
        if event == "bad":
            turns.post("never")
            raise ValueError(event)

    turns: Turns[str] = Turns(handle)
    with pytest.raises(ValueError, match="bad"):
        turns.post("bad")
    turns.post("good")
    assert seen == ["bad", "good"]
