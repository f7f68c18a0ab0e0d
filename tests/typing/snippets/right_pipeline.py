"""What users write and type checkers must accept. Never run."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from logging import Logger
from pathlib import Path
from typing import Any, assert_type

from pyspark.sql import DataFrame, SparkSession

from airflow_flinklike import (
    AsyncFlinklikeClient,
    Edge,
    FixedDelayRestartStrategy,
    FlinklikeClient,
    JobGraph,
    JobHandle,
    Pipeline,
    ResourceSpec,
    Stream,
    TaskContext,
    function_job,
    script_job,
)
from airflow_flinklike.client import JobExecutionResult, JobState, new_job_id


def read(ctx: TaskContext) -> DataFrame:
    assert_type(ctx.spark, SparkSession)
    assert_type(ctx.params, Mapping[str, Any])
    assert_type(ctx.splits, Sequence[Any])
    assert_type(ctx.logger, Logger)
    assert_type(ctx.subtask_index, int)
    assert_type(ctx.cancelled, bool)
    ctx.report_progress(0.5, "half")
    ctx.report_progress(fraction=1)
    return ctx.spark.range(ctx.params["n"])


def join(ctx: TaskContext, left: DataFrame, right: DataFrame) -> DataFrame:
    left.write.parquet(ctx.output_path("/data"))
    return left.join(right)


pipeline = Pipeline(
    "daily",
    parallelism=2,
    params={"n": 3},
    spark_conf={"spark.sql.shuffle.partitions": 2, "spark.sql.ansi.enabled": True},
    py_files=["a.py", Path("b.zip")],
    execution_timeout=timedelta(minutes=5),
)
source = assert_type(pipeline.source("read", read, splits=[1, "two", {"three": 3}], exclusive=False), Stream)
mapped = source.map("map", lambda ctx, df: df, resources=ResourceSpec(memory_bytes=1 << 30))
edge = assert_type(mapped.hash("a", "b"), Edge)
joined = edge.apply("join", join, source.broadcast(), parallelism=4, slot_sharing_group="join")
chained = mapped.map("chained", read, max_parallelism=4, exclusive=True, chainable=False, slot_sharing_group=None)
forward = joined.apply("forward", "module:function", chainable=False)
forward.sink("write", join, mapped.rebalance(), max_parallelism=8)
assert_type(pipeline.job_graph({"n": 4}), JobGraph)
handle = assert_type(pipeline.submit("a:1,b:2", detached=True), JobHandle)
assert_type(handle.status(), JobState)
assert_type(handle.wait(), JobExecutionResult)
handle.cancel()

script_job("etl.py", args=["--day", 5], conf={"spark.sql.shuffle.partitions": 2}, py_files="a.py,b.zip").submit()
script_job(Path("etl.py"), archives=iter(["a.zip#a"]), secrets=("db",), restart_strategy="none", user_failures="final")
function_job(read, kwargs={"x": 1}, name="read").explain().to_text()
function_job(
    read,
    args=(1, 2),
    params={"n": 5},
    environment={"A": "b"},
    wheels=[Path("a.whl")],
    execution_timeout=1.5,
    restart_strategy=FixedDelayRestartStrategy(attempts=3),
)

with FlinklikeClient(["127.0.0.1:8081"], None) as client:
    assert_type(client.status(new_job_id(), wait=2.0), JobState)


async def watch(job_id: str) -> JobState:
    from runtime.common.ids import parse_job_id

    async with AsyncFlinklikeClient(["127.0.0.1:8081"], "token") as client:
        return await client.status(parse_job_id(job_id))
