"""Chaos over docker: the cluster of the compose file, under load, loses one container after the other to kill -9.

`bin/chaos.sh containers --minutes M --every S --seed N`. Clients run in a container of their own, which nothing
happens to. No more etcd members are away at once than a majority allows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Any

from runtime.config.loading import environment_name
from tests.chaos.client import LEDGER, OVER
from tests.chaos.fate import Fault, FaultKind, faults
from tests.chaos.jobs import KINDS, SPARK_KINDS
from tests.chaos.judge import judge
from tests.chaos.ledger import FaultLine, from_text, now
from tests.chaos.report import ChaosReport, count_faults, recoveries
from tests.chaos.run import END_TIMEOUT
from tests.kit.cluster.compose import ComposeCluster, why_not
from tests.kit.host.levels import reached

FOLDER = "/var/lib/flinklike-shared/chaos"
KILLS = (FaultKind.ETCD_KILL, FaultKind.JOBMANAGER_KILL, FaultKind.JOBMASTER_KILL, FaultKind.TASKMANAGER_KILL)
OPTIONS = {
    "taskmanager.spark.enabled": "false",
    "taskmanager.isolation-timeout": "20 s",
    "restart-strategy.type": "exponential-delay",
    "restart-strategy.exponential-delay.initial-backoff": "300 ms",
    "restart-strategy.exponential-delay.max-backoff": "2 s",
    "taskmanager.numberOfTaskSlots": "6",
}
JOBS = [kind for kind in KINDS if kind not in SPARK_KINDS]
_URLS = ("http://jobmanager-1:8081", "http://jobmanager-2:8081")
_TICK = 0.2


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is: `seconds` of faults, one every `every` seconds on average."""

    seconds: float
    every: float
    seed: int
    clients: int = 6


@dataclass
class ContainerChaos:
    """One run on a cluster that is healthy."""

    cluster: ComposeCluster
    settings: Settings
    faults: list[FaultLine] = field(default_factory=list)
    absent: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def run(self) -> ChaosReport:
        """Everything, from the first job to the verdict."""
        settings = self.settings
        words = [FOLDER, str(settings.seed), str(settings.clients), ",".join(JOBS), *_URLS]
        clients = self.cluster.run_beside("clients", ["-m", "tests.chaos.client", *words])
        self._suffer(clients)
        self._heal()
        self.cluster.shell("clients", f"touch {FOLDER}/{OVER}")
        told = self._told(clients)
        code, text = self.cluster.shell("jobmanager-1", f"cat {FOLDER}/{LEDGER}")
        assert code == 0, text
        lines = [*(from_text(line) for line in text.splitlines()), *self.faults]
        shown = {
            "seed": settings.seed,
            "seconds of faults": f"{settings.seconds:.0f}",
            "every": f"{settings.every:g} s",
        }
        return ChaosReport(
            shown, judge(lines), count_faults(lines), recoveries(lines), told["errors"], tuple(self.problems)
        )

    def _suffer(self, clients: Any) -> None:
        until = time.monotonic() + self.settings.seconds
        for fault in faults(self.settings.seed, self.settings.every, KILLS):
            due = time.monotonic() + fault.pause
            while time.monotonic() < min(due, until):
                self._start_due()
                time.sleep(_TICK)
            clients.reload()
            assert clients.status == "running", clients.logs(tail=20).decode(errors="replace")
            if time.monotonic() >= until:
                return
            self._strike(fault)

    def _strike(self, fault: Fault) -> None:
        role = fault.kind.role
        of_role = [name for name in sorted(self.cluster.containers) if name.startswith(f"{role}-")]
        there = [name for name in of_role if name not in self.absent]
        if not there or (role == "etcd" and len(there) < len(of_role)):
            return  # without a majority nothing but a wait is to be seen
        name = fault.pick(there)
        own = self._task_manager(name) if role == "taskmanager" else ""
        _say(f"kill {name}, away for {fault.absence:.1f} s")
        self.faults.append(FaultLine(now(), "kill", role, name, task_manager=own))
        self.cluster.containers[name].kill()
        self.faults.append(FaultLine(now(), "gone", role, name, task_manager=own))
        self.absent[name] = time.monotonic() + fault.absence

    def _task_manager(self, name: str) -> str:
        """Its id, which it keeps in its run directory; "" for one that has none yet, and so no task."""
        return self.cluster.shell(name, "cat /var/lib/flinklike/run/log/attempts/taskmanager-0-*.id")[1].strip()

    def _start_due(self) -> None:
        for name in [name for name, due in self.absent.items() if time.monotonic() >= due]:
            self.cluster.containers[name].start()
            del self.absent[name]
            self.faults.append(FaultLine(now(), "back", name.rpartition("-")[0], name))

    def _heal(self) -> None:
        _say("everything heals")
        self.absent = dict.fromkeys(self.absent, 0.0)
        self._start_due()
        for name in self.cluster.containers:
            if name != "clients":
                self.cluster.wait_healthy(name)

    def _told(self, clients: Any) -> dict[str, Any]:
        def has_ended() -> bool:
            clients.reload()
            return bool(clients.status == "exited")

        reached(has_ended, "the clients have seen all jobs through", timeout=2 * END_TIMEOUT, every=0.5)
        said = clients.logs().decode(errors="replace").splitlines()
        assert clients.attrs["State"]["ExitCode"] == 0, said[-20:]
        found: dict[str, Any] = json.loads(said[-1])
        return found


def run(settings: Settings) -> ChaosReport:
    """A cluster of its own, one run on it."""
    environment = {environment_name(key): value for key, value in OPTIONS.items()}
    with ComposeCluster(environment, task_managers=3, has_tests=True) as cluster:
        return ContainerChaos(cluster, settings).run()


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')}  {text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """0 when nothing was lost, doubled, or restarted by a fault of the control plane."""
    parser = argparse.ArgumentParser(prog="chaos.sh containers", description=__doc__, allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=3.0, help="of faults; healing comes after them (3)")
    parser.add_argument("--every", type=float, default=8.0, help="seconds between faults, on average (8)")
    parser.add_argument("--seed", type=int, help="decides faults and jobs; drawn and told when it is not given")
    parser.add_argument("--clients", type=int, default=6, help="that submit jobs, one after the other (6)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report as JSON")
    given = parser.parse_args(arguments)
    if reason := why_not():
        parser.error(reason)
    seed = SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    _say(f"seed {seed}; starting a cluster of its own ...")
    report = run(Settings(60 * given.minutes, given.every, seed, given.clients))
    sys.stdout.write(report.table() + "\n")
    if given.json is not None:
        given.json.write_text(report.to_json() + "\n", encoding="utf-8")
    return 0 if report.is_clean else 1
