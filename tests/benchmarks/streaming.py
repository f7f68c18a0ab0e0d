"""Streaming queries: submit to first batch, stop and failure to the next first batch, and what idle ones cost.

Beside them a plain Spark that stops and starts the same queries in a warm session of its own; where the cluster makes a
savepoint, it copies the directory of the checkpoint while no query runs on it, and starts the next query from the copy.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from airflow_flinklike import FixedDelayRestartStrategy, Pipeline
from runtime.jobgraph.graph import JobGraph
from runtime.jobgraph.savepoints import SavepointRestoreSettings
from tests.benchmarks.cluster import ClusterBenchmark, ScriptCluster, job_ids, result, submit, until_running
from tests.benchmarks.measure import Report, Target, job_prefix
from tests.kit.spark.plain_spark import plain_spark_environment

_CODE = "tests.benchmarks.stream_programs"
_LONGEST = 120.0
_QUIET = 5.0
_CPU_MAX = Target("15", "15")
_RESTORED_MAX = Target("2.5", "2.5")
_PARTITIONS = {"spark.sql.shuffle.partitions": "2"}
"""Of state, here and in plain Spark."""

_PLAIN = """
import json, shutil, sys, time
from pyspark.sql import SparkSession
directory, rounds = sys.argv[1], int(sys.argv[2])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config(
    "spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").config(
    "spark.sql.shuffle.partitions", "2").getOrCreate()
stamps = []
def stamp(batch, batch_id):
    batch.count()
    stamps.append(time.time())
def start(directory, rows, has_state):
    rates = spark.readStream.format("rate").option("rowsPerSecond", rows).load()
    if has_state:
        rates = rates.groupBy((rates.value % 1000).alias("key")).count()
    writer = rates.writeStream.foreachBatch(stamp).outputMode("update" if has_state else "append")
    return writer.option("checkpointLocation", directory).start()
def first(since):
    while not stamps or stamps[-1] < since:
        time.sleep(0.002)
    return next(one for one in stamps if one >= since) - since
def rounds_of(rows, has_state):
    begun, place = time.time(), f"{directory}-{rows}"
    query = start(place, rows, has_state)
    found = [first(begun)]
    for number in range(rounds):
        begun = time.time()
        query.stop()
        del stamps[:]
        if has_state:
            shutil.copytree(place, f"{place}.{number}")
            place = f"{place}.{number}"
        query = start(place, rows, has_state)
        found.append(first(begun))
    query.stop()
    return found
