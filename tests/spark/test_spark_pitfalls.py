"""Each numbered trap of a shared driver JVM, closed: the test fails when its guard is taken away."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from runtime.taskexecutor.spark_host.worker_daemons import daemons_of
from tests.kit.spark.spark_box import SparkBox, wait_until

PLANNED = """
emit("planning")
spark.sql("insert overwrite directory '{out}' using json "
          "select sum(r.id % 7) from text.`{table}` t cross join range(1000000000000) r")
"""

VERSIONED = """
spark.sparkContext.addPyFile({file!r})
import versioned
ask()
from pyspark.sql.functions import udf
rows = spark.sparkContext.parallelize(range(2), 2).map(lambda _: __import__("versioned").V).collect()
seen = udf(lambda _: __import__("versioned").V, "string")
emit([versioned.V, sorted(set(rows)), spark.range(1).select(seen("id")).first()[0]])
"""

PLAIN = "emit([spark.range(10).count(), spark.sparkContext.parallelize(range(4), 2).map(lambda n: n).sum()])"


def write_module(directory: Path, text: str) -> str:
    directory.mkdir(parents=True)
    file = directory / "versioned.py"
    file.write_text(text)
    return str(file)


def test_pitfall_1_files_of_one_name_stay_with_their_job(box: SparkBox, tmp_path: Path) -> None:
    slots = []
    for index, version in enumerate(("one", "two")):
        file = write_module(tmp_path / f"source-{version}", f"V = {version!r}\n")
        job = tmp_path / f"job-{version}"
        slots.append(box.slot(VERSIONED.format(file=file), slot_index=index, directory=job, job_id=f"{index}" * 32))
    for slot in slots:
        slot.tell()
    assert slots[0].next() == ["one", ["one"], "one"]
    assert slots[1].next() == ["two", ["two"], "two"]
    assert box.evaluate(PLAIN) == [10, 6]
    for index in range(2):
        box.end_job(f"{index}" * 32)


def test_pitfall_2_own_python_workers_end_with_their_job(box: SparkBox, tmp_path: Path) -> None:
    job_id = "2" * 32
    jvm = box.environment.process_ids[1]
    code = "emit(spark.sparkContext.parallelize([1], 1).map(lambda _: __import__('os').getcwd()).first())"
    directory = tmp_path / "job"
    assert box.evaluate(code, directory=directory, job_id=job_id, own_workers=True) == str(directory)
    assert len(daemons_of(jvm, job_id)) == 1
    box.end_job(job_id)
    wait_until(lambda: not daemons_of(jvm, job_id))
    assert box.evaluate(PLAIN) == [10, 6]


def active_tags(box: SparkBox) -> set[str]:
    return set(box.run(box.environment.progress()))


class StagedPlanning:
    """A query whose planning waits: it reads the log of its input directory, and that log is a named pipe."""

    def __init__(self, directory: Path) -> None:
        self._data = directory / "table" / "part-0.txt"
        self._pipe = directory / "table" / "_spark_metadata" / "0"
        self._pipe.parent.mkdir(parents=True)
        self._data.write_text("x\n")
        os.mkfifo(self._pipe)
        self._descriptor = -1
        self.code = PLANNED.format(out=directory / "out", table=self._data.parent)

    def is_planning(self) -> bool:
        try:
            self._descriptor = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # no reader yet
            return False
        return True

    def release(self) -> None:
        entry = {
            "path": self._data.as_uri(),
            "size": self._data.stat().st_size,
            "isDir": False,
            "modificationTime": int(self._data.stat().st_mtime * 1000),
            "blockReplication": 1,
            "blockSize": 1 << 25,
            "action": "add",
        }
        os.write(self._descriptor, f"v1\n{json.dumps(entry)}".encode())
        os.close(self._descriptor)


REAPED = "no live slot has started it"


def test_pitfall_3_a_job_that_starts_after_its_slot_died_is_cancelled(box: SparkBox, tmp_path: Path) -> None:
    log, jvm_log = (box.settings.log_file(what) for what in ("host", "jvm"))
    reaped_before = log.read_text().count(REAPED)
    for stage in range(5):
        planning = StagedPlanning(tmp_path / str(stage))
        slot = box.slot(planning.code)
        wait_until(planning.is_planning, 60)
        slot.kill()
        # The first cancels find nothing: the job is still being planned.
        release = threading.Timer(0.1, planning.release)
        release.start()
        box.close(slot.session)
        release.join()
        assert box.environment.is_ready
        time.sleep(3 * box.settings.poll_interval)
        assert active_tags(box) == set()
        assert log.read_text().count(REAPED) == reaped_before, "closing has left it to the reaper"
        if "its slot was closed" in jvm_log.read_text():
            break  # on a busy machine the planning may be interrupted before there is a job
    else:
        pytest.fail("no job started late: the stage was not set")


def test_pitfall_3_the_reaper_cancels_jobs_without_a_live_slot(box: SparkBox) -> None:
    code = """
