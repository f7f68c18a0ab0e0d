"""The commit of many files, beside Spark's FileOutputCommitter of both versions, on one local file system.

Files are empty, since none is read or copied: what is measured is the work for each file. Spark's committers run in a
JVM of their own and are called as a job calls them; what tasks do for the commit counts, because version 2 does
everything there.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runtime.aio.clock import LoopClock
from runtime.common.ids import JobId, VertexId
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import OVERWRITE, OutputDirectory
from runtime.taskexecutor.outputs.move_permit import Permit
from runtime.taskexecutor.outputs.output_move import OutputMove
from runtime.taskexecutor.outputs.storage_steps import PARALLEL_MAX
from tests.benchmarks.measure import Report
from tests.kit.spark.plain_spark import plain_spark_environment

FILES = 120_000
FILES_SMALL = 240
TASKS = 24
_JOB = JobId("c" * 32)


def write(directory: Path, task: int, count: int) -> None:
    """What one task has written."""
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (directory / f"part-{task:05d}-{number:06d}.parquet").touch()


def commit(*, small: bool) -> Report:
    """Seconds from the order to `_SUCCESS`."""
    report = Report("commit")
    files = FILES_SMALL if small else FILES
    report.note(
        f"{files} empty files of {TASKS} tasks, each committer on a directory of its own on the same file system"
    )
    with tempfile.TemporaryDirectory(prefix="flinklike-commit-") as folder:
        root = Path(folder)
        first = _ours(root / "ours", files, 0)
        again = _ours(root / "ours", files, 1)
        shutil.rmtree(root / "ours")
        report.add(f"flinklike: {files} files", first, "s")
        report.add(f"flinklike: {files} files over as many old ones", again, "s")
        report.add("flinklike: per file", first / files * 1e6, "us")
        for version in (1, 2):
            tasks, job = _sparks(root / f"v{version}", files, version)
            report.add(f"FileOutputCommitter v{version}: its tasks", tasks, "s")
            report.add(f"FileOutputCommitter v{version}: its job", job, "s")
            report.add(f"FileOutputCommitter v{version}: per file", (tasks + job) / files * 1e6, "us")
    return report


def _ours(base: Path, files: int, run: int) -> float:
    job_id = JobId(f"{_JOB[:-1]}{run}")
    outputs = []
    for task in range(TASKS):
        directory = base / f".attempt-{job_id}_{task}"
        write(directory, task + run * TASKS, files // TASKS)
        outputs.append(OutputDirectory(str(base), str(directory), OVERWRITE))
    message = CommitOutputs(job_id, 1, VertexId("d" * 32), tuple(outputs), 1)

    async def move() -> None:
        with ThreadPoolExecutor(PARALLEL_MAX) as executor:
            await OutputMove(message, Permit(), executor, _tell_nobody, LoopClock(), patience=0.0).run()

    began = time.perf_counter()
    asyncio.run(move())
    seconds = time.perf_counter() - began
    names = [path for path in base.iterdir() if path.suffix == ".parquet"]
    assert len(names) == files // TASKS * TASKS, len(names)
    return seconds


def _tell_nobody(_moved: int, _total: int, _problem: str) -> None:
    return


def _sparks(base: Path, files: int, version: int) -> tuple[float, float]:
    command = [sys.executable, "-m", "tests.benchmarks.commit", str(base), str(files), str(version)]
    done = subprocess.run(command, env=plain_spark_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    measured: Mapping[str, float] = json.loads(done.stdout.splitlines()[-1])
    assert len(list(base.glob("*.parquet"))) == files // TASKS * TASKS
    shutil.rmtree(base)
    return measured["tasks"], measured["job"]


def file_output_committer(base: str, files: int, version: str) -> dict[str, float]:
    """Within a process that has a JVM: seconds of the commits of all tasks, one after the other, and of the job's."""
    from pyspark import SparkConf, SparkContext

    sc = SparkContext(conf=SparkConf().setMaster("local[1]").set("spark.ui.enabled", "false"))
    jvm = sc._jvm
    assert jvm is not None
    hadoop = jvm.org.apache.hadoop
    mapreduce = hadoop.mapreduce
    conf = sc._jsc.hadoopConfiguration()
    conf.set("mapreduce.fileoutputcommitter.algorithm.version", version)
    job_id = mapreduce.JobID("bench", 1)
    job = mapreduce.task.JobContextImpl(conf, job_id)
    path = hadoop.fs.Path(base)
    contexts = []
    for task in range(TASKS):
        attempt = mapreduce.TaskAttemptID(mapreduce.TaskID(job_id, mapreduce.TaskType.MAP, task), 0)
        context = mapreduce.task.TaskAttemptContextImpl(conf, attempt)
        committer = mapreduce.lib.output.FileOutputCommitter(path, context)
        if not task:
            committer.setupJob(job)
        committer.setupTask(context)
        write(Path(committer.getWorkPath().toUri().getPath()), task, files // TASKS)
        contexts.append((committer, context))
    began = time.perf_counter()
    for committer, context in contexts:
        committer.commitTask(context)
    tasks = time.perf_counter() - began
    contexts[0][0].commitJob(job)
    return {"tasks": tasks, "job": time.perf_counter() - began - tasks}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(file_output_committer(sys.argv[1], int(sys.argv[2]), sys.argv[3])) + "\n")
