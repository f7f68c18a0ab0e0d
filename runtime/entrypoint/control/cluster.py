"""start-cluster.sh and stop-cluster.sh: etcd, JobManagers, JobMaster processes and TaskManagers, here and by ssh.

A start starts all processes side by side that conf/ names and that do not run yet. At the first failure it stops the
processes that it has started on this host. A stop uses the records in the run directory, so a broken file in conf/ or
an unreachable host does not keep the other processes running.
"""

from __future__ import annotations

import errno
import shlex
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TextIO

from runtime.common.errors import FlinklikeError, InvalidInputError
from runtime.common.printable import printable
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.loading import InvalidConfigurationError, load
from runtime.config.options.cluster import SSH_OPTS
from runtime.config.options.high_availability import ETCD_EMBEDDED, ETCD_EMBEDDED_PORT
from runtime.config.options.jobmanager import AUTOSCALE_MAX, REST_ADDRESS, REST_BIND_ADDRESS, REST_PORT
from runtime.config.options.resourcemanager import DRIVER
from runtime.config.options.security import (
    SECURITY_AUTHENTICATION,
    SSL_REST_CA,
    SSL_REST_CERT,
    SSL_REST_ENABLED,
    SSL_REST_KEY,
)
from runtime.entrypoint.control import embedded_etcd as embedded
from runtime.entrypoint.control.airflow import stop_standalone
from runtime.entrypoint.control.cluster_view import ClusterView
from runtime.entrypoint.control.daemon import (
    JOBMANAGER,
    JOBMASTER,
    STANDALONEJOB,
    START_TIMEOUT,
    TASKMANAGER,
    Daemon,
    DaemonKind,
    Instance,
    Starting,
)
from runtime.entrypoint.control.hosts import read_hosts
from runtime.entrypoint.control.pending import DaemonError, wait_all
from runtime.entrypoint.control.plan import FILES, Planned, make_plan, missing
from runtime.entrypoint.control.remote import RemoteCall, RemoteHosts
from runtime.entrypoint.control.rolling import RollingRestart
from runtime.entrypoint.control.run_directory import prepare_run_directory
from runtime.entrypoint.control.table import render_table
from runtime.entrypoint.drivers.container_record import end_recorded
from runtime.security.tokens import read_cluster_token

_REMOTE_STOP_TIMEOUT = 60.0
_REMOTE_MARGIN = 20.0
_ROLL_TIMEOUT = 3600.0
ROLL = "roll"
"""The verb of a daemon's script on other hosts that replaces all its processes, one after the other."""
END_CONTAINERS = "end-containers"
"""The verb of a JobManager's script on other hosts that ends what the driver docker of these has started."""
_HEADER = ("process", "host", "pid", "address", "state")


