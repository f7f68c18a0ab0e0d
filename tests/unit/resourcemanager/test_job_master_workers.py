"""When JobMaster processes come and go: the cases of one, and a model of many (R65)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime.common.ids import Incarnation
from runtime.resourcemanager.core.job_master_workers import (
    DRAIN_PATIENCE,
    DrainProcess,
    JobMasterEffect,
    JobMasterSupply,
    JobMasterWorkers,
    JobMasterWorkerSettings,
)
from runtime.resourcemanager.core.worker_lives import ReleaseWorker, StartWorker, WorkerFailed, WorkerState

SETTINGS = JobMasterWorkerSettings(
    maximum=4,
    jobs=10,
    lag_max=0.5,
    stabilization=30.0,
    scale_down=60.0,
    registration_timeout=100.0,
    recovery_timeout=3.0,
)
READY = 3.0
"""A moment at which a new term may start processes."""


def process(worker_id: str, jobs: int = 0, **changes: Any) -> JobMasterSupply:
    """A process of the driver, whose incarnation is its label in other letters; without a label one of people."""
    made = JobMasterSupply(Incarnation(f"i-{worker_id}" if worker_id else "other"), worker_id, jobs, 100)
    return replace(made, **changes)


@dataclass
class Term:
    """One term, whose clock the test moves. `running` is what the driver sees."""

    settings: JobMasterWorkerSettings = SETTINGS
    at: float = READY
    running: list[str] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        self.core = JobMasterWorkers(self.settings, self._new_id, 0.0)

    def _new_id(self) -> str:
        self.made += 1
        return f"w{self.made}"

    def decide(self, waiting: int = 0, *supplies: JobMasterSupply) -> list[JobMasterEffect]:
        return self.core.decide(waiting, supplies, self.running, asked_at=self.at, at=self.at)

    def after(self, seconds: float, *supplies: JobMasterSupply) -> list[JobMasterEffect]:
        self.at += seconds
        return self.decide(0, *supplies)


def drained(effects: Sequence[JobMasterEffect]) -> list[str]:
    return [one.incarnation for one in effects if isinstance(one, DrainProcess) and one.is_draining]


@pytest.mark.parametrize(
    ("waiting", "supplies", "changed", "count"),
    [
        (0, [], {}, 0),
        (1, [], {}, 1),
        (10, [], {}, 1),
        (11, [], {}, 2),
        (1000, [], {}, 4),
        (0, [], {"minimum": 2}, 2),
        (0, [process("", 0)], {"minimum": 2}, 1),
        (0, [process("", 0, is_draining=True)], {"minimum": 2}, 2),
        (0, [process("", 10)], {}, 0),
        (0, [process("", 11)], {}, 1),
        (1, [process("", 10)], {}, 1),
        (0, [process("", 11, is_connected=False)], {}, 1),
        (1, [process("", 0, is_connected=False)], {}, 0),  # it comes back, or is lost
        (1, [process("", 5, capacity=5)], {}, 1),  # full, though few jobs
        (1, [process("", 0, is_draining=True)], {}, 1),
        (1000, [process("", 9), process("", 9, is_draining=True)], {}, 2),  # one that drains is a process too
        (1000, [process("", 1)] * 4, {}, 0),
        (1, [], {"maximum": 1, "minimum": 1}, 1),
    ],
)
def test_so_many_are_started(
    waiting: int, supplies: Sequence[JobMasterSupply], changed: dict[str, int], count: int
) -> None:
    effects = Term(replace(SETTINGS, **changed)).decide(waiting, *supplies)
    assert effects == [StartWorker(f"w{number + 1}") for number in range(count)]


def test_what_comes_is_counted() -> None:
    term = Term()
    assert term.decide(11) == [StartWorker("w1"), StartWorker("w2")]
    assert term.decide(11) == []
    term.running = ["w1", "w2"]
    for one in term.running:
        term.core.lives.started(one, term.at)
    assert term.decide(11) == []
    assert term.decide(0, process("w1", 11)) == []
    assert term.decide(10, process("w1", 11)) == [StartWorker("w3")]


def test_a_new_term_goes_on_with_those_of_the_last_one() -> None:
    term = Term(at=READY - 0.1, running=["w7", "w8"])
    assert term.decide(40) == []
    term.at = READY
    assert term.decide(20) == []
    assert term.decide(40) == [StartWorker("w1"), StartWorker("w2")]
    assert term.decide(90) == [], "the maximum"


def test_failures_pause_the_starts_and_are_told() -> None:
    term = Term(replace(SETTINGS, failures_max=1.0, retry_interval=3.0))
    for number in (1, 2):
        assert term.decide(1) == [StartWorker(f"w{number}")]
        assert term.core.lives.start_failed(f"w{number}", "no memory", term.at) == [
            WorkerFailed(f"w{number}", "no memory")
        ]
        assert not term.core.is_more_coming
    assert term.decide(1) == []
    term.at += 3.0
    assert term.decide(1) == [StartWorker("w3")]


def test_one_that_never_registers_is_given_up() -> None:
    term = Term(running=["w7"])
    assert term.decide(1) == []
    term.at += SETTINGS.registration_timeout + 1
    reason = "it did not register within 100 s"
    assert term.decide(1) == [WorkerFailed("w7", reason), ReleaseWorker("w7", reason), StartWorker("w1")]


def late(worker_id: str, jobs: int) -> JobMasterSupply:
    return process(worker_id, jobs, lag=0.6)


def test_a_late_event_loop_calls_for_one_more_each_time_it_was_late_for_long() -> None:
    term = Term(running=["w7"])
    assert term.decide(0, late("w7", 5)) == []
    assert term.after(SETTINGS.stabilization - 0.1, late("w7", 5)) == []
    assert term.after(0.1, late("w7", 5)) == [StartWorker("w1")]
    term.running.append("w1")
    term.core.lives.started("w1", term.at)
    assert term.after(SETTINGS.stabilization, late("w7", 5)) == [], "it has not registered"
    assert term.after(1, late("w7", 3), process("w1", 2)) == []
    assert term.after(SETTINGS.stabilization - 0.1, late("w7", 3), process("w1", 2)) == []
    assert term.after(0.1, late("w7", 3), process("w1", 2)) == [StartWorker("w2")]


@pytest.mark.parametrize(
    "supplies",
    [
        [process("w7", 5, lag=0.5)],
        [late("w7", 1)],  # another process would take nothing from it
        [process("w7", 5, lag=9.0, is_connected=False)],
        [late("w7", 5), *[process("", 1)] * 3],  # the maximum
    ],
)
def test_lateness_that_calls_for_none(supplies: Sequence[JobMasterSupply]) -> None:
    term = Term(running=["w7"])
    assert term.decide(0, *supplies) == []
    assert term.after(SETTINGS.stabilization + 1, *supplies) == []


def test_what_came_because_of_lateness_stays_while_there_is_as_much_to_do() -> None:
    term = Term(running=["w7"])
    term.decide(0, late("w7", 6))
    assert term.after(SETTINGS.stabilization, late("w7", 6)) == [StartWorker("w1")]
    term.running.append("w1")
    both = process("w7", 3), process("w1", 3)
    term.decide(0, *both)
    for _ in range(5):
        assert term.after(SETTINGS.scale_down, *both) == []
    fewer = process("w7", 2), process("w1", 2)
    assert term.after(1, *fewer) == []
    assert drained(term.after(SETTINGS.scale_down, *fewer)) == ["i-w1"]


@pytest.mark.parametrize(
    ("supplies", "changed", "gone"),
    [
        ([process("w8"), process("w9")], {}, ["i-w8", "i-w9"]),
        ([process("w8"), process("w9")], {"minimum": 1}, ["i-w8"]),
        ([process("w8"), process("w9")], {"minimum": 2}, []),
        ([process("w8", 5), process("w9", 3)], {}, ["i-w9"]),
        ([process("w8", 5), process("w9", 4)], {}, []),  # one would be near its bound
        ([process("w8", 5), process("")], {}, ["i-w8"]),  # what people have started stays
        ([process(""), process("")], {}, []),
        ([process("w8"), process("w9", is_connected=False)], {}, []),
        ([process("w8", 1), process("w9", 0, capacity=0)], {}, ["i-w9"]),
        ([process("w8", 1, capacity=1), process("w9", 2, capacity=2)], {}, []),  # the jobs fit none alone
    ],
)
def test_what_is_too_much_gives_its_jobs_away(
    supplies: Sequence[JobMasterSupply], changed: dict[str, int], gone: list[str]
) -> None:
    term = Term(replace(SETTINGS, **changed), running=[one.worker_id for one in supplies if one.worker_id])
    assert term.decide(0, *supplies) == []
    assert term.after(SETTINGS.scale_down - 0.1, *supplies) == []
    assert drained(term.after(0.1, *supplies)) == gone


def test_a_busy_moment_begins_the_time_anew() -> None:
    term = Term(running=["w8", "w9"])
    few, many = [process("w8", 2), process("w9")], [process("w8", 6), process("w9", 6)]
    term.decide(0, *few)
    assert term.after(SETTINGS.scale_down - 1, *many) == []
    assert term.after(1, *few) == []
    assert term.after(SETTINGS.scale_down - 1, *few) == []
    assert drained(term.after(1, *few)) == ["i-w9"]


def test_it_is_released_when_it_has_given_its_jobs_away_and_killed_when_it_stays() -> None:
    term = Term(running=["w8", "w9"])
    supplies = [process("w8", 3), process("w9", 2)]
    term.decide(0, *supplies)
    assert drained(term.after(SETTINGS.scale_down, *supplies)) == ["i-w9"]
    told = process("w9", 2, is_draining=True)
    assert term.after(1, process("w8", 3), told) == []
    empty = replace(told, jobs=0)
    assert term.after(1, process("w8", 5), replace(empty, is_connected=False)) == []
    assert term.after(1, process("w8", 5), empty) == [ReleaseWorker("w9", "it drains, and has no job")]
    assert term.after(1, process("w8", 5), empty) == []
    assert term.after(SETTINGS.leave_timeout, process("w8", 5), empty) == [
        ReleaseWorker("w9", "it has not ended yet", is_overdue=True)
    ]
    term.running.remove("w9")
    assert term.after(1, process("w8", 5)) == []
    assert [one.worker_id for one in term.core.lives] == ["w8"]


def test_a_drain_that_an_earlier_term_or_a_person_has_begun_is_completed() -> None:
    term = Term(running=["w8", "w9"])
    leaving = process("w9", 0, is_draining=True)
    assert term.decide(0, process("w8", 3), leaving) == [ReleaseWorker("w9", "it drains, and has no job")]


def test_what_drains_is_used_again_when_it_is_needed() -> None:
    term = Term(running=["w8", "w9"])
    supplies = [process("w8", 3), process("w9", 2)]
    term.decide(0, *supplies)
    assert drained(term.after(SETTINGS.scale_down, *supplies)) == ["i-w9"]
    told = process("w9", 2, is_draining=True)
    assert term.decide(20, process("w8", 3), told) == [
        DrainProcess(Incarnation("i-w9"), is_draining=False),
        StartWorker("w1"),
    ]


def test_one_that_does_not_listen_is_told_again() -> None:
    term = Term(running=["w8", "w9"])
    supplies = [process("w8", 3), process("w9", 2)]
    term.decide(0, *supplies)
    assert drained(term.after(SETTINGS.scale_down, *supplies)) == ["i-w9"]
    assert term.after(DRAIN_PATIENCE + 1, *supplies) == []
    assert drained(term.after(SETTINGS.scale_down, *supplies)) == ["i-w9"]


class Processes(RuleBasedStateMachine):
    """A host where JobMaster processes start, register, drain, die and hang, under leaders that come and go."""

    @initialize(least=st.integers(0, 3), room=st.integers(1, 4), by_hand=st.integers(0, 2))
    def begin(self, least: int, room: int, by_hand: int) -> None:
        self.settings = replace(SETTINGS, minimum=least, maximum=least + room)
        self.by_hand = by_hand
        self.at = 0.0
        self.made = 0
        self.host: dict[str, bool] = {}
        """Workers that run; True for those that are registered."""
        self.asked: list[str] = []
        self.jobs: dict[str, int] = {}
        self.lags: set[str] = set()
        self.draining: set[str] = set()
        self.waiting = 0
        self.lead()

    def _new_id(self) -> str:
        self.made += 1
        return f"w{self.made}"

    def _supplies(self) -> list[JobMasterSupply]:
        mine = [
            process(
                name,
                self.jobs.get(name, 0),
                lag=1.0 if name in self.lags else 0.0,
                is_draining=name in self.draining,
            )
            for name, registered in self.host.items()
            if registered
        ]
        people = [process("", 0, incarnation=Incarnation(f"p{number}")) for number in range(self.by_hand)]
        return [*people, *mine]

    def _decide(self) -> None:
        serving = sum(not one.is_draining for one in self._supplies())
        effects = self.core.decide(self.waiting, self._supplies(), list(self.host), asked_at=self.at, at=self.at)
        for effect in effects:
            match effect:
                case StartWorker(worker_id):
                    assert worker_id not in self.host
                    self.asked.append(worker_id)
                case ReleaseWorker(worker_id):
                    assert not self.jobs.get(worker_id), "a process with jobs is released"
                    self.draining.add(worker_id)
                case DrainProcess(incarnation, is_draining=True):
                    serving -= 1
                    assert serving >= self.settings.minimum
                    assert serving >= 1 or not self._load()
                    self.draining.add(incarnation.removeprefix("i-"))
                case DrainProcess(incarnation):
                    self.draining.discard(incarnation.removeprefix("i-"))
                case WorkerFailed():
                    pass

    def _load(self) -> int:
        return self.waiting + sum(self.jobs.values())

    @rule()
    def lead(self) -> None:
        """The leader is another one: what the last one has asked for may have happened, or not."""
        self.core = JobMasterWorkers(self.settings, self._new_id, self.at)
        self.asked.clear()

    @rule(waiting=st.integers(0, 60), seconds=st.sampled_from([0.1, 1.0, 4.0, 31.0, 61.0]))
    def pass_time(self, waiting: int, seconds: float) -> None:
        self.at += seconds
        self.waiting = waiting
        self._decide()

    @precondition(lambda self: self.asked)
    @rule(works=st.booleans())
    def driver_starts(self, works: bool) -> None:
        name = self.asked.pop(0)
        self.at += 0.1
        if works:
            self.host[name] = False
            self.core.lives.started(name, self.at)
        else:
            self.core.lives.start_failed(name, "no", self.at)

    @precondition(lambda self: self.host)
    @rule(data=st.data())
    def process_changes(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.host)))
        what = data.draw(st.sampled_from(["registers", "dies", "is lost", "works", "rests", "lags"]))
        if what in {"dies", "is lost"}:
            self._lose(name, dies=what == "dies")
        elif what == "registers":
            self.host[name] = True
        elif what == "works" and self.host[name] and name not in self.draining:
            self.jobs[name] = data.draw(st.integers(1, 30))
        elif what == "lags":
            self.lags.add(name)
        else:
            self.jobs.pop(name, None)
            self.lags.discard(name)

    def _lose(self, name: str, *, dies: bool) -> None:
        self.jobs.pop(name, None)
        self.host[name] = False
        if dies:
            del self.host[name]
            self.draining.discard(name)
            self.lags.discard(name)

    @invariant()
    def the_maximum_holds(self) -> None:
        if hasattr(self, "host"):
            own = len(self.host) + len(self.asked)
            assert not own or own + self.by_hand <= max(self.settings.maximum, len(self.host) + self.by_hand)
            assert not self.asked or own + self.by_hand <= self.settings.maximum

    def teardown(self) -> None:
        """With a driver that works, what jobs need comes, and goes without them; nothing else changes then."""
        if not hasattr(self, "host"):
            return
        most = max(self.settings.maximum - self.by_hand, 0)
        self.waiting = 1000
        self._settle()
        assert len(self.host) == most
        self.waiting = 0
        self._settle()
        assert len(self.host) == min(max(self.settings.minimum - self.by_hand, 0), most)
        before = list(self.host)
        self._settle()
        assert list(self.host) == before, "flapping"

    def _settle(self) -> None:
        for _ in range(8):
            self.at += SETTINGS.registration_timeout + 1
            for name in self.draining & set(self.host):
                del self.host[name]
            self.draining.clear()
            self.jobs.clear()
            self.lags.clear()
            for _ in range(2):
                self.at += SETTINGS.scale_down
                self._decide()
            self.at += 1
            for name in self.asked:
                self.host[name] = False
                self.core.lives.started(name, self.at)
            self.asked.clear()
            self.host = dict.fromkeys(self.host, True)


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("load", range(45))
def test_a_load_that_stays_never_has_one_come_and_go(load: int) -> None:
    """From any number of processes: once it has settled, a steady load changes nothing."""
    for there in range(5):
        term = Term(running=[f"w{number}" for number in range(90, 90 + there)])
        changes = 0
        for _ in range(40):
            share, rest = divmod(load, max(1, len(term.running)))
            supplies = [process(name, share + (number < rest)) for number, name in enumerate(term.running)]
            waiting = 0 if term.running else load
            for effect in term.decide(waiting, *supplies):
                changes += 1
                if isinstance(effect, StartWorker):
                    term.running.append(effect.worker_id)
                elif isinstance(effect, DrainProcess):
                    term.running.remove(effect.incarnation.removeprefix("i-"))
            term.at += 20
        assert changes <= 4, (load, there)
        assert {one.state for one in term.core.lives} <= {WorkerState.REGISTERED}
