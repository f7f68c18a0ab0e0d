"""The plan of a start: the processes that conf/ names, checked against the configuration. Starts no process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runtime.common.errors import InvalidInputError
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.option import ConfigOption
from runtime.config.options.high_availability import ETCD_EMBEDDED, HA_STORAGE_DIR
from runtime.config.options.jobmanager import (
    AUTOSCALE_MAX,
    JOBMANAGER_ADDRESS,
    JOBMANAGER_BIND_HOST,
    JOBMASTER_ADDRESS,
    JOBMASTER_BIND_HOST,
    REST_ADDRESS,
    REST_PORT,
    SINGLE_JOBMASTER,
)
from runtime.config.options.resourcemanager import DRIVER
from runtime.config.options.taskmanager import EXCHANGE_DIR, TASKMANAGER_BIND_HOST, TASKMANAGER_HOST
from runtime.config.validate import LOCAL_HOSTS
from runtime.entrypoint.control.daemon import JOBMANAGER, JOBMASTER, TASKMANAGER, DaemonKind, Instance
from runtime.entrypoint.control.hosts import Host, read_hosts

FILES = {JOBMANAGER: "masters", JOBMASTER: "JOB_MASTERS", TASKMANAGER: "workers"}
_ADDRESSES = {
    JOBMANAGER: (JOBMANAGER_ADDRESS, REST_ADDRESS),
    JOBMASTER: (JOBMASTER_ADDRESS,),
    TASKMANAGER: (TASKMANAGER_HOST,),
}
_BIND_HOSTS = {JOBMANAGER: JOBMANAGER_BIND_HOST, JOBMASTER: JOBMASTER_BIND_HOST, TASKMANAGER: TASKMANAGER_BIND_HOST}


@dataclass(frozen=True, slots=True)
class Planned:
    """One process that a file in conf/ names."""

    kind: DaemonKind
    host: Host

    def options(self) -> tuple[str, ...]:
        """The -D options of this process alone: the name under which it is reached, and its port."""
        names = () if self.host.is_local else tuple(f"{one.key}={self.host.name}" for one in _ADDRESSES[self.kind])
        return (*names, *([f"{REST_PORT.key}={self.host.port}"] if self.host.port else []))


def make_plan(layout: Layout, configuration: Configuration) -> tuple[Planned, ...]:
    """All processes in the order of starting. Raises InvalidInputError that lists every problem."""
    started = {JOBMANAGER}
    if configuration.get(SINGLE_JOBMASTER) and configuration.get(AUTOSCALE_MAX) is None:
        started.add(JOBMASTER)
    if configuration.get(DRIVER) == "standalone":
        started.add(TASKMANAGER)
    kinds = [kind for kind in FILES if kind in started | _on_demand_by_ssh(configuration)]
    problems: list[str] = []
    planned: list[Planned] = []
    for kind in kinds:
        try:
            planned += [Planned(kind, host) for host in read_hosts(layout.conf / FILES[kind])]
        except InvalidInputError as error:
            problems += error.problems
    problems += [*_same_ports(planned, configuration), *_driver_of_one_host(planned, configuration)]
    if any(not one.host.is_local for one in planned):
        problems += dict.fromkeys(_several_hosts(planned, configuration))
    if problems:
        raise InvalidInputError("\n".join(problems), tuple(problems))
    return tuple(one for one in planned if one.kind in started)


def _on_demand_by_ssh(configuration: Configuration) -> set[DaemonKind]:
    """Kinds whose files name hosts on which a driver starts them: their hosts have to be right now."""
    if configuration.get(DRIVER) != "ssh":
        return set()
    return {TASKMANAGER} if configuration.get(AUTOSCALE_MAX) is None else {TASKMANAGER, JOBMASTER}


def _same_ports(planned: Sequence[Planned], configuration: Configuration) -> Iterator[str]:
    """Two JobManagers of one host need a REST port each."""
    ports = Counter(
        (one.host.name, one.host.port or configuration.get(REST_PORT)) for one in planned if one.kind is JOBMANAGER
    )
    for (host, port), count in ports.items():
        if port and count > 1:
            yield (
                f"conf/{FILES[JOBMANAGER]} names {host} {count} times with REST port {port}: "
                f"give each line a port of its own, {host}:{port + 1}"
            )


def _driver_of_one_host(planned: Sequence[Planned], configuration: Configuration) -> Iterator[str]:
    """The driver `process` sees and ends what runs on its own host: workers of another leader's would stay for ever."""
    hosts = dict.fromkeys(one.host.name for one in planned if one.kind is JOBMANAGER)
    if configuration.get(DRIVER) == "process" and len(hosts) > 1:
        yield (
            f"{DRIVER.key}: process works with JobManagers on one host, and conf/{FILES[JOBMANAGER]} names "
            f"{', '.join(hosts)}: a leader could not end what one on another host has started. Let several JobManagers "
            f"stand by on one host, or set {DRIVER.key}: standalone"
        )


