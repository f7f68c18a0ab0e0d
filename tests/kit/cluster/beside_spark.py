"""Programs for a cluster whose slots are users of their own beside Spark: what jobs use, and what one attempts."""

from __future__ import annotations

import pwd
from contextlib import suppress
from pathlib import Path

DATA = """
import os

import pandas
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf, udf

spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext
assert spark.sql("select count(*) as n from range(1000)").first().n == 1000
assert sc.parallelize(range(100_000), 2).map(lambda value: value + 1).sum() == 5_000_050_000
rows = spark.createDataFrame(pandas.DataFrame({"number": range(50_000), "text": ["x" * 100] * 50_000}))
assert len(rows.collect()) == len(rows.toPandas()) == 50_000
words = sc.broadcast({number: "w" * 1000 for number in range(2000)})
assert sc.parallelize(range(10), 2).map(lambda number: len(words.value[number])).sum() == 10_000
double = udf(lambda value: 2 * value, "long")
assert spark.range(10).select(double("id").alias("d")).groupBy().sum("d").first()[0] == 90


@pandas_udf("long")
def triple(values: pandas.Series) -> pandas.Series:
    return 3 * values


assert spark.range(10).select(triple("id").alias("t")).groupBy().sum("t").first()[0] == 135
total = sc.accumulator(0)
sc.parallelize(range(10), 2).foreach(total.add)
assert total.value == 45
spark.sql("create temporary view v as select 1 as one")
assert spark.sql("select transform(one) using 'sed s/1/7/' as (seven) from v").first().seven == "7"
who = udf(lambda _: os.getuid(), "int")
spark.range(1).select(udf(lambda _: print("of a function"))("id")).collect()
spark._jvm.java.lang.System.out.println("of the JVM")
print("uids", os.getuid(), spark.range(1).select(who("id")).first()[0])
"""
JARS = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
stream = loader.getResourceAsStream("mine/text.txt")
print(spark._jvm.java.lang.String(stream.readAllBytes()), spark.range(10).count())
"""
FILES = """
import os
from pathlib import Path

from pyspark import SparkFiles
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext
os.umask(0o077)
Path("private-mode.txt").write_text("of the job")
Path("private-mode.txt").chmod(0o600)
sc.addFile("private-mode.txt")
sc.addFile(str(Path("brought.csv").resolve()))
os.umask(0o022)
assert spark.read.text("brought.csv").count() == 2
read = udf(lambda _: len(open(SparkFiles.get("brought.csv")).read()) + len(open("brought.csv").readlines()), "int")
assert spark.range(1).select(read("id")).first()[0] == 10
import helper

helped = udf(lambda value: helper.add_one(value), "long")
assert spark.range(3).select(helped("id").alias("h")).groupBy().sum("h").first()[0] == 6
spark.range(100).write.parquet("out")
assert sum(1 for path in Path("out").glob("part-*")) >= 1
spark.range(50).write.mode("overwrite").parquet("out")
assert spark.read.parquet("out").count() == 50
assert sum(len(path.read_bytes()) for path in Path("out").glob("part-*")) > 100
for path in Path("out").iterdir():
    path.unlink()
Path("out").rmdir()
Path("written.json").write_text('{"a": 1}')
assert spark.read.json("written.json").first().a == 1
spark.range(3).write.saveAsTable("numbers")
assert spark.table("numbers").count() == 3


def note(rows):
    for number, _ in enumerate(rows):
        Path(f"noted-{os.getpid()}").write_text(str(number))


spark.range(4).foreachPartition(note)
assert list(Path(".").glob("noted-*"))
for path in Path(".").glob("noted-*"):
    path.unlink()
print("worked")
"""

VICTIM = """
import json, os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
assert spark.sparkContext.parallelize(range(100_000), 2).count() == 100_000
private = Path(os.environ["HOME"]) / "private.txt"
private.write_text("of the victim")
gate = Path(sys.argv[1])
told = {"pid": os.getpid(), "uid": os.getuid(), "directory": os.getcwd(), "home": os.environ["HOME"]}
gate.with_suffix(".draft").write_text(json.dumps(told))
gate.with_suffix(".draft").rename(gate.with_suffix(".begun"))
while not gate.exists():
    time.sleep(0.05)
"""
THROUGH_SPARK = """
import json, os, subprocess, sys
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
command = [sys.executable, os.path.abspath("attack.py"), "--spare-own-user", *sys.argv[2:]]


def attempt(_):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout or done.stderr


def read_by_java(path):
    try:
        spark._jvm.java.nio.file.Files.readAllBytes(spark._jvm.java.io.File(path).toPath())
    except Py4JError:
        return False
    return True


if sys.argv[1] == "functions":
    found = json.loads(spark.range(1).select(udf(attempt)("id")).first()[0])
else:
    # A way in which Java starts programs that no list contains: the lists refuse names, not rights.
    words = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.String, len(command))
    for number, word in enumerate(command):
        words[number] = word
    found = json.loads(spark._jvm.org.apache.hadoop.util.Shell.execCommand(words))
    assert read_by_java(command[0])
    found["done"] += [path for path in sys.argv[2:] if read_by_java(path)]
found["driver"] = os.getuid()
print(json.dumps(found))
"""
FRAMES = """
from airflow_flinklike import Pipeline


def orders(ctx):
    return ctx.spark.range(1000).selectExpr("id", "id % 10 as customer")


pipeline = Pipeline("frames")
totals = pipeline.source("orders", orders, parallelism=2).hash("customer").apply(
    "totals", lambda ctx, frame: frame.groupBy("customer").count(), parallelism=2
)
totals.gather().sink("write", lambda ctx, frame: frame.write.parquet(ctx.output_path("oss://lake/out")))
"""
LAKE = """
from pathlib import Path

from fsspec.implementations.local import LocalFileSystem

OUT = Path(__file__).with_name("out")


class LakeFileSystem(LocalFileSystem):
    protocol = ("oss",)

    @classmethod
    def _strip_protocol(cls, path):
        text = str(path)
        return str(super()._strip_protocol(text.replace("oss://lake/out", str(OUT), 1)))
"""

HELPER = "def add_one(value):\n    return value + 1\n"


def make_lake(folder: Path) -> dict[str, str]:
    """Storage that Spark and the cluster both find below `oss://lake/out`; Spark's options for it.

    `folder` is what PYTHONPATH has to have.
    """
    described = folder / "lake_plugin-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: lake-plugin\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[fsspec.specs]\noss = lake_plugin:LakeFileSystem\n")
    (folder / "lake_plugin.py").write_text(LAKE)
    out = folder / "out"
    out.mkdir()
    out.chmod(0o777)
    return {
        "spark.hadoop.fs.oss.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        "spark.hadoop.fs.viewfs.mounttable.lake.link./out": out.as_uri(),
    }


def owners() -> dict[int, int]:
    """The user of each process, by pid."""
    found: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(FileNotFoundError):
                found[int(path.name)] = path.stat().st_uid
    return found


def spare_account(avoided: range) -> str:
    """One that nothing runs as now, "" where there is none."""
    return next(iter(spare_accounts(avoided)), "")


def spare_accounts(avoided: range) -> list[str]:
    """Those that nothing runs as now."""
    used = set(owners().values())
    wanted = ("games", "news", "uucp", "list", "irc", "lp", "nobody")
    found = {entry.pw_name: entry for entry in pwd.getpwall()}
    entries = [found[name] for name in wanted if name in found]
    return [one.pw_name for one in entries if one.pw_uid not in used and one.pw_gid and one.pw_uid not in avoided]
