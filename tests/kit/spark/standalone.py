"""A real standalone master with workers, started from pyspark's own jars."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from runtime.taskexecutor.driver_jvm.command import MODULE_OPTIONS, class_path, properties_text, spark_home
from runtime.taskexecutor.driver_jvm.java import find_java
from tests.kit.spark.spark_box import ONE_COMPILER, wait_until

HOST = "127.0.0.1"
_QUIET = ("--host", HOST, "--port", "0", "--webui-port", "0")


@contextlib.contextmanager
def standalone(
    directory: Path, *, cores: int, memory: str, conf: Mapping[str, str] | None = None, workers: int = 1
) -> Iterator[str]:
    """Master and workers with this conf, in `cluster` of the directory; yields the value of `spark.master`.

    `cores`, `memory`: of each worker.
    """
    cluster = directory / "cluster"
    cluster.mkdir()
    properties = cluster / "spark.properties"
    properties.write_text(properties_text(conf or {}))
    quiet = (*_QUIET, "--properties-file", str(properties))
    with _deployed(cluster / "master", "org.apache.spark.deploy.master.Master", *quiet) as log:
        master = f"spark://{HOST}:{_listening_port(log)}"
        with contextlib.ExitStack() as stack:
            for number in range(workers):
                work = str(cluster / "work" / str(number))
                worker = ("--cores", str(cores), "--memory", memory, "--work-dir", work, *quiet, master)
                name = "worker" if number == 0 else f"worker-{number}"
                stack.enter_context(_deployed(cluster / name, "org.apache.spark.deploy.worker.Worker", *worker))
            yield master


def executors(directory: Path) -> dict[int, psutil.Process]:
    """The executors of the cluster in that directory, by pid."""
    found: dict[int, psutil.Process] = {}
    work = str(directory / "cluster" / "work")
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd().startswith(work) and "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                found[process.pid] = process
    return found


@contextlib.contextmanager
def _deployed(directory: Path, class_name: str, *arguments: str) -> Iterator[Path]:
    """Run one class of Spark's deploy package; yields its log."""
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / f"{class_name.rpartition('.')[2]}.log"
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": HOST,
        "SPARK_HOME": str(spark_home()),
        "SPARK_SCALA_VERSION": "2.13",  # the worker builds its executors' command with it
        "PYSPARK_PYTHON": sys.executable,
    }
    java = [str(find_java(os.environ).executable), "-Xmx256m", ONE_COMPILER, *MODULE_OPTIONS]
    command = [*java, "-cp", class_path(spark_home(), {}), class_name, *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, cwd=directory, stdout=output, stderr=output)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(100)


def _listening_port(log: Path) -> int:
    found: list[str] = []

    def has_started() -> bool:
        found[:] = re.findall(r"Starting Spark master at spark://[^:]+:(\d+)", log.read_text())
        return bool(found)

    wait_until(has_started, 40)
    return int(found[0])
