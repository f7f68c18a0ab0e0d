"""Whole spark-submit applications on warm slots, submitted as a user does: arguments, files, archives, UDFs, exit."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.spark.spark_box import wait_until
from tests.kit.strangers import hostile_archives as hostile

pytestmark = [pytest.mark.process, pytest.mark.spark]

ETL = """
import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import rates
from shapes import sides

output, first, second = sys.argv[1:]


class Money:
    def __init__(self, amount):
        self.amount = amount


@udf("double")
def converted(amount):
    from rates import RATE
    return Money(amount).amount * RATE


if __name__ == "__main__":
    spark = SparkSession.builder.appName("etl").master("local[7]").getOrCreate()
    rows = spark.range(4).select(converted("id").alias("amount")).collect()
    weights = Path("model/weights.txt").read_text()
    in_worker = spark.sparkContext.parallelize([1], 1).map(lambda _: Path("settings.ini").read_text()).collect()
    Path(output).write_text(json.dumps({
        "amounts": [row.amount for row in rows],
        "args": [first, second],
        "file": Path(__file__).name,
        "main": __name__,
        "sides": sides(),
        "weights": weights,
        "settings": in_worker[0],
        "name": Path(sys.argv[0]).name,
        "conf": spark.conf.get("spark.sql.session.timeZone"),
        "random hashes": sys.flags.hash_randomization,
    }))
    print("rows written:", len(rows))
    spark.stop()
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("scripts")
    (directory / "etl.py").write_text(ETL)
    (directory / "rates.py").write_text("RATE = 2.5\n")
    (directory / "settings.ini").write_text("mode=fast")
    with zipfile.ZipFile(directory / "shapes.zip", "w") as archive:
        archive.writestr("shapes/__init__.py", "def sides():\n    return 6\n")
    with zipfile.ZipFile(directory / "weights.zip", "w") as archive:
        archive.writestr("weights.txt", "0.25")
    (directory / "leave.py").write_text("import sys\nprint('leaving')\nsys.exit(3)\n")
    (directory / "leave_text.py").write_text("import sys\nsys.exit('nothing to do on a Sunday')\n")
    (directory / "fine.py").write_text("import sys\nsys.exit(0)\n")
    return directory


def test_an_application_with_everything(either_cluster: ScriptCluster, scripts: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    options = ("--py-files", "rates.py,shapes.zip", "--files", "settings.ini", "--archives", "weights.zip#model")
    conf = ("--conf", "spark.sql.session.timeZone=Asia/Kathmandu", "--name", "nightly")
    done = either_cluster.cli("run", *options, *conf, "etl.py", str(output), "--day", "2026-01-01", cwd=scripts)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(output.read_text()) == {
        "amounts": [0.0, 2.5, 5.0, 7.5],
        "args": ["--day", "2026-01-01"],
        "file": "etl.py",
        "main": "__main__",
        "sides": 6,
        "weights": "0.25",
        "settings": "mode=fast",
        "name": "etl.py",
        "conf": "Asia/Kathmandu",
        "random hashes": 0,
    }
    listed = json.loads(either_cluster.cli("list", "--json").stdout)["jobs"]
    newest = next(job for job in listed if job["name"] == "nightly")
    assert newest["state"] == "FINISHED"
    log = either_cluster.cli("logs", newest["jid"], "--stream", "stdout").stdout
    assert "rows written: 4" in log


@pytest.mark.parametrize(("script", "words"), [("leave.py", "3"), ("leave_text.py", "nothing to do on a Sunday")])
def test_sys_exit_is_the_jobs_failure(spark_cluster: ScriptCluster, scripts: Path, script: str, words: str) -> None:
    done = spark_cluster.cli("run", script, cwd=scripts)
    assert done.returncode == 1, done.stdout + done.stderr
    assert words in done.stderr.splitlines()[-1], done.stderr


def test_sys_exit_zero_is_success(spark_cluster: ScriptCluster, scripts: Path) -> None:
    done = spark_cluster.cli("run", "fine.py", cwd=scripts)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FINISHED" in done.stderr


RELATIVE = """
import os
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
length = udf(lambda name: len(open(name).read()), "int")
words = spark.read.text("data/words.txt")
words.write.parquet("out/words")
words.write.saveAsTable("words")
spark.sql("create table copies (value string) using parquet location 'copies'")
spark.sql("insert into copies select * from words")
print("rows", spark.read.parquet("out/words").count(), spark.table("copies").count())
print("length", spark.createDataFrame([("data/words.txt",)], ["name"]).select(length("name")).first()[0])
print("made", sorted(os.listdir()), sorted(os.listdir("spark-warehouse")))
"""


def test_relative_paths_are_the_jobs(spark_cluster: ScriptCluster, tmp_path: Path) -> None:
    (tmp_path / "relative.py").write_text(RELATIVE)
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("words.txt", "one\ntwo\n")
    for _ in range(2):  # the second one meets nothing of the first
        done = spark_cluster.cli("run", "--archives", "data.zip#data", "relative.py", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        newest = json.loads(spark_cluster.cli("list", "--json").stdout)["jobs"][0]
        printed = spark_cluster.cli("logs", newest["jid"], "--stream", "stdout").stdout
        assert "rows 2 2" in printed
        assert "length 8" in printed
        assert "['data', 'out', 'relative.py', 'spark-warehouse'] ['copies', 'words']" in printed
    wait_until(lambda: not list((spark_cluster.run / "run" / "work").glob("tm-*/jobs/*")))


def test_an_archive_that_was_made_to_hurt_fails_its_job_only(
    spark_cluster: ScriptCluster, scripts: Path, tmp_path: Path
) -> None:
    """R42: in one sentence, and the TaskManager goes on: the same one, which runs the next job."""
    hostile.large_header(tmp_path / "model.tar.gz", mebibytes=800)
    before = spark_cluster.pids()["taskmanager"]
    done = spark_cluster.cli("run", "--archives", str(tmp_path / "model.tar.gz"), "fine.py", cwd=scripts)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "archive model.tar.gz has a header of 838860800 bytes" in done.stderr.splitlines()[-1], done.stderr
    assert spark_cluster.cli("run", "fine.py", cwd=scripts).returncode == 0
    assert spark_cluster.pids()["taskmanager"] == before
