"""Spark environments: the first job with static conf of its own, the next ones, and spark-submit with the same conf."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from runtime.jobgraph.graph import JobGraph
from runtime.taskexecutor.spark_host.idleness import PATIENCE
from tests.benchmarks.cluster import ClusterBenchmark, ScriptCluster, job_graph, job_ids, run_to_finish
from tests.benchmarks.measure import Report, Target, job_prefix, percentile, pss_bytes, tree
from tests.benchmarks.spark import COUNT, SUBMIT_SCRIPT, class_archives, spark_submit
from tests.kit.host.levels import reached

_KRYO = {"spark.serializer": "org.apache.spark.serializer.KryoSerializer"}
_MIB = 1 << 20
_HEAP = 600
_QUIET = 3.0
_WARM_TIMEOUT = 300.0


def environments(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """Each round asks for another heap, so that its first job finds no environment."""
    rounds, warm = (1, 2) if small else (3, 10)
    if not small:
        directory = cluster.run / "run" / "cds"
        reached(lambda: class_archives(directory), f"a class archive in {directory}", timeout=300)
    first, following = asyncio.run(_jobs(cluster, rounds, warm))
    report.add_distribution("first job in a new environment", first, "s", p50=Target("7", "7"))
    report.add_distribution("the jobs right behind it", following)
    _wait_until_idle(cluster)
    report.add_distribution("jobs there when it is warm", asyncio.run(_warm_jobs(cluster, rounds, warm)))
    report.add_distribution("jobs in the default environment", asyncio.run(_default_jobs(cluster, warm)))
    script = cluster.run / "count.py"
    script.write_text(SUBMIT_SCRIPT)
    conf = (
        "--driver-memory",
        f"{_HEAP}m",
        *(word for key, value in _KRYO.items() for word in ("--conf", f"{key}={value}")),
    )
    times, cpu = spark_submit(script, 1 if small else 3, *conf)
    report.add_distribution("spark-submit with the same conf", [milliseconds / 1000 for milliseconds in times], "s")
    report.add("CPU of spark-submit per run", 1000 * cpu / len(times), "ms")
    report.add("spark-submit / first job", percentile(times, 50) / 1000 / percentile(first, 50), "x")
    if not small:
        asyncio.run(asyncio.sleep(PATIENCE))
    _wait_until_idle(cluster)
    idle = [pss_bytes(process.pid) / _MIB for process in _jvms(cluster) if _is_of_jobs(process)]
    report.add(f"PSS of {len(idle)} idle environments", sum(idle), "MiB", Target("1200", "1200"))
    (default,) = (pss_bytes(process.pid) / _MIB for process in _jvms(cluster) if not _is_of_jobs(process))
    report.add("and of the default one", default, "MiB")


async def _jobs(cluster: ScriptCluster, rounds: int, warm: int) -> tuple[list[float], list[float]]:
    """Seconds of first jobs, milliseconds of the jobs behind them."""
    first, following = list[float](), list[float]()
    async with cluster.client() as client:
        for job_id in job_ids(job_prefix(), 3):
            await run_to_finish(client, job_id, COUNT)
        for number in range(rounds):
            graph = _with_conf(_HEAP + number)
            for place, job_id in enumerate(job_ids(job_prefix(), 1 + warm)):
                begin = time.perf_counter()
                await run_to_finish(client, job_id, graph)
                spent = time.perf_counter() - begin
                (first if place == 0 else following).append(spent if place == 0 else 1000 * spent)
    return first, following


async def _warm_jobs(cluster: ScriptCluster, rounds: int, count: int) -> list[float]:
    return await _timed(cluster, [_with_conf(_HEAP + number) for number in range(rounds)], count)


async def _default_jobs(cluster: ScriptCluster, count: int) -> list[float]:
    return await _timed(cluster, [COUNT], count)


async def _timed(cluster: ScriptCluster, graphs: Sequence[JobGraph], count: int) -> list[float]:
    """Milliseconds of `count` jobs of each graph."""
    spent = list[float]()
    async with cluster.client() as client:
        for graph in graphs:
            for job_id in job_ids(job_prefix(), count):
                begin = time.perf_counter()
                await run_to_finish(client, job_id, graph)
                spent.append(1000 * (time.perf_counter() - begin))
    return spent


def _with_conf(heap: int) -> JobGraph:
    graph = job_graph("count", "tests.benchmarks.programs:count")
    return graph.model_copy(update={"spark_conf": {**_KRYO, "spark.driver.memory": f"{heap}m"}})


def _wait_until_idle(cluster: ScriptCluster) -> None:
    """Until the JVMs have warmed up: together they take less than a twentieth of a processor for a while."""
    jvms = _jvms(cluster)

    def spent() -> float:
        return sum(process.cpu_times().user + process.cpu_times().system for process in jvms)

    before, end = spent(), time.monotonic() + _WARM_TIMEOUT
    while time.monotonic() < end:
        time.sleep(_QUIET)
        now = spent()
        if now - before < _QUIET / 20:
            return
        before = now
    message = f"the JVMs are still at work after {_WARM_TIMEOUT} s"
    raise TimeoutError(message)


def _jvms(cluster: ScriptCluster) -> list[psutil.Process]:
    (pid,) = cluster.pids()["taskmanager"]
    return [process for process in tree(pid) if Path(_executable(process)).name == "java"]


def _is_of_jobs(process: psutil.Process) -> bool:
    return any(argument.startswith(f"-Xmx{_HEAP // 10}") for argument in process.cmdline())


def _executable(process: psutil.Process) -> str:
    try:
        return process.exe()
    except psutil.Error:  # it has ended
        return ""


OPTIONS = {"taskmanager.numberOfTaskSlots": "2", "taskmanager.spark.class-archive": "true"}
SMALL_OPTIONS = {**OPTIONS, "taskmanager.spark.warm-up.count": "1", "taskmanager.spark.class-archive": "false"}
BENCHMARKS = {"environments": ClusterBenchmark("Spark environments", OPTIONS, SMALL_OPTIONS, environments)}
