"""Deferred tasks: what their triggers cost while nothing changes, and how soon they see that a job has ended.

The triggers are the provider's own, in one event loop as in a triggerer; Airflow itself is not started.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx

from tests.benchmarks.cluster import ClusterBenchmark, ScriptCluster, job_graph, job_ids, submit
from tests.benchmarks.measure import Report, Target, job_prefix

if TYPE_CHECKING:
    from airflow_flinklike.triggers.job import FlinklikeJobTrigger

CONN_ID = "benchmark"
OPTIONS = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "2"}
IDLE_SECONDS = 40.0
ENDS = 40


@contextmanager
def airflow_home(cluster: ScriptCluster) -> Iterator[Callable[[str], FlinklikeJobTrigger]]:
    """Airflow's settings in a directory of their own; makes triggers that know the cluster by a connection."""
    connection = {"conn_type": "flinklike", "host": "127.0.0.1", "port": cluster.port, "password": cluster.token}
    with tempfile.TemporaryDirectory(prefix="flinklike-airflow-") as home:
        os.environ |= {
            "AIRFLOW_HOME": home,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__UNIT_TEST_MODE": "True",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
            f"AIRFLOW_CONN_{CONN_ID.upper()}": json.dumps(connection),
        }
        from airflow_flinklike.triggers.job import FlinklikeJobTrigger

        yield lambda job_id: FlinklikeJobTrigger(job_id, CONN_ID)


async def _fired(trigger: FlinklikeJobTrigger) -> float:
    """When the trigger fires, in seconds since 1970."""
    async for _ in trigger.run():
        return time.time()
    raise AssertionError(trigger.job_id)


async def _submit_all(client: httpx.AsyncClient, ids: Sequence[str]) -> None:
    graph = job_graph("nap", "tests.benchmarks.programs:nap", params={"seconds": 3600})
    for start in range(0, len(ids), 8):
        async with asyncio.TaskGroup() as group:
            for job_id in ids[start : start + 8]:
                group.create_task(submit(client, job_id, graph))


async def _end_of(client: httpx.AsyncClient, job_id: str) -> float:
    """Cancel a job; when it ended, in seconds since 1970, by the clock of this host."""
    answer = await client.patch(f"/jobs/{job_id}")
    assert answer.status_code == 202, answer.text
    ended = (await client.get(f"/jobs/{job_id}/execution-result", params={"wait": "30"})).json()
    end: int = ended["job-execution-result"]["end-time"]
    return end / 1000


async def _measure(cluster: ScriptCluster, report: Report, *, jobs: int, seconds: float, ends: int) -> None:
    ids = job_ids(job_prefix(), jobs)
    async with cluster.client(connections=8) as client:
        await _submit_all(client, ids)
        with airflow_home(cluster) as make:
            own, cpu, begin = time.process_time(), cluster.cpu(), time.perf_counter()
            waiting = {job_id: asyncio.ensure_future(_fired(make(job_id))) for job_id in ids}
            await asyncio.sleep(2.0 + jobs / 500)  # all have joined, and know the state of their jobs
            report.add(f"CPU of the triggerer until {jobs} triggers wait", time.process_time() - own, "s")
            report.add("CPU of the JobManager meanwhile", cluster.cpu()["jobmanager"] - cpu["jobmanager"], "s")
            own, cpu, begin = time.process_time(), cluster.cpu(), time.perf_counter()
            await asyncio.sleep(seconds)
            spent = time.perf_counter() - begin
            idle = 100 * (time.process_time() - own) / spent
            report.add(f"CPU of the triggerer, {jobs} triggers wait", idle, "%", Target("5", "1"))
            idle = 100 * (cluster.cpu()["jobmanager"] - cpu["jobmanager"]) / spent
            report.add(f"CPU of the JobManager, {jobs} triggers wait", idle, "%", Target("5", "1"))
            for pause, when in ((0.2, ""), (0.0, ", right after another one")):
                delays = []
                for job_id in sorted(waiting)[:: max(1, len(waiting) // ends)][:ends]:
                    await asyncio.sleep(pause)
                    ended = await _end_of(client, job_id)
                    delays.append(1000 * (await waiting.pop(job_id) - ended))
                asked = Target("1000", "50")
                report.add_distribution(f"end of a job until its trigger fires{when}", delays, p50=asked, p99=asked)
            for task in waiting.values():
                task.cancel()
            await asyncio.wait(waiting.values())


def triggers(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """Many deferred tasks."""
    jobs, seconds, ends = (50, 2.0, 5) if small else (1000, IDLE_SECONDS, ENDS)
    asyncio.run(_measure(cluster, report, jobs=jobs, seconds=seconds, ends=ends))


BENCHMARKS = {"triggers": ClusterBenchmark("deferred tasks", OPTIONS, OPTIONS, triggers, job_masters=1)}