spark._jvm.org.apache.spark.SparkContext.getOrCreate().setLocalProperty("spark.job.tags", None)
try:
    spark.sparkContext.parallelize([1], 1).foreach(lambda _: __import__("time").sleep(60))
except Exception as error:
    emit(str(error))
"""
    assert REAPED in box.evaluate(code)


def test_closing_an_idle_session_is_quick(box: SparkBox) -> None:
    slot = box.slot("emit(spark.range(10).count())")
    slot.next()
    assert slot.finish() == 0
    started = time.monotonic()
    box.close(slot.session)
    assert time.monotonic() - started < 0.5


def test_pitfall_4_every_thread_of_a_slot_is_tagged(box: SparkBox) -> None:
    code = """
import threading
def work():
    spark.sparkContext.parallelize(range(2), 2).foreach(lambda _: __import__("time").sleep(60))
threading.Thread(target=work, daemon=True).start()
emit("started")
ask()
"""
    slot = box.slot(code)
    slot.next()
    session = slot.session.session_id
    wait_until(lambda: session in active_tags(box))
    progress = box.run(box.environment.progress())[session]
    assert progress.jobs_active == 1
    assert progress.tasks_total == 2
    box.run(box.environment.cancel_session_jobs(slot.session))
    wait_until(lambda: session not in active_tags(box))
    box.end(slot)


def test_pitfall_5_attaching_does_not_change_the_default_session_of_the_jvm(box: SparkBox) -> None:
    code = """
jvm, own = spark._jvm, spark._jsparkSession
cls = jvm.org.apache.spark.sql.classic.SparkSession
import threading
from pyspark.sql import SparkSession
seen = []
thread = threading.Thread(target=lambda: seen.append(cls.getActiveSession().get().equals(own)))
thread.start(); thread.join()
again = SparkSession(spark.sparkContext)
emit([cls.getDefaultSession().get().equals(own), seen, again._jsparkSession.equals(own),
      SparkSession.getActiveSession() is spark])
"""
    assert box.evaluate(code) == [False, [True], True, True]


def test_pitfall_13_temporary_directories_go_with_the_session(box: SparkBox) -> None:
    code = "emit([spark.sparkContext._temp_dir, spark.sparkContext.broadcast(list(range(10))).value[3]])"
    spark_local = box.settings.work_directory / "spark-local"
    before = set(spark_local.rglob("pyspark-*"))
    slot = box.slot(code)
    directory = Path(slot.next()[0])
    assert directory == Path(slot.session.directory)
    assert directory.is_dir()
    box.end(slot)
    assert not directory.exists()
    assert set(spark_local.rglob("pyspark-*")) == before


def test_pitfall_14_streams_end_with_their_slot(box: SparkBox, tmp_path: Path) -> None:
    code = f"""
query = (spark.readStream.format("rate").load().writeStream.format("json")
    .option("checkpointLocation", {str(tmp_path / "checkpoint")!r})
    .trigger(processingTime="500 milliseconds").start({str(tmp_path / "out")!r}))
emit("streaming")
ask()
"""
    slot = box.slot(code)
    slot.next()
    commits = tmp_path / "checkpoint" / "commits"
    wait_until(lambda: len(list(commits.glob("[0-9]*"))) >= 2, 40)
    box.end(slot)
    offsets = tmp_path / "checkpoint" / "offsets"
    after = sorted(path.name for path in offsets.glob("[0-9]*"))
    time.sleep(1.2)  # two more triggers would have come
    assert sorted(path.name for path in offsets.glob("[0-9]*")) == after


TEMPORARY = """
spark.range(3).count()
spark.sparkContext.parallelize(range(3)).map(str).collect()
spark.createDataFrame([(1, "a")], "n int, t string").toPandas()
emit(spark._jvm.java.lang.System.getProperty("java.io.tmpdir"))
"""


def test_what_the_jvm_keeps_in_its_temporary_directory_does_not_grow_with_sessions(box: SparkBox) -> None:
    """`artifacts-*` and the like lie with the other scratch of the TaskManager, which goes with it."""
    seen = []
    for _ in range(3):
        place = Path(box.evaluate(TEMPORARY))
        assert place == box.settings.work_directory / "tmp"
        seen.append(sorted(path.relative_to(place).as_posix() for path in place.rglob("*")))
    assert seen[0] == seen[2]
    assert any(name.startswith("artifacts-") for name in seen[0])
