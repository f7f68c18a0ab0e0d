"""Queues: which job gets a slot that is free, what each queue has a claim to, and what people read of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.ids import AllocationId, Incarnation, JobId
from runtime.common.shares import JobShare, QueueSettings
from runtime.gateways.resource_manager import ResourceProfile, SlotsFreed
from runtime.resourcemanager.core import events as ev
from runtime.resourcemanager.core.fair_shares import fair_shares, ordinal
from runtime.resourcemanager.core.queues import Queue
from tests.kit.control_plane.slot_requests import T1, T2, Cluster, job, kinds, reasons, requests


class Queues:
    """A cluster whose jobs want one slot each, unless they say otherwise, and tasks that end when told."""

    preemption_timeout: float | None = None

    def __init__(self, **settings: QueueSettings) -> None:
        self.cluster = Cluster(settings, self.preemption_timeout)
        self.running: dict[AllocationId, JobId] = {}
        self.peers: dict[AllocationId, Incarnation] = {}
        self.jobs = 0

    def submit(self, queue: str, jobs: int = 1, *, priority: int = 0, slots: int = 1) -> list[str]:
        """Submits jobs, and returns the queues that have got slots."""
        effects: list[Any] = []
        for _ in range(jobs):
            self.jobs += 1
            self.cluster.shares[job(self.jobs)] = JobShare(queue, priority)
            effects += self.cluster.declare(self.jobs, slots)
        return self.took(effects)

    def slots(self, count: int) -> list[str]:
        return self.took(self.cluster.register(T1, count))

    def end(self, queue: str) -> list[str]:
        """The job of the queue that began first ends, with all its tasks."""
        job_id = next(one for one in self.running.values() if self.cluster.shares[one].queue == queue)
        self.cluster.at += 2.0
        self.cluster.declare(int(job_id, 16), 0)
        effects: list[Any] = []
        for allocation in [one for one, of in self.running.items() if of == job_id]:
            del self.running[allocation]
            effects += self.cluster.handle(ev.AllocationsFreed(self.peers[allocation], SlotsFreed((allocation,))))
        self.cluster.handle(ev.JobsFinished((job_id,)))
        return self.took(effects)

    def took(self, effects: list[Any]) -> list[str]:
        self.peers |= {one.allocation_id: peer for peer, one in requests(effects)}
        got = [request for _, request in requests(effects)]
        self.running |= {one.allocation_id: one.job_id for one in got}
        return [self.cluster.shares[one.job_id].queue for one in got]

    def held(self) -> Counter[str]:
        return Counter(self.cluster.shares[one].queue for one in self.running.values())


def test_the_first_job_of_a_new_queue_has_the_next_slot() -> None:
    queues = Queues()
    queues.slots(2)
    queues.submit("a", 200)
    queues.submit("b")
    assert queues.end("a") == ["b"]
    assert queues.end("b") == ["a"], "which nobody else wants"


def test_slots_are_shared_by_weight() -> None:
    queues = Queues(a=QueueSettings(weight=3), b=QueueSettings(weight=1), c=QueueSettings(weight=6))
    for name in "abc":
        queues.submit(name, 50)
    queues.slots(20)
    assert queues.held() == {"a": 6, "b": 2, "c": 12}


def test_one_slot_goes_round_by_weight() -> None:
    queues = Queues(a=QueueSettings(weight=3))
    for name in "ab":
        queues.submit(name, 20)
    (running,) = queues.slots(1)
    taken = Counter[str]()
    for _ in range(16):
        taken[running] += 1
        (running,) = queues.end(running)
    assert taken == {"a": 12, "b": 4}


def test_a_queue_that_comes_back_has_saved_nothing_up() -> None:
    queues = Queues()
    (running,) = [*queues.slots(1), *queues.submit("a", 30)]
    for _ in range(10):
        (running,) = queues.end(running)
    queues.submit("b", 10)
    turns = []
    for _ in range(6):
        (running,) = queues.end(running)
        turns.append(running)
    assert turns == ["b", "a", "b", "a", "b", "a"]


def test_a_queue_that_still_runs_has_saved_nothing_up() -> None:
    queues = Queues(b=QueueSettings(max_slots=2))
    queues.slots(3)
    queues.submit("a", 60)
    queues.submit("b")
    queues.end("a")
    for _ in range(20):
        queues.end("a")
    assert queues.held() == {"a": 2, "b": 1}
    queues.submit("b", 30)
    turns = [queues.end(name)[0] for name in ("b", "a") * 4]
    assert turns == ["b", "a"] * 4


def test_a_queue_whose_only_job_fits_nowhere_saves_nothing_up() -> None:
    queues = Queues()
    queues.cluster.shares[job(900)] = JobShare("a")
    queues.cluster.declare(900, 1, ResourceProfile(memory_bytes=1 << 40))
    queues.slots(1)
    queues.submit("b", 60)
    for _ in range(40):
        assert queues.end("b") == ["b"]
    queues.submit("a", 20)
    turns = ["b"]
    for _ in range(9):
        turns += queues.end(turns[-1])
    assert turns == ["b", "a", "a", "b", "a", "b", "a", "b", "a", "b"], "one more at most, where both are equal"


def test_minima_come_before_weights() -> None:
    queues = Queues(a=QueueSettings(weight=1000), b=QueueSettings(min_slots=3), c=QueueSettings(min_slots=1))
    for name in "abc":
        queues.submit(name, 50)
    assert Counter(queues.slots(4)) == {"b": 3, "c": 1}
    more = queues.took(queues.cluster.register(T2, 6))
    assert Counter(more) == {"a": 6}


def test_a_minimum_that_nobody_uses_is_for_all() -> None:
    queues = Queues(b=QueueSettings(min_slots=3))
    queues.submit("a", 50)
    assert queues.slots(4) == ["a"] * 4
    queues.submit("b", 50)
    assert [queues.end("a")[0] for _ in range(4)] == ["b", "b", "b", "a"]


def test_a_maximum_holds_while_slots_are_free() -> None:
    queues = Queues(a=QueueSettings(max_slots=2))
    queues.slots(4)
    assert queues.submit("a", 10) == ["a", "a"]
    assert queues.cluster.manager.slot_counts() == (4, 2)
    assert queues.submit("b", 1) == ["b"]
    assert queues.end("a") == ["a"]


def test_a_big_job_stays_below_the_maximum_too() -> None:
    queues = Queues(a=QueueSettings(max_slots=2))
    queues.slots(4)
    assert queues.submit("a", slots=3) == ["a", "a"]


def test_only_so_many_jobs_run_and_those_get_all_that_they_need() -> None:
    queues = Queues(a=QueueSettings(max_running_jobs=2))
    assert queues.submit("a", 3, slots=2) == []
    assert queues.slots(3) == ["a"] * 3
    assert Counter(queues.running.values()) == {job(1): 2, job(2): 1}
    assert queues.took(queues.cluster.register(T2, 3)) == ["a"]
    assert Counter(queues.running.values()) == {job(1): 2, job(2): 2}
    assert queues.cluster.manager.slot_counts() == (6, 2)
    assert queues.end("a") == ["a", "a"]
    assert Counter(queues.running.values()) == {job(2): 2, job(3): 2}


def test_the_higher_priority_comes_first_and_round_robin_goes_on_within_each() -> None:
    queues = Queues()
    queues.submit("a", 2, slots=2)
    queues.submit("a", 2, slots=2, priority=5)
    queues.submit("a", slots=1, priority=-1)
    queues.slots(9)
    assert list(queues.running.values()) == [job(n) for n in (3, 4, 3, 4, 1, 2, 1, 2, 5)]


def test_priorities_do_not_reach_into_other_queues() -> None:
    queues = Queues()
    queues.submit("a", 10, priority=1_000_000)
    queues.submit("b", 10, priority=-1_000_000)
    queues.slots(4)
    assert queues.held() == {"a": 2, "b": 2}


def test_a_job_that_fits_nowhere_keeps_nobody_waiting() -> None:
    queues = Queues()
    large = ResourceProfile(memory_bytes=1 << 40)
    queues.cluster.shares[job(900)] = JobShare("a", 9)
    queues.cluster.declare(900, 1, large)
    queues.submit("a", 2)
    queues.submit("b", 2)
    queues.slots(3)
    assert queues.held() == {"a": 2, "b": 1}


def test_many_queues_of_jobs_that_fit_nowhere_are_looked_at_once_in_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    queues, looks, first = Queues(), Counter[str](), Queue.first

    def counted(queue: Queue, passed_over: Container[JobId]) -> JobId | None:
        looks[queue.name] += 1
        return first(queue, passed_over)

    queues.slots(1)
    for number in range(1, 101):
        queues.cluster.shares[job(number)] = JobShare(f"q{number}")
        queues.cluster.declare(number, 1, ResourceProfile(memory_bytes=1 << 40))
    monkeypatch.setattr(Queue, "first", counted)
    queues.cluster.declare(1, 2, ResourceProfile(memory_bytes=1 << 40))
    assert len(looks) == 100
    assert max(looks.values()) <= 2


def test_jobs_that_fit_nowhere_take_no_memory() -> None:
    queues = Queues(a=QueueSettings(max_running_jobs=5))
    large = ResourceProfile(memory_bytes=1 << 40)
    for number in range(900, 904):
        queues.cluster.shares[job(number)] = JobShare("a")
        queues.cluster.declare(number, 1, large)
    queues.slots(1)
    for _ in range(300):
        queues.cluster.report(T1, [None])
    (queue,) = queues.cluster.manager._queues.all()
    assert len(queue._heap) == 4
    for _ in range(300):
        queues.cluster.declare(900, 0)
        queues.cluster.declare(900, 1, large)
    assert len(queue._heap) < 100


def test_a_queue_without_a_job_is_forgotten() -> None:
    queues = Queues(b=QueueSettings(weight=2))
    queues.slots(1)
    queues.submit("a")
    queues.submit("b")
    queues.end("a")
    queues.end("b")
    assert not list(queues.cluster.manager._queues.all())
    assert [(one.name, one.share, one.held) for one in queues.cluster.manager.queues()] == [("b", 0.0, 0)]


def test_a_queue_with_options_is_named_whatever_they_are() -> None:
    queues = Queues(b=QueueSettings(weight=1), c=QueueSettings())
    queues.submit("a")
    queues.submit("b")
    assert [(one.name, one.is_named) for one in queues.cluster.manager.queues()] == [
        ("a", False),
        ("b", True),
        ("c", True),
    ]


def test_the_next_leader_counts_what_it_finds_for_its_queue() -> None:
    cluster = Cluster({"a": QueueSettings(max_slots=2)})
    cluster.shares = {job(1): JobShare("a"), job(2): JobShare("a"), job(3): JobShare("b")}
    held = (AllocationId("9" * 32), job(1))
    cluster.register(T1, 3)
    cluster.report(T1, [held, None, None])
    effects = [*cluster.declare(2, 3), *cluster.declare(3, 1)]
    assert [request.job_id for _, request in requests(effects)] == [job(2), job(3)]


# --- shares ---------------------------------------------------------------------------------------------------

BARE = QueueSettings()


@pytest.mark.parametrize(
    ("queues", "slots", "shares"),
    [
        ({}, 4, {}),
        ({"a": BARE}, 4, {"a": 4}),
        ({"a": BARE, "b": BARE}, 5, {"a": 2.5, "b": 2.5}),
        ({"a": QueueSettings(weight=3), "b": BARE}, 4, {"a": 3, "b": 1}),
        ({"a": QueueSettings(weight=3, max_slots=1), "b": BARE}, 4, {"a": 1, "b": 3}),
        ({"a": QueueSettings(max_slots=1), "b": QueueSettings(max_slots=1)}, 4, {"a": 1, "b": 1}),
        ({"a": QueueSettings(min_slots=3), "b": BARE, "c": BARE}, 4, {"a": 3, "b": 0.5, "c": 0.5}),
        ({"a": QueueSettings(min_slots=3), "b": QueueSettings(min_slots=6)}, 3, {"a": 1, "b": 2}),
        ({"a": QueueSettings(min_slots=4), "b": QueueSettings(max_slots=1), "c": BARE}, 8, {"a": 4, "b": 1, "c": 3}),
        ({"a": QueueSettings(min_slots=2), "b": BARE}, 0, {"a": 0, "b": 0}),
    ],
)
def test_shares(queues: dict[str, QueueSettings], slots: int, shares: dict[str, float]) -> None:
    assert fair_shares(queues, slots) == pytest.approx(shares)


WEIGHTS = st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0, 10.0]), min_size=1, max_size=6)


@given(weights=WEIGHTS, slots=st.integers(1, 40), ends=st.lists(st.integers(0, 5), max_size=60))
def test_no_queue_holds_a_whole_slot_more_than_its_share_while_all_wait(
    weights: list[float], slots: int, ends: list[int]
) -> None:
    names = [f"q{number}" for number in range(len(weights))]
    settings = {name: QueueSettings(weight=weight) for name, weight in zip(names, weights, strict=True)}
    queues = Queues(**settings)
    for name in names:
        queues.submit(name, 110)
    queues.slots(slots)
    shares = fair_shares(settings, slots)
    for number in [*ends, 0]:
        held = queues.held()
        assert sum(held.values()) == slots
        assert all(held[name] < shares[name] + 1 for name in names), (held, shares)
        if len(set(weights)) == 1:
            assert max(held[name] for name in names) - min(held[name] for name in names) <= 1
        name = names[number % len(names)]
        if held[name]:
            queues.end(name)


@given(
    queues=st.lists(
        st.builds(
            lambda weight, low, more: QueueSettings(weight, low, None if more is None else low + more),
            st.sampled_from([0.5, 1.0, 4.0]),
            st.integers(0, 5),
            st.none() | st.integers(1, 9),
        ),
        max_size=8,
    ),
    slots=st.integers(0, 60),
)
def test_shares_use_all_slots_within_the_limits(queues: list[QueueSettings], slots: int) -> None:
    named = {f"q{number}": one for number, one in enumerate(queues)}
    shares = fair_shares(named, slots)
    assert shares.keys() == named.keys()
    assert sum(shares.values()) <= slots + 1e-6
    are_all_full = all(one.max_slots is not None and shares[name] == one.max_slots for name, one in named.items())
    assert are_all_full or sum(shares.values()) == pytest.approx(slots)
    if sum(one.min_slots for one in queues) <= slots:
        assert all(shares[name] >= one.min_slots - 1e-6 for name, one in named.items())
        assert all(one.max_slots is None or shares[name] <= one.max_slots + 1e-6 for name, one in named.items())
        between = [
            (shares[n] / one.weight) for n, one in named.items() if shares[n] not in {one.min_slots, one.max_slots}
        ]
        assert not between or max(between) == pytest.approx(min(between))


# --- words ----------------------------------------------------------------------------------------------------


def shown(queues: Queues, number: int) -> str:
    return queues.cluster.manager.shown_waiting(job(number)).reason


def test_a_job_that_waits_is_told_its_place_and_the_share_of_its_queue() -> None:
    queues = Queues(etl=QueueSettings(weight=2))
    queues.slots(3)
    queues.submit("etl", 4)
    queues.submit("b", 1)
    assert shown(queues, 1) == ""
    full = "no free slot: all 3 slots that fit are in use"
    assert shown(queues, 4) == f"{full}; 1st of 1 in queue etl, which holds 3 of its share of 2 slots"
    assert shown(queues, 5) == f"{full}; 1st of 1 in queue b, which holds 0 of its share of 1 slot"
    queues.submit("etl", priority=1)
    assert shown(queues, 4).startswith(f"{full}; 2nd of 2 in queue etl")


def test_a_job_that_waits_for_a_limit_of_its_queue_is_told_the_limit() -> None:
    queues = Queues(a=QueueSettings(max_slots=1), b=QueueSettings(max_running_jobs=1))
    queues.slots(4)
    queues.submit("a", 1)
    queues.submit("b", 1)
    effects = [*queues.cluster.declare(900, 0)]
    queues.cluster.shares |= {job(900): JobShare("a"), job(901): JobShare("b")}
    effects = [*queues.cluster.declare(900, 1), *queues.cluster.declare(901, 1)]
    limits = "queue a holds the 1 slots that it may have at most", "queue b runs the 1 jobs that it may run at once"
    assert list(reasons(effects).values()) == list(limits)
    assert set(kinds(effects).values()) == {"queue"}
    assert shown(queues, 900) == f"{limits[0]}; 1st of 1 in queue a"
    assert shown(queues, 901) == f"{limits[1]}; 1st of 1 in queue b"


def test_a_job_that_waits_for_something_else_is_told_that() -> None:
    queues = Queues()
    queues.submit("a")
    assert shown(queues, 1) == "no TaskManager is registered: start one with bin/taskmanager.sh start"


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (13, "13th"),
                         (21, "21st"), (102, "102nd"), (111, "111th"), (10, "10th")],
)  # fmt: skip
def test_ordinals(number: int, text: str) -> None:
    assert ordinal(number) == text
