"""DockerEngine: the few calls to a docker daemon that the driver needs. Each blocks, within a timeout.

Invariants: a client of the SDK lives within one call, so threads share none; every error is a DockerEngineError in
words for people.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime.common.errors import FlinklikeError, InvalidInputError
from runtime.common.printable import printable

API_VERSION = "1.41"
"""That of docker 20.10, and of all later ones."""
_LOG_LINES = 20
_RUNS = frozenset({"running", "paused", "restarting"})
_HAS_ENDED = frozenset({"exited", "dead", "removing"})


class DockerEngineError(FlinklikeError):
    """The daemon cannot be reached, or refuses: in a sentence."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container as a list shows it. `state`: docker's."""

    id: str
    labels: Mapping[str, str]
    state: str

    @property
    def is_running(self) -> bool:
        """True while its process runs; a paused one does."""
        return self.state in _RUNS

    @property
    def has_ended(self) -> bool:
        """True when its process has ended. Neither this nor `is_running`: it was made, and has not begun."""
        return self.state in _HAS_ENDED


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """What a container is made of. `files` are written to their paths, which lie below `home`, before it starts.

    `home`: a directory that the container has for itself, on a volume that goes with it.
    """

    name: str
    image: str
    command: Sequence[str]
    labels: Mapping[str, str]
    environment: Mapping[str, str]
    home: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    volumes: Sequence[str] = ()
    network: str = ""
    memory: int | None = None
    cpus: float = 0.0


