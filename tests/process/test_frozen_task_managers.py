"""TaskManagers of a real cluster freeze and wake: what runs twice, when, and whose results count (R14, R18).

Judged by what the tasks write down themselves.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.ids import JobId
from runtime.jobgraph.graph import FunctionReference, JobGraph, JobVertex, Operator, OperatorKind, vertex_id_of
from tests.kit.cluster.lived_tasks import Life, lives
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.cluster.task_manager_process import is_alive
from tests.kit.host.levels import reached
from tests.kit.host.process_tree import tree

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.slow]

ISOLATION = 8.0
MARGIN = 5.0
"""What an owner adds to the isolation timeout before it goes on without a confirmation (R14)."""
OPTIONS = {
    "taskmanager.spark.enabled": "false",
    "taskmanager.numberOfTaskSlots": "6",
    "taskmanager.isolation-timeout": f"{ISOLATION:g} s",
    "heartbeat.interval": "500 ms",
    "heartbeat.timeout": "4 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "0 s",
}
SLACK = 3.0
"""Seconds in which a machine that has other things to do gets round to what is due."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, workers=2) as made:
        yield made


@dataclass(frozen=True)
class Place:
    """Where the current attempt of a task is."""

    attempt: str
    task_manager: str
    state: str


class Tasks:
    """Jobs of one task each, by name."""

    def __init__(self, client: FlinklikeClient, folder: Path) -> None:
        self.client = client
        self._folder = folder
        self.jobs: dict[str, JobId] = {}

    def start(self, name: str, *, exclusive: bool) -> None:
        """Submit it, and wait until it lives."""
        code = FunctionReference(target="tests.kit.cluster.lived_tasks:live")
        operator = Operator(name=name, kind=OperatorKind.FUNCTION, code=code)
        vertex = JobVertex(
            id=vertex_id_of(name),
            name=name,
            operators=(operator,),
            parallelism=1,
            max_parallelism=1,
            exclusive=exclusive,
        )
        self.jobs[name] = new_job_id()
        graph = JobGraph(name=name, vertices=(vertex,), params={"folder": str(self._folder)})
        self.client.submit(graph, job_id=self.jobs[name])
        self.reached_lives(name, 1)
        reached(lambda: (place := self.place(name)) and place.state == "RUNNING", f"{name} is seen to run")

    def lives(self, name: str) -> list[Life]:
        return lives(self._folder, name)

    def reached_lives(self, name: str, count: int, *, timeout: float = 100.0) -> list[Life]:
        return reached(
            lambda: found if len(found := self.lives(name)) >= count else [], f"{name} lives", timeout=timeout
        )

    def place(self, name: str) -> Place | None:
        for vertex in self.client.get(f"/jobs/{self.jobs[name]}")["vertices"]:
            (one,) = self.client.get(f"/jobs/{self.jobs[name]}/vertices/{vertex['id']}")["subtasks"]
            return Place(one["attempt-id"], one["taskmanager-id"], one["status"])
        return None

    def places(self) -> dict[str, Place]:
        return {name: place for name in self.jobs if (place := self.place(name)) is not None}

    def end(self, name: str, life: Life | None = None) -> None:
        """Let it end; or one life of it only."""
        (self._folder / (name if life is None else f"{name}.{life.pid}")).touch()

    def states(self) -> set[str]:
        jobs: list[dict[str, Any]] = self.client.get("/jobs/overview")["jobs"]
        return {job["state"] for job in jobs if job["jid"] in self.jobs.values()}


@pytest.fixture
def tasks(cluster: ScriptCluster, tmp_path: Path) -> Iterator[Tasks]:
    """An exclusive task and two others on each TaskManager."""
    (tmp_path / "ledger").touch()
    with cluster.connect() as client:
        reached(lambda: client.get("/overview")["slots-available"] == 12, "both TaskManagers are there")
        made = Tasks(client, tmp_path)
        for name in ("exclusive-1", "exclusive-2", "shared-1", "shared-2", "shared-3", "shared-4"):
            made.start(name, exclusive=name.startswith("exclusive"))
        yield made
        for name in made.jobs:
            made.end(name)
        reached(lambda: made.states() <= {"FINISHED"}, "all jobs end")


@contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    """SIGSTOP in that order, and SIGCONT at the end."""
    sent = list(pids)
    for pid in sent:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in sent:
            if is_alive(pid):
                os.kill(pid, signal.SIGCONT)


@dataclass
class Frozen:
    """What was on the TaskManager that froze, at `since`."""

    guard: int
    exclusive: str
    shared: list[str]
    old: dict[str, Life]
    since: float

    @property
    def main(self) -> int:
        (child,) = psutil.Process(self.guard).children()
        return int(child.pid)


