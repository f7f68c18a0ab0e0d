"""Benchmarks on a ScriptCluster, and their jobs over REST."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from runtime.jobgraph.graph import FunctionReference, JobGraph, JobVertex, Operator, OperatorKind, vertex_id_of
from tests.benchmarks.measure import Report
from tests.kit.cluster.script_cluster import ScriptCluster

_TERMINAL = {"FINISHED", "FAILED", "CANCELED"}

__all__ = [
    "ClusterBenchmark",
    "ScriptCluster",
    "job_graph",
    "job_ids",
    "result",
    "run_to_finish",
    "states",
    "submission",
    "submit",
    "until_running",
]


class Measure(Protocol):
    """Adds the figures of a cluster to a report."""

    def __call__(self, cluster: ScriptCluster, report: Report, *, small: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class ClusterBenchmark:
    """A measurement and the cluster that it is made on; a test may give it a cluster that others use, too."""

    title: str
    options: Mapping[str, str]
    small_options: Mapping[str, str]
    measure: Measure
    job_masters: int = 2
    workers: int = 1

    def __call__(self, *, small: bool) -> Report:
        """Measure on a cluster of its own."""
        report = Report(self.title)
        options = self.small_options if small else self.options
        with ScriptCluster(options, job_masters=self.job_masters, workers=self.workers) as cluster:
            self.measure(cluster, report, small=small)
        return report


def job_graph(name: str, target: str, *, parallelism: int = 1, params: Mapping[str, Any] | None = None) -> JobGraph:
    """A job of one vertex that runs `module:function`."""
    operator = Operator(name=name, kind=OperatorKind.FUNCTION, code=FunctionReference(target=target))
    vertex = JobVertex(
        id=vertex_id_of(name),
        name=name,
        operators=(operator,),
        parallelism=parallelism,
        max_parallelism=max(128, parallelism),
    )
    return JobGraph(name=name, vertices=(vertex,), params=dict(params or {}))


def submission(job_id: str, graph: JobGraph) -> dict[str, Any]:
    """The body of POST /jobs."""
    return {"job_id": job_id, "job_graph": graph.model_dump(mode="json"), "options": {"client": "benchmark"}}


async def submit(client: httpx.AsyncClient, job_id: str, graph: JobGraph) -> None:
    """Submit; 429 is waited out."""
    while True:
        answer = await client.post("/jobs", json=submission(job_id, graph))
        if answer.status_code != 429:
            assert answer.status_code == 202, answer.text
            return
        await asyncio.sleep(float(answer.headers["retry-after"]))


async def states(client: httpx.AsyncClient) -> dict[str, str]:
    """The states of all jobs that are listed."""
    answer = await client.get("/jobs/overview")
    assert answer.status_code == 200, answer.text
    return {one["jid"]: one["state"] for one in answer.json()["jobs"]}


async def until_running(client: httpx.AsyncClient, ids: Sequence[str]) -> None:
    """Wait until all of them run; none of them may end."""
    async with asyncio.timeout(60 + len(ids) / 2):
        while True:
            found = await states(client)
            ended = {job_id: found[job_id] for job_id in ids if found.get(job_id) in _TERMINAL}
            assert not ended, f"jobs ended that should run: {ended}"
            if all(found.get(job_id) == "RUNNING" for job_id in ids):
                return
            await asyncio.sleep(0.2)


async def result(client: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    """Wait for the end; the job-execution-result."""
    while True:
        answer = await client.get(f"/jobs/{job_id}/execution-result", params={"wait": 60})
        assert answer.status_code == 200, answer.text
        body = answer.json()
        if body["status"]["id"] == "COMPLETED":
            found: dict[str, Any] = body["job-execution-result"]
            return found


async def run_to_finish(client: httpx.AsyncClient, job_id: str, graph: JobGraph) -> dict[str, Any]:
    """Submit and wait; the job must FINISH."""
    await submit(client, job_id, graph)
    ended = await result(client, job_id)
    assert ended["application-status"] == "SUCCEEDED", ended
    return ended


def job_ids(prefix: int, count: int) -> Sequence[str]:
    """Distinct job ids of one run."""
    return [f"{prefix:08x}{number:024x}" for number in range(count)]