class DockerEngine:
    """One daemon. `certificates`: a directory with ca.pem, cert.pem and key.pem; None for a daemon without TLS."""

    def __init__(self, host: str, certificates: Path | None, timeout: float) -> None:
        self._sdk = docker_sdk()
        self._host = host
        self._certificates = certificates
        self._timeout = timeout

    def containers(self, labels: Mapping[str, str]) -> list[Container]:
        """All containers with these labels, ended ones too."""
        wanted = [f"{key}={value}" for key, value in labels.items()]
        with self._client() as client:
            listed = client.api.containers(all=True, filters={"label": wanted})
        return [Container(one["Id"], one.get("Labels") or {}, one["State"]) for one in listed]

    def create(self, spec: ContainerSpec) -> str:
        """Make a container with its files, and do not start it. Its id."""
        with self._client() as client:
            owner = self._user_of(client, spec.image)
            if spec.network and spec.network not in {"host", "none"}:
                self._check_network(client, spec.network)
            made = client.containers.create(
                spec.image,
                list(spec.command),
                name=spec.name,
                labels=dict(spec.labels),
                environment=dict(spec.environment),
                volumes=[*spec.volumes, spec.home],
                tmpfs={"/tmp": ""},  # noqa: S108 - of the container
                read_only=True,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                init=True,  # the first process of a container ignores SIGTERM until it has a handler
                mem_limit=spec.memory,
                nano_cpus=int(spec.cpus * 1_000_000_000) or None,
                network=spec.network or None,
                detach=True,
            )
            try:
                if not made.put_archive(spec.home, _archive(spec, owner)):
                    message = f"docker at {self._host}: the files of container {spec.name} cannot be written"
                    raise DockerEngineError(message)
            except BaseException:
                made.remove(force=True, v=True)
                raise
            return str(made.id)

    def start(self, container_id: str) -> None:
        """Start a container that was made."""
        with self._client() as client:
            client.api.start(container_id)

    def signal(self, container_id: str, name: str) -> None:
        """Send a signal to its first process; nothing where it has ended. One that is paused goes on."""
        with self._client() as client:
            try:
                if client.api.inspect_container(container_id)["State"].get("Paused"):
                    client.api.unpause(container_id)
                client.api.kill(container_id, name)
            except self._sdk.errors.NotFound:
                return
            except self._sdk.errors.APIError as error:
                if error.status_code != 409:  # it does not run
                    raise

    def wait_ended(self, container_id: str, patience: float) -> None:
        """Return when its first process has ended, or after so many seconds."""
        with self._client() as client:
            try:
                client.api.wait(container_id, timeout=patience)
            except (self._sdk.errors.NotFound, OSError):
                return  # it is gone; or the time is over, which requests says with an OSError

    def remove(self, container_id: str) -> None:
        """Remove it with its own volumes, though it runs. Idempotent."""
        with self._client() as client:
            try:
                client.api.remove_container(container_id, force=True, v=True)
            except self._sdk.errors.NotFound:
                return
            except self._sdk.errors.APIError as error:
                if error.status_code != 409:  # it is being removed
                    raise

    def last_words(self, container_id: str) -> str:
        """How an ended container ended, and the last line that it has said; "" when nothing is known."""
        with self._client() as client:
            try:
                state = client.api.inspect_container(container_id)["State"]
                said = client.api.logs(container_id, tail=_LOG_LINES).decode(errors="replace")
            except self._sdk.errors.NotFound:
                return ""
        lines = [printable(line.strip()) for line in said.splitlines() if line.strip()]
        why = ", it took more memory than resourcemanager.docker.memory" if state.get("OOMKilled") else ""
        problem = f": {printable(state['Error'])}" if state.get("Error") else ""
        last = f": {lines[-1][:500]}" if lines else ""
        return f"exit code {state.get('ExitCode')}{why}{problem}{last}"

    @contextmanager
    def _client(self) -> Iterator[Any]:
        errors = self._sdk.errors
        try:
            with closing(self._connected()) as client:
                yield client
        except errors.APIError as error:
            message = f"docker at {self._host} refuses: {printable(str(error.explanation or error))[:500]}"
            raise DockerEngineError(message) from error
        except (errors.DockerException, OSError) as error:  # requests' errors are OSErrors
            message = f"docker at {self._host} does not answer: {printable(_reason(error))[:300]}"
            raise DockerEngineError(message) from error

    def _connected(self) -> Any:
        path = self._host.removeprefix("unix://")
        if path != self._host and not Path(path).exists():
            message = f"docker at {self._host} does not answer: there is no such file"
            raise DockerEngineError(message)
        tls: Any = False
        if self._certificates is not None:
            folder = self._certificates
            pair = (str(folder / "cert.pem"), str(folder / "key.pem"))
            tls = self._sdk.tls.TLSConfig(client_cert=pair, ca_cert=str(folder / "ca.pem"), verify=True)
        return self._sdk.DockerClient(
            base_url=self._host, version=API_VERSION, timeout=self._timeout, tls=tls, max_pool_size=1
        )

    def _user_of(self, client: Any, image: str) -> tuple[int, int]:
        """The user and group of its processes, who own the files."""
        try:
            user = str(client.images.get(image).attrs["Config"].get("User") or "0")
        except self._sdk.errors.ImageNotFound:
            message = (
                f"docker at {self._host} has no image {image}: build it there "
                "(docker build -f conf/docker/Dockerfile), pull it, or set resourcemanager.docker.image"
            )
            raise DockerEngineError(message) from None
        uid, _, gid = user.partition(":")
        if not uid.isdecimal() or not (gid or uid).isdecimal():
            message = f"image {image} runs as {user}: it has to say that in numbers, such as USER 10001:10001"
            raise DockerEngineError(message)
        return int(uid), int(gid or uid)

    def _check_network(self, client: Any, network: str) -> None:
        try:
            client.api.inspect_network(network)
        except self._sdk.errors.NotFound:
            message = (
                f"docker at {self._host} has no network {network}: docker network create {network}, "
                "or set resourcemanager.docker.network"
            )
            raise DockerEngineError(message) from None


def docker_sdk() -> Any:
    """The package `docker`. Raises InvalidInputError without it."""
    try:
        import docker  # noqa: PLC0415 - only clusters with this driver have it
    except ImportError:
        message = (
            "resourcemanager.driver: docker needs the package docker, which is not here: "
            "pip install 'airflow-flinklike[docker]'"
        )
        raise InvalidInputError(message) from None
    return docker


def _reason(error: object) -> str:
    """What the system says, from within the errors around it."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    inner = [*error.args, error.__context__] if isinstance(error, BaseException) else []
    return next((reason for one in inner if isinstance(one, BaseException) and (reason := _reason(one))), str(error))


def _archive(spec: ContainerSpec, owner: tuple[int, int]) -> bytes:
    """The files as a tar, for their user alone."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        made: set[str] = set()
        for path, content in spec.files.items():
            inner = Path(path).relative_to(spec.home)
            for folder in reversed(inner.parents[:-1]):
                if str(folder) not in made:
                    made.add(str(folder))
                    tar.addfile(_entry(str(folder), owner, tarfile.DIRTYPE, 0o700, 0))
            tar.addfile(_entry(str(inner), owner, tarfile.REGTYPE, 0o600, len(content)), io.BytesIO(content))
    return out.getvalue()


def _entry(name: str, owner: tuple[int, int], kind: bytes, mode: int, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size = kind, mode, size
    entry.uid, entry.gid = owner
    return entry
