"""The cluster of chaos and its processes: who they are, signals to exactly them, and starting again what has ended."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from runtime.entrypoint.control.pid_file import PidFile, ProcessId
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster, free_port

DAEMONS = ("jobmanager", "jobmaster", "taskmanager")
_SCRIPTS = {"jobmanager": "jobmanager.sh", "jobmaster": "start-jobmaster.sh", "taskmanager": "taskmanager.sh"}
PARTS = {"tm-guard": "guard", "slot-template": "template", "slot-process": "slot", "java": "spark"}
START_TIMEOUT = 240.0


@dataclass(frozen=True, slots=True)
class Member:
    """One process. `name` tells it apart from its like; `tree` are all processes that a whole freeze stops."""

    role: str
    name: str
    process: ProcessId
    address: str = ""
    task_manager: str = ""

    def send(self, number: signal.Signals, *, to_tree: bool = False) -> None:
        """Signal this very process, or it and all that has come of it; children first when they are to stop."""
        members = self.tree() if to_tree else [self.process]
        for one in members:
            one.send(number)

    def tree(self) -> list[ProcessId]:
        """This process and all its descendants."""
        return [self.process, *(found for child in descendants(self.process) if (found := ProcessId.of(child.pid)))]


def descendants(process: ProcessId) -> list[psutil.Process]:
    """All that has come of a process and lives."""
    try:
        return psutil.Process(process.pid).children(recursive=True) if process.is_running else []
    except psutil.NoSuchProcess:
        return []


class ChaosCluster(ScriptCluster):
    """Two JobManagers, JobMaster processes, TaskManagers and etcd, all started by the scripts of bin/."""

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        masters: int = 2,
        job_masters: int = 3,
        workers: int = 2,
        class_archive: Path | None = None,
    ) -> None:
        self._etcd_port = free_port()
        own = {"high-availability.etcd.embedded.port": str(self._etcd_port)}
        super().__init__(
            {**own, **options}, masters=masters, job_masters=job_masters, workers=workers, class_archive=class_archive
        )
        self._layout = self.run / "run"
        self._one_job_manager = asyncio.Lock()
        self.wanted = {"jobmanager": masters, "jobmaster": job_masters, "taskmanager": workers, "etcd": 1}

    def members(self, role: str) -> list[Member]:
        """The processes of a role that run now and are ready; others (`guard`, `slot`) are parts of TaskManagers."""
        if role == "etcd":
            return self._etcd()
        if role in DAEMONS:
            return list(self._daemons(role))
        return [part for one in self._daemons("taskmanager") for part in _parts(one, role)]

    def _daemons(self, role: str) -> Iterator[Member]:
        for record in PidFile(self._layout / "pid", role).running():
            try:
                facts = json.loads((self._layout / "pid" / f"{role}-{record.number}.json").read_text())
            except (OSError, ValueError):
                continue
            name = f"{role}-{record.number}"
            yield Member(role, name, record.process, facts.get("address", ""), facts.get("id", ""))

    def _etcd(self) -> list[Member]:
        found = ProcessId.of(self.pids()["etcd"][0])
        return [Member("etcd", "etcd", found)] if found is not None and found.is_running else []

    def missing(self) -> dict[str, int]:
        """How many of each role do not run: also one that is only starting does."""
        running = {role: len(PidFile(self._layout / "pid", role).running()) for role in DAEMONS}
        running["etcd"] = len(self._etcd())
        return {role: self.wanted[role] - running[role] for role in self.wanted if running[role] < self.wanted[role]}

    async def start_one(self, role: str) -> subprocess.CompletedProcess[str]:
        """Start one more of a role by its script."""
        if role == "etcd":
            return await asyncio.to_thread(self._start_etcd)
        if role == "jobmanager":
            async with self._one_job_manager:  # or two would find the same port free
                return await self._start(role, "-D", f"rest.port={self._free_rest_port()}")
        return await self._start(role)

    async def _start(self, role: str, *more: str) -> subprocess.CompletedProcess[str]:
        arguments = ("start", *self.dynamic, *more)
        return await asyncio.to_thread(self.script, _SCRIPTS[role], *arguments, timeout=START_TIMEOUT)

    def _free_rest_port(self) -> int:
        taken = {one.address.rpartition(":")[2] for one in self.members("jobmanager")}
        return next(port for port in self.ports if str(port) not in taken)

    def _start_etcd(self) -> subprocess.CompletedProcess[str]:
        """As start-cluster.sh does it, and nothing else."""
        run = self._layout
        command = [sys.executable, "-m", "runtime.entrypoint.control.embedded_etcd", "start"]
        where = ["--data-dir", str(run / "etcd"), "--log-file", str(run / "log" / "etcd.log")]
        where += ["--port", str(self._etcd_port)]
        return subprocess.run(
            [*command, *where], env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )


def _parts(task_manager: Member, role: str) -> Iterator[Member]:
    for child in descendants(task_manager.process):
        if _role_of(child) == role and (process := ProcessId.of(child.pid)) is not None:
            yield Member(role, f"{task_manager.name}/{role}", process, "", task_manager.task_manager)


def _role_of(child: psutil.Process) -> str:
    try:
        name, parent = child.name(), child.parent()
        if name in PARTS:
            return PARTS[name]
        is_main = parent is not None and parent.name() == "tm-guard"
    except psutil.NoSuchProcess:
        return ""
    return "main" if is_main else ""
