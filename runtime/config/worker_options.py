"""Rules across the options of processes that a driver starts (R65). Each yields sentences that say what to change."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from runtime.config import profile_options
from runtime.config.configuration import Configuration
from runtime.config.option import ConfigOption
from runtime.config.options import docker, ssh
from runtime.config.options import high_availability as ha
from runtime.config.options import jobmanager as jm
from runtime.config.options import resourcemanager as rm

_SOCKETS = ("/var/run/docker.sock", "/run/docker.sock")
_OF_THE_DRIVER = frozenset({"FLINKLIKE_CONF_DIR", "FLINKLIKE_RUN_DIR"})
_AUTOSCALE: tuple[ConfigOption[Any], ...] = (
    jm.AUTOSCALE_MIN,
    jm.AUTOSCALE_JOBS,
    jm.AUTOSCALE_LAG,
    jm.AUTOSCALE_STABILIZATION,
    jm.AUTOSCALE_DOWN,
)


def conflicts(configuration: Configuration) -> Iterator[str]:
    """Options without an effect, and bounds that contradict each other."""
    get = configuration.get
    if get(rm.DRIVER) == "standalone":
        for option in (one for one in vars(rm).values() if isinstance(one, ConfigOption) and one is not rm.DRIVER):
            if get(option) != option.default:
                yield (
                    f"{option.key} has no effect with {rm.DRIVER.key}: standalone: set that to process, docker or ssh, "
                    "or remove it"
                )
    elif (most := get(rm.SLOTS_MAX)) is not None and get(rm.SLOTS_MIN) > most:
        yield f"{rm.SLOTS_MIN.key}: {get(rm.SLOTS_MIN)} is above {rm.SLOTS_MAX.key}: {most}"
    yield from profile_options.conflicts(configuration.profiles, get(rm.DRIVER), rm.DRIVER.key)
    yield from _of_some_drivers(configuration)
    hosts = dict.fromkeys(address.rpartition(":")[0] for address in get(jm.REST_ADDRESSES))
    if get(rm.DRIVER) == "process" and len(hosts) > 1:
        yield (
            f"{rm.DRIVER.key}: process works with JobManagers on one host, and {jm.REST_ADDRESSES.key} names "
            f"{', '.join(hosts)}: a leader could not end what one on another host has started"
        )
    if get(jm.AUTOSCALE_MAX) is None:
        for one in _AUTOSCALE:
            if get(one) != one.default:
                yield f"{one.key} has no effect without {jm.AUTOSCALE_MAX.key}: set that, or remove it"
    else:
        yield from _autoscale(configuration, get(jm.AUTOSCALE_MAX) or 0)


def _of_some_drivers(configuration: Configuration) -> Iterator[str]:
    """Options of drivers that are not used, and what the used one needs."""
    get = configuration.get
    if get(rm.DRIVER) == "docker":
        yield from _docker(configuration)
    if get(rm.DRIVER) in {"docker", "ssh"} and get(ha.ETCD_EMBEDDED):
        yield (
            f"{ha.ETCD_EMBEDDED.key}: true is for the processes of one host, and what {rm.DRIVER.key}: "
            f"{get(rm.DRIVER)} starts does not reach it: set {ha.ETCD_ENDPOINTS.key}"
        )
    for driver, module in (("docker", docker), ("ssh", ssh)):
        if get(rm.DRIVER) == driver:
            continue
        for option in (one for one in vars(module).values() if isinstance(one, ConfigOption)):
            if get(option) != option.default:
                yield f"{option.key} has no effect with {rm.DRIVER.key}: {get(rm.DRIVER)}: remove it"


def _docker(configuration: Configuration) -> Iterator[str]:
    get = configuration.get
    if get(ha.HA_CLUSTER_ID) == ha.HA_CLUSTER_ID.default:
        yield (
            f"{rm.DRIVER.key}: docker needs {ha.HA_CLUSTER_ID.key}, a name of this cluster alone: its containers are "
            "known by it, and another cluster with the same daemon would end them"
        )
    is_remote = get(docker.HOST).startswith("tcp://")
    if is_remote and not get(docker.CERTIFICATES):
        yield (
            f"{docker.HOST.key}: {get(docker.HOST)} needs {docker.CERTIFICATES.key}: whoever reaches a daemon without "
            "certificates is root on its host"
        )
    source = next((one.split(":")[0] for one in get(docker.VOLUMES) if _has_socket(one, get(docker.HOST))), "")
    if source:
        yield (
            f"{docker.VOLUMES.key}: {source} would give containers the socket of the daemon, and so all jobs the "
            "rights of root on its host: mount something below it, or something else"
        )
    for name in sorted({one.partition("=")[0] for one in get(docker.ENVIRONMENT)} & _OF_THE_DRIVER):
        yield f"{docker.ENVIRONMENT.key}: {name} is the driver's, which writes the files there: remove it"
    if not is_remote and get(docker.CERTIFICATES):
        yield f"{docker.CERTIFICATES.key} has no effect with {docker.HOST.key}: {get(docker.HOST)}: remove it"


def _has_socket(volume: str, host: str) -> bool:
    """True for a directory of the docker host with the daemon's socket, wherever this process reaches that."""
    source = PurePosixPath(posixpath.normpath(volume.split(":", maxsplit=1)[0]))
    sockets = {PurePosixPath(text) for text in (host.removeprefix("unix://"), *_SOCKETS)}
    return source.is_absolute() and any(source in {one, *one.parents} for one in sockets)


def _autoscale(configuration: Configuration, most: int) -> Iterator[str]:
    get = configuration.get
    if get(rm.DRIVER) == "standalone":
        yield (
            f"{jm.AUTOSCALE_MAX.key} has no effect without a driver: "
            f"set {rm.DRIVER.key}: process, docker or ssh, or remove it"
        )
    if not get(jm.SINGLE_JOBMASTER):
        yield (
            f"{jm.AUTOSCALE_MAX.key} has no effect while JobMasters run inside the JobManager: "
            f"set {jm.SINGLE_JOBMASTER.key}: true, or remove it"
        )
    if get(jm.AUTOSCALE_MIN) > most:
        yield f"{jm.AUTOSCALE_MIN.key}: {get(jm.AUTOSCALE_MIN)} is above {jm.AUTOSCALE_MAX.key}: {most}"
    if get(jm.AUTOSCALE_JOBS) > get(jm.JOBMASTER_CAPACITY):
        yield (
            f"{jm.AUTOSCALE_JOBS.key}: {get(jm.AUTOSCALE_JOBS)} is more than one process takes "
            f"({jm.JOBMASTER_CAPACITY.key}: {get(jm.JOBMASTER_CAPACITY)})"
        )
    is_shared = get(rm.DRIVER) != "docker" or get(docker.NETWORK) == "host"
    if get(jm.JOBMASTER_PORT) and most > 1 and is_shared:
        yield f"{jm.JOBMASTER_PORT.key}: {get(jm.JOBMASTER_PORT)} is for one process of a host: remove it"
