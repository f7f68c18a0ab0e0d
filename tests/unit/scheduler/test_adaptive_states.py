"""The states of the AdaptiveScheduler: what follows in each from the slots that there are (R69). Time is a number."""

from __future__ import annotations

import pytest

from runtime.common.ids import VertexId
from runtime.executiongraph.archived_rescales import RescaleCause
from runtime.gateways.rescales import VertexBounds
from runtime.scheduler.core.adaptive.bounds import divided
from runtime.scheduler.core.adaptive.settings import AdaptiveSchedulerSettings
from runtime.scheduler.core.adaptive.states import (
    STATES,
    Canceling,
    Change,
    Created,
    CreatingExecutionGraph,
    Decision,
    Executing,
    Failing,
    Finished,
    GiveUp,
    Outlook,
    Restarting,
    State,
    StopWithSavepoint,
    Wait,
    WaitingForResources,
)

A, B = VertexId("a" * 32), VertexId("b" * 32)
SETTINGS = AdaptiveSchedulerSettings(
    resource_wait=300.0, submission_stabilization=10.0, cooldown=30.0, executing_stabilization=60.0
)
FIRST, NEW, LOST, WANTED = (
    RescaleCause.INITIAL_SCHEDULE,
    RescaleCause.NEW_RESOURCE_AVAILABLE,
    RescaleCause.RECOVERABLE_FAILOVER,
    RescaleCause.UPDATE_REQUIREMENT,
)


def outlook(
    now: float, current: int, possible: int | None, *, desired: bool = False, short: bool = False, new: bool = False
) -> Outlook:
    """Of one vertex."""
    return Outlook(now, {A: current}, None if possible is None else {A: possible}, desired, short, new)


def to(parallelism: int, cause: RescaleCause) -> Change:
    return Change({A: parallelism}, cause)


WAITS, ENOUGH = WaitingForResources(since=0.0), WaitingForResources(since=0.0, enough_since=5.0)
RUNS = Executing(since=100.0)
TABLE: list[tuple[State, Outlook, Decision]] = [
    (WAITS, outlook(5, 4, None), Wait(300.0)),
    (WAITS, outlook(300, 4, None), GiveUp(300.0)),
    (WAITS, outlook(5, 4, 1), Wait(15.0)),
    (WAITS, outlook(295, 4, 1), Wait(300.0)),
    (ENOUGH, outlook(14, 4, 2), Wait(15.0)),
    (ENOUGH, outlook(15, 4, 2), to(2, FIRST)),
    (ENOUGH, outlook(6, 4, 4, desired=True), to(4, FIRST)),
    (ENOUGH, outlook(15, 4, None), Wait(300.0)),
    (RUNS, outlook(101, 2, 2), Wait()),
    (RUNS, outlook(101, 2, 4, desired=True), Wait(130.0)),
    (RUNS, outlook(130, 2, 4, desired=True), to(4, NEW)),
    (RUNS, outlook(130, 2, 3), Wait(190.0)),
    (Executing(since=100.0, better_since=120.0), outlook(189, 2, 3), Wait(190.0)),
    (Executing(since=100.0, better_since=120.0), outlook(190, 2, 3), to(3, NEW)),
    (Executing(since=100.0, better_since=500.0), outlook(540, 2, 3), Wait(560.0)),
    (RUNS, outlook(101, 4, 2, desired=True, new=True), Wait(130.0)),
    (RUNS, outlook(131, 4, 2, desired=True, new=True), to(2, WANTED)),
    (RUNS, outlook(101, 4, 3, short=True), Wait(111.0)),
    (Executing(since=100.0, short_since=101.0), outlook(111, 4, 3, short=True), to(3, LOST)),
    (RUNS, outlook(101, 4, None, short=True), Wait(401.0)),
    (Executing(since=100.0, short_since=101.0), outlook(401, 4, None, short=True), GiveUp(300.0)),
    (RUNS, outlook(500, 2, None), Wait()),
    *((state(), outlook(900, 1, 4, desired=True), Wait()) for state in (Created, CreatingExecutionGraph, Restarting)),
    *((state(), outlook(900, 1, 4, desired=True), Wait()) for state in (StopWithSavepoint, Failing, Canceling)),
    (Finished(), outlook(900, 1, 4, desired=True), Wait()),
]


@pytest.mark.parametrize(("state", "seen", "decision"), TABLE)
def test_what_follows_in_each_state(state: State, seen: Outlook, decision: Decision) -> None:
    assert state.decide(seen, SETTINGS)[1] == decision


def test_what_was_noticed_is_forgotten_when_it_is_over() -> None:
    short, _ = RUNS.decide(outlook(101, 4, 3, short=True), SETTINGS)
    again, _ = short.decide(outlook(105, 4, 4), SETTINGS)
    assert again == RUNS
    enough, _ = WAITS.decide(outlook(5, 4, 1), SETTINGS)
    assert enough.decide(outlook(6, 4, None), SETTINGS)[0] == WAITS


def test_without_an_end_it_waits_without_an_end() -> None:
    settings = AdaptiveSchedulerSettings(resource_wait=None)
    assert WAITS.decide(outlook(1e9, 4, None), settings)[1] == Wait(None)
    assert Executing(short_since=1.0).decide(outlook(1e9, 4, None, short=True), settings)[1] == Wait()


def test_states_and_their_ways_are_those_of_flink() -> None:
    names = {state.NAME for state in STATES}
    assert len(names) == len(STATES) == 9
    assert all(names >= state.LEADS_TO for state in STATES)
    reached = {"Created"}
    for _ in STATES:
        reached |= {name for state in STATES if state.NAME in reached for name in state.LEADS_TO}
    assert reached == names
    assert [state.NAME for state in STATES if not state.LEADS_TO] == ["Finished"]


@pytest.mark.parametrize(
    ("slots", "expected"),
    [(0, None), (2, None), (3, (1, 2)), (4, (2, 2)), (5, (2, 3)), (6, (2, 4)), (9, (2, 5))],
)
def test_slots_are_divided_evenly_within_bounds(slots: int, expected: tuple[int, int] | None) -> None:
    found = divided(slots, [VertexBounds(A, 1, 2), VertexBounds(B, 2, 5)])
    assert found == (None if expected is None else {A: expected[0], B: expected[1]})
