"""A script that leaves files in its working directory is told that they go with the job, whatever became of it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.kit.cluster.script_cluster import ScriptCluster

pytestmark = [pytest.mark.process, pytest.mark.spark]

WRITES = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.range(5).coalesce(1).write.parquet("out")
open("result.csv", "w").write("a,b")
spark.range(5).coalesce(1).write.saveAsTable("kept")
"""
LEAVES_NOTHING = """
import sys, helper
from pathlib import Path
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
assert spark.read.text("in.txt").count() == 1 and Path("model/weights.txt").read_text()
spark.range(5).write.parquet(sys.argv[1])
"""
ENDS = {"return": "", "raise": "1 / 0", "exit": "sys.exit(3)", "closed": "import os; os.close(2)"}


@pytest.mark.parametrize("end", ENDS)
def test_files_that_go_with_the_job_are_told(spark_cluster: ScriptCluster, tmp_path: Path, end: str) -> None:
    (tmp_path / "etl.py").write_text(WRITES + ENDS[end])
    done = spark_cluster.cli("run", "etl.py", cwd=tmp_path)
    assert done.returncode == (0 if end in {"return", "closed"} else 1), done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("Progress: ")]
    (told,) = [line for line in said if "WARNING: the working directory" in line]
    assert "out/, result.csv, spark-warehouse/ (" in told
    assert "absolute path" in told
    assert "taskmanager.spark.warehouse" in told
    assert told == said[-2], "it is the last that is said of the job but for its end"


def test_a_script_that_leaves_nothing_is_told_nothing(spark_cluster: ScriptCluster, tmp_path: Path) -> None:
    (tmp_path / "etl.py").write_text(LEAVES_NOTHING)
    (tmp_path / "helper.py").write_text("")
    (tmp_path / "in.txt").write_text("one line")
    with zipfile.ZipFile(tmp_path / "weights.zip", "w") as archive:
        archive.writestr("weights.txt", "0.25")
    options = ("--files", "helper.py,in.txt", "--archives", "weights.zip#model")
    done = spark_cluster.cli("run", *options, "etl.py", str(tmp_path / "out"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
