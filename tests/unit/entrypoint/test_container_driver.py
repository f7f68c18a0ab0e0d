"""The driver `docker` over a daemon that does what a test says: which containers are workers, and which go."""

from __future__ import annotations

import asyncio
import io
import socket
import tarfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.aio.clock import LoopClock
from runtime.entrypoint.drivers.containers import (
    CLUSTER_LABEL,
    WORKER_LABEL,
    ContainerDriver,
    WorkerContainers,
    end_containers,
)
from runtime.entrypoint.drivers.docker_engine import (
    Container,
    ContainerSpec,
    DockerEngine,
    DockerEngineError,
    _archive,
)
from runtime.resourcemanager.driver import DriverError

pytestmark = pytest.mark.asyncio

ONE, TWO = "w-000000000001", "w-000000000002"
SPEC = ContainerSpec("", "flinklike", ["taskmanager"], {}, {}, "/home")


class Daemon(DockerEngine):
    """Containers by name, with their state. `stuck`: those that cannot be removed. `breaks_at`: the call that fails.
    `ends_at`: the signal that ends a container.
    """

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.specs: dict[str, ContainerSpec] = {}
        self.stuck: set[str] = set()
        self.breaks_at = ""
        self.ends_at = 1
        self.signals: list[tuple[str, str]] = []
        self.may_start = threading.Event()
        self.may_start.set()
        self.is_made = threading.Event()

    def _check(self, call: str) -> None:
        if call == self.breaks_at:
            message = f"docker refuses: {call}"
            raise DockerEngineError(message)

    def containers(self, labels: Mapping[str, str]) -> list[Container]:
        self._check("list")
        all_labels = {name: dict(spec.labels) for name, spec in self.specs.items()}
        return [
            Container(name, all_labels[name], state)
            for name, state in self.states.items()
            if labels.items() <= all_labels[name].items()
        ]

    def create(self, spec: ContainerSpec) -> str:
        self._check("create")
        if spec.name in self.states:
            message = f"docker refuses: the name {spec.name} is in use"
            raise DockerEngineError(message)
        self.specs[spec.name] = spec
        self.states[spec.name] = "created"
        self.is_made.set()
        assert self.may_start.wait(60)
        return spec.name

    def start(self, container_id: str) -> None:
        self._check("start")
        self.states[container_id] = "running"

    def signal(self, container_id: str, name: str) -> None:
        self.signals.append((container_id[-12:], name))
        if self.states[container_id] == "running" and len(self.signals) >= self.ends_at:
            self.states[container_id] = "exited"

    def wait_ended(self, container_id: str, patience: float) -> None:
        assert self.states[container_id] == "exited" or self.ends_at > 1, patience

    def remove(self, container_id: str) -> None:
        if container_id in self.stuck:
            message = "docker refuses: device or resource busy"
            raise DockerEngineError(message)
        self.states.pop(container_id, None)

    def last_words(self, container_id: str) -> str:
        return f"exit code 1: {container_id[-14:]}"

    def driver(self, *, cluster: str = "sales", kind: str = "taskmanager", timeout: float = 30.0) -> ContainerDriver:
        containers = WorkerContainers(cluster, kind, "taskmanager.worker-id", SPEC)
        return ContainerDriver(self, containers, LoopClock(), timeout)

    def end(self, worker_id: str) -> None:
        self.states[f"flinklike-sales-{worker_id}"] = "exited"


def wanted() -> bool:
    return True


async def test_a_container_of_a_profile_has_its_options_and_its_size() -> None:
    containers = WorkerContainers(
        "sales", "taskmanager", "taskmanager.worker-id", SPEC, lambda label: [f"of={label}"], {"gpu": (1 << 30, 2.0)}
    )
    plain, gpu = containers.of("w-1"), containers.of("w-1-gpu")
    assert (plain.memory, plain.cpus, gpu.memory, gpu.cpus) == (SPEC.memory, SPEC.cpus, 1 << 30, 2.0)
    assert list(gpu.command) == [*SPEC.command, "-D", "of=w-1-gpu", "-D", "taskmanager.worker-id=w-1-gpu"]


async def test_a_container_has_its_labels_and_its_process_knows_its_own() -> None:
    daemon = Daemon()
    await daemon.driver().start(ONE, is_wanted=wanted)
    (spec,) = daemon.specs.values()
    assert spec.name == f"flinklike-sales-{ONE}"
    assert (spec.labels[CLUSTER_LABEL], spec.labels[WORKER_LABEL]) == ("sales", ONE)
    assert spec.command == ("taskmanager", "-D", f"taskmanager.worker-id={ONE}")


async def test_what_other_clusters_and_other_drivers_have_is_not_seen() -> None:
    daemon = Daemon()
    await daemon.driver(cluster="other").start(ONE, is_wanted=wanted)
    await daemon.driver(kind="jobmaster").start(TWO, is_wanted=wanted)
    driver = daemon.driver()
    assert list(await driver.workers()) == []
    await driver.release(ONE, kills=True)
    await driver.end_workers()
    assert len(daemon.states) == 2


async def test_no_label_is_given_twice() -> None:
    daemon = Daemon()
    await daemon.driver().start(ONE, is_wanted=wanted)
    with pytest.raises(DriverError, match="is in use"):
        await daemon.driver().start(ONE, is_wanted=wanted)
    assert daemon.states == {f"flinklike-sales-{ONE}": "running"}, "the first one runs on"


