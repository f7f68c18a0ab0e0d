"""The services of conf/docker/compose.yaml as containers, started through the docker SDK: there is no compose here.

Of the file it uses what a cluster is made of: images, commands, environments, volumes, networks, limits, health checks.
"""

from __future__ import annotations

import os
import re
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
_ENTRY = "/opt/flinklike/bin/container.sh"
_UNITS = {"s": 1_000_000_000, "m": 60_000_000_000}


def why_not() -> str:
    """Why no containers can be started here; "" where they can."""
    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if host.startswith("unix://") and not Path(host.removeprefix("unix://")).is_socket():
        return f"no docker daemon answers: there is no {host}"
    client = docker.DockerClient.from_env(timeout=5, version=API_VERSION)  # with a version it asks nothing yet
    image = os.environ.get(IMAGE_VARIABLE, "flinklike")
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
    """The cluster in `with`. `environment` is added to that of its processes."""

    def __init__(self, environment: dict[str, str], *, task_managers: int = 2) -> None:
        self._client = docker.from_env(timeout=120)
        self._file: dict[str, Any] = yaml.safe_load(_filled(FILE.read_text()))
        self._project = f"flinklike-{SystemRandom().randrange(1 << 32):08x}"
        self._environment = environment
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
            count = self._task_managers if "deploy" in service else 1
            for number in range(1, count + 1):
                self._run(name if count == 1 else f"{name}-{number}", service)
        for name in self.containers:
            self.wait_healthy(name)

    def _run(self, name: str, service: dict[str, Any]) -> None:
        is_process = "environment" in service
        made = self._client.containers.create(
            service["image"],
            service["command"],
            name=f"{self._project}-{name}",
            hostname=name,
            environment={**service["environment"], **self._environment} if is_process else {},
            volumes=self._mounts(name, service["volumes"]),
            tmpfs=dict.fromkeys(service.get("tmpfs", ()), ""),
            read_only=service["read_only"],
            cap_drop=service["cap_drop"],
            security_opt=["no-new-privileges"],
            healthcheck=_health_check(service.get("healthcheck")),
            network=None,
        )
        self.containers[name] = made
        self._network.connect(made, aliases=[name])
        made.start()

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

    def close(self) -> None:
        """Remove all of it."""
        for made in self.containers.values():
            made.remove(force=True, v=True)
        if self._network is not None:
            self._network.remove()
        for name in dict.fromkeys(self._volumes):
            try:
                self._client.volumes.get(name).remove(force=True)
            except NotFound:
                continue
        self._client.close()


def _filled(text: str) -> str:
    """With the values of variables, or their defaults."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: os.environ.get(found[1], found[2]), text)


def _health_check(given: dict[str, Any] | None) -> dict[str, Any] | None:
    if given is None:
        return {"interval": 1_000_000_000, "start_period": 120_000_000_000, "retries": 60, "timeout": 10_000_000_000}
    seconds = {key: int(text[:-1]) * _UNITS[text[-1]] for key, text in given.items() if key in {"interval", "timeout"}}
    return {"test": given["test"], "retries": given["retries"], **seconds}
