"""Java applications: the sentence about an end, and the conf that the JVM is given."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.taskexecutor.slot_process.application import application_conf, failure_of
from runtime.taskexecutor.slots.running_attempt import work_order
from tests.kit.spark.slot_work import slot_work

THROWN = """26/11/28 INFO x: Exception in thread of a log line
Exception in thread "main" java.lang.RuntimeException: first
\tat Old.main(Old.java:1)
Caused by: java.lang.Error: of another one
Exception in thread "main" org.apache.spark.SparkException: Job aborted
\tat App.main(App.java:7)
Caused by: java.io.IOException: no space
\tat App.write(App.java:9)
Caused by: java.nio.file.FileSystemException: /data: disk full
\t... 3 more
26/11/28 INFO ShutdownHookManager: Shutdown hook called
"""


@pytest.mark.parametrize(
    ("code", "written", "told"),
    [
        (1, THROWN, "the application ended with exit code 1: java.nio.file.FileSystemException: /data: disk full"),
        (1, THROWN[: THROWN.index("Caused by: java.io")], "exit code 1: org.apache.spark.SparkException: Job aborted"),
        (101, "Error: Failed to load class a.B.\n", "ended with exit code 101: Failed to load class a.B."),
        (7, "nothing\n", "the application ended with exit code 7"),
        (3, "nothing\n", "the application ended with exit code 3"),
        (3, "Terminating due to java.lang.OutOfMemoryError: Java heap space\n", "(spark.driver.memory is 640m): give"),
        (-11, THROWN, "the JVM of the application was ended by signal 11"),
    ],
)
def test_an_end_is_one_sentence_with_the_innermost_cause(code: int, written: str, told: str) -> None:
    found = failure_of(code, written, {"spark.driver.memory": "640m"})
    assert told in found
    assert "\n" not in found


def test_the_conf_of_the_job_wins_over_that_of_the_task_manager(tmp_path: Path) -> None:
    (tmp_path / "in.csv").touch()
    (tmp_path / "unpacked").mkdir()
    conf = {
        "spark.sql.shuffle.partitions": "3",
        "spark.master": "yarn",
        "spark.my.key": "7",
        "spark.jars": "/opt/a.jar",
    }
    order = replace(
        work_order(slot_work(tmp_path)),
        job_name="nightly",
        spark_conf=json.dumps(conf).encode(),
        job_directory=str(tmp_path),
        brought=("in.csv", "unpacked"),
        jars=("/jars/b.jar",),
    )
    base = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}
    assert application_conf(order, base) == {
        "spark.app.name": "nightly",
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "3",
        "spark.my.key": "7",
        "spark.ui.enabled": "false",
        "spark.jars": "/opt/a.jar,/jars/b.jar",
        "spark.files": str(tmp_path / "in.csv"),
    }
