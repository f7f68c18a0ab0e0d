"""The services of conf/docker/compose.yaml as containers, started through the docker SDK: there is no compose here.

Of the file it uses what a cluster is made of: images, commands, environments, volumes, networks, limits, health checks.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Any, Self

import docker
import yaml
from docker.errors import DockerException, ImageNotFound, NotFound

from tests.kit.host.levels import reached

FILE = Path(__file__).resolve().parents[3] / "conf" / "docker" / "compose.yaml"
IMAGE_VARIABLE = "FLINKLIKE_IMAGE"
API_VERSION = "1.41"
"""That of docker 20.10, and of all later ones."""
_GET = """
import sys, urllib.request
token = open("/var/lib/flinklike-shared/secrets/token").read().strip()
asked = urllib.request.Request("http://localhost:8081" + sys.argv[1], headers={"Authorization": "Bearer " + token})
print(urllib.request.urlopen(asked, timeout=20).read().decode())
"""
_ENTRY = "/opt/flinklike/bin/container.sh"
SHARED = "/var/lib/flinklike-shared"
_TESTS = Path(__file__).resolve().parents[2]
_UNITS = {"s": 1_000_000_000, "m": 60_000_000_000}


def docker_host() -> str:
    """The daemon under test."""
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


def image_name() -> str:
    """The image of its containers."""
    return os.environ.get(IMAGE_VARIABLE, "flinklike")


def why_not() -> str:
    """Why no containers can be started here; "" where they can."""
    host = docker_host()
    if host.startswith("unix://") and not Path(host.removeprefix("unix://")).is_socket():
        return f"no docker daemon answers: there is no {host}"
    client = docker.DockerClient.from_env(timeout=5, version=API_VERSION)  # with a version it asks nothing yet
    image = image_name()
    try:
        client.ping()
        client.images.get(image)
    except ImageNotFound:
        return f"there is no image {image} (docker build -f conf/docker/Dockerfile; {IMAGE_VARIABLE} names another one)"
    except (DockerException, OSError) as error:
        return f"no docker daemon answers: {str(error)[:200]}"
    finally:
        client.close()
    return ""


class ComposeCluster:
    """The cluster in `with`. `environment` is added to that of its processes. `services`: those that it has, by the
    beginnings of their names. `has_driver`: its JobManagers reach the daemon, and start TaskManagers beside themselves.
    `has_tests`: its processes can import these tests.
    """

    def __init__(
        self,
        environment: dict[str, str],
        *,
        task_managers: int = 2,
        services: tuple[str, ...] = ("",),
        has_driver: bool = False,
        has_tests: bool = False,
    ) -> None:
        self._client = docker.from_env(timeout=120)
        self._file: dict[str, Any] = yaml.safe_load(_filled(FILE.read_text()))
        self._project = f"flinklike-{SystemRandom().randrange(1 << 32):08x}"
        self._environment = {**(self._driver_options() if has_driver else {}), **environment}
        self._services = services
        self._has_driver = has_driver
        self._beside = {str(_TESTS): {"bind": "/opt/flinklike/tests", "mode": "ro"}} if has_tests else {}
        self._task_managers = task_managers
        self._volumes: list[Any] = []
        self._network: Any = None
        self.containers: dict[str, Any] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        self._network = self._client.networks.create(self._project)
        for name, service in self._file["services"].items():
            if not name.startswith(self._services):
                continue
            count = self._task_managers if "deploy" in service else 1
            for number in range(1, count + 1):
                self._run(name if count == 1 else f"{name}-{number}", service)
        for name in self.containers:
            self.wait_healthy(name)

    def _run(self, name: str, service: dict[str, Any]) -> None:
        is_process = "environment" in service
        is_driven = self._has_driver and name.startswith("jobmanager")
        made = self._client.containers.create(
            service["image"],
            service["command"],
            name=f"{self._project}-{name}",
            hostname=name,
            environment={**service["environment"], **self._environment} if is_process else {},
            volumes={**self._mounts(name, service["volumes"]), **self._beside, **(_socket() if is_driven else {})},
            group_add=[str(_socket_path().stat().st_gid)] if is_driven else [],
            tmpfs=dict.fromkeys(service.get("tmpfs", ()), ""),
            read_only=service["read_only"],
            cap_drop=service["cap_drop"],
            security_opt=["no-new-privileges"],
            healthcheck=_health_check(service.get("healthcheck")),
            network=self._project,
            networking_config={self._project: self._client.api.create_endpoint_config(aliases=[name])},
        )
        self.containers[name] = made
        made.start()

    def run_beside(self, name: str, words: list[str]) -> Any:
        """Run Python in one more container, which shares the volume of all; it."""
        made = self._client.containers.create(
            image_name(),
            words,
            entrypoint=["python3"],
            name=f"{self._project}-{name}",
            environment={"PYTHONPATH": "/opt/flinklike"},
            volumes={f"{self._project}-shared": {"bind": SHARED, "mode": "rw"}, **self._beside},
            network=self._project,
        )
        self.containers[name] = made
        made.start()
        return made

    def _driver_options(self) -> dict[str, str]:
        return {
            "FLINKLIKE__RESOURCEMANAGER__DRIVER": "docker",
            "FLINKLIKE__HIGH_AVAILABILITY__CLUSTER_ID": self._project,
            "FLINKLIKE__RESOURCEMANAGER__DOCKER__IMAGE": image_name(),
            "FLINKLIKE__RESOURCEMANAGER__DOCKER__NETWORK": self._project,
            "FLINKLIKE__RESOURCEMANAGER__DOCKER__VOLUMES": f"{self._project}-shared:{SHARED}",
        }

    def workers(self) -> dict[str, str]:
        """Containers of workers of the driver that run, by their labels."""
        found = self._client.containers.list(filters={"label": f"flinklike.cluster-id={self._project}"}, sparse=True)
        return {one.attrs["Labels"]["flinklike.worker-id"]: str(one.id) for one in found}

    def kinds(self) -> set[str]:
        """What kinds of workers there are, ended ones too."""
        label = f"flinklike.cluster-id={self._project}"
        found = self._client.containers.list(all=True, filters={"label": label}, sparse=True)
        return {str(one.attrs["Labels"]["flinklike.kind"]) for one in found}

    def all_workers(self) -> list[str]:
        """Ids of all containers of workers, ended ones too."""
        label = f"flinklike.cluster-id={self._project}"
        return [str(one.id) for one in self._client.containers.list(all=True, filters={"label": label}, sparse=True)]

    def _mounts(self, name: str, given: list[str]) -> dict[str, dict[str, str]]:
        """A volume of its own for each path without one, as compose makes it."""
        mounts = {}
        for one in given:
            volume, colon, path = one.rpartition(":")
            own = f"{self._project}-{volume}" if colon else f"{self._project}-{name}-{len(self._volumes)}"
            self._volumes.append(own)
            mounts[own] = {"bind": path, "mode": "rw"}
        return mounts

    def wait_healthy(self, name: str) -> None:
        """Return when a container is healthy."""
        reached(lambda: self.health(name) == "healthy", f"{name} is healthy", timeout=240, every=0.5)

    def health(self, name: str) -> str:
        """`healthy`, `starting`, `unhealthy`; the state of a container that does not run."""
        made = self.containers[name]
        made.reload()
        state = made.attrs["State"]
        return str(state["Health"]["Status"]) if state["Running"] else str(state["Status"])

    def shell(self, name: str, line: str) -> tuple[int, str]:
        """Run a line in a container: exit code and output."""
        done = self.containers[name].exec_run(["bash", "-c", line])
        return done.exit_code, done.output.decode(errors="replace")

    def flinklike(self, name: str, words: str) -> tuple[int, str]:
        """The command line, in a container."""
        return self.shell(name, f"{_ENTRY} flinklike {words}")

    def get(self, name: str, path: str) -> Any:
        """What REST says, as a process in that container sees it."""
        code, said = self.shell(name, f"python3 -c '{_GET}' {path}")
        assert code == 0, said
        return json.loads(said)

    def leader(self, names: Iterable[str]) -> str:
        """That of these JobManagers which leads."""
        names = tuple(names)
        address = self.get(names[0], "/overview")["leader"].rpartition(":")[0]
        found = {name: self.shell(name, "hostname -i")[1].split()[0] for name in names}
        return next(name for name, ip in found.items() if ip == address)

    def states(self, name: str, jobs: Iterable[str]) -> list[str]:
        """The states of jobs; none while no JobManager answers."""
        code, said = self.shell(name, f"python3 -c '{_GET}' /jobs/overview")
        if code != 0:
            return []
        found = {one["jid"]: str(one["state"]) for one in json.loads(said)["jobs"]}
        return [found.get(job, "?") for job in jobs]

    def close(self) -> None:
        """Remove all of it."""
        for made in self.containers.values():
            made.remove(force=True, v=True)
        for worker in self.all_workers() if self._has_driver else ():
            self._client.api.remove_container(worker, force=True, v=True)
        if self._network is not None:
            self._network.remove()
        for name in dict.fromkeys(self._volumes):
            try:
                self._client.volumes.get(name).remove(force=True)
            except NotFound:
                continue
        self._client.close()


def _socket_path() -> Path:
    return Path(docker_host().removeprefix("unix://"))


def _socket() -> dict[str, dict[str, str]]:
    return {str(_socket_path()): {"bind": "/var/run/docker.sock", "mode": "rw"}}


def _filled(text: str) -> str:
    """With the values of variables, or their defaults."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: os.environ.get(found[1], found[2]), text)


def _health_check(given: dict[str, Any] | None) -> dict[str, Any] | None:
    if given is None:
        return {"interval": 1_000_000_000, "start_period": 120_000_000_000, "retries": 60, "timeout": 10_000_000_000}
    seconds = {key: int(text[:-1]) * _UNITS[text[-1]] for key, text in given.items() if key in {"interval", "timeout"}}
    return {"test": given["test"], "retries": given["retries"], **seconds}
