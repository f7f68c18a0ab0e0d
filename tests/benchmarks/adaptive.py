"""Chosen parallelism beside fixed ones: the four queries of TPC-H in one pipeline, and a join with one key of 60 %.

Each setting has its turn in each round, so that what else the machine does meets all of them.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx

from airflow_flinklike import Pipeline
from tests.benchmarks.adaptive_programs import skewed
from tests.benchmarks.cluster import ClusterBenchmark, ScriptCluster, job_ids, run_to_finish
from tests.benchmarks.measure import Report, Target, job_prefix, percentile

_DAGS = Path(__file__).resolve().parents[2] / "dags"
_FIXED = (1, 2, 4)
_CHOSEN = "chosen"
_VOLUME = {"execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "280 kb"}
"""Of the join, which waits for each row: its bytes say little of its work."""


def adaptive(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """Wall times, and ratios of the chosen parallelism to the best fixed one."""
    asyncio.run(_run(cluster, report, small=small))


async def _run(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    sys.path.insert(0, str(_DAGS))
    from tpch.revenue import revenue_pipeline
    from tpch.tables import make_tables

    rounds = 1 if small else 5
    async with cluster.client() as client:
        for scale in (0.01,) if small else (0.1, 1.0):
            data = await asyncio.to_thread(make_tables, cluster.run / "tables", scale)
            output = cluster.run / "answers"
            made = {str(one): revenue_pipeline(str(data), str(output), one) for one in _FIXED}
            made[_CHOSEN] = revenue_pipeline(str(data), str(output))
            times = await _in_turns(client, made, rounds)
            best = min(times[str(one)] for one in _FIXED)
            for name, seconds in times.items():
                report.add(f"TPC-H {scale:g}, parallelism {name}", seconds, "s")
            report.add(f"TPC-H {scale:g}, chosen to best fixed", times[_CHOSEN] / best, "", Target("", "1.1"))
        rows = 2_000 if small else 40_000
        joins = {"8": skewed(rows, 8), _CHOSEN: skewed(rows, None)}
        times = await _in_turns(client, joins, rounds, _VOLUME)
        for name, seconds in times.items():
            report.add(f"join with one key of 60 %, parallelism {name}", seconds, "s")
        report.add("join, static hashing to chosen", times["8"] / times[_CHOSEN], "", Target("", "2"))


async def _in_turns(
    client: httpx.AsyncClient, pipelines: Mapping[str, Pipeline], rounds: int, chosen: Mapping[str, str] | None = None
) -> dict[str, float]:
    """The median wall time of each, after one run that warms up."""
    found: dict[str, list[float]] = {name: [] for name in pipelines}
    for number in range(rounds + 1):
        for name, pipeline in pipelines.items():
            graph = pipeline.build().graph
            if name == _CHOSEN and chosen:
                graph = graph.model_copy(update={"configuration": dict(chosen)}).without_caches()
            (job_id,) = job_ids(job_prefix(), 1)
            begun = time.perf_counter()
            await run_to_finish(client, job_id, graph)
            if number:
                found[name].append(time.perf_counter() - begun)
    return {name: percentile(times, 50) for name, times in found.items()}


_OPTIONS = {
    "taskmanager.numberOfTaskSlots": "8",
    "taskmanager.memory.spark.size": "4g",
    "spark.sql.shuffle.partitions": "4",
    # As on a machine with a core for each slot: rows of the join wait for another service, not for a core.
    "spark.master": "local[8]",
}
BENCHMARKS = {"adaptive": ClusterBenchmark("Chosen parallelism", _OPTIONS, _OPTIONS, adaptive)}
