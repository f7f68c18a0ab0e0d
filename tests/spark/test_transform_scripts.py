"""R29: what scripts of `SELECT TRANSFORM ... USING` have started ends with their session, and nobody else's does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.system.linux import is_alive
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.spark_box import SlotProcess, SparkBox, wait_until

RUN = """
import threading
def transform():
    rows = spark.sql("SELECT TRANSFORM(id) USING 'bash {script}' AS (x STRING) FROM range(0, 2, 1, 1)").collect()
    emit([row.x for row in rows])
"""
ENDS = RUN + "transform(); ask()"
HANGS = RUN + "threading.Thread(target=transform, daemon=True).start(); ask()"
WAITS = "echo $$ >{path}; sleep 1000"
LEAVES_A_DAEMON = """
setsid bash -c 'echo $$ >{path}; exec sleep 1000' </dev/null >/dev/null 2>&1 &
while [ ! -s {path} ]; do :; done
cat
"""
COUNT = "emit(spark.sparkContext.parallelize(range(8), 4).map(lambda n: n + 1).sum())"


def started(path: Path) -> int:
    """The process that has told itself there."""
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
    pid = int(path.read_text())
    assert is_alive(pid)
    return pid


def written(script: str, path: Path) -> Path:
    """The script's file. What it starts tells itself at `path`."""
    file = path.with_suffix(".sh")
    file.write_text(script.format(path=path))
    return file


def transforming(box: SparkBox, run: str, script: str, path: Path, slot_index: int = 0) -> tuple[SlotProcess, int]:
    slot = box.slot(run.format(script=written(script, path)), slot_index=slot_index)
    return slot, started(path)


def test_a_daemon_ends_with_its_session_and_only_it(box: SparkBox, tmp_path: Path) -> None:
    jvm = box.environment.process_ids[1]
    (slot, ours), (other, theirs) = (
        transforming(box, ENDS, LEAVES_A_DAEMON, tmp_path / str(index), slot_index=index) for index in range(2)
    )
    assert slot.next() == other.next() == ["0", "1"]
    box.end(slot)
    assert not is_alive(ours)
    assert is_alive(theirs), "its session is still open"
    box.end(other)
    assert not is_alive(theirs)
    assert box.environment.process_ids[1] == jvm


def test_a_script_that_hangs_ends_with_its_process_and_costs_no_jvm(box: SparkBox, tmp_path: Path) -> None:
    """Spark's task waits for it, whatever becomes of its job."""
    jvm = box.environment.process_ids[1]
    slot, script = transforming(box, HANGS, WAITS, tmp_path / "pid")
    box.end(slot)
    assert not is_alive(script)
    assert box.environment.is_ready
    assert box.environment.process_ids[1] == jvm
    assert box.evaluate(COUNT) == 36


def test_sessions_that_a_session_makes_are_its_own(box: SparkBox, tmp_path: Path) -> None:
    slot, daemon = transforming(box, "spark = spark.newSession()\n" + ENDS, LEAVES_A_DAEMON, tmp_path / "pid")
    assert slot.next() == ["0", "1"]
    box.end(slot)
    assert not is_alive(daemon)


NESTED = """
spark.sql("CREATE TEMP VIEW v AS SELECT TRANSFORM(id) USING 'bash {script}' AS (x STRING) FROM range(0, 2, 1, 1)")
spark.sql("SELECT x FROM v WHERE x = (SELECT max(x) FROM v)").cache().count()
spark.sql("CREATE TABLE t USING parquet AS SELECT * FROM v")
emit(sorted(row.x for row in spark.table("t").collect()))
"""


def test_every_script_is_marked_wherever_it_stands_in_a_query(box: SparkBox, tmp_path: Path) -> None:
    script = written("ulimit -x >>{path}; exec cat", tmp_path / "marks")
    assert box.evaluate(NESTED.format(script=script)) == ["0", "1"]
    marks = (tmp_path / "marks").read_text().split()
    assert len(marks) >= 3, "of the query, its subquery, and the table"
    assert len(set(marks)) == 1
    assert marks[0].isdecimal()


@pytest.fixture
def slots(box: SparkBox, tmp_path: Path) -> Any:
    made = SlotBox(box, tmp_path)
    yield made
    made.stop()


def transforms(ctx: Any) -> list[str]:
    script = ctx.params["script"]
    rows = ctx.spark.sql(f"SELECT TRANSFORM(id) USING 'bash {script}' AS (x STRING) FROM range(0, 2, 1, 1)").collect()
    return [row.x for row in rows]


def test_a_job_that_is_cancelled_leaves_no_script(slots: SlotBox, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    work = slots.work(transforms, job_id=JobId("7" * 32), params={"script": str(written(WAITS, path))})
    listener, running = slots.begin(work)
    script = started(path)
    jvm = slots.box.environment.process_ids[1]
    slots.do(slots.pool.cancel(0, work.task.attempt_id))
    slots.end(running)
    assert listener.terminal.state is ExecutionState.CANCELED
    assert not is_alive(script)
    assert slots.box.environment.process_ids[1] == jvm


def test_a_job_that_ends_leaves_no_daemon(slots: SlotBox, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    work = slots.work(transforms, job_id=JobId("8" * 32), params={"script": str(written(LEAVES_A_DAEMON, path))})
    slots.wait_attached()
    report = slots.report(work)
    assert report.state is ExecutionState.FINISHED
    assert "left processes, which are ended: sleep (" in slots.bench.log(report, "stderr")
    assert not is_alive(int(path.read_text()))
