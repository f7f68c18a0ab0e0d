"""start-cluster.sh and stop-cluster.sh: etcd first, then JobManagers, JobMaster processes and TaskManagers.

Local processes are started side by side and awaited together; other hosts run the same script by ssh, and their exit
code counts. Nothing is started when a file or the configuration is wrong.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from runtime.common.errors import InvalidInputError
from runtime.config.configuration import load
from runtime.config.layout import Layout
from runtime.config.options.cluster import SSH_OPTS
from runtime.config.options.high_availability import ETCD_EMBEDDED, ETCD_EMBEDDED_PORT
from runtime.config.options.jobmanager import REST_ADDRESS, REST_PORT, SINGLE_JOBMASTER
from runtime.entrypoint.control.daemon import (
    JOBMANAGER,
    JOBMASTER,
    TASKMANAGER,
    Daemon,
    DaemonError,
    DaemonKind,
    Starting,
)
from runtime.entrypoint.control.hosts import Host, read_hosts
from runtime.entrypoint.control.table import render_table
from runtime.highavailability import embedded

_FILES = {JOBMANAGER: "masters", JOBMASTER: "JOB_MASTERS", TASKMANAGER: "workers"}
_SCRIPTS = {JOBMANAGER: "jobmanager.sh", JOBMASTER: "start-jobmaster.sh", TASKMANAGER: "taskmanager.sh"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What the files ask for: (kind, host) in the order of starting."""

    processes: tuple[tuple[DaemonKind, Host], ...]


