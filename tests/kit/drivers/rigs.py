"""One rig for each driver: a place where it starts real TaskManagers, and what a test does to one behind its back.

The TaskManagers find no JobManager, and go on looking for one. Each driver that a rig makes is that of another leader.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Protocol, Self

import docker

from runtime.aio.clock import LoopClock
from runtime.config.layout import Layout
from runtime.entrypoint.control.daemon import TASKMANAGER
from runtime.entrypoint.control.remote import RemoteHosts
from runtime.entrypoint.drivers.choice import CONTAINER_HOME, WorkerDriver
from runtime.entrypoint.drivers.containers import CLUSTER_LABEL, ContainerDriver, WorkerContainers
from runtime.entrypoint.drivers.docker_engine import ContainerSpec, DockerEngine
from runtime.entrypoint.drivers.ssh_calls import SshCalls
from runtime.entrypoint.drivers.ssh_hosts import SshDriver
from runtime.entrypoint.worker_processes import ProcessDriver
from tests.kit.cluster.compose import docker_host, image_name
from tests.kit.drivers.sshd import SshHosts
from tests.kit.host.levels import reached
from tests.kit.host.process_tree import carrying

ROOT = Path(__file__).resolve().parents[3]
CONFIG = """
high-availability: {type: none, etcd.embedded: false}
jobmanager: {rpc.port: 1, jobmaster.single.enable: false}
taskmanager: {spark.enabled: false, numberOfTaskSlots: 1}
"""
MISTAKE = "taskmanager.memory.task.size=much"
HOSTS = ("127.0.0.3", "127.0.0.4")
LABEL = re.compile(r"taskmanager\.worker-id=(w-[0-9a-f]{12})")


class Rig(Protocol):
    """In `with`."""

    def driver(self, *options: str) -> WorkerDriver:
        """The driver of one more leader, with -D options for workers."""

    def kill(self, worker_id: str) -> None:
        """SIGKILL for all of a worker, by somebody else."""

    def freeze(self, worker_id: str) -> None:
        """Stop it, without an end."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class ProcessRig:
    """On this host."""

    def __init__(self, folder: Path) -> None:
        self.layout = Layout(ROOT, folder / "conf", folder / "run")
        self.layout.conf.mkdir(parents=True)
        self.layout.run.mkdir(mode=0o700)
        (self.layout.conf / "config.yaml").write_text(CONFIG)
        variables = {"FLINKLIKE_PYTHON": f"{ROOT}/.venv/bin/python", "PYTHONPATH": str(ROOT)}
        self._drivers: list[ProcessDriver] = []
        self.environment = {**os.environ, **variables, **self.layout.environment()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for run in self._runs():
            while found := carrying("FLINKLIKE_RUN_DIR", str(run)):
                _signal(found, signal.SIGKILL)
        for child in (child for one in self._drivers for child in one._children.values()):
            child.process.wait()

    def driver(self, *options: str) -> WorkerDriver:
        """Rig."""
        made = ProcessDriver(TASKMANAGER, self.layout, self.environment, lambda _: options)
        self._drivers.append(made)
        return made

    def kill(self, worker_id: str) -> None:
        """Rig."""
        _signal(self._now(worker_id), signal.SIGKILL)

    def freeze(self, worker_id: str) -> None:
        """Rig."""
        _signal([min(self._now(worker_id))], signal.SIGSTOP)  # its first process, the one that a driver signals

    def _runs(self) -> list[Path]:
        return [self.layout.run]

    def _pids(self, worker_id: str) -> list[int]:
        found = {pid: line for run in self._runs() for pid, line in carrying("FLINKLIKE_RUN_DIR", str(run)).items()}
        return [pid for pid, line in found.items() if worker_id in LABEL.findall(line)]

    def _now(self, worker_id: str) -> list[int]:
        return reached(lambda: self._pids(worker_id), "its processes are seen")


class SshRig(ProcessRig):
    """On hosts that a real sshd serves, two workers on each."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.hosts = SshHosts(folder / "ssh", self.layout.run, HOSTS)
        self.lines = [host for host in HOSTS for _ in range(2)]

    def __enter__(self) -> Self:
        self.hosts.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.hosts.__exit__(kind, error, traceback)

    def driver(self, *options: str) -> SshDriver:
        """Rig. Hosts are asked at each look."""
        passed_on = {**self.environment, "FLINKLIKE__TASKMANAGER__BIND_HOST": "127.0.0.1"}
        remote = RemoteHosts(self.layout, passed_on, self.hosts.options.split())
        return SshDriver(
            SshCalls(remote, TASKMANAGER, 60.0),
            lambda: self.lines,
            lambda host, _: [*options, f"taskmanager.host={host}"],
            LoopClock(),
            look_interval=0.0,
            retry_interval=0.0,
        )

    def _runs(self) -> list[Path]:
        return [self.hosts.run_of(host) for host in HOSTS]


class DockerRig:
    """In containers of a real daemon."""

    def __init__(self) -> None:
        self.cluster_id = f"contract-{SystemRandom().randrange(1 << 32):08x}"
        self._client = docker.DockerClient(base_url=docker_host(), version="1.41", timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for one in self._client.containers.list(all=True, filters={"label": f"{CLUSTER_LABEL}={self.cluster_id}"}):
            one.remove(force=True, v=True)
        self._client.close()

    def driver(self, *options: str) -> ContainerDriver:
        """Rig."""
        spec = ContainerSpec(
            name="",
            image=image_name(),
            command=["taskmanager", *(argument for text in options for argument in ("-D", text))],
            labels={},
            environment={"FLINKLIKE_CONF_DIR": f"{CONTAINER_HOME}/conf"},
            home=CONTAINER_HOME,
            files={f"{CONTAINER_HOME}/conf/config.yaml": CONFIG.encode()},
        )
        containers = WorkerContainers(self.cluster_id, TASKMANAGER.name, TASKMANAGER.label, spec)
        return ContainerDriver(DockerEngine(docker_host(), None, 60.0), containers, LoopClock(), 60.0)

    def kill(self, worker_id: str) -> None:
        """Rig."""
        self._container(worker_id).kill()

    def freeze(self, worker_id: str) -> None:
        """Rig."""
        self._container(worker_id).pause()

    def made(self) -> list[str]:
        """Names of all containers, ended ones too."""
        listed = self._client.containers.list(all=True, filters={"label": f"{CLUSTER_LABEL}={self.cluster_id}"})
        return [str(one.name) for one in listed]

    def _container(self, worker_id: str) -> docker.models.containers.Container:
        return self._client.containers.get(f"flinklike-{self.cluster_id}-{worker_id}")


def _signal(pids: object, number: signal.Signals) -> None:
    assert isinstance(pids, dict | list), pids
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