class ClusterControl:
    """Starts and stops all processes that conf/ names."""

    def __init__(self, layout: Layout, environment: Mapping[str, str], dynamic: Sequence[str], out: TextIO) -> None:
        self.layout = layout
        self._environment = environment
        self._dynamic = tuple(dynamic)
        self._out = out
        self._host = socket.gethostname()

    def configuration(self) -> Configuration:
        """The configuration, from file, environment and -D. Raises InvalidConfigurationError."""
        return load(self.layout.conf, environment=self._environment, dynamic=self._dynamic)

    def start(self) -> None:
        """Start the missing processes, and show all. Raises DaemonError or InvalidInputError."""
        configuration = self.configuration()
        plan = make_plan(self.layout, configuration)
        if running := self._daemon(STANDALONEJOB).instances():
            message = (
                f"{running[0].process} (pid {running[0].pid}) runs one job as its own cluster from {self.layout.run}: "
                "stop it (bin/standalone-job.sh stop), or use another run directory, FLINKLIKE_RUN_DIR"
            )
            raise DaemonError(message)
        prepare_run_directory(self.layout, self._out)
        here = [one for one in plan if one.host.is_local]
        absent = missing(here, self._daemons())
        counts = Counter(one.kind for one in plan)
        self._say(f"Starting cluster: {', '.join(f'{counts[kind]} {kind.name}' for kind in FILES)}.")
        self._say_what_drivers_start(configuration)
        if len(absent) < len(here):
            self._say(f"Reusing {len(here) - len(absent)} running process(es) of this cluster, as they were started.")
        _check_rest_ports(configuration, absent)
        with ExitStack() as undo:
            if configuration.get(ETCD_EMBEDDED):
                self.start_etcd(configuration.get(ETCD_EMBEDDED_PORT), undo)
            remote = self._bring_up(configuration, absent, [one for one in plan if not one.host.is_local], undo)
            undo.pop_all()
        self._show(configuration, remote)

    def _say_what_drivers_start(self, configuration: Configuration) -> None:
        driver, most = configuration.get(DRIVER), configuration.get(AUTOSCALE_MAX)
        reads = "names their hosts" if driver == "ssh" else "is not read"
        if driver != "standalone":
            self._say(
                f"TaskManagers start when jobs wait for slots ({DRIVER.key}: {driver}): "
                f"conf/{FILES[TASKMANAGER]} {reads}."
            )
        if most is not None:
            self._say(
                f"JobMaster processes start when jobs need them ({AUTOSCALE_MAX.key}: {most}): "
                f"conf/{FILES[JOBMASTER]} {reads}."
            )

    def status(self) -> bool:
        """Show all processes; True when all that conf/ names for this host run."""
        configuration = self.configuration()
        plan = make_plan(self.layout, configuration)
        hosts = self._remote_hosts(configuration)
        asked = dict.fromkeys((one.host.name, one.kind) for one in plan if not one.host.is_local)
        calls = [hosts.call(name, kind, ("ensure", "0", "0")) for name, kind in asked]
        for failure in _failures(calls):
            self._say(failure)
        self._show(configuration, [instance for call in calls for instance in call.instances()])
        return not missing([one for one in plan if one.host.is_local], self._daemons())

    def stop(self) -> None:
        """Stop Airflow, TaskManagers, JobMaster processes, JobManagers, containers and the embedded etcd, one by one.

        Raises DaemonError that lists the processes that do not stop, after all others have stopped.
        """
        if stop_standalone(self.layout):
            self._say("Stopping airflow standalone.")
        configuration = self._valid_configuration()
        hosts = self._remote_hosts(configuration)
        asked = hosts.known() | self._remote_in_files()
        failures: dict[str, list[str]] = {}
        kinds = [TASKMANAGER, JOBMASTER, JOBMANAGER, STANDALONEJOB]
        for kind, has_driver in self._started_by_drivers(configuration).items():
            # A JobManager has started some on its host, and may do so until it has ended.
            if has_driver or self._daemon(kind).has_labels():
                asked |= {(name, kind) for name, of in asked if of is JOBMANAGER}
                kinds.append(kind)
        for kind in kinds:
            # A host that cannot be reached is asked once.
            names = sorted(name for name, of in asked if of is kind and name not in failures)
            calls = [hosts.call(name, kind, ("stop-all",)) for name in names]
            _attempt(self._daemon(kind).stop_all, failures.setdefault("", []))
            for call in calls:
                problems = _failures([call])
                if problems:
                    failures[call.host] = problems
                else:
                    self._out.write(call.said())
                    hosts.forget(call.host, kind)
        if configuration is None or configuration.get(DRIVER) == "docker":
            names = sorted(name for name, of in asked if of is JOBMANAGER and name not in failures)
            for call in [hosts.call(name, JOBMANAGER, (END_CONTAINERS,)) for name in names]:
                failures[call.host] = _failures([call])
                self._out.write(call.said())
        _attempt(self.stop_containers, failures[""])
        _attempt(self._stop_etcd, failures[""])
        if told := [problem for problems in failures.values() for problem in problems]:
            raise DaemonError("\n".join([*told, *_asked_again(hosts, failures)]))

    def stop_containers(self) -> None:
        """End those that a JobManager of this run directory has had a docker daemon start. Raises FlinklikeError."""
        if ended := end_recorded(self.layout):
            self._say(f"Stopped and removed {ended} container(s) that the driver docker has started.")

    def _started_by_drivers(self, configuration: Configuration | None) -> dict[DaemonKind, bool]:
        """By kind, whether a JobManager starts such processes; yes where the configuration cannot be read."""
        if configuration is None:
            return {TASKMANAGER: True, JOBMASTER: True}
        return {
            TASKMANAGER: configuration.get(DRIVER) != "standalone",
            JOBMASTER: configuration.get(AUTOSCALE_MAX) is not None,
        }

    def rolling_restart(self, kinds: Sequence[DaemonKind]) -> None:
        """Replace running processes, one after the other, in this order of kinds.

        Raises DaemonError when the cluster is not whole again.
        """
        configuration = self.configuration()
        plan = make_plan(self.layout, configuration)
        hosts = self._remote_hosts(configuration)
        options = [argument for text in self._dynamic for argument in ("-D", text)]
        for kind in kinds:
            self.restart_here(kind)
            for host in dict.fromkeys(one.host.name for one in plan if one.kind is kind and not one.host.is_local):
                self._say(f"{kind.name} on {host}: restarting ...")
                call = hosts.call(host, kind, (ROLL, *options))
                wait_all([call], _ROLL_TIMEOUT)
                self._out.write(call.said())

    def restart_here(self, kind: DaemonKind) -> None:
        """The part of a rolling restart for one kind on this host."""
        configuration = self.configuration()
        token = None
        if configuration.get(SECURITY_AUTHENTICATION) != "none":
            token = read_cluster_token(self.layout.token_file(configuration)).reveal()
        view = ClusterView(lambda: self._rest_of_all(configuration), token, _rest_tls(configuration))
        RollingRestart(self.layout, self._environment, self._dynamic, view, self._out).run(kind)

    def _rest_of_all(self, configuration: Configuration) -> list[str]:
        """REST addresses of all JobManagers; those of other hosts come from conf/masters."""
        port = configuration.get(REST_PORT)
        masters = [one.host for one in make_plan(self.layout, configuration) if one.kind is JOBMANAGER]
        named = [f"{host.name}:{host.port or port}" for host in masters if not host.is_local]
        return list(dict.fromkeys([*self.rest_addresses(configuration), *named]))

    def rest_addresses(self, configuration: Configuration) -> list[str]:
        """host:port of the JobManagers on this host, from their ready files; else the configured address."""
        found = [one.address for one in self._daemon(JOBMANAGER).instances() if one.address]
        return found or [f"{configuration.get(REST_ADDRESS)}:{configuration.get(REST_PORT)}"]

    def start_etcd(self, port: int, undo: ExitStack) -> None:
        """Start the embedded etcd unless it runs. `undo` stops it. Raises EmbeddedEtcdError."""
        settings = self._etcd_settings(port)
        before = embedded.running(settings)
        etcd = embedded.start(settings)
        if before is not None and before.pid == etcd.pid:
            return
        if before is not None and before.is_plain:
            self._say(
                f"[WARNING] The etcd that ran here (pid {before.pid}, of an earlier release) let in every user of this "
                "host: it is replaced by one that requires a certificate, with its data and port."
            )
        elif before is not None:
            self._say(f"[WARNING] The etcd that ran here (pid {before.pid}) is started again: its CA is a new one.")
        undo.callback(self._stop_etcd)
        self._say(f"etcd (pid {etcd.pid}) is ready on {etcd.endpoint}.")
        if etcd.warning:
            self._say(f"[WARNING] {etcd.warning}")

    def _bring_up(
        self, configuration: Configuration, here: Sequence[Planned], elsewhere: Sequence[Planned], undo: ExitStack
    ) -> list[Instance]:
        """Start all side by side. Returns the processes on other hosts. `undo` stops those that it has started here."""
        hosts = self._remote_hosts(configuration)
        hosts.remember((one.host.name, one.kind) for one in elsewhere)
        starting: list[Starting] = []
        calls: list[RemoteCall] = []
        undo.callback(self._give_up, starting, calls)
        for one, count in Counter(elsewhere).items():
            options = [argument for text in (*self._dynamic, *one.options()) for argument in ("-D", text)]
            arguments = ("ensure", str(count), str(one.host.port), *options)
            calls.append(hosts.call(one.host.name, one.kind, arguments))
        for one in here:
            starting.append(self._daemon(one.kind).spawn((*self._dynamic, *one.options())))  # noqa: PERF401 (undone one by one)
        wait_all([*starting, *calls], START_TIMEOUT + (_REMOTE_MARGIN if calls else 0))
        return [instance for call in calls for instance in call.instances()]

    def _give_up(self, starting: Sequence[Starting], calls: Sequence[RemoteCall]) -> None:
        for call in calls:
            call.give_up()
        for kind in (TASKMANAGER, JOBMASTER, JOBMANAGER):
            self._daemon(kind).give_up([one for one in starting if one.kind is kind])
        if calls:
            names = ", ".join(sorted({call.host for call in calls}))
            self._say(f"What has started on {names} may still run: bin/stop-cluster.sh stops it.")

    def _show(self, configuration: Configuration, remote: Sequence[Instance]) -> None:
        # conf/ may name this host by a name that ssh reaches: then its processes are listed twice.
        rows = dict.fromkeys([*self._etcd(), *self._daemons(), *remote])
        self._say(
            render_table(_HEADER, [(one.process, one.host, str(one.pid), one.address, one.state) for one in rows])
        )
        found = [one.address for one in rows if one.process == JOBMANAGER.name and one.address]
        scheme = "https" if configuration.get(SSL_REST_ENABLED) else "http"
        addresses = [f"{scheme}://{one}" for one in found or self.rest_addresses(configuration)]
        self._say(f"REST: {', '.join(addresses)}")
        self._say(f"Dashboard: {addresses[0]}/ui (bin/flinklike open signs in)")

    def _daemons(self) -> list[Instance]:
        return [instance for kind in FILES for instance in self._daemon(kind).instances()]

    def _daemon(self, kind: DaemonKind) -> Daemon:
        return Daemon(kind, self.layout, self._environment, self._out)

    def _etcd(self) -> list[Instance]:
        found = embedded.running(self._etcd_settings())
        return [Instance("etcd", self._host, found.pid, found.endpoint, "running")] if found else []

    def _etcd_settings(self, port: int = 0) -> embedded.EmbeddedEtcdSettings:
        return embedded.EmbeddedEtcdSettings(self.layout.etcd, self.layout.etcd_log, port)

    def _stop_etcd(self) -> None:
        if self._etcd():
            self._say("Stopping etcd.")
            embedded.stop(self._etcd_settings())

    def _remote_hosts(self, configuration: Configuration | None) -> RemoteHosts:
        options = None if configuration is None else shlex.split(configuration.get(SSH_OPTS))
        return RemoteHosts(self.layout, self._environment, options)

    def _valid_configuration(self) -> Configuration | None:
        try:
            return self.configuration()
        except InvalidConfigurationError as error:
            self._say(f"Stopping by what {self.layout.run} records: {error}")
            return None

    def _remote_in_files(self) -> set[tuple[str, DaemonKind]]:
        """Hosts in conf/, on which a user of another host may have started processes with the same files."""
        found: set[tuple[str, DaemonKind]] = set()
        for kind, name in FILES.items():
            try:
                hosts = read_hosts(self.layout.conf / name)
            except InvalidInputError as error:
                self._say(f"Stopping by what {self.layout.run} records: {error}")
                continue
            found |= {(host.name, kind) for host in hosts if not host.is_local}
        return found

    def _say(self, text: str) -> None:
        self._out.write(printable(text) + "\n")
        self._out.flush()


