"""What the jobs of a soak do: each kind leaves something behind on purpose, for its job's end to clear away."""

from __future__ import annotations

import os
import signal
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


_SESSION = "org.apache.spark.sql.classic.SparkSession"


def figures(ctx: Any) -> dict[str, float]:
    """What the driver JVM holds now, by a look at it after a full collection."""
    jvm = ctx.spark._jvm
    management = jvm.java.lang.management.ManagementFactory
    jvm.java.lang.System.gc()
    sessions = _instances(ctx, _SESSION)
    return {
        "listeners": ctx.spark.sparkContext._jsc.sc().listenerBus().listeners().size(),
        "sessions": sessions,
        "threads": management.getThreadMXBean().getThreadCount(),
        "classes": management.getClassLoadingMXBean().getLoadedClassCount(),
        "heap MB": management.getMemoryMXBean().getHeapMemoryUsage().getUsed() / (1 << 20),
        "pid": int(str(management.getRuntimeMXBean().getName()).partition("@")[0]),
    }


def _instances(ctx: Any, class_name: str) -> int:
    """How many objects of a class live; the JVM counts them behind a full collection."""
    jvm = ctx.spark._jvm
    of = jvm.java.lang.Class.forName
    name, text, objects, texts = (
        of(one)
        for one in ("javax.management.ObjectName", "java.lang.String", "[Ljava.lang.Object;", "[Ljava.lang.String;")
    )
    command = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
    array = ctx.spark.sparkContext._gateway.new_array

    def filled(kind: Any, *values: Any) -> Any:
        made = array(kind, len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made

    # By the interface: the server's own class is one that the JVM does not export.
    invoke = of("javax.management.MBeanServer").getMethod("invoke", filled(jvm.Class, name, text, objects, texts))
    given = filled(jvm.Object, filled(jvm.String)), filled(jvm.String, "[Ljava.lang.String;")
    server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    histogram = str(invoke.invoke(server, filled(jvm.Object, command, "gcClassHistogram", *given)))
    lines = (line.split() for line in histogram.splitlines())
    return next((int(fields[1]) for fields in lines if len(fields) > 3 and fields[3] == class_name), 0)
