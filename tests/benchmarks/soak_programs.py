"""What the jobs of a soak do: each kind leaves something behind on purpose, for its job's end to clear away."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

SCRIPT = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.appName(sys.argv[1]).getOrCreate()
spark.range(100).createOrReplaceTempView("numbers")
print(spark.sql("SELECT sum(id) FROM numbers").first()[0])
"""
"""A spark-submit application that does not stop its session."""


def sql(spark: Any, number: int) -> int:
    """Views and functions that nobody drops."""
    spark.range(50).createOrReplaceTempView("rows")
    spark.range(50).createOrReplaceGlobalTempView(f"rows_{number}")
    spark.udf.register("add_one", lambda value: value + 1, "long")
    return int(spark.sql("SELECT sum(id) FROM rows WHERE id % 2 = 0").first()[0])


def cache(spark: Any, number: int) -> int:
    """Caches, a broadcast and an accumulator that nobody releases."""
    frame = spark.range(1000).selectExpr("id", f"id + {number} AS more").cache()
    kept = spark.sparkContext.broadcast(list(range(1000)))
    seen = spark.sparkContext.accumulator(0)
    spark.sparkContext.parallelize(range(20), 2).persist().foreach(lambda value: seen.add(value + kept.value[0]))
    return int(frame.count())


def udf(spark: Any, number: int) -> int:
    """Python workers of the job's own."""
    from pyspark.sql.functions import udf as make_udf

    plus = make_udf(lambda value: value + number, "long")
    return int(spark.range(20).select(plus("id").alias("n")).agg({"n": "sum"}).first()[0])


def planned(spark: Any, number: int) -> int:
    """A Python data source, a UDTF that says its schema itself, and a script."""
    from pyspark.sql.datasource import DataSource, DataSourceReader
    from pyspark.sql.functions import udtf
    from pyspark.sql.types import IntegerType, StructType
    from pyspark.sql.udtf import AnalyzeResult

    class Reader(DataSourceReader):
        def read(self, partition: Any) -> Any:
            yield (number,)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "soak_source"

        def schema(self) -> str:
            return "n int"

        def reader(self, schema: Any) -> Any:
            return Reader()

    class Made:
        @staticmethod
        def analyze() -> Any:
            return AnalyzeResult(StructType().add("n", IntegerType()))

        def eval(self) -> Any:
            yield (number,)

    spark.dataSource.register(Source)
    spark.udtf.register("soak_rows", udtf(Made))
    scripted = spark.sql("SELECT TRANSFORM(id) USING 'cat' AS (x STRING) FROM range(2)")
    read = spark.read.format("soak_source").load()
    return int(read.count() + spark.sql("SELECT * FROM soak_rows()").count() + scripted.count())


def with_files(spark: Any, number: int) -> int:
    """Python workers that serve this job only."""
    brought = Path("brought.txt").stat().st_size
    return int(spark.sparkContext.parallelize(range(4), 2).map(lambda value: value + number + brought).sum())


def stream(spark: Any, number: int) -> int:
    """A query that nobody stops."""
    source = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    query = source.writeStream.format("memory").queryName(f"soak_{number}").start()
    while query.lastProgress is None:
        query.awaitTermination(0.1)
    return int(query.lastProgress["batchId"] >= 0)


def killed(spark: Any, number: int) -> None:
    """The slot process ends in the middle of it, with a cached frame and a running query."""
    spark.range(number % 100 + 1).cache().count()
    spark.readStream.format("rate").load().writeStream.format("memory").queryName(f"killed_{number}").start()
    os.kill(os.getpid(), signal.SIGKILL)


def endless(spark: Any, number: int) -> None:
    """A Spark job that only a cancel ends."""
    spark.range(number % 100 + 1).cache().count()

    def wait(batches: Any) -> Any:
        import time

        time.sleep(3600)
        yield from batches

    spark.range(4).mapInPandas(wait, "id long").count()


def figures(ctx: Any) -> dict[str, float]:
    """What the driver JVM holds now, of all jobs, after a full collection; the context of a job sees its own only."""
    jvm = ctx.spark._jvm
    shared = jvm.java.lang.Class.forName("org.apache.spark.SlotContext").getDeclaredField("shared")
    shared.setAccessible(True)
    read = jvm.org.apache.spark.Figures.read(shared.get(ctx.spark.sparkContext._jsc.sc()))
    found = {str(name): float(read[name]) for name in read}
    management = jvm.java.lang.management.ManagementFactory
    return {
        "listeners": found["listeners"],
        "sessions": found["sessions"],
        "job catalogs": found["job_catalogs"],
        "threads": found["threads"],
        "worker pools": found["worker_pools"],
        "worker monitors": found["worker_monitors"],
        "classes": found["classes"],
        "heap MB": found["heap_bytes"] / (1 << 20),
        "file systems": found["file_systems"],
        "storage MB": found["storage_bytes"] / (1 << 20),
        "pid": float(str(management.getRuntimeMXBean().getName()).partition("@")[0]),
    }
