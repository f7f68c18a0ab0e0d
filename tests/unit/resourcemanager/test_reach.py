"""The rounds of an owner that cannot reach what its job needs (R7)."""

from __future__ import annotations

import pytest

from runtime.common.ids import Incarnation
from runtime.resourcemanager.core.reach import Reach

T1, T2 = Incarnation("a" * 32), Incarnation("b" * 32)


@pytest.mark.parametrize(
    ("looks", "hopeless"),
    [
        # (when, is it needed), at which of them it is given up; a round is two seconds
        ([(0, True)], []),
        ([(0, True), (2, True), (4, True)], []),
        ([(0, True), (2, True), (4, True), (6, True)], [6]),
        ([(0, True), (6, True), (7, True)], []),
        ([(0, True), (6, True), (12, True), (18, True)], [18]),
        ([(0, True), (1, True), (2, True), (3, True), (4, True), (5, True), (6, True)], [6]),
        ([(0, True), (2, True), (3, False), (4, True), (6, True), (8, True)], []),
        ([(0, True), (2, True), (3, False), (4, True), (6, True), (8, True), (10, True)], [10]),
        ([(0, True), (2, True), (4, True), (6, True), (8, True), (10, True), (12, True)], [6, 12]),
        ([(0, False), (2, False), (4, False), (6, False)], []),
    ],
)
def test_rounds(looks: list[tuple[float, bool]], hopeless: list[float]) -> None:
    reach = Reach()
    found = [at for at, is_needed in looks if reach.note_round(is_needed=is_needed, now=at, round_seconds=2.0)]
    assert found == hopeless


def test_who_is_named_or_does_not_reach_the_owner_is_skipped() -> None:
    reach = Reach(frozenset({T1}))
    reach.deaf[T2] = 10.0
    assert (reach.skips(T1), reach.skips(T2)) == (True, True)
    assert not reach.expire(9.9)
    assert reach.expire(10.0)
    assert (reach.skips(T1), reach.skips(T2)) == (True, False)
    assert not reach.expire(11.0)