async def test_one_that_an_earlier_leader_is_about_to_start_counts_and_is_removed_when_it_does_not() -> None:
    daemon = Daemon()
    daemon.may_start.clear()
    start = asyncio.create_task(daemon.driver().start(ONE, is_wanted=lambda: False))
    await asyncio.to_thread(daemon.is_made.wait, 60)
    patient, hasty = daemon.driver(), daemon.driver(timeout=0.02)
    assert list(await patient.workers()) == [ONE]
    assert list(await patient.workers()) == [ONE]
    while list(await hasty.workers()):
        await asyncio.sleep(0.01)
    assert daemon.states == {}
    daemon.may_start.set()
    with pytest.raises(DriverError, match="nobody wants it any more"):
        await start
    assert daemon.states == {}


async def test_an_ended_one_is_cleared_away_and_its_last_words_are_kept() -> None:
    daemon = Daemon()
    driver = daemon.driver()
    await driver.start(ONE, is_wanted=wanted)
    daemon.end(ONE)
    assert list(await driver.workers()) == []
    assert daemon.states == {}
    assert await driver.last_words(ONE) == f"exit code 1: {ONE}"
    assert await driver.last_words(ONE) == ""


async def test_one_that_cannot_be_removed_keeps_no_other_from_being_seen() -> None:
    daemon = Daemon()
    driver = daemon.driver()
    await driver.start(ONE, is_wanted=wanted)
    await driver.start(TWO, is_wanted=wanted)
    daemon.stuck = {f"flinklike-sales-{ONE}"}
    daemon.end(ONE)
    assert list(await driver.workers()) == [TWO]


async def test_a_release_drains_and_a_kill_kills() -> None:
    daemon = Daemon()
    driver = daemon.driver()
    await driver.start(ONE, is_wanted=wanted)
    await driver.start(TWO, is_wanted=wanted)
    await driver.release(ONE, kills=False)
    await driver.release(ONE, kills=False)
    await driver.release(TWO, kills=True)
    assert daemon.signals == [(ONE[-12:], "SIGTERM"), (TWO[-12:], "SIGKILL")]


async def test_one_that_has_not_begun_is_removed_by_a_release() -> None:
    """It hears no signal."""
    daemon = Daemon()
    daemon.may_start.clear()
    start = asyncio.create_task(daemon.driver().start(ONE, is_wanted=lambda: False))
    await asyncio.to_thread(daemon.is_made.wait, 60)
    await daemon.driver().release(ONE, kills=False)
    assert daemon.states == {}
    daemon.may_start.set()
    with pytest.raises(DriverError, match="nobody wants it any more"):
        await start


@pytest.mark.parametrize("label", [{}, {WORKER_LABEL: ""}, {WORKER_LABEL: f"{TWO}\nand more"}])
async def test_a_container_without_a_label_of_a_worker_is_nobodys(label: dict[str, str]) -> None:
    daemon = Daemon()
    driver = daemon.driver()
    await driver.start(ONE, is_wanted=wanted)
    (name,) = daemon.states
    daemon.specs["by-hand"] = replace(daemon.specs[name], labels={**driver._containers.labels, **label})
    daemon.states["by-hand"] = "exited"
    assert list(await driver.workers()) == [ONE]
    assert daemon.states == {name: "running", "by-hand": "exited"}


async def test_a_stop_waits_for_no_drain() -> None:
    """The first signal begins one, the second one ends it."""
    daemon = Daemon()
    daemon.ends_at = 2
    await daemon.driver().start(ONE, is_wanted=wanted)
    assert end_containers(daemon, {CLUSTER_LABEL: "sales"}) == 1
    assert [name for _, name in daemon.signals] == ["SIGTERM", "SIGTERM"]


@pytest.mark.parametrize("call", ["create", "start"])
async def test_a_start_that_fails_says_why_and_leaves_nothing(call: str) -> None:
    daemon = Daemon()
    daemon.breaks_at = call
    with pytest.raises(DriverError, match=f"docker refuses: {call}"):
        await daemon.driver().start(ONE, is_wanted=wanted)
    assert daemon.states == {}


async def test_a_daemon_that_does_not_list_is_an_error_and_no_empty_answer() -> None:
    daemon = Daemon()
    daemon.breaks_at = "list"
    with pytest.raises(DriverError, match="docker refuses: list"):
        await daemon.driver().workers()


async def test_a_stop_ends_all_kinds_of_one_cluster() -> None:
    daemon = Daemon()
    await daemon.driver().start(ONE, is_wanted=wanted)
    await daemon.driver(kind="jobmaster").start(TWO, is_wanted=wanted)
    await daemon.driver(cluster="other").start(ONE, is_wanted=wanted)
    assert end_containers(daemon, {CLUSTER_LABEL: "sales"}) == 2
    assert list(daemon.states) == [f"flinklike-other-{ONE}"]


async def test_a_daemon_that_hangs_delays_an_answer_by_its_timeout(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        engine = DockerEngine(f"unix://{path}", None, 0.2)
        with pytest.raises(DockerEngineError, match=r"does not answer: .*[Tt]imed out"):
            await asyncio.to_thread(engine.containers, {})
    path.unlink()
    with pytest.raises(DockerEngineError, match=r"docker at unix://.* does not answer: there is no such file"):
        engine.containers({})


async def test_files_belong_to_the_user_of_the_image_alone() -> None:
    spec = ContainerSpec(
        "", "", (), {}, {}, "/home", {"/home/run/secrets/key": b"secret", "/home/conf/c.yaml": b"a: b"}
    )
    with tarfile.open(fileobj=io.BytesIO(_archive(spec, (10001, 10002)))) as tar:
        found = {one.name: (one.mode, one.uid, one.gid, one.isdir()) for one in tar}
    assert found == {
        "run": (0o700, 10001, 10002, True),
        "run/secrets": (0o700, 10001, 10002, True),
        "run/secrets/key": (0o600, 10001, 10002, False),
        "conf": (0o700, 10001, 10002, True),
        "conf/c.yaml": (0o600, 10001, 10002, False),
    }
