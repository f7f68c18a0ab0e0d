"""Must show 3: pipelines with every edge and parallelism above 1, the same results in both modes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinklike import Pipeline, function_job
from airflow_flinklike.api.handle import JobHandle
from airflow_flinklike.api.program import Program
from airflow_flinklike.client import FlinklikeClient, new_job_id
from airflow_flinklike.exceptions import JobFailedError
from runtime.common.states import JobStatus
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_flinklike import TaskContext

pytestmark = [pytest.mark.process, pytest.mark.spark]

ROWS = 2000
KEYS = 7


def submit(client: FlinklikeClient, program: Program) -> JobHandle:
    built = program.build()
    job_id = new_job_id()
    client.submit(built.graph, job_id=job_id, contents=built.uploads)
    return JobHandle(client, job_id)


def orders(ctx: TaskContext) -> DataFrame:
    """This subtask's ranges of ids."""
    from functools import reduce

    ranges = [ctx.spark.range(low, high) for low, high in ctx.splits]
    found: DataFrame = reduce(lambda left, right: left.union(right), ranges)
    return found.selectExpr("id", f"id % {KEYS} as key", "id * 2 as amount")


def wanted(ctx: TaskContext, rows: DataFrame) -> DataFrame:
    return rows.where(f"id < {ctx.params['limit']}")


