"""Scripts that were submitted as streaming jobs: queries keep state, and one that fails fails the attempt (R63)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.gateways.task import Fault, TaskExecutionReport
from runtime.jobgraph.graph import Artifact, Operator, OperatorKind, ScriptCode
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.spark_box import SparkBox

pytestmark = pytest.mark.timeout(600)  # one JVM per module, and it may have to wait for its turn

BEGIN = """
import sys, time
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("orders").getOrCreate()
landing, out = sys.argv[1:3]
orders = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(landing)
"""
TABLE = (
    BEGIN
    + """
query = orders.writeStream.format("parquet").queryName("orders").trigger(availableNow=True).start(out)
query.awaitTermination()
print("batches", (query.lastProgress or {}).get("batchId"))
print("stops others", spark.conf.get("spark.sql.streaming.stopActiveRunOnRestart"))
"""
)
RAISING = """
def raising(batch, number):
    raise ValueError(f"no price in batch {number}")

failing = orders.writeStream.queryName("prices").foreachBatch(raising).start()
"""
SLEEPS = BEGIN + RAISING + "time.sleep(300)\n"
AWAITS_ANOTHER = (
    BEGIN
    + RAISING
    + """
rates = spark.readStream.format("rate").load().writeStream.format("noop").queryName("rates").start()
try:
    rates.awaitTermination()
except Exception as error:
    print("swallowed", error)
"""
)
HANDLED = (
    BEGIN
    + RAISING
    + """
try:
    failing.awaitTermination()
except Exception as error:
    print("handled", type(error).__name__)
orders.writeStream.queryName("prices").format("noop").trigger(availableNow=True).start().awaitTermination()
time.sleep(8)
"""
)
NAMELESS = BEGIN + 'orders.writeStream.format("parquet").start(out)\n'
WRONGLY_NAMED = BEGIN + 'orders.writeStream.format("parquet").queryName("../orders").start(out)\n'
# As structured_network_wordcount of Spark's examples, from files in place of a socket.
WORDCOUNT = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import explode, split

spark = SparkSession.builder.appName("StructuredWordCount").getOrCreate()
lines = spark.readStream.format("text").load(sys.argv[1])
words = lines.select(explode(split(lines.value, " ")).alias("word"))
query = words.groupBy("word").count().writeStream.outputMode("complete").format("console")
query = query.trigger(availableNow=True).start()
query.awaitTermination()
"""
LEAVES = BEGIN + 'orders.writeStream.format("noop").queryName("left").start()\n'


@pytest.fixture(scope="module")
def slots(shared_box: SparkBox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlotBox]:
    if not shared_box.environment.is_ready:
        shared_box.run(shared_box.environment.restart())
    box = SlotBox(shared_box, tmp_path_factory.mktemp("slots"))
    yield box
    box.stop()


_jobs = iter(range(1, 10_000))


@pytest.fixture
def job() -> JobId:
    return JobId(f"5{next(_jobs):031x}")


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    put(tmp_path / "landing", "1.json", range(3))
    return tmp_path / "landing"


def put(directory: Path, name: str, ids: range) -> None:
    directory.mkdir(exist_ok=True)
    (directory / f".{name}").write_text("".join(json.dumps({"id": one}) + "\n" for one in ids))
    (directory / f".{name}").rename(directory / name)


def streaming(text: str, *args: object) -> Operator:
    code = ScriptCode(
        script=Artifact.of_bytes("etl.py", text.encode()), args=tuple(map(str, args)), starts_queries=True
    )
    return Operator(name="etl.py", kind=OperatorKind.SCRIPT, code=code)


def run(slots: SlotBox, job: JobId, text: str, *args: object) -> tuple[TaskExecutionReport, str, Any]:
    """The report, standard output and error, and the listener."""
    work = slots.work(streaming(text, *args), job_id=job)
    listener, running = slots.begin(work)
    slots.end(running)
    logs = "".join(path.read_text() for path in sorted(Path(work.log_directory).rglob("std*")))
    return listener.terminal, logs, listener


def state_of(slots: SlotBox, job: JobId) -> Path:
    return next(Path(slots.directory).rglob(f"checkpoints/{job}"))


def rows(out: Path) -> int:
    return len(list(out.glob("part-*")))


def test_a_query_without_a_location_has_one_of_its_name_and_goes_on_there(
    slots: SlotBox, job: JobId, landing: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    report, logs, _ = run(slots, job, TABLE, landing, out)
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    assert "batches 0" in logs
    assert "stops others false" in logs, "R59: a query of another job that runs is not ended for this one"
    put(landing, "2.json", range(3, 5))
    report, logs, _ = run(slots, job, TABLE, landing, out)  # another attempt, or the script of a job started again
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    assert "batches 1" in logs, "it goes on behind batch 0"
    assert rows(out) == 2


def test_a_location_of_the_script_is_its_own(slots: SlotBox, job: JobId, landing: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    text = TABLE.replace(".trigger(", f'.option("checkpointLocation", {str(own)!r}).trigger(')
    report, _, _ = run(slots, job, text, landing, tmp_path / "out")
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    assert (own / "commits" / "0").is_file()


@pytest.mark.parametrize("text", [SLEEPS, AWAITS_ANOTHER], ids=["sleeps", "awaits another and swallows errors"])
def test_a_query_that_fails_fails_the_attempt_whatever_the_script_waits_for(
    slots: SlotBox, job: JobId, landing: Path, tmp_path: Path, text: str
) -> None:
    begun = time.monotonic()
    report, logs, _ = run(slots, job, text, landing, tmp_path / "out")
    assert report.state is ExecutionState.FAILED
    assert report.failure is not None
    assert "no price in batch 0" in report.failure.message, report.failure
    assert report.failure.fault is Fault.USER
    assert "swallowed" not in logs
    assert time.monotonic() - begun < 120


def test_a_failure_that_the_script_handles_is_none(slots: SlotBox, job: JobId, landing: Path, tmp_path: Path) -> None:
    report, logs, _ = run(slots, job, HANDLED, landing, tmp_path / "out")
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    assert "handled StreamingQueryException" in logs


@pytest.mark.parametrize(("text", "words"), [(NAMELESS, "has a name, or a directory"), (WRONGLY_NAMED, "'../orders'")])
def test_a_query_without_a_place_for_its_state_is_refused(
    slots: SlotBox, job: JobId, landing: Path, tmp_path: Path, text: str, words: str
) -> None:
    report, _, _ = run(slots, job, text, landing, tmp_path / "out")
    assert report.failure is not None
    assert words in report.failure.message


def test_an_example_of_spark_runs_unchanged(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "1.txt").write_text("apple pear apple\n")
    report, logs, _ = run(slots, job, WORDCOUNT, tmp_path / "lines")
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    assert "apple|    2" in logs.replace(" |", "|") or "apple" in logs


def test_a_script_that_ends_before_its_queries_says_so(
    slots: SlotBox, job: JobId, landing: Path, tmp_path: Path
) -> None:
    report, logs, _ = run(slots, job, LEAVES, landing, tmp_path / "out")
    assert report.state is ExecutionState.FINISHED
    assert "they end with it: left" in logs
