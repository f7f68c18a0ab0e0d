"""Spark jobs: the cluster's overhead over a bare warm session, against spark-submit, and a TaskManager's start."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.benchmarks.cluster import ScriptCluster, job_graph, job_ids, run_to_finish
from tests.benchmarks.measure import Report, percentile

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
_SUBMIT_SCRIPT = """
from pyspark.sql import SparkSession
print(SparkSession.builder.getOrCreate().range(1000).count())
"""


def _prefix() -> int:
    return int.from_bytes(os.urandom(4), "big")


class BareSession:
    """A warm Spark session in a process of its own, asked for one count at a time."""

    def __init__(self, warm_up: int) -> None:
        command = [sys.executable, "-c", _BARE_SESSION, str(warm_up)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._read() == "ready"

    def count_ms(self) -> float:
        """Milliseconds of one count."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


async def _pairs(cluster: ScriptCluster, bare: BareSession, report: Report, *, pairs: int) -> float:
    differences, ours, theirs = [], [], []
    async with cluster.client() as client:
        for job_id in job_ids(_prefix(), 20):
            await run_to_finish(client, job_id, COUNT)
        cpu = cluster.cpu()
        for job_id in job_ids(_prefix(), pairs):
            theirs.append(bare.count_ms())
            begin = time.perf_counter()
            await run_to_finish(client, job_id, COUNT)
            ours.append(1000 * (time.perf_counter() - begin))
            differences.append(ours[-1] - theirs[-1])
        report.add_distribution("range(1000).count() in a bare warm session", theirs)
        report.add_distribution("the same as a job, submit to result", ours)
        difference = percentile(differences, 50)
        report.add(f"median of {pairs} differences", difference, "ms", now="60", goal="25")
        report.add_cpu("Spark job", cpu, cluster.cpu(), pairs)
    return percentile(ours, 50)


def _spark_submit(script: Path, runs: int) -> list[float]:
    command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", str(script)]
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(1000 * (time.perf_counter() - begin))
    return times


def overhead(*, small: bool) -> Report:
    """A Spark job on the cluster, in a bare session, and by spark-submit, in one run."""
    report = Report("Spark job")
    with ScriptCluster({}) as cluster:
        bare = BareSession(warm_up=20 if small else 100)
        try:
            ours = asyncio.run(_pairs(cluster, bare, report, pairs=5 if small else 50))
        finally:
            bare.close()
        script = cluster.run / "count.py"
        script.write_text(_SUBMIT_SCRIPT)
        times = _spark_submit(script, 1 if small else 3)
    report.add("spark-submit, median", percentile(times, 50), "ms")
    report.add("spark-submit / job", percentile(times, 50) / ours, "x", now="50", goal="100")
    return report


def start(*, small: bool) -> Report:
    """TaskManager start to ready, without and with the class archive."""
    report = Report("TaskManager start")
    options = {"taskmanager.numberOfTaskSlots": "2"}
    with ScriptCluster({**options, "taskmanager.spark.class-archive": "true"}) as cluster:
        archives = cluster.run / "run" / "cds"
        _wait_for_archive(archives, timeout=300)
        cluster.script("taskmanager.sh", "stop-all")
        rounds = 1 if small else 3
        with_archive = [_start_once(cluster) for _ in range(rounds)]
        without = [_start_once(cluster, "-D", "taskmanager.spark.class-archive=false") for _ in range(rounds)]
    report.add("start to ready with class archive, median", percentile(with_archive, 50), "s", now="12", goal="7")
    report.add("start to ready without, median", percentile(without, 50), "s", now="25", goal="15")
    return report


def _start_once(cluster: ScriptCluster, *more: str) -> float:
    begin = time.perf_counter()
    done = cluster.script("taskmanager.sh", "start", *cluster.dynamic, *more)
    spent = time.perf_counter() - begin
    assert done.returncode == 0, done.stderr
    cluster.script("taskmanager.sh", "stop-all")
    return spent


def _wait_for_archive(directory: Path, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    pattern = re.compile(r"\.(jsa|aot)$")
    while not any(pattern.search(path.name) for path in directory.glob("**/*")):
        assert time.monotonic() < deadline, f"no class archive appeared in {directory}"
        time.sleep(1)
