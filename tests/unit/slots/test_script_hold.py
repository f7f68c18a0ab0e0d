"""The word of the owner to a script whose queries are held, in any order with the hold (R61)."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.taskexecutor.slot_process.script_hold import ScriptHold
from runtime.taskexecutor.slot_protocol.wire import Frame, FrameKind, encode_fields


class Jvm:
    """The JVM's side, as ScriptQueries.java has it, with no query that it holds."""

    def __init__(self) -> None:
        self.held_for = ""
        self.is_lost = False

    def hold(self) -> str:
        if self.is_lost:
            message = "no answer of Spark"
            raise ConnectionError(message)
        return self.held_for

    def starts(self) -> str:
        return ""

    def started(self, *_: Any) -> None:
        """Nothing of it is counted here."""

    def isHeld(self, _: Any) -> bool:  # noqa: N802 - Java's name
        return False

    def release(self, hold: str, _: int) -> None:
        if self.held_for == hold:
            self.held_for = ""


class Words:
    """The channel of a slot process. It has what the owner says."""

    is_cancelled = False

    def __init__(self) -> None:
        self.said: list[tuple[str, bool]] = []

    def take_if_there(self, kind: FrameKind) -> Frame | None:
        if not self.said:
            return None
        hold, finishes = self.said.pop(0)
        return Frame(kind, encode_fields(hold=hold, finishes=finishes))


class Held:
    """A script that has started a query."""

    def __init__(self) -> None:
        self.jvm, self.words = Jvm(), Words()
        channel: Any = self.words
        self.hold = ScriptHold(channel, lambda: self.jvm, [])
        query: Any = SimpleNamespace(_jsq=None)
        self.hold.start(lambda: query, "orders", "orders", "orders")

    def hear(self, *said: tuple[str, bool]) -> None:
        self.words.said += said
        self.hold.heed()

    def look(self, hold: str) -> None:
        self.jvm.held_for = hold
        self.hold.heed()


@pytest.mark.parametrize("others", [(), [(f"other {number}", True) for number in range(99)]])
def test_a_word_that_comes_before_its_hold_is_kept(others: Iterable[tuple[str, bool]]) -> None:
    script = Held()
    script.hear(("a", False), *others)
    script.look("a")
    assert not script.jvm.held_for
    assert not script.hold.is_stopped


def test_a_look_that_comes_behind_its_word_once_more_holds_nothing() -> None:
    script = Held()
    script.look("a")
    assert script.jvm.held_for == "a"
    script.hear(("a", False))
    script.look("a")
    assert not script.jvm.held_for


def test_a_stop_that_comes_before_its_hold_is_one() -> None:
    script = Held()
    script.hear(("a", True))
    script.look("b")
    assert not script.hold.is_stopped
    script.look("a")
    assert script.hold.is_stopped


def test_a_look_for_a_word_that_is_kept_fails_nothing_where_spark_is_lost() -> None:
    script = Held()
    script.hear(("a", False))
    script.jvm.is_lost = True
    script.hold.heed()


def test_words_that_are_kept_are_bounded() -> None:
    script = Held()
    script.hear(("a", False), *((f"other {number}", False) for number in range(100)))
    script.look("a")
    assert script.jvm.held_for == "a", "a hundred operations later nothing of it is on its way"
