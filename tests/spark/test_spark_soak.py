"""R25: nothing in the JVM grows with the number of jobs. Dozens here; thousands are a benchmark's work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import JobId
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.slot_work import script
from tests.kit.spark.spark_box import SparkBox, wait_until

pytestmark = [pytest.mark.timeout(3000), pytest.mark.slow]

ROUNDS = 6
"""Of nine jobs each. A figure that grew by one a job would end far above its limit."""

WINDOWS = 3
"""What grows with the number of jobs grows in each. What Java and an earlier test make once comes in one of them."""

BREATHING = 4
"""Sessions and contexts at rest: those of idle processes, and clones of the last streams."""

_jobs = iter(range(1, 10_000))


@pytest.fixture
def slots(box: SparkBox, tmp_path: Path) -> Iterator[SlotBox]:
    started = SlotBox(box, tmp_path)
    yield started
    started.stop()


def sql(ctx: Any) -> Any:
    ctx.spark.range(100).createOrReplaceTempView("numbers")
    return ctx.spark.sql("select id % 7 as k, count(*) as n from numbers group by 1").count()


def cached(ctx: Any) -> Any:
    ctx.spark.range(10_000).cache().count()
    rdd = ctx.spark.sparkContext.parallelize(range(100), 2).cache()
    ctx.spark.sparkContext.broadcast(list(range(1000)))
    return rdd.count()


def function(ctx: Any) -> Any:
    from pyspark.sql.functions import udf

    ctx.spark.udf.register("doubled", lambda value: value * 2, "bigint")
    return ctx.spark.range(10).select(udf(lambda value: value + 1, "bigint")("id")).count()


def stream(ctx: Any) -> Any:
    query = ctx.spark.readStream.format("rate").load().writeStream.format("noop").start()
    return query.isActive


def killed(ctx: Any) -> Any:
    import os

    ctx.spark.range(10).cache().count()
    os._exit(9)


def endless(ctx: Any) -> Any:
    ctx.report_progress(0.5, "running")
    return ctx.spark.range(10**13).selectExpr("sum(id % 7)").collect()


def planned(ctx: Any) -> Any:
    """A Python data source, a UDTF that says its schema itself, and a script."""
    from pyspark.sql.datasource import DataSource, DataSourceReader
    from pyspark.sql.functions import udtf
    from pyspark.sql.types import IntegerType, StructType
    from pyspark.sql.udtf import AnalyzeResult

    class Reader(DataSourceReader):
        def read(self, partition: Any) -> Any:
            yield (7,)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "made"

        def schema(self) -> str:
            return "n int"

        def reader(self, schema: Any) -> Any:
            return Reader()

    class Made:
        @staticmethod
        def analyze() -> Any:
            return AnalyzeResult(StructType().add("n", IntegerType()))

        def eval(self) -> Any:
            yield (7,)

    ctx.spark.dataSource.register(Source)
    ctx.spark.udtf.register("made_rows", udtf(Made))
    scripted = ctx.spark.sql("SELECT TRANSFORM(id) USING 'cat' AS (x STRING) FROM range(2)")
    return [
        ctx.spark.read.format("made").load().count(),
        ctx.spark.sql("SELECT * FROM made_rows()").count(),
        scripted.count(),
    ]


def with_files(ctx: Any) -> Any:
    """Python workers of the job's own."""
    Path("brought.txt").write_text("brought")
    ctx.spark.sparkContext.addFile("brought.txt")
    return ctx.spark.sparkContext.parallelize(range(4), 2).map(lambda n: n + 1).sum()


SCRIPT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.appName("soak").getOrCreate()
spark.sparkContext._jsc.hadoopConfiguration().set("fs.s3a.access.key", "mine")
print(spark.range(10).count())
spark.stop()
"""


def one_round(slots: SlotBox) -> None:
    jobs: list[JobId] = []

    def new_job() -> JobId:
        jobs.append(JobId(f"{next(_jobs):032x}"))
        return jobs[-1]

    ends: tuple[Callable[[Any], Any], ...] = (sql, cached, function, stream, planned, with_files)
    for work in ends:
        slots.value(slots.work(work, job_id=new_job()))
    slots.report(slots.work(killed, job_id=new_job()))
    slots.value(slots.work(script(SCRIPT), job_id=new_job()))
    cancelled = slots.work(endless, job_id=new_job())
    listener, running = slots.begin(cancelled)

    async def begun() -> None:
        async with asyncio.timeout(300):
            await listener.progresses.wait_until(bool)

    slots.do(begun())
    slots.do(slots.pool.cancel(0, cancelled.task.attempt_id))
    slots.end(running)
    for job in jobs:
        slots.box.end_job(job)


def settled(slots: SlotBox) -> dict[str, int]:
    """Figures with no session but those of two idle processes and of one that may be used again."""
    environment = slots.box.environment
    wait_until(lambda: slots.box.run(environment.figures())["open_sessions"] <= 4, 300)
    return slots.box.run(environment.figures())


LIMITS = {
    "file_systems": 0,
    "worker_pools": 0,
    "worker_monitors": 0,
    "listeners": 0,
    "job_catalogs": 0,
    "open_sessions": 1,
    "unnamed_threads": 7,
    "contexts": BREATHING,
    "sessions": BREATHING,
    "storage_bytes": 1_000_000,
    "heap_bytes": 20_000_000,
    "classes": 500,
}
"""By how much each figure may be higher after a window than before it."""


@pytest.mark.extended
def test_nothing_grows_with_the_number_of_jobs(slots: SlotBox) -> None:
    one_round(slots)
    told = [settled(slots)]
    grown = dict.fromkeys(LIMITS, 0)
    while grown and len(told) <= WINDOWS:
        for _ in range(ROUNDS):
            one_round(slots)
        told.append(settled(slots))
        grown = {name: told[-1][name] - told[-2][name] for name in grown}
        grown = {name: by for name, by in grown.items() if by > LIMITS[name]}
    assert not grown, told
