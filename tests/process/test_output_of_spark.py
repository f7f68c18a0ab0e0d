"""R22: what Spark prints and logs for a job is in that job's output, and one job's flood keeps no other waiting."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.kit.cluster.script_cluster import ROOT, ScriptCluster

pytestmark = [pytest.mark.process, pytest.mark.spark]

TALKS = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf, udf
name, other, meeting = sys.argv[1], sys.argv[2], Path(sys.argv[3])
spark = SparkSession.builder.getOrCreate()
(meeting / name).touch()
while not (meeting / other).exists():
    time.sleep(0.05)
@udf("long")
def plain(value):
    print(f"{name} plain {value}")
    return value
@pandas_udf("long")
def arrow(values):
    print(f"{name} arrow", file=sys.stderr)
    return values
logger = spark._jvm.org.apache.log4j.LogManager.getLogger("etl.Nightly")
for number in range(5):
    spark.range(4).select(plain("id"), arrow("id")).collect()
    spark._jvm.java.lang.System.out.println(f"{name} Java {number}")
    logger.warn(f"{name} log4j {number}")
"""

LINES = 600_000
FLOODS = f"""
import sys
from pathlib import Path
from pyspark.sql import SparkSession
def prints(part):
    for number in range({LINES}):
        sys.stdout.write("%099d\\\\n" % number)
    return [0]
SparkSession.builder.getOrCreate().sparkContext.parallelize([0], 1).mapPartitions(prints).count()
print("the end")
""".replace("\\\\", "\\")
"""60 MB."""


def begun(cluster: ScriptCluster, *arguments: str) -> subprocess.Popen[str]:
    command = [str(ROOT / "bin" / "flinklike"), "run", *arguments]
    return subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check(name: str, other: str, out: str, err: str) -> None:
    assert sorted(out.splitlines()) == sorted(
        [*(f"{name} plain {value}" for value in range(4) for _ in range(5)), *(f"{name} Java {n}" for n in range(5))]
    )
    told = [line for line in err.splitlines() if name in line]
    logged = [line for line in told if re.fullmatch(rf"[0-9/]+ [0-9:]+ WARN Nightly: {name} log4j \d", line)]
    assert len(logged) == 5, err
    assert f"{name} arrow" in told
    assert f"{other} " not in err


def test_two_jobs_at_once_see_their_own(spark_cluster: ScriptCluster, tmp_path: Path) -> None:
    path = tmp_path / "etl.py"
    path.write_text(TALKS)
    pairs = (("first", "second"), ("second", "first"))
    runs = [begun(spark_cluster, str(path), name, other, str(tmp_path)) for name, other in pairs]
    for (name, other), run in zip(pairs, runs, strict=True):
        out, err = run.communicate(timeout=240)
        assert run.returncode == 0, err
        check(name, other, out, err)


def test_a_flood_of_a_function_is_bounded_and_said_to_be_cut(spark_cluster: ScriptCluster, tmp_path: Path) -> None:
    path = tmp_path / "floods.py"
    path.write_text(FLOODS)
    done = spark_cluster.cli("run", str(path), timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert lines[-1] == "the end"
    assert [line for line in lines[:-1] if not re.fullmatch(r"[0-9]{99}", line)] == []
    shown = (len(lines) - 1) * 100 + len("the end\n")
    dropped = re.findall(r"^Not all output was shown: ([0-9.]+) mb of the stdout", done.stderr, re.MULTILINE)
    lost = LINES * 100 + len("the end\n") - shown
    assert abs(sum(map(float, dropped)) - lost / (1 << 20)) < 0.1, "what is not shown is said to be gone"