def choose(tasks: Tasks) -> Frozen:
    """The TaskManager of the first exclusive task."""
    places = tasks.places()
    home = places["exclusive-1"].task_manager
    here = [name for name, place in places.items() if place.task_manager == home]
    shared = [name for name in here if name.startswith("shared")]
    assert (len(here), len(shared)) == (3, 2), places
    old = {name: tasks.lives(name)[0] for name in here}
    (guard,) = {
        parent.pid
        for life in old.values()
        for parent in psutil.Process(life.pid).parents()
        if parent.name() == "tm-guard"
    }
    return Frozen(guard, "exclusive-1", shared, old, time.monotonic())


def runs_elsewhere(tasks: Tasks, frozen: Frozen) -> dict[str, Place]:
    """Not exclusive tasks run again first, the exclusive one when its fence has been waited out; never two of it."""
    for name in frozen.shared:
        tasks.reached_lives(name, 2)
    assert len(tasks.lives(frozen.exclusive)) == 1, "nobody knows yet that it has stopped"
    first, second = tasks.reached_lives(frozen.exclusive, 2, timeout=ISOLATION + MARGIN + 20)
    assert first.last < second.begins
    assert second.begins - frozen.since >= ISOLATION + MARGIN, "no confirmation, no proof"
    reached(lambda: {place.state for place in tasks.places().values()} == {"RUNNING"}, "all run")
    return tasks.places()


def the_old_ones_do_not_count(tasks: Tasks, frozen: Frozen, places: dict[str, Place]) -> None:
    """The TaskManager is awake: its copies are stopped, its results are refused, and it is used again."""
    awake = time.monotonic()
    reached(lambda: not any(lives_on(tasks, *one) for one in frozen.old.items()), "its own copies are stopped")
    print(f"{time.monotonic() - awake:.2f} s after it woke its own copies were stopped")
    assert tasks.places() == places, "the new ones go on"
    tasks.start("next", exclusive=True)
    placed = tasks.place("next")
    assert placed is not None
    assert placed.task_manager not in {place.task_manager for place in places.values()}, "it has the most room"
    for name in tasks.jobs:
        tasks.end(name)
    reached(lambda: tasks.states() == {"FINISHED"}, "all jobs end")
    assert {name: place.attempt for name, place in tasks.places().items()} == {
        **{name: place.attempt for name, place in places.items()},
        "next": placed.attempt,
    }
    for name in tasks.jobs:
        assert len(tasks.lives(name)) == (2 if name in frozen.old else 1), name
        assert "ends" in tasks.lives(name)[-1].notes
    first, second = tasks.lives(frozen.exclusive)
    assert first.last < second.begins
    assert "ends" not in first.notes


def lives_on(tasks: Tasks, name: str, life: Life) -> bool:
    """True while the process of that life has not been told to stop, or killed."""
    noted = next(one for one in tasks.lives(name) if one.pid == life.pid).notes
    return not noted & {"ends", "cancelled"} and is_alive(life.pid)


def test_a_task_manager_whose_main_process_is_frozen(tasks: Tasks) -> None:
    """Its guard ends the exclusive task; the others live on, unseen."""
    frozen = choose(tasks)
    early, late = frozen.shared
    with stopped([frozen.main]):
        tasks.end(early, frozen.old[early])
        places = runs_elsewhere(tasks, frozen)
        old = tasks.lives(frozen.exclusive)[0]
        assert old.last - frozen.since <= ISOLATION + SLACK, "its guard was in time"
        assert "ends" in tasks.lives(early)[0].notes, "its report waits in a socket"
        assert lives_on(tasks, late, frozen.old[late])
    the_old_ones_do_not_count(tasks, frozen, places)
    assert tasks.lives(late)[0].notes == {"begins", "lives", "cancelled"}


def test_a_task_manager_that_is_frozen_with_its_guard_and_all_its_tasks(tasks: Tasks) -> None:
    """As a suspended container. The guard, once it is awake, ends the exclusive task before it does anything else."""
    frozen = choose(tasks)
    watcher = psutil.Process(frozen.guard).ppid()
    everything = [process.pid for process in tree(watcher)]
    with stopped(everything):
        places = runs_elsewhere(tasks, frozen)
        assert is_alive(frozen.old[frozen.exclusive].pid), "nobody is left to kill it"
        os.kill(frozen.guard, signal.SIGCONT)
        reached(lambda: not is_alive(frozen.old[frozen.exclusive].pid), "the guard has killed it")
    the_old_ones_do_not_count(tasks, frozen, places)