start_of, *stops = rounds_of(100, False)
_, *copied = rounds_of(1000, True)
print(json.dumps({"start": [start_of], "stop": stops, "copied": copied}))
"""


def streaming(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """Figures of queries with work, then of queries without."""
    rounds, queries, seconds = (2, 2, 2.0) if small else (10, 20, 60.0)
    asyncio.run(_batches(cluster, report, rounds))
    asyncio.run(_savepoints(cluster, report, rounds))
    plain = _plain(cluster.run / "plain", rounds)
    report.add_distribution("plain Spark, warm session: stop to the first batch of the next start", plain["stop"], "s")
    name = "plain Spark, warm session, 1 000 rows/s with state: stop, copy of the checkpoint, first batch from the copy"
    report.add_distribution(name, plain["copied"], "s")
    report.add("plain Spark, warm session: first start to its first batch", plain["start"][0], "s")
    asyncio.run(_idle(cluster, report, queries, seconds))


# --- batches --------------------------------------------------------------------------------------------------


async def _batches(cluster: ScriptCluster, report: Report, rounds: int) -> None:
    first, stopped, failed = list[float](), list[float](), list[float]()
    stamps = cluster.run / "stamps"
    graph = _working(stamps)
    ids = iter(job_ids(job_prefix(), 1 + rounds))
    async with cluster.client() as client:
        job_id = next(ids)
        first.append(await _first_batch(client, job_id, graph, stamps, time.time()))
        for _ in range(rounds):
            begun = time.time()
            _wish_to_fail(stamps).touch()
            failed.append(await _stamped(stamps, begun, after_raise=True) - begun)
            begun = time.time()
            await _cancel(client, job_id)
            stamps.unlink()
            submitted = time.time()
            job_id = next(ids)
            spent = await _first_batch(client, job_id, graph, stamps, submitted)
            first.append(spent)
            stopped.append(submitted - begun + spent)
        await _cancel(client, job_id)
    report.add_distribution("submit to first batch", first, "s")
    report.add_distribution("cancel to the first batch of the next job under the same name", stopped, "s")
    report.add_distribution("wish to fail to the first batch of the next attempt", failed, "s")


async def _first_batch(client: httpx.AsyncClient, job_id: str, graph: JobGraph, stamps: Path, begun: float) -> float:
    await submit(client, job_id, graph)
    return await _stamped(stamps, begun) - begun


async def _stamped(stamps: Path, since: float, *, after_raise: bool = False) -> float:
    """When the first batch since then was; of one that was to fail, the first behind the failure."""
    is_due = not after_raise
    async with asyncio.timeout(_LONGEST):
        while True:
            if not is_due and not _is_wished(stamps):
                is_due, since = True, time.time()
            if is_due and (found := _batches_since(stamps, since)):
                return found[0]
            await asyncio.sleep(0.003)


def _wish_to_fail(stamps: Path) -> Path:
    return Path(f"{stamps}.raise")


def _is_wished(stamps: Path) -> bool:
    return _wish_to_fail(stamps).exists()


def _batches_since(stamps: Path, since: float) -> list[float]:
    """The times of the batches; the line that is being written is left out."""
    text = stamps.read_text() if stamps.exists() else ""
    times = [float(line.split()[0]) for line in text.split("\n")[:-1]]
    return [at for at in times if at >= since]


async def _cancel(client: httpx.AsyncClient, job_id: str) -> None:
    answer = await client.patch(f"/jobs/{job_id}")
    assert answer.status_code == 202, answer.text
    ended = await result(client, job_id)
    assert ended["application-status"] == "CANCELED", ended


def _working(stamps: Path) -> JobGraph:
    pipeline = Pipeline(
        "benchmark-stream",
        params={"stamps": str(stamps)},
        checkpoint_name="benchmark",
        restart_strategy=FixedDelayRestartStrategy(attempts=1000, delay_seconds=0),
        user_failures="restart",
    )
    pipeline.stream_source("rates", f"{_CODE}:rates").stream_sink("stamp", f"{_CODE}:stamp", foreach_batch=True)
    return pipeline.build().graph


def _plain(directory: Path, rounds: int) -> dict[str, Sequence[float]]:
    command = [sys.executable, "-c", _PLAIN, str(directory), str(rounds)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=plain_spark_environment())
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Sequence[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


# --- savepoints -----------------------------------------------------------------------------------------------


async def _savepoints(cluster: ScriptCluster, report: Report, rounds: int) -> None:
    """A query of 1 000 rows a second with state: a savepoint while it runs, and a stop from which the next job begins.

    A pause would show as a longer time between two batches while the savepoint is made.
    """
    made, stopped, restored = list[float](), list[float](), list[float]()
    usual, meanwhile = list[float](), list[float]()
    stamps, target = cluster.run / "saved-stamps", str(cluster.run / "savepoints")
    ids = iter(job_ids(job_prefix(), 1 + rounds))
    async with cluster.client() as client:
        job_id, path = next(ids), ""
        await _first_batch(client, job_id, _saved(stamps), stamps, time.time())
        for _ in range(rounds):
            await _all_run(client, job_id, 1)
            begun = time.time()
            await asyncio.sleep(_QUIET)
            ended = time.time()
            await _stamped(stamps, ended)
            usual.append(_longest_gap(stamps, begun, ended))
            begun = time.time()
            await _operation(client, job_id, "savepoints", {"target-directory": target})
            ended = time.time()
            made.append(ended - begun)
            await _stamped(stamps, ended)
            meanwhile.append(_longest_gap(stamps, begun, ended))
            begun = time.time()
            path = await _operation(client, job_id, "stop", {"targetDirectory": target})
            outcome = await result(client, job_id)
            assert outcome["application-status"] == "SUCCEEDED", outcome
            stamps.unlink()
            stopped.append(time.time() - begun)
            job_id = next(ids)
            await _first_batch(client, job_id, _saved(stamps, path), stamps, time.time())
            restored.append(time.time() - begun)
        await _cancel(client, job_id)
    report.add_distribution("savepoint of a query of 1 000 rows/s with state", made, "s")
    report.add_distribution("longest time between two batches of it, in five seconds without a savepoint", usual, "s")
    report.add_distribution("longest time between two batches of it, while a savepoint is made", meanwhile, "s")
    report.add_distribution("stop with a savepoint to the end of the job", stopped, "s")
    name = "stop with a savepoint to the first batch of the job that begins from it"
    report.add_distribution(name, restored, "s", p50=_RESTORED_MAX)


def _longest_gap(stamps: Path, begun: float, ended: float) -> float:
    """Between two batches of which one was made, or waited for, within these times; 0 where none was."""
    times = _batches_since(stamps, 0.0)
    return max((at - before for before, at in pairwise(times) if at >= begun and before <= ended), default=0.0)


async def _operation(client: httpx.AsyncClient, job_id: str, what: str, body: dict[str, str]) -> str:
    """Trigger one and wait for its end. Returns the path of its savepoint."""
    answer = await client.post(f"/jobs/{job_id}/{what}", json=body)
    assert answer.status_code == 202, answer.text
    trigger_id = answer.json()["request-id"]
    async with asyncio.timeout(_LONGEST):
        while True:
            found = (await client.get(f"/jobs/{job_id}/savepoints/{trigger_id}")).json()
            if found["status"]["id"] == "COMPLETED":
                assert "location" in found["operation"], found
                return str(urlsplit(found["operation"]["location"]).path)
            await asyncio.sleep(0.01)


def _saved(stamps: Path, savepoint: str = "") -> JobGraph:
    params = {"stamps": str(stamps), "rows": 1000}
    pipeline = Pipeline("benchmark-saved-stream", params=params, spark_conf=_PARTITIONS)
    counts = pipeline.stream_source("rates", f"{_CODE}:rates").map("counts", f"{_CODE}:counts")
    counts.stream_sink("stamp", f"{_CODE}:stamp", foreach_batch=True, output_mode="update")
    built = pipeline.build().graph
    return built.model_copy(update={"savepoint": SavepointRestoreSettings(path=savepoint)}) if savepoint else built


# --- idle queries ---------------------------------------------------------------------------------------------


async def _idle(cluster: ScriptCluster, report: Report, queries: int, seconds: float) -> None:
    """Queries that look for something new, each second or as often as they like, and find nothing."""
    empty = cluster.run / "empty"
    empty.mkdir()
    async with cluster.client() as client:
        await asyncio.sleep(_QUIET)
        report.add("CPU of the TaskManager without a query", await _cpu(cluster, seconds), "%")
        for trigger, words in (("1 second", "each second"), (None, "without an interval")):
            graph = _waiting(empty, queries, trigger)
            (job_id,) = job_ids(job_prefix(), 1)
            await submit(client, job_id, graph)
            await until_running(client, [job_id])
            await _all_run(client, job_id, queries)
            await asyncio.sleep(_QUIET)
            target = _CPU_MAX if trigger is not None else Target()
            name = f"CPU of the TaskManager with {queries} idle queries that look {words}"
            report.add(name, await _cpu(cluster, seconds), "%", target)
            await _cancel(client, job_id)


async def _all_run(client: httpx.AsyncClient, job_id: str, queries: int) -> None:
    async with asyncio.timeout(_LONGEST + 5 * queries):
        while True:
            answer = await client.get(f"/jobs/{job_id}")
            (vertex,) = answer.json()["vertices"]
            if vertex["tasks"]["RUNNING"] == queries:
                return
            await asyncio.sleep(0.2)


async def _cpu(cluster: ScriptCluster, seconds: float) -> float:
    """Percent of one core, of the TaskManager with all below it."""
    before = cluster.cpu()["taskmanager"]
    await asyncio.sleep(seconds)
    return 100 * (cluster.cpu()["taskmanager"] - before) / seconds


def _waiting(empty: Path, queries: int, trigger: str | None) -> JobGraph:
    pipeline = Pipeline("benchmark-idle-streams", params={"empty": str(empty)}, parallelism=queries)
    source = pipeline.stream_source("nothing", f"{_CODE}:nothing")
    source.stream_sink("drop", f"{_CODE}:drop", foreach_batch=True, trigger=trigger)
    return pipeline.build().graph


OPTIONS = {
    "taskmanager.numberOfTaskSlots": "20",
    "taskmanager.memory.task.size": "10 gb",
    "taskmanager.spark.class-archive": "true",
}
SMALL_OPTIONS = {
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.spark.warm-up.count": "1",
    "taskmanager.spark.class-archive": "false",
}
BENCHMARKS = {"streaming": ClusterBenchmark("Streaming queries", OPTIONS, SMALL_OPTIONS, streaming)}