def totals(ctx: TaskContext, rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").sum("amount").selectExpr("key", "`sum(amount)` as total", f"{ctx.subtask_index} as at")


def names(ctx: TaskContext) -> DataFrame:
    return ctx.spark.range(KEYS).selectExpr("id as key", "concat('key-', id) as name")


def named(ctx: TaskContext, rows: DataFrame, table: DataFrame) -> DataFrame:
    assert table.count() == KEYS
    return rows.join(table, "key").selectExpr("name", "1 as one", f"{ctx.subtask_index} as at")


def report(ctx: TaskContext, by_key: DataFrame, by_name: DataFrame) -> dict[str, Any]:
    counts = by_name.groupBy("name").sum("one").collect()
    return {
        "totals": sorted([row.key, row.total] for row in by_key.collect()),
        "spread": sorted(row["at"] for row in by_name.select("at").distinct().collect()),
        "hashed to": by_key.select("at").distinct().count(),
        "counts": sorted([name, count] for name, count in counts),
        "param": ctx.params["limit"],
    }


def every_edge() -> Pipeline:
    pipeline = Pipeline("every-edge", parallelism=2, params={"limit": ROWS - 100})
    splits = [[low, low + 250] for low in range(0, ROWS, 250)]
    rows = pipeline.source("orders", orders, splits=splits).map("wanted", wanted)
    by_key = rows.hash("key").apply("totals", totals, parallelism=2)
    table = pipeline.source("names", names, parallelism=1)
    by_name = rows.rebalance().apply("named", named, table.broadcast(), parallelism=2)
    by_key.gather().sink("report", report, by_name.gather(), parallelism=1)
    return pipeline


def test_every_edge_brings_the_right_rows(either_cluster: ScriptCluster, either_client: FlinklikeClient) -> None:
    program = every_edge()
    assert [len(vertex.operators) for vertex in program.job_graph().vertices] == [2, 1, 1, 1, 1]
    kept = range(ROWS - 100)
    handle = submit(either_client, program)
    with partitions_of(either_cluster, handle) as seen:
        found = handle.result()
    assert found == {
        "totals": [[key, sum(2 * one for one in kept if one % KEYS == key)] for key in range(KEYS)],
        "spread": [0, 1],
        "hashed to": 2,
        "counts": [[f"key-{key}", sum(one % KEYS == key for one in kept)] for key in range(KEYS)],
        "param": ROWS - 100,
    }
    details = handle.details()
    assert {vertex["status"] for vertex in details["vertices"]} == {"FINISHED"}
    assert {vertex["name"]: vertex["parallelism"] for vertex in details["vertices"]} == {
        "orders -> wanted": 2, "totals": 2, "names": 1, "named": 2, "report": 1
    }  # fmt: skip
    assert seen, "the exchange goes through files below exchange.dir"
    reached(lambda: not any(path.exists() for path in seen), "the partitions are deleted with their job")


@contextmanager
def partitions_of(cluster: ScriptCluster, handle: JobHandle) -> Iterator[list[Path]]:
    """The job's directories below exchange.dir that were seen within the block."""
    seen: list[Path] = []
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.02) and not seen:
            seen.extend((cluster.run / "run" / "exchange").glob(f"*/{handle.job_id}"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        is_over.set()
        watcher.join()


def wide_orders(ctx: TaskContext) -> DataFrame:
    return ctx.spark.range(ctx.subtask_index, 100, ctx.parallelism)


def write(ctx: TaskContext, rows: DataFrame, base: str, gate: str) -> None:
    import time
    from pathlib import Path

    rows.write.mode("append").parquet(ctx.output_path(base))
    Path(f"{gate}.{ctx.subtask_index}").touch()
    while not Path(gate).exists():
        time.sleep(0.02)


def sink_pipeline(base: Path, gate: Path) -> Pipeline:
    pipeline = Pipeline("sink", parallelism=2)
    paths = (str(base), str(gate))
    rows = pipeline.source("orders", wide_orders)
    rows.rebalance().sink("write", lambda ctx, rows: write(ctx, rows, *paths), parallelism=2)
    return pipeline


def visible(base: Path) -> list[str]:
    return sorted(path.name for path in base.glob("*") if path.name[0] not in "._") if base.exists() else []


def test_what_a_sink_wrote_is_seen_when_all_of_it_is_accepted(either_client: FlinklikeClient, tmp_path: Path) -> None:
    base, gate = tmp_path / "out", tmp_path / "gate"
    handle = submit(either_client, sink_pipeline(base, gate))
    reached(lambda: all(Path(f"{gate}.{number}").exists() for number in range(2)), "both have written")
    assert visible(base) == []
    assert not (base / "_SUCCESS").exists()
    gate.touch()
    assert handle.wait().status is JobStatus.FINISHED
    assert (base / "_SUCCESS").exists()
    assert len(visible(base)) >= 2
    assert all(name.endswith(".parquet") for name in visible(base))
    assert sorted(ids_in(base)) == list(range(100))
    reached(lambda: [path.name for path in base.iterdir() if path.is_dir()] == [], "nothing else is left, soon after")


def ids_in(base: Path) -> Iterator[int]:
    from pyarrow import parquet

    for path in base.glob("*.parquet"):
        yield from parquet.read_table(path)["id"].to_pylist()


def test_what_a_cancelled_sink_wrote_is_never_seen(spark_client: FlinklikeClient, tmp_path: Path) -> None:
    base, gate = tmp_path / "out", tmp_path / "gate"
    handle = submit(spark_client, sink_pipeline(base, gate))
    reached(lambda: all(Path(f"{gate}.{number}").exists() for number in range(2)), "both have written")
    handle.cancel()
    assert handle.wait().status is JobStatus.CANCELED
    assert visible(base) == []
    assert not (base / "_SUCCESS").exists()


def test_an_analysis_error_keeps_its_class(spark_client: FlinklikeClient) -> None:
    def query(spark: Any) -> None:
        spark.sql("select nosuch from range(3)").collect()

    with pytest.raises(JobFailedError, match="UNRESOLVED_COLUMN") as caught:
        submit(spark_client, function_job(query)).result()
    assert caught.value.failure["class"].endswith("AnalysisException")
    assert "in query" in caught.value.failure["stack-trace"]


def test_many_jobs_at_once_each_get_their_own_result(spark_client: FlinklikeClient) -> None:
    def square(spark: Any, number: int) -> int:
        return int(spark.range(number).count()) ** 2

    handles = [submit(spark_client, function_job(square, args=[number])) for number in range(8)]
    assert [handle.result() for handle in handles] == [number**2 for number in range(8)]
