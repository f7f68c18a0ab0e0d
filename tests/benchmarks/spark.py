"""Spark jobs: the cluster's overhead over a bare warm session, against spark-submit, and a TaskManager's start."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.benchmarks.cluster import ClusterBenchmark, ScriptCluster, job_graph, job_ids, run_to_finish
from tests.benchmarks.measure import Report, Target, cpu_seconds, job_prefix, percentile, tree
from tests.kit.host.levels import reached
from tests.kit.spark.plain_spark import plain_spark_environment

COUNT = job_graph("count", "tests.benchmarks.programs:count")

_BARE_SESSION = """
import sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").config(
    "spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
for _ in range(int(sys.argv[1])):
    spark.range(1000).count()
print("ready", flush=True)
for line in sys.stdin:
    begin = time.perf_counter()
    spark.range(1000).count()
    print(1000 * (time.perf_counter() - begin), flush=True)
"""
SUBMIT_SCRIPT = """
from pyspark.sql import SparkSession
print(SparkSession.builder.getOrCreate().range(1000).count())
"""


class BareSession:
    """A warm Spark session in a process of its own, asked for one count at a time."""

    def __init__(self, warm_up: int, log: Path) -> None:
        command = [sys.executable, "-c", _BARE_SESSION, str(warm_up)]
        self._log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=plain_spark_environment(),
            )
        assert self._read() == "ready"

    def count_ms(self) -> float:
        """Milliseconds of one count."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._read())

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, with its JVM."""
        return {"a bare session": cpu_seconds([self._process.pid])}

    def close(self) -> None:
        """End it."""
        with self._process as process:  # closes its pipes
            assert process.stdin is not None
            process.stdin.close()
            process.wait(100)

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, f"the bare session has ended: {self._log.read_text(errors='replace')[-2000:]}"
        return line


async def _pairs(cluster: ScriptCluster, bare: BareSession, report: Report, *, warm_up: int, pairs: int) -> float:
    differences, ours, theirs = list[float](), list[float](), list[float]()
    async with cluster.client() as client:
        for job_id in job_ids(job_prefix(), warm_up):
            await run_to_finish(client, job_id, COUNT)
        cpu, bare_cpu = cluster.cpu(), bare.cpu()
        for job_id in job_ids(job_prefix(), pairs):
            theirs.append(bare.count_ms())
            begin = time.perf_counter()
            await run_to_finish(client, job_id, COUNT)
            ours.append(1000 * (time.perf_counter() - begin))
            differences.append(ours[-1] - theirs[-1])
        after, bare_after = cluster.cpu(), bare.cpu()
    report.add_distribution("range(1000).count() in a bare warm session", theirs)
    report.add_distribution("the same as a job, submit to result", ours)
    report.add_distribution(f"differences of {pairs} pairs", differences, p50=Target("60", "25"))
    report.add_cpu("Spark job", cpu, after, pairs)
    report.add_cpu("count", bare_cpu, bare_after, pairs)
    return percentile(ours, 50)


def spark_submit(script: Path, runs: int, *options: str) -> tuple[list[float], float]:
    """Milliseconds of each run, and CPU seconds of all."""
    command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", *options, str(script)]
    environment, times, before = plain_spark_environment(), list[float](), os.times()
    for _ in range(runs):
        begin = time.perf_counter()
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        times.append(1000 * (time.perf_counter() - begin))
        assert done.returncode == 0, done.stderr[-2000:]
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return times, cpu


def overhead(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """A Spark job on the cluster, in a bare session, and by spark-submit, in one run."""
    warm_up = 2 if small else 100  # the same for both: a JVM goes on compiling for some hundred queries
    bare = BareSession(warm_up, cluster.run / "bare.log")
    try:
        ours = asyncio.run(_pairs(cluster, bare, report, warm_up=warm_up, pairs=5 if small else 50))
    finally:
        bare.close()
    script = cluster.run / "count.py"
    script.write_text(SUBMIT_SCRIPT)
    runs = 1 if small else 3
    times, cpu = spark_submit(script, runs)
    report.add_distribution("spark-submit", times)
    report.add("CPU of spark-submit per run", 1000 * cpu / runs, "ms")
    report.add("spark-submit / job", percentile(times, 50) / ours, "x", Target("50", "100"))


def start(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """TaskManager start to ready, with and without the class archive."""
    rounds = 1 if small else 3
    directory = cluster.run / "run" / "cds"
    archive = reached(lambda: class_archives(directory), f"a class archive in {directory}", timeout=300)[0]
    _must_succeed(cluster.script("taskmanager.sh", "stop-all"))
    with_archive = [_start_once(cluster, archive, uses=True) for _ in range(rounds)]
    off = ("-D", "taskmanager.spark.class-archive=false")
    without = [_start_once(cluster, archive, *off, uses=False) for _ in range(rounds)]
    for name, found, target in (
        ("with class archive", with_archive, Target("12", "7")),
        ("without class archive", without, Target("25", "15")),
    ):
        report.add_distribution(f"start to ready {name}", [seconds for seconds, _ in found], "s", p50=target)
        report.add_distribution(f"CPU of a start {name}", [cpu for _, cpu in found], "s")


def _start_once(cluster: ScriptCluster, archive: Path, *more: str, uses: bool) -> tuple[float, float]:
    """Seconds until it is ready, and CPU seconds of the TaskManager and its JVM until then."""
    begin = time.perf_counter()
    _must_succeed(cluster.script("taskmanager.sh", "start", *cluster.dynamic, *more))
    spent = time.perf_counter() - begin
    cpu, (pid,) = cluster.cpu()["taskmanager"], cluster.pids()["taskmanager"]
    is_used = any(str(archive) in argument for process in tree(pid) for argument in process.cmdline())
    assert is_used is uses, f"class archive {archive}: used {is_used}, wanted {uses}"
    _must_succeed(cluster.script("taskmanager.sh", "stop-all"))
    return spent, cpu


def _must_succeed(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


def class_archives(directory: Path) -> list[Path]:
    """Those that are built."""
    return [path for suffix in ("jsa", "aot") for path in directory.glob(f"spark-*.{suffix}")]


# A new cluster builds the class archive first, beside the measurement.
OVERHEAD_OPTIONS = {"taskmanager.spark.class-archive": "false"}
START_OPTIONS = {"taskmanager.numberOfTaskSlots": "2", "taskmanager.spark.class-archive": "true"}
SMALL_OPTIONS = {**START_OPTIONS, "taskmanager.spark.warm-up.count": "1"}
BENCHMARKS = {
    "spark": ClusterBenchmark("Spark job", OVERHEAD_OPTIONS, OVERHEAD_OPTIONS, overhead),
    "start": ClusterBenchmark("TaskManager start", START_OPTIONS, SMALL_OPTIONS, start),
}
