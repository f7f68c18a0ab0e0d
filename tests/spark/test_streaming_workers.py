"""R24, R25, R29: Python streaming sources and stateful processors, which have processes beside all pools of Spark."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from runtime.taskexecutor.spark_protocol.installed_spark import SparkMinor, check_supported, pyspark_version
from tests.kit.spark.spark_box import SparkBox, is_alive, wait_until

STARTS = """
import json, os, subprocess
def note(what):
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True, env={"PATH": os.environ["PATH"]})
    with open(os.path.join(DIRECTORY, what + ".json"), "a") as file:
        file.write(json.dumps([child.pid, os.getcwd(), os.getpid()]) + "\\n")
DIRECTORY = os.getcwd()
"""
SIMPLE = f"""
{STARTS}
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
class Reader(SimpleDataSourceStreamReader):
    def initialOffset(self):
        note("initialOffset")
        return {{"n": 0}}
    def read(self, start):
        return iter([(n,) for n in range(start["n"], 4)]), {{"n": 4}}
    def readBetweenOffsets(self, start, end):
        return iter([(n,) for n in range(start["n"], end["n"])])
    def commit(self, end):
        note("commit")
class Source(DataSource):
    @classmethod
    def name(cls):
        return "made"
    def schema(self):
        return "n int"
    def simpleStreamReader(self, schema):
        return Reader()
spark.dataSource.register(Source)
"""
FULL = f"""
{STARTS}
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
class Reader(DataSourceStreamReader):
    def initialOffset(self):
        note("initialOffset")
        return {{"n": 0}}
    def latestOffset(self):
        return {{"n": 4}}
    def partitions(self, start, end):
        note("partitions")
        return [InputPartition(n) for n in range(start["n"], end["n"])]
    def read(self, partition):
        note("read")
        yield partition.value,
    def commit(self, end):
        note("commit")
class Source(DataSource):
    @classmethod
    def name(cls):
        return "made"
    def schema(self):
        return "n int"
    def streamReader(self, schema):
        return Reader()
spark.dataSource.register(Source)
"""
RUNS = """
seen = []
def batch(frame, number):
    seen.extend(row.n for row in frame.collect())
read = spark.readStream.format("made").load()
query = read.writeStream.foreachBatch(batch).option("checkpointLocation", "state").start()
while len(seen) < 4:
    query.awaitTermination(0.1)
emit(sorted(seen))
ask()
"""
ONCE = """
read = spark.readStream.format("made").load()
query = read.writeStream.format("memory").queryName("q").trigger(availableNow=True).start()
query.awaitTermination(60)
emit(sorted(row.n for row in spark.table("q").collect()))
ask()
"""
STATE = f"""
{STARTS}
from typing import Iterator
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor
spark.conf.set("spark.sql.streaming.stateStore.providerClass",
               "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
spark.conf.set("spark.sql.shuffle.partitions", "1")
class Count(StatefulProcessor):
    def init(self, handle):
        note("init")
        self.state = handle.getValueState("seen", "n long")
    def handleInputRows(self, key, rows, timers):
        seen = sum(len(one) for one in rows)
        if self.state.exists():
            seen += self.state.get()[0]
        self.state.update((seen,))
        yield pd.DataFrame({{"k": [key[0]], "n": [seen]}})
    def close(self):
        pass
os.mkdir("in")
spark.range(6).selectExpr("id % 2 AS k").coalesce(1).write.mode("overwrite").parquet("in")
rows = spark.readStream.schema("k long").parquet("in").groupBy("k").transformWithStateInPandas(
    statefulProcessor=Count(), outputStructType="k long, n long", outputMode="Update", timeMode="None")
query = rows.writeStream.format("memory").queryName("q").outputMode("update").trigger(availableNow=True).start()
query.awaitTermination(120)
emit(sorted([row.k, row.n] for row in spark.table("q").collect()))
ask()
"""


def noted(box: SparkBox, session_id: str) -> dict[str, list[list[Any]]]:
    """By place: pid of the child, working directory, and pid of its parent."""
    files = (box.directory / session_id).glob("*.json")
    return {file.stem: [json.loads(line) for line in file.read_text().splitlines()] for file in files}


CASES = {
    "simple, once": (SIMPLE + ONCE, [0, 1, 2, 3], {"initialOffset"}),
    "simple": (SIMPLE + RUNS, [0, 1, 2, 3], {"initialOffset"}),
    "full, once": (FULL + ONCE, [0, 1, 2, 3], {"initialOffset", "partitions", "read"}),
    "full": (FULL + RUNS, [0, 1, 2, 3], {"initialOffset", "partitions", "read"}),
    "state": (STATE, [[0, 3], [1, 3]], {"init"}),
}


def unpooled(box: SparkBox) -> int:
    """Threads that look after workers outside all pools."""
    figures = box.run(box.environment.figures())
    return figures["worker_monitors"] - figures["worker_pools"]


@pytest.mark.parametrize("case", CASES)
def test_it_works_in_the_jobs_directory_and_ends_with_the_session(box: SparkBox, case: str) -> None:
    code, result, places = CASES[case]
    slot = box.slot(code)
    if case == "state" and check_supported(pyspark_version()) < SparkMinor(4, 1):
        with pytest.raises(AssertionError, match=r"transformWithStateInPandas needs a TaskManager"):
            slot.next()
        return
    assert slot.next() == result
    found = noted(box, slot.session.session_id)
    assert places <= set(found)
    processes = [pid for rows in found.values() for child, _, parent in rows for pid in (child, parent)]
    assert [pid for pid in processes if is_alive(pid)], "what it starts outlives its query"
    assert {place for rows in found.values() for _, place, _ in rows} == {str(box.directory / slot.session.session_id)}
    box.end(slot)
    assert not [pid for pid in processes if is_alive(pid)]
    wait_until(lambda: not unpooled(box))


def test_what_drives_a_stream_leads_a_group_of_its_own(box: SparkBox) -> None:
    slot = box.slot(CASES["full"][0])
    assert slot.next() == CASES["full"][1]
    (driver,) = {row[2] for row in noted(box, slot.session.session_id)["initialOffset"]}
    assert os.getpgid(driver) == driver
    box.end(slot)
    assert not is_alive(driver)
