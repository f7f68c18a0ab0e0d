"""A real standalone master and worker, started from pyspark's own jars; the TaskManager's driver is their client."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.taskexecutor.spark.java import find_java
from runtime.taskexecutor.spark.launch import MODULE_OPTIONS, class_path, spark_home
from tests.kit.spark_box import ONE_COMPILER, SparkBox, is_alive, spark_settings, wait_until

HOST = "127.0.0.1"


@contextlib.contextmanager
def deployed(directory: Path, class_name: str, *arguments: str) -> Iterator[Path]:
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
        process.wait(20)


@pytest.fixture(scope="module")
def standalone_box(tmp_path_factory: pytest.TempPathFactory, class_archive: Path | None) -> Iterator[SparkBox]:
    directory = tmp_path_factory.mktemp("standalone")
    (directory / "conf").mkdir()
    quiet = ("--host", HOST, "--port", "0", "--webui-port", "0")
    with deployed(directory / "master", "org.apache.spark.deploy.master.Master", *quiet) as log:
        master = f"spark://{HOST}:{listening_port(log)}"
        worker = ("--cores", "2", "--memory", "1g", "--work-dir", str(directory / "work"), *quiet, master)
        with deployed(directory / "worker", "org.apache.spark.deploy.worker.Worker", *worker):
            conf = {
                "spark.executor.memory": "512m",
                "spark.executor.extraJavaOptions": ONE_COMPILER,
                "spark.cores.max": "2",
                "spark.sql.shuffle.partitions": "2",
            }
            settings = spark_settings(directory, archive=class_archive, master=master, spark_conf=conf)
            box = SparkBox(settings, directory)
            try:
                box.run(box.environment.start())
                yield box
            finally:
                box.shut()


def listening_port(log: Path) -> int:
    found: list[str] = []

    def has_started() -> bool:
        found[:] = re.findall(r"Starting Spark master at spark://[^:]+:(\d+)", log.read_text())
        return bool(found)

    wait_until(has_started, 40)
    return int(found[0])


def test_slots_run_on_a_standalone_cluster(standalone_box: SparkBox) -> None:
    code = """
from pyspark.sql.functions import udf
counter = spark.sparkContext.accumulator(0)
spark.sparkContext.parallelize(range(5), 2).foreach(lambda n: counter.add(n))
emit([spark.sparkContext.master.split(":")[0], spark.range(1000).count(), counter.value,
      spark.range(4).select(udf(lambda n: n * 2, "long")("id").alias("n")).groupBy().sum("n").first()[0]])
"""
    assert standalone_box.evaluate(code) == ["spark", 1000, 10, 12]


def test_a_killed_slot_leaves_no_task_on_the_cluster(standalone_box: SparkBox) -> None:
    code = """
emit("started")
spark.sparkContext.parallelize(range(2), 2).foreach(lambda _: __import__("time").sleep(60))
"""
    slot = standalone_box.slot(code)
    assert slot.next() == "started"
    session = slot.session.session_id
    wait_until(lambda: session in standalone_box.run(standalone_box.environment.progress()))
    standalone_box.end(slot)
    assert standalone_box.environment.is_ready
    assert is_alive(standalone_box.environment.process_ids[1])
    assert standalone_box.evaluate("emit(spark.range(3).count())") == 3