def _several_hosts(planned: Sequence[Planned], configuration: Configuration) -> Iterator[str]:
    """Problems of a cluster on several hosts: shared storage (R20), and addresses that other hosts reach."""
    get = configuration.get
    for kind, host in ((one.kind, one.host) for one in planned):
        if not host.is_local and get(ETCD_EMBEDDED):
            yield f"conf/{FILES[kind]} names {host.name}, but {ETCD_EMBEDDED.key}: true works on this host only"
        if not host.is_local and get(_BIND_HOSTS[kind]) in LOCAL_HOSTS:
            yield _loopback(kind, host, _BIND_HOSTS[kind], configuration)
        if host.is_local and get(_ADDRESSES[kind][0]) in LOCAL_HOSTS:
            yield (
                f"conf/{FILES[kind]} names {host.name}, but other files name other hosts, which cannot reach it there: "
                f"write this host's name, or set {_ADDRESSES[kind][0].key}"
            )
    if not get(HA_STORAGE_DIR):
        yield f"processes on several hosts need a shared directory or object store: set {HA_STORAGE_DIR.key}"
    if not get(EXCHANGE_DIR) and len({one.host.name for one in planned if one.kind is TASKMANAGER}) > 1:
        yield f"TaskManagers on several hosts need a shared directory or object store: set {EXCHANGE_DIR.key}"


def _loopback(kind: DaemonKind, host: Host, option: ConfigOption[str], configuration: Configuration) -> str:
    bound = configuration.get(option)
    return f"conf/{FILES[kind]} names {host.name}, but on {option.key}: {bound} no other host reaches it: set 0.0.0.0"


def missing(planned: Sequence[Planned], running: Sequence[Instance]) -> list[Planned]:
    """The planned processes of this host that do not run. A line with a port needs the process with that port."""
    free = list(running)
    left: list[Planned] = []
    # Lines without a port come last, so that they do not take the process of a line with one.
    for one in sorted(planned, key=lambda one: one.host.port == 0):
        served = next((found for found in free if _serves(found, one)), None)
        if served is None:
            left.append(one)
        else:
            free.remove(served)
    return left


def options_of_next(kind: DaemonKind, layout: Layout, running: Sequence[Instance]) -> tuple[str, ...]:
    """The -D options of one more process on this host: a JobManager takes the first line of its file without a process.

    Raises InvalidInputError for a file that cannot be read.
    """
    path = layout.conf / FILES[JOBMANAGER]
    if kind is not JOBMANAGER or not path.exists():
        return ()
    absent = missing([Planned(kind, host) for host in read_hosts(path) if host.is_local], running)
    return absent[0].options() if absent else ()


def _serves(found: Instance, planned: Planned) -> bool:
    return found.process == planned.kind.name and planned.host.port in (0, found.port)
