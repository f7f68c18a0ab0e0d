"""Which driver starts TaskManagers and JobMaster processes, and what it is told: from options to a driver."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from runtime.common.errors import InvalidInputError
from runtime.common.worker_ids import profile_of
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.loading import CONFIG_FILE, ENVIRONMENT_PREFIX
from runtime.config.options import docker, security, ssh
from runtime.config.options import high_availability as ha
from runtime.config.options import jobmanager as jm
from runtime.config.options import resourcemanager as rm
from runtime.config.options import taskmanager as tm
from runtime.config.options.cluster import SSH_OPTS
from runtime.config.validate import is_loopback
from runtime.entrypoint import process_options as options
from runtime.entrypoint.control.daemon import JOBMASTER, TASKMANAGER, DaemonKind
from runtime.entrypoint.control.hosts import hosts_of
from runtime.entrypoint.control.plan import FILES
from runtime.entrypoint.control.remote import RemoteHosts
from runtime.entrypoint.drivers.container_record import remember
from runtime.entrypoint.drivers.containers import ContainerDriver, WorkerContainers
from runtime.entrypoint.drivers.docker_engine import ContainerSpec, DockerEngine
from runtime.entrypoint.drivers.ssh_calls import SshCalls
from runtime.entrypoint.drivers.ssh_hosts import SshDriver
from runtime.entrypoint.job_manager_options import WORKER_ADDRESSES, worker_options, worker_settings
from runtime.entrypoint.process import ProcessContext
from runtime.entrypoint.worker_processes import ProcessDriver
from runtime.resourcemanager.driver import ResourceManagerDriver
from runtime.security.cluster_key import load_or_create_cluster_key

CONTAINER_HOME = "/var/lib/flinklike"
"""Of the image (conf/docker/Dockerfile): where a container writes."""
_CONTAINER_CONF = f"{CONTAINER_HOME}/conf"
_CONTAINER_RUN = f"{CONTAINER_HOME}/run"


class WorkerDriver(ResourceManagerDriver, Protocol):
    """What this process makes: a driver that can end all that it has started."""

    async def end_workers(self) -> None:
        """End all workers, and return when they have ended. DriverError."""


def make_driver(context: ProcessContext, kind: DaemonKind, dynamic: Sequence[str], address: str) -> WorkerDriver | None:
    """The driver of one kind of process; None where scripts start them.

    `dynamic`: the -D options of this JobManager, which its workers get too; `address`: where it is reached. Raises
    InvalidInputError for what no worker could use.
    """
    configuration = context.configuration
    get = configuration.get
    if get(rm.DRIVER) == "standalone" or (kind is JOBMASTER and get(jm.AUTOSCALE_MAX) is None):
        return None
    if kind is TASKMANAGER and (problem := port_problem(configuration)):
        raise InvalidInputError(problem)
    told = list(dynamic)
    if get(ha.HA_TYPE) == "none" and get(jm.JOBMANAGER_PORT) == 0:
        told.append(f"{jm.JOBMANAGER_PORT.key}={address.rpartition(':')[2]}")  # no store tells it
    if get(rm.DRIVER) == "process":
        theirs = worker_options(configuration, kind, told)
        options_of = partial(_with_profile, configuration, theirs)
        return ProcessDriver(kind, context.layout, context.environment, options_of)
    if problems := tuple(elsewhere_problems(configuration)):
        raise InvalidInputError("\n".join(problems), problems)
    if get(rm.DRIVER) == "ssh":
        return _ssh_driver(context, kind, told)
    return _container_driver(context, kind, told)


def _with_profile(configuration: Configuration, dynamic: Sequence[str], worker_id: str) -> Sequence[str]:
    """The -D options of one worker: those of its profile come last, and count (D-141)."""
    changed = configuration.profiles.get(profile_of(worker_id), {})
    of_docker = {docker.MEMORY.key, docker.CPUS.key}
    return [*dynamic, *(f"{key}={value}" for key, value in changed.items() if key not in of_docker)]


def docker_engine(configuration: Configuration) -> DockerEngine:
    """The configured daemon. Raises InvalidInputError without the package."""
    folder = configuration.get(docker.CERTIFICATES)
    timeout = options.seconds(configuration, docker.TIMEOUT)
    return DockerEngine(configuration.get(docker.HOST), Path(folder) if folder else None, timeout)


def elsewhere_problems(configuration: Configuration) -> Iterator[str]:
    """What keeps TaskManagers in other places from working with this JobManager."""
    get = configuration.get
    driver = f"{rm.DRIVER.key}: {get(rm.DRIVER)}"
    is_own_network = get(rm.DRIVER) == "docker" and get(docker.NETWORK) != "host"
    if (is_own_network or get(rm.DRIVER) == "ssh") and is_loopback(get(jm.JOBMANAGER_BIND_HOST)):
        yield (
            f"{driver}: TaskManagers do not reach the JobManager at {jm.JOBMANAGER_BIND_HOST.key}: "
            f"{get(jm.JOBMANAGER_BIND_HOST)}: set that to 0.0.0.0, and {jm.JOBMANAGER_ADDRESS.key}"
        )
    if get(rm.DRIVER) == "ssh" and is_loopback(get(tm.TASKMANAGER_BIND_HOST)):
        yield (
            f"{driver}: no other host reaches TaskManagers at {tm.TASKMANAGER_BIND_HOST.key}: "
            f"{get(tm.TASKMANAGER_BIND_HOST)}: set that to 0.0.0.0"
        )
    if get(ha.HA_TYPE) != "none" and not get(ha.HA_STORAGE_DIR):
        yield f"{driver} needs a shared directory or object store: set {ha.HA_STORAGE_DIR.key}"
    if not get(tm.EXCHANGE_DIR):
        yield f"{driver} needs a shared directory or object store for TaskManagers: set {tm.EXCHANGE_DIR.key}"


def port_problem(configuration: Configuration) -> str:
    """What keeps TaskManagers of one host from running beside each other; "" for nothing."""
    get = configuration.get
    is_shared = get(rm.DRIVER) == "process" or (get(rm.DRIVER) == "docker" and get(docker.NETWORK) == "host")
    settings = worker_settings(configuration)
    is_alone = settings is None or settings.slots_max < 2 * settings.slots
    if not get(tm.TASKMANAGER_PORT) or not is_shared or is_alone:
        return ""
    return (
        f"{tm.TASKMANAGER_PORT.key}: {get(tm.TASKMANAGER_PORT)} is for one process of a host, and {rm.DRIVER.key}: "
        f"{get(rm.DRIVER)} starts several there: remove it"
    )


def _container_driver(context: ProcessContext, kind: DaemonKind, dynamic: Sequence[str]) -> ContainerDriver:
    configuration = context.configuration
    remember(context.layout, configuration)
    own = {name: value for name, value in context.environment.items() if name.startswith(ENVIRONMENT_PREFIX)}
    given = dict(one.split("=", 1) for one in configuration.get(docker.ENVIRONMENT))
    volumes = configuration.get(docker.VOLUMES)
    role = {TASKMANAGER: "taskmanager", JOBMASTER: "jobmaster"}[kind]
    profiles = {"": configuration} | {name: configuration.of_profile(name) for name in configuration.profiles}
    spec = ContainerSpec(
        name="",
        image=configuration.get(docker.IMAGE),
        command=[role],
        labels={},
        environment={**own, "FLINKLIKE_CONF_DIR": _CONTAINER_CONF, "FLINKLIKE_RUN_DIR": _CONTAINER_RUN, **given},
        home=CONTAINER_HOME,
        files=_files(configuration, context.layout),
        volumes=volumes,
        network=configuration.get(docker.NETWORK),
    )
    sizes = {name: (one.get(docker.MEMORY), one.get(docker.CPUS)) for name, one in profiles.items()}
    containers = WorkerContainers(
        configuration.get(ha.HA_CLUSTER_ID),
        kind.name,
        kind.label,
        spec,
        partial(_with_profile, configuration, dynamic),
        sizes,
    )
    return ContainerDriver(
        docker_engine(configuration), containers, context.clock, options.seconds(configuration, docker.TIMEOUT)
    )


def _ssh_driver(context: ProcessContext, kind: DaemonKind, dynamic: Sequence[str]) -> SshDriver:
    configuration, layout = context.configuration, context.layout
    path = layout.conf / FILES[kind]
    hosts_of(path)  # a mistake in the file ends the start
    remote = RemoteHosts(layout, context.environment, shlex.split(configuration.get(SSH_OPTS)))
    address = WORKER_ADDRESSES[kind]
    return SshDriver(
        SshCalls(remote, kind, options.seconds(configuration, ssh.TIMEOUT)),
        lambda: hosts_of(path),
        lambda host, worker_id: _with_profile(configuration, [*dynamic, f"{address.key}={host}"], worker_id),
        context.clock,
        look_interval=options.seconds(configuration, ssh.LOOK_INTERVAL),
        retry_interval=options.seconds(configuration, ssh.RETRY_INTERVAL),
    )


def _files(configuration: Configuration, layout: Layout) -> dict[str, bytes]:
    """What a container has of this JobManager's files: its configuration, and keys that lie in the run directory.

    Other files that options name are mounted (resourcemanager.docker.volumes).
    """
    files = {f"{_CONTAINER_CONF}/{CONFIG_FILE}": (layout.conf / CONFIG_FILE).read_bytes()}
    key = configuration.get(security.SECURITY_CLUSTER_KEY_FILE) or "cluster-key"
    if not Path(key).is_absolute():
        load_or_create_cluster_key(layout.cluster_key_file(configuration))
        files[f"{_CONTAINER_RUN}/{key}"] = layout.cluster_key_file(configuration).read_bytes()
    token = configuration.get(security.INTERNAL_TOKEN_FILE)
    if token and not Path(token).is_absolute():
        files[f"{_CONTAINER_RUN}/{token}"] = (layout.run / token).read_bytes()
    return files
