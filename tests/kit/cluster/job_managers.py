"""The JobManagers of a ScriptCluster: which process answers where, which one leads, and how long REST is away."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import httpx

from runtime.entrypoint.control.pid_file import ProcessId
from runtime.rest.forwarding.forward_seal import FORWARDED
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached


@dataclass(frozen=True, slots=True)
class JobManagerProcess:
    """One of them, and its own REST."""

    pid: int
    url: str


def job_managers(cluster: ScriptCluster) -> list[JobManagerProcess]:
    """Those that run and have said that they are ready; one that was told to stop runs until it has ended."""
    directory = cluster.run / "run" / "pid"
    found = []
    for path in directory.glob("*jobmanager.pid"):
        for line in path.read_text().splitlines():
            pid, start_ticks, number = line.split()
            facts = directory / f"jobmanager-{number}.json"
            if facts.exists() and ProcessId(int(pid), int(start_ticks)).is_running:
                found.append(JobManagerProcess(int(pid), f"http://{json.loads(facts.read_text())['address']}"))
    return found


def answers(cluster: ScriptCluster, url: str, *, by_itself: bool = False, timeout: float = 1.0) -> bool:
    """Does REST answer there? `by_itself`: not through another JobManager that leads."""
    headers = {"authorization": f"Bearer {cluster.token}"}
    if by_itself:
        headers[FORWARDED.decode()] = "1"
    try:
        return httpx.get(f"{url}/jobs/overview", headers=headers, timeout=timeout, verify=False).status_code == 200
    except httpx.TransportError:
        return False


def leader_and_standby(cluster: ScriptCluster) -> tuple[JobManagerProcess, JobManagerProcess]:
    """The one that leads, and the other one."""

    def look() -> list[JobManagerProcess]:
        two = job_managers(cluster)
        leading = [one for one in two if answers(cluster, one.url, by_itself=True)]
        return [*leading, *(one for one in two if one not in leading)] if (len(two), len(leading)) == (2, 1) else []

    leader, standby = reached(look, "one of two JobManagers leads")
    return leader, standby


def seconds_until_answer(cluster: ScriptCluster, url: str, since: float, *, timeout: float = 30.0) -> float:
    """From `since`, by the monotonic clock, to the first answer of REST there, by any leader."""
    reached(lambda: answers(cluster, url, timeout=0.5), f"REST at {url}", timeout=timeout)
    return time.monotonic() - since
