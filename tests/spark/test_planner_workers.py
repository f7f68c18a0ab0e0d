"""R22, R24, R29: Python code that Spark runs while it plans (UDTFs, data sources) belongs to the session that plans."""

import json
from pathlib import Path

import pytest

from tests.kit.spark.spark_box import SparkBox, is_alive, spark_settings

STARTS = """
import json, os, subprocess
def note(what):
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True, env={"PATH": os.environ["PATH"]})
    with open(os.path.join(DIRECTORY, what + ".json"), "a") as file:
        file.write(json.dumps([child.pid, os.getcwd(), os.environ.get("LEAK")]) + "\\n")
    os.environ["LEAK"] = "secret"
"""
UDTF = f"""
{STARTS}
DIRECTORY = os.getcwd()
from pyspark.sql.functions import udtf
from pyspark.sql.types import IntegerType, StructType
from pyspark.sql.udtf import AnalyzeResult

@udtf
class Made:
    @staticmethod
    def analyze():
        note("analyze")
        return AnalyzeResult(StructType().add("n", IntegerType()))

    def eval(self):
        yield 7,

spark.udtf.register("made", Made)
"""
SOURCE = f"""
{STARTS}
DIRECTORY = os.getcwd()
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition, WriterCommitMessage

class Reader(DataSourceReader):
    def partitions(self):
        note("partitions")
        return [InputPartition(1), InputPartition(2)]

    def read(self, partition):
        note("read")
        yield partition.value,

class Writer(DataSourceWriter):
    def write(self, iterator):
        for _ in iterator:
            pass
        note("write")
        return WriterCommitMessage()

    def commit(self, messages):
        note("commit")

class Source(DataSource):
    @classmethod
    def name(cls):
        return "made"

    def schema(self):
        note("schema")
        return "n int"

    def reader(self, schema):
        return Reader()

    def writer(self, schema, overwrite):
        return Writer()

spark.dataSource.register(Source)
"""
CASES = {
    "udtf": (UDTF + "emit([row.n for row in spark.sql('SELECT * FROM made()').collect()])\nask()\n", [7], {"analyze"}),
    "source": (
        SOURCE + "emit(sorted(row.n for row in spark.read.format('made').load().collect()))\nask()\n",
        [1, 2],
        {"schema", "partitions", "read"},
    ),
    "sink": (
        SOURCE + "spark.range(1).selectExpr('1 AS n').write.format('made').mode('append').save()\nemit([])\nask()\n",
        [],
        {"write", "commit"},
    ),
}


def noted(box: SparkBox, session_id: str) -> dict[str, list[list[object]]]:
    """By place: pid of the child, working directory, and what an earlier one has left in the environment."""
    files = (box.directory / session_id).glob("*.json")
    return {file.stem: [json.loads(line) for line in file.read_text().splitlines()] for file in files}


@pytest.mark.parametrize("case", CASES)
def test_what_it_starts_ends_with_the_session_and_works_in_the_jobs_directory(box: SparkBox, case: str) -> None:
    code, result, places = CASES[case]
    slots = [box.slot(code, slot_index=index) for index in range(2)]
    assert [slot.next() for slot in slots] == [result, result]
    ours, others = (noted(box, slot.session.session_id) for slot in slots)
    assert places <= set(ours)
    pids = [int(str(one[0])) for rows in ours.values() for one in rows]
    assert pids
    assert all(map(is_alive, pids))
    assert {one[1] for rows in ours.values() for one in rows} == {str(box.directory / slots[0].session.session_id)}
    box.end(slots[0])
    assert not [pid for pid in pids if is_alive(pid)]
    still = [int(str(one[0])) for rows in others.values() for one in rows]
    assert all(map(is_alive, still)), "the session of these is still open"
    box.end(slots[1])
    assert not [pid for pid in still if is_alive(pid)]


@pytest.mark.extended
def test_it_works_where_the_directory_has_any_name(shared_box: SparkBox, tmp_path: Path) -> None:
    """Java has its own way to write a character beyond the BMP."""
    directory = tmp_path / "work \N{GRINNING FACE}"
    box = SparkBox(spark_settings(directory, archive=shared_box.settings.cds_directory), directory)
    try:
        box.run(box.environment.start())
        code, result, _ = CASES["udtf"]
        slot = box.slot(code)
        assert slot.next() == result
        assert {one[1] for one in noted(box, slot.session.session_id)["analyze"]} == {
            str(directory / slot.session.session_id)
        }
        box.end(slot)
    finally:
        box.shut()


def test_what_it_leaves_is_told(box: SparkBox) -> None:
    code, result, _ = CASES["udtf"]
    slot = box.slot(code + "emit(attached.left_behind())\nask()\n")
    assert slot.next() == result
    slot.tell()
    left = slot.next()
    (pid,) = [one[0] for one in noted(box, slot.session.session_id)["analyze"]]
    assert left == f"sleep ({pid})"


def test_what_it_does_to_its_process_is_seen_by_no_other_job(box: SparkBox) -> None:
    for _ in range(2):
        slot = box.slot(CASES["source"][0])
        slot.next()
        assert noted(box, slot.session.session_id)["schema"][0][2] is None
        box.end(slot)


AND_A_TASK = """
from pyspark.sql.functions import udf
added = spark.sparkContext.accumulator(0)
def one_more(n):
    added.add(1)
    return n + 1
rows = spark.sql("SELECT * FROM made()").select(udf(one_more, "int")("n").alias("n")).collect()
emit([rows[0].n, added.value])
"""


def test_functions_beside_it_can_use_accumulators(box: SparkBox) -> None:
    """Both add to the one accumulator of the process, whose server serves one connection."""
    assert box.evaluate(UDTF + AND_A_TASK) == [8, 1]
