"""When TaskManagers are started and released on demand: the cases of one worker, and a model of many (R65)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime.resourcemanager.core.worker_lives import (
    ReleaseWorker,
    StartWorker,
    Worker,
    WorkerEffect,
    WorkerFailed,
    WorkerState,
)
from runtime.resourcemanager.core.worker_profiles import Demand
from runtime.resourcemanager.core.workers import ActiveWorkers, Supply, WorkerSettings

SETTINGS = WorkerSettings(
    slots=2, slots_max=6, idle_timeout=30.0, registration_timeout=60.0, failures_max=3.0, recovery_timeout=3.0
)
READY = 3.0
"""A moment at which a new term may start workers."""


def demand_of(lacking: int) -> Demand:
    return {"": Counter({1: lacking})} if lacking else {}


@dataclass
class Term:
    """One term, whose clock the test moves. `running` is what the driver sees."""

    settings: WorkerSettings = SETTINGS
    at: float = READY
    running: list[str] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        self.core = ActiveWorkers(self.settings, self._new_id, 0.0)

    def _new_id(self) -> str:
        self.made += 1
        return f"w{self.made}"

    def decide(self, lacking: int = 0, *supplies: Supply) -> list[WorkerEffect]:
        return self.core.decide(demand_of(lacking), supplies, self.running, asked_at=self.at, at=self.at)

    def run(self, *effects: WorkerEffect) -> None:
        """The driver does what it was asked to start, a second later."""
        self.at += 1.0
        for effect in effects:
            if isinstance(effect, StartWorker):
                self.running.append(effect.worker_id)
                self.core.lives.started(effect.worker_id, self.at)
        self.at += 1.0

    def states(self) -> dict[str, WorkerState]:
        return {worker.worker_id: worker.state for worker in self.core.workers()}


def started(lacking: int, *supplies: Supply, settings: WorkerSettings = SETTINGS) -> int:
    return len(Term(settings).decide(lacking, *supplies))


@pytest.mark.parametrize(
    ("lacking", "supplies", "changed", "count"),
    [
        (0, [], {}, 0),
        (1, [], {}, 1),
        (2, [], {}, 1),
        (3, [], {}, 2),
        (100, [], {}, 3),
        (100, [Supply("", 4, 0)], {}, 1),
        (100, [Supply("", 5, 0)], {}, 0),
        (100, [Supply("", 4, 0, is_usable=False)], {}, 1),  # it drains, and is on its host all the same
        (0, [], {"slots_min": 3}, 2),
        (0, [Supply("", 2, 2)], {"slots_min": 3}, 1),
        (0, [Supply("", 2, 2, is_usable=False)], {"slots_min": 3}, 2),
        (0, [], {"redundant": 1}, 1),
        (0, [Supply("", 2, 1)], {"redundant": 1}, 1),
        (0, [Supply("", 2, 2)], {"redundant": 1}, 0),
        (1, [Supply("", 2, 2)], {"redundant": 1}, 2),  # the free slots do not fit what waits
        (1, [], {"redundant": 1, "slots_max": 2}, 1),
        (1, [], {"slots": 8}, 0),
    ],
)
def test_so_many_are_started(lacking: int, supplies: Sequence[Supply], changed: dict[str, Any], count: int) -> None:
    assert started(lacking, *supplies, settings=replace(SETTINGS, **changed)) == count


def test_what_comes_is_counted() -> None:
    term = Term()
    effects = term.decide(3)
    assert effects == [StartWorker("w1"), StartWorker("w2")]
    assert term.decide(3) == []
    term.run(*effects)
    assert term.decide(3) == []
    assert term.decide(5, Supply("w1", 2, 0)) == [StartWorker("w3")]
    assert term.core.pending == 2


def test_a_new_term_waits_for_those_of_the_last_one() -> None:
    term = Term(at=READY - 0.1, running=["w7", "w8"])
    assert term.decide(100) == []
    term.at = READY
    assert term.states() == {"w7": WorkerState.PENDING, "w8": WorkerState.PENDING}
    assert term.decide(4) == []
    assert term.decide(5) == [StartWorker("w1")]


def test_one_that_ends_before_it_registers_has_failed_and_is_replaced() -> None:
    term = Term()
    term.run(*term.decide(1))
    term.running.clear()
    assert term.decide(1) == [WorkerFailed("w1", "it ended before it registered"), StartWorker("w2")]
    assert term.core.lives.problem == "it ended before it registered"
    term.run(StartWorker("w2"))
    term.decide(0, Supply("w2", 2, 0))
    assert term.core.lives.problem == ""


def test_one_that_was_started_after_the_driver_was_asked_is_not_taken_for_ended() -> None:
    term = Term()
    term.decide(1)
    asked_at, term.at = term.at, term.at + 1
    term.core.lives.started("w1", term.at)
    assert term.core.decide(demand_of(1), [], [], asked_at=asked_at, at=term.at) == []
    assert term.states() == {"w1": WorkerState.PENDING}


def test_one_that_never_registers_is_given_up() -> None:
    term = Term()
    term.run(*term.decide(1))
    term.at += SETTINGS.registration_timeout + 1
    reason = "it gave no slots within 60 s"
    assert term.decide(1) == [WorkerFailed("w1", reason), ReleaseWorker("w1", reason), StartWorker("w2")]
    assert term.states()["w1"] is WorkerState.LEAVING


def test_one_that_comes_after_it_was_given_up_leaves() -> None:
    term = Term()
    term.run(*term.decide(1))
    term.at += SETTINGS.registration_timeout + 1
    term.run(term.decide(1)[-1])
    assert term.states()["w1"] is WorkerState.LEAVING
    late = Supply("w1", 2, 2)
    assert term.decide(1, late) == []
    assert term.decide(3, late) == [StartWorker("w3")]  # its slots are none, and count for the maximum
    assert term.decide(100, late) == []
    term.running.remove("w1")
    assert term.decide(100) == [StartWorker("w4")]


def test_one_that_does_not_leave_is_killed() -> None:
    term = Term()
    term.run(*term.decide(1))
    idle = Supply("w1", 2, 2)
    term.decide(0, idle)
    term.at += SETTINGS.idle_timeout
    assert [type(one) for one in term.decide(0, idle)] == [ReleaseWorker]
    for _ in range(2):
        assert term.decide(0, idle) == []
        term.at += SETTINGS.leave_timeout + 1
        assert term.decide(0, idle) == [ReleaseWorker("w1", "it has not ended yet", is_overdue=True)]


@pytest.mark.parametrize("is_told", [False, True])
def test_one_that_could_not_be_told_serves_on_and_is_released_again(*, is_told: bool) -> None:
    """It may have got work since: only what says that it drains is killed for staying."""
    term = Term()
    term.run(*term.decide(1))
    idle = Supply("w1", 2, 2)
    assert term.decide(0, idle) == []
    term.at += 30.0
    assert term.decide(0, idle) == [ReleaseWorker("w1", "it was idle for 30 s")]
    term.core.lives.release_failed("w1", term.at)
    if is_told:
        draining = replace(idle, is_usable=False, is_draining=True)
        assert term.decide(0, draining) == []
        assert term.states() == {"w1": WorkerState.LEAVING}
        term.at += SETTINGS.leave_timeout + 1.0
        assert term.decide(0, draining) == [ReleaseWorker("w1", "it has not ended yet", is_overdue=True)]
        return
    busy = Supply("w1", 2, 1, uses=1)
    assert term.decide(0, busy) == []
    assert term.states() == {"w1": WorkerState.REGISTERED}
    term.at += SETTINGS.leave_timeout + 1.0
    assert term.decide(0, busy) == []
    assert term.decide(0, replace(idle, uses=1)) == []
    term.at += 30.0
    assert term.decide(0, replace(idle, uses=1)) == [ReleaseWorker("w1", "it was idle for 30 s")]


def test_one_that_never_served_and_could_not_be_told_is_killed() -> None:
    term = Term()
    term.run(*term.decide(1))
    term.at += SETTINGS.registration_timeout + 1.0
    assert any(isinstance(effect, ReleaseWorker) for effect in term.decide())
    term.core.lives.release_failed("w1", term.at)
    term.at += SETTINGS.leave_timeout + 1.0
    assert term.decide() == [ReleaseWorker("w1", "it has not ended yet", is_overdue=True)]


def test_one_that_registers_twice_is_one() -> None:
    term = Term()
    term.run(*term.decide(2))
    term.decide(0, Supply("w1", 2, 0), Supply("w1", 2, 2, is_usable=False))
    assert term.states() == {"w1": WorkerState.REGISTERED}
    term.at += SETTINGS.idle_timeout + 1
    assert term.decide(0, Supply("w1", 2, 0), Supply("w1", 2, 2, is_usable=False)) == []


def test_a_lost_one_is_replaced_and_given_up_when_it_stays_away() -> None:
    term = Term()
    term.run(*term.decide(1))
    term.decide(0, Supply("w1", 2, 1))
    assert term.decide(1) == [StartWorker("w2")]
    assert term.states()["w1"] is WorkerState.LOST
    assert term.decide(100) == [StartWorker("w3")]  # its process is there
    term.run(StartWorker("w2"), StartWorker("w3"))
    term.at += SETTINGS.registration_timeout + 1
    supplies = [Supply("w2", 2, 0), Supply("w3", 2, 0)]
    assert term.decide(0, *supplies) == [ReleaseWorker("w1", "it gave no slots within 60 s")]


def test_a_lost_one_that_comes_back_is_used() -> None:
    term = Term()
    term.run(*term.decide(1))
    term.decide(0, Supply("w1", 2, 1))
    term.decide(0)
    term.decide(0, Supply("w1", 2, 1))
    assert term.states() == {"w1": WorkerState.REGISTERED}


def test_an_idle_one_is_released_after_the_timeout() -> None:
    term = Term()
    term.run(*term.decide(1))
    idle = Supply("w1", 2, 2)
    assert term.decide(0, idle) == []
    term.at += SETTINGS.idle_timeout - 0.1
    assert term.decide(0, idle) == []
    term.decide(0, replace(idle, free=1))
    term.at += 1
    assert term.decide(0, idle) == []
    term.at += SETTINGS.idle_timeout
    assert term.decide(1, idle) == [StartWorker("w2")]  # somebody waits: nothing is released
    term.core.lives.start_failed("w2", "no", term.at)
    assert term.decide(0, idle) == [ReleaseWorker("w1", "it was idle for 30 s")]
    assert term.decide(0, idle) == []
    term.running.clear()
    term.at += 1
    assert term.decide(0) == []
    assert term.states() == {}


@pytest.mark.parametrize(
    ("changed", "released"), [({}, 2), ({"slots_min": 2}, 1), ({"slots_min": 4}, 0), ({"redundant": 1}, 1)]
)
def test_the_minimum_and_the_redundant_ones_stay(changed: dict[str, Any], released: int) -> None:
    term = Term(replace(SETTINGS, **changed), running=["w8", "w9"])
    supplies = [Supply("w8", 2, 2), Supply("w9", 2, 2)]
    term.decide(0, *supplies)
    term.at += SETTINGS.idle_timeout
    assert len(term.decide(0, *supplies)) == released


def test_those_that_no_driver_has_started_are_never_released() -> None:
    term = Term()
    mine = Supply("", 2, 2)
    other_host = Supply("w5", 2, 2)
    term.decide(0, mine, other_host)
    term.at += 1000
    assert term.decide(0, mine, other_host) == []


def test_an_allocation_between_two_looks_is_work() -> None:
    term = Term()
    term.run(*term.decide(1))
    idle = Supply("w1", 2, 2)
    assert term.decide(0, idle) == []
    term.at += SETTINGS.idle_timeout - 1
    used = replace(idle, uses=1)
    assert term.decide(0, used) == []
    term.at += SETTINGS.idle_timeout - 1
    assert term.decide(0, used) == []
    term.at += 1
    assert term.decide(0, used) == [ReleaseWorker("w1", "it was idle for 30 s")]


@pytest.mark.parametrize(("uses", "is_given_up"), [(1, True), (0, True), (2, False)])
def test_one_that_was_back_with_work_between_two_looks_has_its_time_again(uses: int, *, is_given_up: bool) -> None:
    """It drains, was out of reach, and has ended its work as soon as it was there again."""
    term = Term()
    term.run(*term.decide(1))
    assert term.decide(0, Supply("w1", 2, 1, uses=1)) == []
    assert term.decide(0) == []
    assert term.states() == {"w1": WorkerState.LOST}
    emptied = Supply("w1", 0, 0, is_usable=False, is_draining=True, uses=uses)
    term.at += SETTINGS.registration_timeout - 1
    assert term.decide(0, emptied) == []
    term.at += 2
    assert bool(term.decide(0, emptied)) is is_given_up
    term.at += SETTINGS.registration_timeout
    assert term.decide(0, emptied) == ([] if is_given_up else [ReleaseWorker("w1", "it gave no slots within 60 s")])


def test_one_that_drains_counts_whole_for_the_maximum() -> None:
    """It shows the slots that are in use, or none, and its process is as large as before."""
    term = Term(replace(SETTINGS, slots_max=4))
    term.run(*term.decide(3))
    for shown in (Supply("w1", 1, 0, is_usable=False), Supply("w1", 0, 0, is_usable=False)):
        assert term.decide(9, shown, Supply("w2", 1, 0, is_usable=False)) == []


def test_a_start_that_failed_may_happen_all_the_same() -> None:
    term = Term(replace(SETTINGS, slots_max=2))
    assert term.decide(1) == [StartWorker("w1")]
    term.core.lives.start_failed("w1", "no answer", term.at)
    assert term.decide(1) == []
    term.at += SETTINGS.recovery_timeout - 0.1
    assert term.decide(1) == []
    term.running.append("w1")
    assert term.decide(1) == []
    assert term.states() == {"w1": WorkerState.PENDING}
    term.running.clear()
    term.at += 0.2
    assert term.decide(1)[-1] == StartWorker("w2")


def test_many_failures_pause_the_starts() -> None:
    term = Term(replace(SETTINGS, slots_max=100))
    for number in range(1, 5):
        assert term.decide(1)[-1] == StartWorker(f"w{number}")
        assert term.core.lives.start_failed(f"w{number}", "no memory", term.at) == [
            WorkerFailed(f"w{number}", "no memory")
        ]
        term.at += 0.1
    assert term.decide(1) == []
    assert term.core.lives.problem == "no memory"
    term.at += SETTINGS.retry_interval
    assert term.decide(1) == [StartWorker("w5")]


class Workers(RuleBasedStateMachine):
    """A host where workers start, register, get work, die and hang in any order, under leaders that come and go."""

    @initialize(slots=st.integers(1, 4), least=st.integers(0, 6), room=st.integers(0, 10), redundant=st.integers(0, 2))
    def begin(self, slots: int, least: int, room: int, redundant: int) -> None:
        self.settings = replace(
            SETTINGS, slots=slots, slots_min=least, slots_max=slots + max(least, room), redundant=redundant
        )
        self.at = 0.0
        self.made = 0
        self.host: dict[str, bool] = {}
        """Workers that run; True for those that are registered."""
        self.asked: list[str] = []
        self.busy: dict[str, int] = {}
        self.draining: set[str] = set()
        self.lacking = 0
        self.lead()

    def _new_id(self) -> str:
        self.made += 1
        return f"w{self.made}"

    def _supplies(self) -> list[Supply]:
        slots = self.settings.slots
        return [
            Supply(name, slots, slots - self.busy.get(name, 0))
            if name not in self.draining
            else Supply(name, self.busy.get(name, 0), 0, is_usable=False)
            for name, registered in self.host.items()
            if registered
        ]

    def _decide(self) -> None:
        effects = self.core.decide(
            demand_of(self.lacking), self._supplies(), list(self.host), asked_at=self.at, at=self.at
        )
        for effect in effects:
            if isinstance(effect, StartWorker):
                assert effect.worker_id not in self.host
                self.asked.append(effect.worker_id)
            elif isinstance(effect, ReleaseWorker):
                assert not self.busy.get(effect.worker_id), "a worker with work is released"
                self.draining.add(effect.worker_id)

    @rule()
    def lead(self) -> None:
        """The leader is another one: what the last one has asked for may have happened, or not."""
        self.core = ActiveWorkers(self.settings, self._new_id, self.at)
        self.asked.clear()

    @rule(lacking=st.integers(0, 12), seconds=st.sampled_from([0.1, 1.0, 4.0, 40.0]))
    def pass_time(self, lacking: int, seconds: float) -> None:
        self.at += seconds
        self.lacking = lacking
        self._decide()

    @precondition(lambda self: self.asked)
    @rule(works=st.booleans(), says_so=st.booleans())
    def driver_starts(self, works: bool, says_so: bool) -> None:
        name = self.asked.pop(0)
        self.at += 0.1
        if works:
            self.host[name] = False
        if works and says_so:
            self.core.lives.started(name, self.at)
        else:
            self.core.lives.start_failed(name, "no", self.at)

    @precondition(lambda self: self.host)
    @rule(data=st.data())
    def worker_changes(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.host)))
        what = data.draw(st.sampled_from(["registers", "dies", "is lost", "works", "rests"]))
        if what in {"dies", "is lost"} or (what == "rests" and name in self.draining):
            self.busy.pop(name, None)
            self.host[name] = False
            if what != "is lost":
                del self.host[name]
                self.draining.discard(name)
        elif what == "registers":
            self.host[name] = True
        elif what == "works" and self.host[name] and name not in self.draining:
            self.busy[name] = data.draw(st.integers(1, self.settings.slots))
        elif what == "rests":
            self.busy.pop(name, None)

    @invariant()
    def the_maximum_holds(self) -> None:
        if hasattr(self, "host"):
            assert (len(self.host) + len(self.asked)) * self.settings.slots <= self.settings.slots_max

    def teardown(self) -> None:
        """With a driver that works, what is lacking comes, and without demand all above the minimum goes."""
        if not hasattr(self, "host"):
            return
        self.lacking = self.settings.slots_max
        self._settle()
        slots = len(self.host) * self.settings.slots
        assert slots > self.settings.slots_max - self.settings.slots
        self.lacking = 0
        self._settle()
        least = max(self.settings.slots_min, self.settings.redundant * self.settings.slots)
        there = len(self.host) * self.settings.slots
        assert min(least, slots) <= there < least + self.settings.slots

    def _settle(self) -> None:
        for _ in range(8):
            self.at += SETTINGS.registration_timeout + 1
            for name in self.draining & set(self.host):
                del self.host[name]
            self.draining.clear()
            self.busy.clear()
            self._decide()
            self.at += 1
            for name in self.asked:
                self.host[name] = False
                self.core.lives.started(name, self.at)
            self.asked.clear()
            self.host = dict.fromkeys(self.host, True)


TestWorkers = Workers.TestCase
TestWorkers.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


def test_a_worker_begins_a_state_anew() -> None:
    worker = Worker("w1", WorkerState.REGISTERED, 1.0, idle_since=2.0)
    worker.become(WorkerState.LEAVING, 3.0)
    assert (worker.since, worker.idle_since) == (3.0, None)
