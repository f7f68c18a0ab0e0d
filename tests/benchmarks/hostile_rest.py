"""What hostile and slow clients of REST do to its other clients: how long these wait, and what it costs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

import httpx

from tests.benchmarks.cluster import ScriptCluster
from tests.benchmarks.measure import Report, Target, cpu_seconds, percentile
from tests.kit.strangers import bystanders
from tests.kit.strangers.rest_floods import KINDS, rest_flood

SECONDS = 8.0
_EVERY = 0.05
SERVED = Target("1000 ms")
NONE = Target("0")


def rest_floods(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """One after another; the last figures say what a client sees without any."""
    for kind in ("dripping", "wrong-vertices") if small else (*KINDS, ""):
        asyncio.run(_flood(cluster, report, kind, 2.0 if small else SECONDS))


async def _flood(cluster: ScriptCluster, report: Report, kind: str, seconds: float) -> None:
    pid = bystanders.victims(cluster)["jobmanager"].pid
    terms, cpu = bystanders.terms_of_leaders(cluster), cpu_seconds([pid])
    memory = [bystanders.resident_mb(pid)]
    begun = time.monotonic()

    def is_over() -> bool:
        memory.append(bystanders.resident_mb(pid))
        return time.monotonic() - begun > seconds

    address = f"127.0.0.1:{cluster.port}"
    with rest_flood(kind, address, cluster.token) if kind else nullcontext():
        seen = await _served(cluster, is_over)
    title = f"REST, {kind or 'nobody'}"
    for name, who in seen.items():
        report.add(f"{title}: {name}, longest", 1000 * max(who.seconds, default=float("nan")), "ms", SERVED)
        report.add(f"{title}: {name}, p50", 1000 * percentile(who.seconds, 50), "ms")
    report.add(f"{title}: not served", sum(len(who.failures) for who in seen.values()), "", NONE)
    report.add(f"{title}: terms lost", bystanders.terms_of_leaders(cluster) - terms, "", NONE)
    report.add(f"{title}: memory, more than before", max(memory) - memory[0], "MB")
    report.add(f"{title}: CPU", (cpu_seconds([pid]) - cpu) / (time.monotonic() - begun), "cores")


async def _served(cluster: ScriptCluster, is_over: Callable[[], bool]) -> dict[str, bystanders.Seen]:
    """Small POSTs, since it is bodies that are fought for."""
    headers = {"authorization": f"Bearer {cluster.token}"}

    def client() -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=cluster.url, headers=headers, timeout=bystanders.PATIENCE, verify=False)

    async with client() as kept:

        async def again() -> None:
            await _ask(kept)

        async def anew() -> None:
            async with client() as one:
                await _ask(one)

        seen = {"kept connection": bystanders.Seen(), "new connections": bystanders.Seen()}
        async with asyncio.TaskGroup() as group:
            for work, who in zip((again, anew), seen.values(), strict=True):
                _ = group.create_task(_repeat(work, who, is_over))
    return seen


async def _ask(client: httpx.AsyncClient) -> None:
    answer = await client.post("/jobs/wait", json={"ids": []})
    assert answer.status_code == 200, answer.text


async def _repeat(work: Callable[[], Awaitable[None]], who: bystanders.Seen, is_over: Callable[[], bool]) -> None:
    while not is_over():
        begun = time.monotonic()
        try:
            await work()
        except (httpx.HTTPError, AssertionError) as error:
            who.failures.append(f"{type(error).__name__}: {str(error)[:200]}")
        else:
            who.seconds.append(time.monotonic() - begun)
        await asyncio.sleep(_EVERY)
