"""Which profile of TaskManagers is started for what jobs ask, and how many (D-141)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.shares import JobShare, QueueSettings
from runtime.common.worker_ids import profile_of, shown_profile, with_profile
from runtime.gateways.resource_manager import ResourceProfile
from runtime.resourcemanager.core import events as ev
from runtime.resourcemanager.core.worker_lives import ReleaseWorker, StartWorker, WorkerEffect
from runtime.resourcemanager.core.worker_profiles import Demand, WorkerProfile, choices, shares_of, task_managers_for
from runtime.resourcemanager.core.workers import ActiveWorkers, Supply, WorkerSettings
from tests.kit.control_plane.slot_requests import T1, T2, Cluster, job, reasons, requests

GIB = 1 << 30
PLAIN = WorkerProfile("", 4, ResourceProfile(0.5, GIB))
GPU = WorkerProfile("gpu", 2, ResourceProfile(1.0, 2 * GIB, labels=("gpu=a100", "zone=b")))
GPU_ONLY = WorkerProfile("gpu-only", 2, ResourceProfile(1.0, 4 * GIB, labels=("gpu=a100",)))
LARGE = WorkerProfile("large", 1, ResourceProfile(2.0, 8 * GIB))
LEAN = WorkerProfile("lean", 2, ResourceProfile(1.0, 2 * GIB, spark_profile="lean"))
PROFILES = (PLAIN, GPU, GPU_ONLY, LARGE, LEAN)


@pytest.mark.parametrize(
    ("required", "expected"),
    [
        (ResourceProfile(), ""),
        (ResourceProfile(memory_bytes=GIB), ""),
        (ResourceProfile(memory_bytes=GIB + (1 << 20)), "lean"),
        (ResourceProfile(memory_bytes=8 * GIB), "large"),
        (ResourceProfile(cpu_cores=2.0), "large"),
        (ResourceProfile(labels=("gpu=a100",)), "gpu-only"),
        (ResourceProfile(labels=("zone=b",)), "gpu"),
        (ResourceProfile(labels=("gpu=a100", "zone=b")), "gpu"),
        (ResourceProfile(spark_profile="lean"), "lean"),
        (ResourceProfile(labels=("gpu=h100",)), None),
        (ResourceProfile(memory_bytes=9 * GIB), None),
        (ResourceProfile(cpu_cores=2.1), None),
        (ResourceProfile(memory_bytes=4 * GIB, labels=("zone=b",)), "gpu"),  # with both of its slots
        (ResourceProfile(memory_bytes=5 * GIB, labels=("zone=b",)), None),
        (ResourceProfile(memory_bytes=int(8.5 * GIB), labels=("gpu=a100",)), None),
        (ResourceProfile(memory_bytes=int(7.5 * GIB), labels=("gpu=a100",)), "gpu-only"),
        (ResourceProfile(memory_bytes=3 * GIB), "large"),  # rather than three slots of the cluster's own
    ],
)
def test_the_smallest_profile_whose_slot_fits_is_started(required: ResourceProfile, expected: str | None) -> None:
    found = choices(PROFILES, required)
    assert (found[0][0].name if found else None) == expected
    assert choices(tuple(reversed(PROFILES)), required) == found, "whatever their order is"


@pytest.mark.parametrize(
    ("offered", "slots", "required", "expected"),
    [
        (ResourceProfile(1.0, GIB), 4, ResourceProfile(), 1),
        (ResourceProfile(1.0, GIB), 4, ResourceProfile(memory_bytes=1), 1),
        (ResourceProfile(1.0, GIB), 4, ResourceProfile(memory_bytes=GIB), 1),
        (ResourceProfile(1.0, GIB), 4, ResourceProfile(memory_bytes=4 * GIB), 4),
        (ResourceProfile(1.0, GIB), 4, ResourceProfile(cpu_cores=1.5, memory_bytes=GIB), 2),
        (ResourceProfile(1.0, GIB), 4, ResourceProfile(cpu_cores=1.5, memory_bytes=int(2.5 * GIB)), 3),
        (ResourceProfile(1.0, GIB), 4, ResourceProfile(memory_bytes=4 * GIB + (1 << 20)), 0),
        (ResourceProfile(2 / 3, 10 * GIB // 3), 3, ResourceProfile(cpu_cores=2, memory_bytes=10 * GIB), 3),
        (ResourceProfile(0.0, 0), 4, ResourceProfile(memory_bytes=1), 0),
        (ResourceProfile(math.inf, GIB), 4, ResourceProfile(cpu_cores=1000), 1),
        (ResourceProfile(1.0, GIB), 4, ResourceProfile(labels=("a=b",)), 0),
        (ResourceProfile(1.0, GIB, "lean"), 4, ResourceProfile(spark_profile="other"), 0),
    ],
)
def test_a_request_takes_so_many_slots(
    offered: ResourceProfile, slots: int, required: ResourceProfile, expected: int
) -> None:
    assert shares_of(offered, slots, required) == expected


@pytest.mark.parametrize(
    ("wanted", "slots", "expected"),
    [
        ({}, 4, 0),
        ({1: 4}, 4, 1),
        ({1: 5}, 4, 2),
        ({3: 2}, 4, 2),
        ({3: 2, 1: 2}, 4, 2),
        ({3: 2, 1: 3}, 4, 3),
        ({2: 3, 3: 1}, 4, 3),
        ({4: 1, 1: 1}, 4, 2),
        ({5: 1}, 4, 0),
        ({1: 10_000}, 4, 9),
    ],
)
def test_so_many_task_managers_hold_all_requests(wanted: dict[int, int], slots: int, expected: int) -> None:
    assert task_managers_for(wanted, slots, 9) == expected


@given(st.dictionaries(st.integers(1, 6), st.integers(0, 9)), st.integers(1, 6))
def test_as_many_as_placing_one_after_the_other_takes(wanted: dict[int, int], slots: int) -> None:
    bins: list[int] = []
    for shares in sorted(Counter(wanted).elements(), reverse=True):
        if shares > slots:
            continue
        fits = [number for number, room in enumerate(bins) if room >= shares]
        if fits:
            bins[min(fits, key=lambda number: bins[number])] -= shares
        else:
            bins.append(slots - shares)
    assert task_managers_for(wanted, slots, 1000) == len(bins)


def test_a_label_tells_the_profile() -> None:
    assert profile_of(with_profile("w-0123456789ab", "gpu-large")) == "gpu-large"
    assert profile_of(with_profile("w-0123456789ab", "")) == ""
    assert profile_of("") == ""
    assert [shown_profile(one) for one in ("", "w-1", "w-1-gpu")] == ["", "default", "gpu"]


# --- what a driver is asked for ----------------------------------------------------------------------------


def test_the_demand_is_told_by_profile_in_the_order_of_the_jobs() -> None:
    cluster = Cluster(profiles=PROFILES)
    cluster.declare(1, 2, ResourceProfile(labels=("gpu=a100",)))
    cluster.declare(2, 3)
    cluster.declare(3, 1, ResourceProfile(labels=("gpu=a100",)))
    cluster.declare(4, 1, ResourceProfile(labels=("gpu=h100",)))
    assert list(cluster.manager.demand().items()) == [("gpu-only", {1: 3}), ("", {1: 3})]


def test_limits_of_a_queue_bound_the_demand_of_all_profiles_together() -> None:
    cluster = Cluster({"etl": QueueSettings(max_slots=3)}, profiles=PROFILES)
    cluster.shares = {job(number): JobShare("etl") for number in (1, 2)}
    cluster.declare(1, 2, ResourceProfile(labels=("gpu=a100",)))
    cluster.declare(2, 3)
    assert cluster.manager.demand() == {"gpu-only": {1: 2}, "": {1: 1}}


def test_who_waits_is_told_what_is_started_or_that_nothing_can_be() -> None:
    cluster = Cluster(profiles=PROFILES)
    cluster.handle(ev.AdviceChanged("the driver starts one"))
    gpu, never = ResourceProfile(labels=("gpu=a100",)), ResourceProfile(memory_bytes=9 * GIB)
    assert reasons(cluster.declare(1, 1, gpu)) == {
        job(1): "no TaskManager of profile gpu-only is registered: the driver starts one"
    }
    (reason,) = reasons(cluster.declare(2, 1, never)).values()
    assert "9216 MiB memory" in reason
    assert "resourcemanager.profiles" in reason
    assert requests(cluster.register(T1, 2, GPU_ONLY.slot))


def test_who_waits_is_not_told_that_there_are_no_task_managers_where_others_are() -> None:
    cluster = Cluster(profiles=PROFILES)
    cluster.handle(ev.AdviceChanged("the driver starts one"))
    cluster.register(T1, 1, ResourceProfile(memory_bytes=GIB >> 10))
    assert reasons(cluster.declare(1, 1, ResourceProfile(memory_bytes=GIB))) == {
        job(1): "no TaskManager of profile default is registered: the driver starts one"
    }


def test_the_cores_of_another_host_are_known_when_a_task_manager_is_there() -> None:
    unknown = replace(PLAIN, slot=replace(PLAIN.slot, cpu_cores=math.inf))
    cluster = Cluster(profiles=(unknown,))
    cluster.declare(1, 1, ResourceProfile(cpu_cores=8))
    assert cluster.manager.demand() == {"": {1: 1}}
    cluster.register(T2, 4, ResourceProfile(0.5, GIB), worker_id="w-1")  # on a host with 2 cores
    assert cluster.manager.demand() == {}
    cluster.handle(ev.TaskManagerLost(T2))
    assert cluster.manager.demand() == {}, "none is started again to find out"


# --- starts and releases -----------------------------------------------------------------------------------

SETTINGS = WorkerSettings(slots=4, slots_max=10, profiles=(GPU, LARGE), idle_timeout=30.0, recovery_timeout=0.0)


class Term:
    """One term, whose clock the test moves; what is started runs at once."""

    def __init__(self, settings: WorkerSettings = SETTINGS) -> None:
        self.at = 100.0
        self.running: list[str] = []
        self.core = ActiveWorkers(settings, self._new_id, 0.0)
        self._made = 0

    def _new_id(self) -> str:
        self._made += 1
        return f"w-{self._made}"

    def decide(self, demand: Demand, *supplies: Supply) -> list[WorkerEffect]:
        self.at += 1.0
        effects = self.core.decide(demand, supplies, self.running, asked_at=self.at, at=self.at)
        for effect in effects:
            if isinstance(effect, StartWorker):
                self.running.append(effect.worker_id)
                self.core.lives.started(effect.worker_id, self.at)
        self.at += 1.0
        return effects


def of(**requests_of: int) -> Demand:
    return {name.replace("plain", ""): Counter({1: count}) for name, count in requests_of.items()}


def started(effects: list[WorkerEffect]) -> list[str]:
    return [profile_of(one.worker_id) for one in effects if isinstance(one, StartWorker)]


def test_each_profile_has_its_own_pending_ones() -> None:
    term = Term()
    assert started(term.decide(of(gpu=1))) == ["gpu"]
    assert started(term.decide(of(gpu=2, plain=3))) == [""]
    assert started(term.decide(of(gpu=3, plain=4))) == ["gpu"]


def test_all_profiles_together_stay_below_the_maximum() -> None:
    term = Term()
    assert started(term.decide(of(gpu=100))) == ["gpu"] * 5
    assert started(term.decide(of(plain=1))) == []
    assert started(Term().decide(of(plain=100, gpu=100))) == ["", "", "gpu"], "who comes first is served first"


def test_an_idle_one_goes_though_jobs_wait_for_another_profile() -> None:
    term = Term()
    (plain,) = term.decide(of(plain=1))
    assert isinstance(plain, StartWorker)
    idle = Supply(plain.worker_id, 4, 4, uses=1)
    assert started(term.decide(of(gpu=100), idle)) == ["gpu"] * 3
    term.at += 31.0
    released = [one for one in term.decide(of(gpu=100), idle) if isinstance(one, ReleaseWorker)]
    assert [one.worker_id for one in released] == [plain.worker_id]


def test_an_idle_one_stays_while_jobs_wait_for_its_profile() -> None:
    term = Term()
    (gpu,) = term.decide(of(gpu=1))
    assert isinstance(gpu, StartWorker)
    idle = Supply(gpu.worker_id, 2, 2, uses=1)
    term.decide({}, idle)
    term.at += 31.0
    assert not [one for one in term.decide(of(gpu=3), idle) if isinstance(one, ReleaseWorker)]
    assert [one for one in term.decide({}, idle) if isinstance(one, ReleaseWorker)]


def test_those_that_are_kept_are_of_the_cluster_s_own_configuration() -> None:
    term = Term(replace(SETTINGS, slots_min=3))
    gpu = Supply("w-9-gpu", 2, 2)
    term.running.append("w-9-gpu")
    assert started(term.decide({}, gpu)) == [""]
    plain = Supply("w-1", 4, 4)
    term.decide({}, gpu, plain)
    term.at += 31.0
    released = [one for one in term.decide({}, gpu, plain) if isinstance(one, ReleaseWorker)]
    assert [one.worker_id for one in released] == ["w-9-gpu"]


def test_a_new_leader_knows_the_profiles_of_what_runs() -> None:
    term = Term()
    term.running = ["w-7-gpu"]
    assert started(term.decide(of(gpu=2))) == [], "it comes"
    assert started(term.decide(of(gpu=2, plain=1))) == [""]
    term.running.append("w-8-gone")  # its profile is not there any more: it counts like the others
    assert started(Term(replace(SETTINGS, slots_max=4)).decide(of(plain=4))) == [""]
