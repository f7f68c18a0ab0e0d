"""R22: each kind of Python function gives its own job's results while another job has functions of the same name."""

from pathlib import Path

import pytest

from tests.kit.spark.spark_box import SparkBox

KINDS = """
import json, os
from collections.abc import Iterator
import pandas
from pyspark import BarrierTaskContext, TaskContext
from pyspark.sql import Window
from pyspark.sql.functions import arrow_udf, pandas_udf, udf, udtf
from pyspark.sql.types import IntegerType, LongType, StructType

sc = spark.sparkContext
with open("brought.py", "w") as module:
    module.write("K = {k}\\n")
if {brings}:
    sc.addPyFile("brought.py")
kept, added = sc.broadcast({k}), sc.accumulator(0)
frame = spark.range(4, numPartitions=2).toDF("n")
keyed = frame.selectExpr("n % 2 AS key", "n")

def f(n):
    added.add(1)
    return n + kept.value

def batch(values):
    added.add(len(values))
    return values + kept.value

def batches(parts):
    for part in parts:
        yield batch(part)

def frames(parts):
    for part in parts:
        yield pandas.DataFrame({{"n": batch(part["n"])}})

def tables(parts):
    import pyarrow
    for part in parts:
        yield pyarrow.RecordBatch.from_pydict({{"n": [f(n.as_py()) for n in part.column("n")]}})

def total(values: pandas.Series) -> int:
    return int(batch(values).sum())

def group(rows):
    return pandas.DataFrame({{"n": [int(batch(rows["n"]).sum())]}})

def groups(left, right):
    return pandas.DataFrame({{"n": [int(batch(left["n"]).sum() + batch(right["n"]).sum())]}})

def arrow(values):
    import pyarrow.compute
    added.add(len(values))
    return pyarrow.compute.add(values, kept.value)

@udtf(returnType="n bigint")
class Table:
    def eval(self, n: int):
        yield f(n),

@udtf
class Analyzed:
    @staticmethod
    def analyze():
        from pyspark.sql.udtf import AnalyzeResult
        return AnalyzeResult(StructType().add("n", LongType()))

    def eval(self):
        yield f(0),

def whole(rows):
    return iter([sum(f(n) for n in rows)])

def together(rows):
    task = BarrierTaskContext.get()
    said = task.allGather(json.dumps(sum(f(n) for n in rows)))
    task.barrier()
    return iter([sorted(map(json.loads, said))])

def whose(_):
    task = TaskContext.get()
    return [task.getLocalProperty("mine"), os.path.basename(os.getcwd())]

def imported(_):
    try:
        import brought
    except ImportError:
        return None
    return brought.K

def numbers(rows):
    return sorted(row[0] for row in rows.collect())

sc.setLocalProperty("mine", "{k}")
spark.udf.register("f", f, "bigint")
spark.udtf.register("t", Table)
spark.udtf.register("a", Analyzed)
made = {{
    "udf": numbers(frame.select(udf(f, "bigint")("n"))),
    "udf by arrow": numbers(frame.select(udf(f, "bigint", useArrow=True)("n"))),
    "arrow udf": numbers(frame.select(arrow_udf(arrow, "bigint")("n"))),
    "sql": numbers(spark.sql("SELECT f(id) FROM range(4)")),
    "pandas": numbers(frame.select(pandas_udf(lambda v: batch(v), "bigint")("n"))),
    "pandas iterator": numbers(frame.select(
        pandas_udf(batches, "bigint", 204)("n"))),
    "pandas aggregate": numbers(keyed.groupBy("key").agg(pandas_udf(total, "bigint")("n")).drop("key")),
    "pandas window": numbers(keyed.select(pandas_udf(total, "bigint")("n").over(Window.partitionBy("key")))),
    "apply": numbers(keyed.groupBy("key").applyInPandas(group, "n bigint")),
    "cogroup": numbers(keyed.groupBy("key").cogroup(keyed.groupBy("key")).applyInPandas(groups, "n bigint")),
    "map pandas": numbers(frame.mapInPandas(frames, "n bigint")),
    "map arrow": numbers(frame.mapInArrow(tables, "n bigint")),
    "udtf": numbers(spark.sql("SELECT t.n FROM range(4), LATERAL t(id) AS t")),
    "udtf analyzed": numbers(spark.sql("SELECT n FROM a()")),
    "map": sorted(sc.parallelize(range(4), 2).map(f).collect()),
    "partitions": sorted(sc.parallelize(range(4), 2).mapPartitions(whole).collect()),
    "barrier": sc.parallelize(range(4), 1).barrier().mapPartitions(together).collect(),
    "task": sc.parallelize([0], 1).map(whose).collect()[0],
    "module": sc.parallelize([0], 1).map(imported).collect()[0],
}}
emit([made, added.value])
ask()
"""


def expected(k: int, directory: Path, *, brings: bool) -> list[object]:
    rows = [k, 1 + k, 2 + k, 3 + k]
    by_key = [2 + 2 * k, 4 + 2 * k]
    made: dict[str, object] = dict.fromkeys(
        (
            "udf",
            "udf by arrow",
            "arrow udf",
            "sql",
            "pandas",
            "pandas iterator",
            "map pandas",
            "map arrow",
            "udtf",
            "map",
        ),
        rows,
    )
    made |= {"pandas aggregate": by_key, "apply": by_key, "cogroup": [4 + 4 * k, 8 + 4 * k]}
    made |= {"pandas window": sorted(by_key * 2), "udtf analyzed": [k], "partitions": [1 + 2 * k, 5 + 2 * k]}
    made |= {"barrier": [[6 + 4 * k]], "task": [str(k), directory.name], "module": k if brings else None}
    each_row_once, each_row_twice, analyzed = 15 * 4, 8, 1
    return [made, each_row_once + each_row_twice + analyzed]


@pytest.mark.timeout(400)
def test_two_jobs_at_a_time_get_the_results_of_their_own(box: SparkBox) -> None:
    for first, second in ((1, 100), (1000, 7)):  # the second round finds workers of the first
        jobs = [(first, True, "6" * 32), (second, False, "7" * 32)]
        slots = [
            box.slot(KINDS.format(k=k, brings=brings), slot_index=index, job_id=job_id)
            for index, (k, brings, job_id) in enumerate(jobs)
        ]
        made = [slot.next(180) for slot in slots]
        for slot, found, (k, brings, _) in zip(slots, made, jobs, strict=True):
            assert found == expected(k, box.directory / slot.session.session_id, brings=brings)
        for slot, (_, _, job_id) in zip(slots, jobs, strict=True):
            box.end(slot)
            box.end_job(job_id)
