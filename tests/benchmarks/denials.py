"""What one job, or one client with a token, that takes all it can get does to a job of somebody else (R43).

A neighbour runs no-op jobs, one after the other, and each row says how long these took meanwhile. The attacker has one
of the two slots of the same TaskManager, or a connection of its own.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import httpx

from tests.benchmarks.cluster import ClusterBenchmark, job_graph, job_ids, result, run_to_finish, submission, submit
from tests.benchmarks.control_plane import WITHOUT_SPARK
from tests.benchmarks.measure import Report, Target, job_prefix, percentile
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.strangers import bystanders

SECONDS = 10.0
FINISHED = Target("2000 ms")
NONE = Target("0")
_PROGRAMS = "tests.benchmarks.denial_programs"
_NO_OP = job_graph("neighbour", "tests.benchmarks.programs:no_op")
_MILLION = '"parallelism": 1000000,'
_TASKS: Mapping[str, Mapping[str, int]] = {
    "processes": {"count": 400},
    "descriptors": {},
    "disk": {"mebibytes": 512},
    "log": {},
}
_LARGE: Mapping[str, bytes] = {
    "a million subtasks": json.dumps(submission("f" * 32, _NO_OP)).replace('"parallelism": 1,', _MILLION, 1).encode(),
    "deep JSON": b"[" * 2_000_000,
    "a million vertices": b'{"job_graph":{"vertices":[' + b"{}," * 1_000_000 + b"{}]}}",
}

Attack = Callable[[httpx.AsyncClient, float], Awaitable[float]]


def denials(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """One after another; the first row says what the neighbour has without any."""
    seconds = 2.0 if small else SECONDS
    attacks: dict[str, Attack] = {"nobody": _nothing}
    attacks |= {name: _task(name, params) for name, params in _TASKS.items()}
    attacks |= {name: _body(content) for name, content in _LARGE.items()}
    attacks["submits"] = _submits
    for name, attack in attacks.items():
        asyncio.run(_measure(cluster, report, name, attack, seconds))


async def _measure(cluster: ScriptCluster, report: Report, name: str, attack: Attack, seconds: float) -> None:
    terms, task_managers = bystanders.terms_of_leaders(cluster), cluster.pids()["taskmanager"]
    async with cluster.client() as attacker, cluster.client() as neighbour, _neighbour(neighbour) as took:
        amount = await attack(attacker, seconds)
    report.add(f"{name}: the neighbour's job p50", 1000 * percentile(took, 50), "ms")
    report.add(f"{name}: the neighbour's job, longest", 1000 * max(took), "ms", FINISHED)
    if amount:
        report.add(f"{name}: taken", amount, _UNITS.get(name, "answers"))
    report.add(f"{name}: terms lost", bystanders.terms_of_leaders(cluster) - terms, "", NONE)
    is_lost = cluster.pids()["taskmanager"] != task_managers
    report.add(f"{name}: TaskManagers lost", float(is_lost), "", NONE)


_UNITS = {"processes": "", "descriptors": "", "disk": "MiB", "log": "MiB", "submits": "jobs"}


@asynccontextmanager
async def _neighbour(client: httpx.AsyncClient) -> AsyncIterator[list[float]]:
    """No-op jobs, one after the other, as long as the block lasts, and one at least; what each took."""
    took: list[float] = []
    ids = iter(job_ids(job_prefix(), 1_000_000))

    async def run() -> None:
        while True:
            begun = time.monotonic()
            await run_to_finish(client, next(ids), _NO_OP)
            took.append(time.monotonic() - begun)

    running = asyncio.create_task(run())
    try:
        yield took
        while not took and not running.done():
            await asyncio.sleep(0.01)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def _nothing(_client: httpx.AsyncClient, seconds: float) -> float:
    await asyncio.sleep(seconds)
    return 0.0


def _task(name: str, params: Mapping[str, int]) -> Attack:
    async def attack(client: httpx.AsyncClient, seconds: float) -> float:
        (job_id,) = job_ids(job_prefix(), 1)
        graph = job_graph(f"takes {name}", f"{_PROGRAMS}:{name}", params={**params, "seconds": seconds})
        await submit(client, job_id, graph)
        ended = await result(client, job_id)
        assert ended["application-status"] == "SUCCEEDED", ended
        return float(ended["result"])

    return attack


def _body(content: bytes) -> Attack:
    async def attack(client: httpx.AsyncClient, seconds: float) -> float:
        begun, answers = time.monotonic(), 0
        while time.monotonic() - begun < seconds:
            headers = {"content-type": "application/json"}
            answer = await client.post("/jobs", content=content, headers=headers, timeout=60)
            assert 400 <= answer.status_code < 500, answer.text
            answers += 1
        return float(answers)

    return attack


async def _submits(client: httpx.AsyncClient, seconds: float) -> float:
    """As many as a client gets in with 32 at a time; those that have to wait are told so."""
    ids = iter(job_ids(job_prefix(), 1_000_000))
    begun, accepted = time.monotonic(), 0

    async def caller() -> None:
        nonlocal accepted
        while time.monotonic() - begun < seconds:
            answer = await client.post("/jobs", json=submission(next(ids), _NO_OP), timeout=60)
            if answer.status_code == 429:
                await asyncio.sleep(float(answer.headers["retry-after"]))
                continue
            assert answer.status_code == 202, answer.text
            accepted += 1

    async with asyncio.TaskGroup() as callers:
        for _ in range(32):
            callers.create_task(caller())
    return float(accepted)


BENCHMARKS = {"denials": ClusterBenchmark("denials by resource", WITHOUT_SPARK, WITHOUT_SPARK, denials)}
