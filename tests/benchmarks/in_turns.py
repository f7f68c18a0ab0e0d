"""No-op jobs on several clusters that take turns, so that what else the host does is the same for all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

import httpx

from tests.benchmarks.cluster import ScriptCluster, job_ids, run_to_finish
from tests.benchmarks.control_plane import NO_OP
from tests.benchmarks.measure import ALL_PROCESSES, job_prefix

CLIENTS = 8

Spent = dict[str, dict[str, list[float]]]
"""Milliseconds of CPU per job by cluster and role, one for each round."""


async def _nothing(_name: str) -> None:
    """Nothing goes on beside the jobs."""


async def _jobs(clients: list[httpx.AsyncClient], count: int) -> None:
    ids = job_ids(job_prefix(), count)

    async def share(client: httpx.AsyncClient, mine: list[str]) -> None:
        for job_id in mine:
            await run_to_finish(client, job_id, NO_OP)

    async with asyncio.TaskGroup() as group:
        for number, client in enumerate(clients):
            group.create_task(share(client, list(ids[number :: len(clients)])))


async def cpu_in_turns(
    clusters: Mapping[str, ScriptCluster],
    rounds: int,
    jobs: int,
    beside: Callable[[str], Awaitable[None]] = _nothing,
) -> Spent:
    """Run `jobs` jobs on each cluster in each round; `beside`, with the cluster's name, once in each round of it."""
    spent: Spent = {name: {} for name in clusters}
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
                async with asyncio.TaskGroup() as group:
                    group.create_task(_jobs(clients[name], jobs))
                    group.create_task(_awaited(beside(name)))
                after = cluster.cpu()
                used = {role: 1000 * (after[role] - before[role]) / jobs for role in after}
                for role, value in {**used, ALL_PROCESSES: sum(used.values())}.items():
                    spent[name].setdefault(role, []).append(value)
    return spent


async def _awaited(work: Awaitable[None]) -> None:
    await work