def _rest_tls(configuration: Configuration) -> ssl.SSLContext | None:
    """TLS for requests to JobManagers, with REST's certificate of this host. Raises InvalidInputError."""
    get = configuration.get
    if not get(SSL_REST_ENABLED):
        return None
    try:
        context = ssl.create_default_context(cafile=get(SSL_REST_CA))
        context.load_cert_chain(get(SSL_REST_CERT), get(SSL_REST_KEY), password=lambda: b"")
    except OSError as error:
        message = f"the files of security.ssl.rest.* cannot be used: {error}"
        raise InvalidInputError(message) from error
    return context


def _check_rest_ports(configuration: Configuration, absent: Sequence[Planned]) -> None:
    """Raises DaemonError when a REST port is taken, before any process is started."""
    address = configuration.get(REST_BIND_ADDRESS)
    with ExitStack() as probes:
        for one in absent:
            port = one.host.port or configuration.get(REST_PORT)
            if one.kind is not JOBMANAGER or port == 0:
                continue
            probe = probes.enter_context(socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
                probe.listen()
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    message = (
                        f"Port {port} is in use by another process: stop that, or move REST with {_move(one, port)}."
                    )
                    raise DaemonError(message) from None
                # The JobManager reports other errors.


def _move(one: Planned, port: int) -> str:
    return f"another port for {one.host.name} in conf/masters" if one.host.port else f"-D {REST_PORT.key}={port + 1}"


def _attempt(stop: Callable[[], None], failures: list[str]) -> None:
    try:
        stop()
    except FlinklikeError as error:
        failures.append(str(error))


def _asked_again(hosts: RemoteHosts, failures: Mapping[str, list[str]]) -> list[str]:
    """What to do about recorded hosts that have not stopped what they run: each stop asks them again."""
    recorded = sorted(name for name in {name for name, _ in hosts.known()} if failures.get(name))
    if not recorded:
        return []
    return [f"the next stop asks {', '.join(recorded)} again; if that is gone for good, delete {hosts.record}"]


def _failures(calls: Sequence[RemoteCall]) -> list[str]:
    """Wait for all calls. Returns the messages of those that failed."""
    failures: list[str] = []
    for call in calls:
        try:
            wait_all([call], _REMOTE_STOP_TIMEOUT)
        except DaemonError as error:
            call.give_up()
            failures.append(str(error))
    return failures
