"""R25: what Spark keeps of a job's own Python workers, and of those that it starts by itself, goes with the job."""

from __future__ import annotations

import psutil

from tests.kit.spark.spark_box import SparkBox, wait_until

USES = """
from pyspark.sql.functions import udf
from pyspark.sql.datasource import DataSource, DataSourceReader

class Reader(DataSourceReader):
    def read(self, partition):
        yield 7,

class Source(DataSource):
    @classmethod
    def name(cls):
        return "made"

    def schema(self):
        return "n int"

    def reader(self, schema):
        return Reader()

spark.dataSource.register(Source)
emit([spark.sparkContext.parallelize(range(4), 2).map(lambda n: n + 1).sum(),
      spark.range(4).select(udf(lambda n: n + 1, "long")("id").alias("n")).agg({"n": "sum"}).first()[0],
      spark.read.format("made").load().first()[0]])
"""


TWICE = """
import os
def keepers():
    return sorted(set(spark.sparkContext.parallelize(range(4), 4).map(lambda _: os.getppid()).collect()))
emit(keepers())
ask()
emit(keepers())
"""


def state(box: SparkBox) -> dict[str, int]:
    """What a job may leave: entries and threads of the JVM, its children, and what they hold open there."""
    figures = box.run(box.environment.figures())
    jvm = psutil.Process(box.environment.process_ids[1])
    return {
        "pools": figures["worker_pools"],
        "monitors": figures["worker_monitors"],
        "daemons": len(jvm.children()),
    }


def test_workers_of_a_job_with_files_go_with_it(box: SparkBox) -> None:
    assert box.evaluate(USES) == [10, 10, 7]
    before = state(box)
    for number in range(1, 4):
        job_id = f"{number:032x}"
        assert box.evaluate(USES, own_workers=True, job_id=job_id) == [10, 10, 7]
        box.end_job(job_id)
    wait_until(lambda: state(box) == before)


def test_a_job_with_files_that_ends_ends_no_other_jobs_workers(box: SparkBox) -> None:
    beside = box.slot(TWICE, slot_index=1, own_workers=True, job_id="b" * 32)
    first = beside.next()
    assert box.evaluate(USES, own_workers=True, job_id="a" * 32) == [10, 10, 7]
    box.end_job("a" * 32)
    beside.tell()
    assert set(beside.next()) & set(first), "its workers are the ones that it had"
    box.end(beside)
    box.end_job("b" * 32)


ENVIRONMENT = """
import time
def class_of(name):
    return spark._jvm.java.lang.Class.forName(name)
# py4j cannot list the methods of a SparkEnv, of which one names a class that nobody installs.
environment = spark._jvm.org.apache.spark.Fields.get(class_of("org.apache.spark.SparkEnv$"), None, "env")
def look(millis):
    declared = class_of("org.apache.spark.SlotEnv").getDeclaredMethods()
    # The compiler makes a static method with another name of a private one.
    (method,) = [one for one in declared if one.getName() == "endLostDaemons$"]
    method.setAccessible(True)
    given = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Object, 3)
    given[0], given[2] = environment, spark._jvm.java.lang.Long.valueOf(millis)
    return method.invoke(None, given)
"""
LOOKS = """
begun = time.monotonic()
lost = look(4000)
emit([lost, time.monotonic() - begun])
"""


def test_a_look_at_many_daemons_takes_no_longer_than_at_one(box: SparkBox) -> None:
    """Every job waits for it: who makes, releases or gives up a worker needs the same lock (R22)."""
    assert box.evaluate(USES) == [10, 10, 7]
    jobs = [f"{number:032x}" for number in range(1, 5)]
    for job_id in jobs:
        assert box.evaluate(USES, own_workers=True, job_id=job_id) == [10, 10, 7]
    assert state(box)["daemons"] > len(jobs)
    lost, seconds = box.evaluate(ENVIRONMENT + LOOKS)
    assert lost == 0
    assert 4 <= seconds < 4 * len(jobs), "4 s for each"
    for job_id in jobs:
        box.end_job(job_id)
