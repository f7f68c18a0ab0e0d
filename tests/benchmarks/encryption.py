"""What encryption costs a no-op job: the same jobs on a cluster in plain text and on one with TLS on every link.

Both run all the time, and take turns, so that what else the host does is the same for both. Etcd, which is always
encrypted, is in both. A client keeps its connections, as Airflow's workers and triggerers do.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack

import httpx

from tests.benchmarks.cluster import ScriptCluster, job_ids, run_to_finish
from tests.benchmarks.control_plane import NO_OP, WITHOUT_SPARK
from tests.benchmarks.measure import ALL_PROCESSES, Report, Target, job_prefix, percentile

ROUNDS = 8
JOBS = 100
CLIENTS = 8
RATIO_MAX = "1.3"


async def _jobs(clients: list[httpx.AsyncClient], count: int) -> None:
    ids = job_ids(job_prefix(), count)

    async def share(client: httpx.AsyncClient, mine: list[str]) -> None:
        for job_id in mine:
            await run_to_finish(client, job_id, NO_OP)

    async with asyncio.TaskGroup() as group:
        for number, client in enumerate(clients):
            group.create_task(share(client, list(ids[number :: len(clients)])))


async def _rounds(clusters: dict[str, ScriptCluster], rounds: int, jobs: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of CPU per job by cluster and role, one for each round."""
    spent: dict[str, dict[str, list[float]]] = {name: {} for name in clusters}
    async with AsyncExitStack() as stack:
        clients = {
            name: [await stack.enter_async_context(cluster.client(connections=2)) for _ in range(CLIENTS)]
            for name, cluster in clusters.items()
        }
        for name in clusters:
            await _jobs(clients[name], max(20, jobs))
        for _ in range(rounds):
            for name, cluster in clusters.items():
                before = cluster.cpu()
                await _jobs(clients[name], jobs)
                after = cluster.cpu()
                used = {role: 1000 * (after[role] - before[role]) / jobs for role in after}
                for role, value in {**used, ALL_PROCESSES: sum(used.values())}.items():
                    spent[name].setdefault(role, []).append(value)
    return spent


def encryption(*, small: bool) -> Report:
    """CPU per job by role, and the ratio."""
    report = Report("no-op jobs, with and without TLS")
    with ExitStack() as stack:
        clusters = {name: ScriptCluster(WITHOUT_SPARK) for name in ("plain text", "TLS")}
        clusters["TLS"].encrypt()
        for cluster in clusters.values():
            stack.enter_context(cluster)
        rounds, jobs = (1, 10) if small else (ROUNDS, JOBS)
        spent = asyncio.run(_rounds(clusters, rounds, jobs))
    for name, by_role in spent.items():
        for role, values in by_role.items():
            report.add(
                f"CPU of {role} per no-op job, {name}, median of {len(values)} x {jobs}", percentile(values, 50), "ms"
            )
    plain, encrypted = (percentile(spent[name][ALL_PROCESSES], 50) for name in ("plain text", "TLS"))
    report.add("CPU of all processes: TLS by plain text", encrypted / plain, "", Target(RATIO_MAX, RATIO_MAX))
    return report