class ClusterControl:
    """Starts and stops all processes that conf/ names."""

    def __init__(self, layout: Layout, environment: Mapping[str, str], dynamic: Sequence[str], out: TextIO) -> None:
        self.layout = layout
        self._environment = environment
        self._dynamic = tuple(dynamic)
        self._out = out
        self.configuration = load(layout.conf, environment=environment, dynamic=dynamic)

    def start(self) -> None:
        """Start everything and show what runs where. Raises DaemonError or InvalidInputError."""
        plan = self._plan()
        counts = [f"{_count(plan, kind)} {kind.name}" for kind in _FILES]
        self._say(f"Starting cluster: {', '.join(counts)}.")
        self._bring_up(plan)

    def _bring_up(self, plan: Plan) -> None:
        self.layout.run.mkdir(parents=True, exist_ok=True)
        if self.configuration.get(ETCD_EMBEDDED):
            self._start_etcd()
        remote = self._start_all(plan)
        self._say(render_table(("process", "host", "pid", "state"), [*self._running_rows(), *remote]))
        self._say(f"REST: {self.rest_url()}")

    def ensure(self) -> None:
        """Start what is missing of this host's processes; what runs is reused. Ends with the table."""
        plan = self._plan()
        running = {kind: len(self._daemon(kind).running()) for kind in _FILES}
        missing: list[tuple[DaemonKind, Host]] = []
        for kind, host in plan.processes:
            if host.is_local and running[kind] > 0:
                running[kind] -= 1
            else:
                missing.append((kind, host))
        if len(missing) < len(plan.processes):
            self._say(f"Reusing {len(plan.processes) - len(missing)} running process(es) of this cluster.")
        self._bring_up(Plan(tuple(missing)))

    def status(self) -> bool:
        """Show what of this cluster runs on this host; True when everything that conf/ names does."""
        plan = self._plan()
        rows = self._running_rows()
        self._say(render_table(("process", "host", "pid", "state"), rows))
        return len(rows) >= sum(1 for _, host in plan.processes if host.is_local)

    def stop(self) -> None:
        """Stop TaskManagers, JobMaster processes, JobManagers and the embedded etcd, in that order."""
        plan = self._plan()
        for kind in (TASKMANAGER, JOBMASTER, JOBMANAGER):
            self._daemon(kind).stop_all()
            remote = {host.name for planned, host in plan.processes if planned is kind and not host.is_local}
            for name in sorted(remote):
                self._ssh(name, kind, "stop-all", ())
        if self.configuration.get(ETCD_EMBEDDED) and embedded.stop(self._etcd_settings()):
            self._say("Stopping etcd.")

    def rest_url(self) -> str:
        """Where clients reach the first JobManager."""
        return f"http://{self.configuration.get(REST_ADDRESS)}:{self.configuration.get(REST_PORT)}"

    def _plan(self) -> Plan:
        kinds = [kind for kind in _FILES if kind is not JOBMASTER or self.configuration.get(SINGLE_JOBMASTER)]
        problems: list[str] = []
        processes: list[tuple[DaemonKind, Host]] = []
        for kind in kinds:
            try:
                processes += [(kind, host) for host in read_hosts(self.layout.conf / _FILES[kind])]
            except InvalidInputError as error:
                problems += error.problems
        if self.configuration.get(ETCD_EMBEDDED):
            problems += [
                f"conf/{_FILES[kind]} names {host.name}, but {ETCD_EMBEDDED.key}: true works on this host only"
                for kind, host in processes
                if not host.is_local
            ]
        if problems:
            raise InvalidInputError("\n".join(problems), tuple(problems))
        return Plan(tuple(processes))

    def _start_etcd(self) -> None:
        etcd = embedded.start(self._etcd_settings())
        self._say(f"etcd (pid {etcd.pid}) is ready on {etcd.endpoint}.")

    def _etcd_settings(self) -> embedded.EmbeddedEtcdSettings:
        self.layout.log.mkdir(parents=True, exist_ok=True)
        port = self.configuration.get(ETCD_EMBEDDED_PORT)
        return embedded.EmbeddedEtcdSettings(self.layout.etcd, self.layout.log / "etcd.log", port)

    def _start_all(self, plan: Plan) -> list[tuple[str, ...]]:
        starting: list[tuple[Daemon, Starting]] = []
        remote: list[tuple[str, ...]] = []
        for kind, host in plan.processes:
            dynamic = [*self._dynamic, *([f"{REST_PORT.key}={host.port}"] if host.port else [])]
            if host.is_local:
                daemon = self._daemon(kind)
                starting.append((daemon, daemon.spawn(dynamic)))
            else:
                self._ssh(host.name, kind, "start", dynamic)
                remote.append((kind.name, host.name, "", "started by ssh"))
        failures: list[str] = []
        for daemon, one in starting:
            try:
                said = daemon.wait_ready(one)
            except DaemonError as error:
                failures.append(str(error))
                continue
            where = said.get("address", "")
            self._say(f"{one.kind.name} (pid {one.process.pid}) is ready{f' on {where}' if where else ''}.")
        if failures:
            raise DaemonError("\n".join(failures))
        return remote

    def _running_rows(self) -> list[tuple[str, ...]]:
        daemons = [(kind, process) for kind in _FILES for process in self._daemon(kind).running()]
        return [(kind.name, "localhost", str(process.pid), "running") for kind, process in daemons]

    def _daemon(self, kind: DaemonKind) -> Daemon:
        return Daemon(kind, self.layout, self._environment, self._out)

    def _ssh(self, host: str, kind: DaemonKind, verb: str, dynamic: Sequence[str]) -> None:
        script = self.layout.home / "bin" / _SCRIPTS[kind]
        options = [argument for text in dynamic for argument in ("-D", text)]
        remote = shlex.join([str(script), verb, *options])
        ssh_options = shlex.split(self.configuration.get(SSH_OPTS))
        command = ["ssh", "-n", *ssh_options, host, "--", f"/bin/bash -l -c {shlex.quote(remote)}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self._out.write(done.stdout)
        if done.returncode != 0:
            message = f"{kind.name} on {host}: {done.stderr.strip() or done.stdout.strip() or 'ssh failed'}"
            raise DaemonError(message)

    def _say(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


def _count(plan: Plan, kind: DaemonKind) -> int:
    return sum(1 for planned, _ in plan.processes if planned is kind)
