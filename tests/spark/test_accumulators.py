"""What tasks have added to accumulators is there when the results are, as in plain Spark; nobody else waits (R22)."""

import json
import subprocess
import sys

import pytest

from tests.kit.spark.plain_spark import plain_spark_environment
from tests.kit.spark.spark_box import SparkBox

pytestmark = pytest.mark.timeout(900)  # a plain Spark starts from nothing

SLOW = """
import os, time
from pyspark.accumulators import AccumulatorParam
from pyspark.sql.functions import udf
sc = spark.sparkContext
DRIVER = os.getpid()
class Slow(AccumulatorParam):
    def zero(self, value):
        return 0
    def addInPlace(self, left, right):
        if os.getpid() == DRIVER:
            time.sleep(0.1)
        return left + right
counted = []
def count(run):
    seen = sc.accumulator(0, Slow())
    def add(value):
        seen.add(1)
        return value
    run(add, udf(add, "long"))
    counted.append(seen.value)
"""
RUNS = {
    "rows one by one": "list(sc.parallelize(range(8), 4).map(add).toLocalIterator())",
    "rows ahead": "list(sc.parallelize(range(8), 4).map(add).toLocalIterator(prefetchPartitions=True))",
    "rows of a query": "list(spark.range(0, 8, 1, 4).select(f('id')).toLocalIterator())",
    "a frame": "spark.range(0, 8, 1, 4).select(f('id')).toPandas()",
    "collected": "spark.range(0, 8, 1, 4).select(f('id')).collect()",
    "a stage without a job": "spark.range(0, 8, 1, 4).where(f('id') > 8).groupBy('id').count().collect()",
    "about": "sc.parallelize(range(8), 4).map(add).countApprox(600_000)",
    "for each": "sc.parallelize(range(8), 4).foreach(add)",
}
LAZY = SLOW + "".join(f"count(lambda add, f: {run})\n" for run in RUNS.values()) + "emit(counted)\n"
PLAIN = """
import json
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
emit = lambda value: print("found:" + json.dumps(value))
"""


def plain(code: str) -> object:
    """What it emits in a Spark of its own."""
    ran = subprocess.run(
        [sys.executable, "-c", PLAIN + code],
        env=plain_spark_environment(), capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    (found,) = [line.removeprefix("found:") for line in ran.stdout.splitlines() if line.startswith("found:")]
    return json.loads(found)


def test_they_have_what_was_added_when_results_are_there(box: SparkBox) -> None:
    found = box.evaluate(LAZY)
    assert dict(zip(RUNS, found, strict=True)) == dict.fromkeys(RUNS, 8)


@pytest.mark.extended
def test_that_is_so_in_plain_spark() -> None:
    assert plain(LAZY) == [8] * len(RUNS)


CALLS = """
import os
from pyspark import SparkContext
from pyspark.accumulators import AccumulatorParam
sc = spark.sparkContext
DRIVER = os.getpid()
class Largest(AccumulatorParam):
    def zero(self, value):
        return 0
    def addInPlace(self, left, right):
        if os.getpid() == DRIVER:
            SparkContext._active_spark_context.defaultParallelism
        return max(left, right)
seen = sc.accumulator(0, Largest())
sc.parallelize(range(8), 4).foreach(lambda value: seen.add(value))
emit(seen.value)
"""


def test_an_accumulator_may_ask_spark_while_it_takes_an_update_in(box: SparkBox) -> None:
    assert box.evaluate(CALLS) == 7


HELD = """
import os, sys, threading, time
from pyspark.accumulators import AccumulatorParam
from pyspark.sql.functions import udf
sc = spark.sparkContext
DRIVER, sys.free = os.getpid(), threading.Event()
class Held(AccumulatorParam):
    def zero(self, value):
        return 0
    def addInPlace(self, left, right):
        if os.getpid() == DRIVER:
            sys.free.wait()
        return left + right
seen = sc.accumulator(0, Held())
def add(value):
    seen.add(1)
    return value
f = udf(add, "long")
def ask():
    sc.addJobTag("held")
    spark.range(0, 2, 1, 1).select(f("id")).repartition(1).collect()
threads = [threading.Thread(target=ask) for _ in range(POOL)]
for thread in threads:
    thread.start()
def ended():
    tracker = sc._jsc.sc().statusTracker()
    infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForTag("held")]
    return sum(info.isDefined() and str(info.get().status()) == "SUCCEEDED" for info in infos)
while ended() < 2 * POOL:  # a stage, and what collects
    time.sleep(0.05)
emit("held")
sys.stdin.readline()
sys.free.set()
for thread in threads:
    thread.join()
emit(seen.value)
"""
THREADS = 16
"""Of the pool in which queries collect their results."""


def test_a_session_that_takes_no_updates_in_holds_no_thread_that_works_for_all(box: SparkBox) -> None:
    held = box.slot(HELD.replace("POOL", str(THREADS + 1)))
    assert held.next() == "held"
    assert box.evaluate("emit(spark.range(4).repartition(1).collect()[0].id)", slot_index=1) == 0
    held.tell()
    assert held.next() == 2 * (THREADS + 1)
