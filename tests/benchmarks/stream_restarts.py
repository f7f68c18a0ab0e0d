"""Restarts of a streaming query with state: what of them stays in the JVM and among the processes of a TaskManager.

A query is submitted, makes batches, and is cancelled, again and again. Counted are live objects after a collection
(`jcmd`, of a JDK), so what grows with the restarts stays for as long as the JVM.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import httpx
import psutil

from airflow_flinklike import Pipeline
from runtime.jobgraph.graph import JobGraph
from tests.benchmarks.cluster import ClusterBenchmark, ScriptCluster, job_ids, result, submit
from tests.benchmarks.measure import Report, Target, job_prefix

_CODE = "tests.benchmarks.stream_programs"
_WARM_UP = 5
_LONGEST = 120.0
_SECONDS = 1800.0
_MAINTENANCE = 180.0
"""Seconds after which Spark has unloaded the state stores of queries that have ended: it looks each minute."""
_KEPT_CLASSES = {
    "state stores": "HDFSBackedStateStoreProvider",
    "queries": "execution.streaming.runtime.MicroBatchExecution",
    "sessions": "org.apache.spark.sql.classic.SparkSession",
    "followed sessions": "org.apache.spark.SlotStreams",
    "holds": "org.apache.spark.HeldQueries",
}
_ALLOWED = {"threads": 10.0, "heap MB": 40.0, "processes": 2.0}
_ALLOWED_OBJECTS = 3.0
_LINE = re.compile(r"^\s*\d+:\s+(\d+)\s+(\d+)\s+(\S+)")


def restarts(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """Figures before and after; the difference is the leak."""
    asyncio.run(_run(cluster, report, 2 if small else 0, _SECONDS))


async def _run(cluster: ScriptCluster, report: Report, rounds: int, seconds: float) -> None:
    """`rounds`: 0 for as many as there are in `seconds`."""
    state = cluster.run / "restarted"
    async with cluster.client() as client:
        for number in range(_WARM_UP if not rounds else 1):
            await _restart(client, state / f"warm-up-{number}")
        before, done, begun = _counted(cluster), 0, time.monotonic()
        while done < rounds if rounds else time.monotonic() - begun < seconds:
            await _restart(client, state / str(done))
            done += 1
        await asyncio.sleep(0.0 if rounds else _MAINTENANCE)
    after = _counted(cluster)
    report.add("restarts of a query with state", done, "")
    for name, value in after.items():
        allowed = _ALLOWED.get(name, _ALLOWED_OBJECTS)
        report.add(f"{name}, more than before ({before[name]:g})", value - before[name], "", _at_most(allowed))


def _at_most(value: float) -> Target:
    return Target(f"{value:g}", f"{value:g}")


async def _restart(client: httpx.AsyncClient, place: Path) -> None:
    stamps = place / "batches"
    await asyncio.to_thread(place.mkdir, parents=True)
    (job_id,) = job_ids(job_prefix(), 1)
    await submit(client, job_id, _counting(stamps))
    async with asyncio.timeout(_LONGEST):
        while not await asyncio.to_thread(stamps.exists):
            await asyncio.sleep(0.02)
    answer = await client.patch(f"/jobs/{job_id}")
    assert answer.status_code == 202, answer.text
    await result(client, job_id)


def _counting(stamps: Path) -> JobGraph:
    pipeline = Pipeline("benchmark-restarts", params={"stamps": str(stamps)})
    rates = pipeline.stream_source("rates", f"{_CODE}:rates").map("counts", f"{_CODE}:counts")
    rates.stream_sink("stamp", f"{_CODE}:stamp", foreach_batch=True, output_mode="update")
    return pipeline.build().graph


def _counted(cluster: ScriptCluster) -> Mapping[str, float]:
    """Of the TaskManager's driver JVM after a collection, and its processes. Objects where there is a JDK's `jcmd`."""
    (parent,) = cluster.pids()["taskmanager"][:1]
    below = psutil.Process(parent).children(recursive=True)
    jvm = max((one for one in below if one.name() == "java"), key=lambda one: one.memory_info().rss)
    found = {"threads": float(jvm.num_threads()), "processes": float(len(below))}
    if (jcmd := shutil.which("jcmd")) is None:  # a JRE has none: objects are not counted
        return found
    command = [jcmd, str(jvm.pid), "GC.class_histogram"]
    histogram = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    live = [match.groups() for match in map(_LINE.match, histogram.splitlines()) if match]
    for name, wanted in _KEPT_CLASSES.items():
        found[name] = float(sum(int(count) for count, _, of in live if of.endswith(wanted)))
    return {**found, "heap MB": round(sum(int(size) for _, size, _ in live) / (1 << 20), 1)}


OPTIONS = {
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.spark.class-archive": "true",
    "spark.sql.shuffle.partitions": "2",
}
SMALL_OPTIONS = {**OPTIONS, "taskmanager.spark.class-archive": "false", "taskmanager.spark.warm-up.count": "1"}
BENCHMARKS = {"stream-restarts": ClusterBenchmark("Restarts of streaming queries", OPTIONS, SMALL_OPTIONS, restarts)}
