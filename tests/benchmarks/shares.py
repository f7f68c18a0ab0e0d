"""Shares of slots: how long another user's first job waits, what queues cost the SlotManager, and a large cluster.

`bin/bench.sh shares --plot docs/shares.svg` draws the slots of 10 queues of a simulated cluster over time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from runtime.common.ids import AllocationId, Incarnation, JobId
from runtime.common.shares import JobShare, QueueSettings
from runtime.gateways.resource_manager import (
    JobRequirements,
    RegisterTaskManager,
    ResourceProfile,
    ResourceRequirement,
    SlotReport,
    SlotsFreed,
    SlotStatus,
)
from runtime.resourcemanager.core import events as ev
from runtime.resourcemanager.core.slot_manager import SlotManager
from tests.benchmarks.cluster import ScriptCluster, job_graph, job_ids, result, submission
from tests.benchmarks.measure import Report, Target, job_prefix
from tests.kit.control_plane.rotation import Rotation

OPTIONS = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "2"}
NAP_SECONDS = 0.4
OWNER = Incarnation("c" * 32)
PROFILE = ResourceProfile()

# --- a cluster ------------------------------------------------------------------------------------------------


async def _first_of_another(client: httpx.AsyncClient, jobs: int, queues: tuple[str, str]) -> tuple[float, float]:
    """Seconds until the job of the second queue begins behind `jobs` of the first one, and until those have ended."""
    ids = job_ids(job_prefix(), jobs + 1)
    graph = job_graph("nap", "tests.benchmarks.programs:nap", params={"seconds": NAP_SECONDS})

    async def submit(job_id: str, queue: str) -> None:
        body = submission(job_id, graph)
        body["options"]["queue"] = queue
        answer = await client.post("/jobs", json=body)
        assert answer.status_code == 202, answer.text

    begin = time.perf_counter()
    for job_id in ids[:-1]:
        await submit(job_id, queues[0])
    await submit(ids[-1], queues[1])
    ended = await result(client, ids[-1])
    for job_id in ids[:-1]:
        await result(client, job_id)
    waited: float = (ended["end-time"] - ended["start-time"]) / 1000 - NAP_SECONDS
    return waited, time.perf_counter() - begin


async def _measure(cluster: ScriptCluster, report: Report, *, jobs: int) -> None:
    async with cluster.client(connections=8) as client:
        alone, _ = await _first_of_another(client, 0, ("alone", "alone"))
        before, length = await _first_of_another(client, jobs, ("one", "one"))
        after, _ = await _first_of_another(client, jobs, ("one", "two"))
    report.add("a job on an idle cluster, submit to end without its task", alone, "s")
    report.add(f"the same behind {jobs} jobs of {NAP_SECONDS} s in its queue", before, "s")
    report.add(f"the same behind {jobs} jobs in another queue", after, "s", Target(f"{alone + NAP_SECONDS:.2g}"))
    report.add(f"all {jobs} jobs", length, "s")


# --- the core alone -------------------------------------------------------------------------------------------


def _manager(
    task_managers: int, slots: int, queues: Mapping[str, QueueSettings], shares: Mapping[JobId, JobShare]
) -> SlotManager:
    ids = itertools.count(1)
    made = SlotManager(
        lambda: AllocationId(f"{next(ids):032x}"),
        lambda *_: True,
        share_of=lambda job_id: shares.get(job_id, JobShare()),
        queues=queues,
        request_timeout=10.0,
        round_seconds=2.0,
    )
    free = SlotReport(tuple(SlotStatus(index, None, None) for index in range(slots)), is_warm=True, assigned_tasks=0)
    for number in range(task_managers):
        peer = Incarnation(f"{number:032x}")
        registration = RegisterTaskManager(
            peer, "tm", "h:1", "h:2", "boot", "v", 1, slots, PROFILE, has_spark=False, spark_conf=b"{}",
            cpu_cores=2, memory_bytes=0,
        )  # fmt: skip
        made.handle(ev.TaskManagerRegistered(registration), 0.0)
        made.handle(ev.SlotsReported(peer, free), 0.0)
    return made


def _declared(job_id: JobId, slots: int) -> ev.RequirementsDeclared:
    needs = (ResourceRequirement(PROFILE, slots),) if slots else ()
    return ev.RequirementsDeclared(JobRequirements(job_id, 5, needs, ()), OWNER, "owner:1")


def events_per_second(jobs: int, queues: int, *, is_rotation: bool = False) -> float:
    """Of one-task jobs on 10 TaskManagers with 100 slots each. `is_rotation`: round robin over jobs, as before."""
    ids = [JobId(f"{number:032x}") for number in range(jobs)]
    shares = {job_id: JobShare(f"q{number % queues}") for number, job_id in enumerate(ids)}
    manager, events = _manager(10, 100, {}, shares), 0
    if is_rotation:
        manager._queues = Rotation()  # type: ignore[assignment]
    granted: list[ev.SendRequestSlot] = []

    def handle(event: ev.SlotManagerEvent) -> None:
        nonlocal events
        events += 1
        granted.extend(one for one in manager.handle(event, events * 1e-3) if isinstance(one, ev.SendRequestSlot))

    begin = time.process_time()
    for job_id in ids:
        handle(_declared(job_id, 1))
    for request in granted:
        job_id = request.message.job_id
        handle(_declared(job_id, 0))
        handle(ev.AllocationsFreed(request.incarnation, SlotsFreed((request.message.allocation_id,))))
        handle(ev.JobsFinished((job_id,)))
    assert len(granted) == jobs
    return events / (time.process_time() - begin)


# --- a large cluster, simulated -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Load:
    """The jobs of a queue: one-task jobs, each some seconds long, which all come at a moment."""

    settings: QueueSettings
    at: float
    jobs: int


SLOTS = 1000
LOADS = {
    "etl, weight 4": Load(QueueSettings(weight=4), 0, 9000),
    "reports, weight 2": Load(QueueSettings(weight=2), 100, 4000),
    "ml, at most 150": Load(QueueSettings(weight=3, max_slots=150), 150, 4000),
    "night, at least 200": Load(QueueSettings(min_slots=200), 250, 3000),
    **{f"user {number}": Load(QueueSettings(), 300 + 20 * number, 500) for number in range(1, 7)},
}


@dataclass(frozen=True, slots=True)
class Course:
    """The slots of each queue at each sampled second."""

    seconds: Sequence[float]
    held: Mapping[str, Sequence[int]]
    starts: Mapping[str, float]
    """How long the first job of each queue waited."""


def _scaled(settings: QueueSettings, by: float) -> QueueSettings:
    limit = None if settings.max_slots is None else int(settings.max_slots * by)
    return replace(settings, min_slots=int(settings.min_slots * by), max_slots=limit)


class Simulation:
    """10 queues whose tasks take 20 to 60 s, by a seeded random number. Time is virtual."""

    def __init__(self, task_managers: int, slots: int, scale: float) -> None:
        self.rng, self.numbers = random.Random(17), itertools.count(1)
        self.shares: dict[JobId, JobShare] = {}
        self.held: Counter[str] = Counter()
        self.starts: dict[str, float] = {}
        queues = {name: _scaled(one.settings, task_managers * slots / SLOTS) for name, one in LOADS.items()}
        self.manager = _manager(task_managers, slots, queues, self.shares)
        self.heap: list[tuple[float, int, JobId | ev.SendRequestSlot]] = []
        """When a job comes, or the task in a slot ends."""
        for name, load in LOADS.items():
            for _ in range(max(1, int(load.jobs * scale))):
                job_id = JobId(f"{len(self.shares) + 1:032x}")
                self.shares[job_id] = JobShare(name)
                self.later(load.at, job_id)

    def later(self, at: float, what: JobId | ev.SendRequestSlot) -> None:
        heapq.heappush(self.heap, (at, next(self.numbers), what))

    def step(self) -> None:
        """What happens next."""
        at, _, what = heapq.heappop(self.heap)
        if not isinstance(what, ev.SendRequestSlot):
            self.handle(_declared(what, 1), at)
            return
        job_id = what.message.job_id
        self.held[self.shares[job_id].queue] -= 1
        self.handle(_declared(job_id, 0), at)
        self.handle(ev.AllocationsFreed(what.incarnation, SlotsFreed((what.message.allocation_id,))), at)
        self.handle(ev.JobsFinished((job_id,)), at)

    def handle(self, event: ev.SlotManagerEvent, at: float) -> None:
        for effect in self.manager.handle(event, at):
            if isinstance(effect, ev.SendRequestSlot):
                queue = self.shares[effect.message.job_id].queue
                self.held[queue] += 1
                self.starts.setdefault(queue, at - LOADS[queue].at)
                self.later(at + self.rng.uniform(20, 60), effect)


def simulate(task_managers: int = 100, slots: int = 10, *, scale: float = 1.0, step: float = 8.0) -> Course:
    """The course of a simulated cluster, sampled each `step` seconds."""
    simulation = Simulation(task_managers, slots, scale)
    seconds: list[float] = []
    course: dict[str, list[int]] = {name: [] for name in LOADS}
    while simulation.heap:
        while simulation.heap[0][0] > len(seconds) * step:
            seconds.append(len(seconds) * step)
            for name, figures in course.items():
                figures.append(simulation.held[name])
        simulation.step()
    return Course(seconds, course, simulation.starts)


def plot(course: Course, file: Path) -> None:
    """The slots of the queues, one upon the other, as an SVG."""
    from matplotlib import pyplot as plt

    plt.rcParams["svg.fonttype"] = "none"
    figure, axes = plt.subplots(figsize=(9, 4.4), layout="constrained")
    axes.stackplot(course.seconds, list(course.held.values()), labels=list(course.held), step="post", linewidth=0)
    axes.set_xlim(0, course.seconds[-1])
    axes.set_xlabel("seconds", fontsize=9)
    axes.set_ylabel("slots", fontsize=9)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False, reverse=True)
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def shares(*, small: bool, figure: Path | None = None) -> Report:
    """200 jobs of one user before one of another, the core, and a simulated cluster; `figure` gets its course."""
    report = Report("shares")
    with ScriptCluster(OPTIONS, job_masters=1) as cluster:
        asyncio.run(_measure(cluster, report, jobs=10 if small else 200))
    jobs = 500 if small else 10_000
    for queues in (1, 10, 200):
        rate = events_per_second(jobs, queues)
        report.add(f"SlotManager, {jobs} jobs in {queues} queues, 1000 slots", rate, "events/s")
    rate = events_per_second(jobs, 1, is_rotation=True)
    report.add(f"SlotManager, {jobs} jobs, round robin without queues", rate, "events/s")
    course = simulate(scale=0.02 if small else 1.0)
    longest = max(course.starts.values())
    report.add("simulated: longest wait of the first job of a queue, tasks take 20 to 60 s", longest, "s")
    if figure is not None:
        plot(course, figure)
    return report
