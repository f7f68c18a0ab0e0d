"""R22: what a session cached, persisted, configured, named or registered is its own, and is gone when it ends."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit.spark.spark_box import SparkBox, wait_until

COUNT = "emit(spark.read.parquet({path!r}).count())"
CACHE = "frame = spark.read.parquet({path!r}).cache(); emit(frame.count()); ask()"


def replace_input(path: Path, rows: int) -> None:
    """As somebody does who is not Spark: what Spark itself writes, it would look for in its cache."""
    import pyarrow as pa
    from pyarrow import parquet

    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    parquet.write_table(pa.table({"id": list(range(rows))}), path / f"{rows}.parquet")


def test_what_a_job_cached_answers_no_later_job(box: SparkBox, tmp_path: Path) -> None:
    path = tmp_path / "input"
    replace_input(path, 10)
    first = box.slot(CACHE.format(path=str(path)))
    assert first.next() == 10
    box.end(first)
    replace_input(path, 3)
    assert box.evaluate(COUNT.format(path=str(path))) == 3


def test_what_a_job_cached_answers_no_job_beside_it(box: SparkBox, tmp_path: Path) -> None:
    path = tmp_path / "input"
    replace_input(path, 10)
    first = box.slot(CACHE.format(path=str(path)) + f"; emit(spark.read.parquet({str(path)!r}).count())")
    assert first.next() == 10
    replace_input(path, 3)
    assert box.evaluate(COUNT.format(path=str(path)), slot_index=1) == 3
    first.tell()
    assert first.next() == 10, "its own cache answers the job that made it"


def test_clearing_the_cache_reaches_the_own_one_only(box: SparkBox) -> None:
    code = """
frame = spark.range(10).cache()
frame.count()
relation = lambda: "InMemoryTableScan" in frame._jdf.queryExecution().executedPlan().toString()
frame = spark.range(10)
emit(relation())
ask()
frame = spark.range(10)
emit(relation())
"""
    first = box.slot(code)
    assert first.next() is True
    assert box.evaluate("spark.catalog.clearCache(); emit(1)", slot_index=1) == 1
    first.tell()
    assert first.next() is True


def test_a_cached_table_answers_its_own_job_only(box: SparkBox) -> None:
    scans = "'InMemoryRelation' in spark.table('default.shared')._jdf.queryExecution().executedPlan().toString()"
    code = f"""
spark.range(4).write.saveAsTable("default.shared")
spark.sql("CACHE TABLE default.shared")
emit({scans})
ask()
"""
    first = box.slot(code)
    assert first.next() is True
    other = f"emit([{scans}, spark.table('default.shared').count(), spark.sql('DROP TABLE default.shared').count()])"
    assert box.evaluate(other, slot_index=1) == [False, 4, 0]


def test_global_temporary_views_are_the_sessions_own(box: SparkBox) -> None:
    code = """
spark.range({rows}).createOrReplaceGlobalTempView("shared_name")
emit(spark.table("global_temp.shared_name").count())
ask()
emit(spark.table("global_temp.shared_name").count())
"""
    slots = [box.slot(code.format(rows=rows), slot_index=rows - 1) for rows in (1, 2)]
    assert [slot.next() for slot in slots] == [1, 2]
    for slot in slots:
        slot.tell()
    assert [slot.next() for slot in slots] == [1, 2]
    box.end_slots()
    assert box.evaluate("emit(spark.catalog.tableExists('global_temp.shared_name'))") is False


KEY = "fs.s3a.access.key"
READ_CONF = f"""
session = spark._jsparkSession
emit([spark.sparkContext._jsc.hadoopConfiguration().get({KEY!r}),
      session.sessionState().newHadoopConf().get({KEY!r}),
      session.newSession().sessionState().newHadoopConf().get({KEY!r}),
      spark._jvm.org.apache.spark.SparkContext.getOrCreate().hadoopConfiguration().get({KEY!r})])
"""


def test_each_job_has_its_own_hadoop_conf_also_beside_others_and_later(box: SparkBox) -> None:
    code = f"spark.sparkContext._jsc.hadoopConfiguration().set({KEY!r}, {{value!r}})" + READ_CONF + "ask()" + READ_CONF
    slots = [box.slot(code.format(value=value), slot_index=index) for index, value in enumerate(("one", "two"))]
    for _ in range(2):
        assert [slot.next() for slot in slots] == [["one"] * 4, ["two"] * 4]
        for slot in slots:
            slot.tell()
    assert box.evaluate(READ_CONF) == [None] * 4
    box.end_slots()
    assert box.evaluate(READ_CONF) == [None] * 4


OPENS = """
jvm, sc = spark._jvm, spark.sparkContext
conf = sc._jsc.hadoopConfiguration()
conf.set("fs.probe.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
conf.set("fs.probe.key", {value!r})
opened = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("probe://bucket/"), conf)
again = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("probe://bucket/x"), conf)
emit([opened.getConf().get("fs.probe.key"), again.equals(opened)])
ask()
"""


def test_a_file_system_that_a_job_opened_with_its_keys_is_handed_to_nobody_else(box: SparkBox) -> None:
    before = figures(box)["file_systems"]
    slots = [box.slot(OPENS.format(value=value), slot_index=index) for index, value in enumerate(("one", "two"))]
    assert [slot.next() for slot in slots] == [["one", True], ["two", True]]
    assert figures(box)["file_systems"] == before + 2
    box.end_slots()
    assert figures(box)["file_systems"] == before


def test_a_spark_conf_that_a_script_changes_in_the_jvm_is_its_own(box: SparkBox) -> None:
    read = "emit([spark._jsc.sc().conf().get('spark.mine', ''), spark.newSession().conf.get('spark.mine', '')])"
    assert box.evaluate("spark._jsc.sc().conf().set('spark.mine', 'yes');" + read)[0] == "yes"
    assert box.evaluate(read) == ["", ""]


def test_the_checkpoint_directory_and_persisted_rdds_are_the_sessions_own(box: SparkBox, tmp_path: Path) -> None:
    code = """
sc = spark.sparkContext
sc.setCheckpointDir({directory!r})
rdd = sc.parallelize(range(10), 2).persist()
rdd.count()
checked = spark.range(5).checkpoint()
emit([sc._jsc.getCheckpointDir().isPresent(), sc._jsc.getPersistentRDDs().size(), checked.count()])
ask()
emit(rdd.sum())
"""
    first = box.slot(code.format(directory=str(tmp_path / "checkpoints")))
    assert first.next() == [True, 1, 5]
    looks = "sc = spark.sparkContext; emit([sc.getCheckpointDir(), sc._jsc.getPersistentRDDs().size()])"
    assert box.evaluate(looks, slot_index=1) == [None, 0]
    first.tell()
    assert first.next() == 45


def figures(box: SparkBox) -> dict[str, int]:
    return box.run(box.environment.figures())


@pytest.mark.parametrize(
    "code",
    [
        "f = spark.range(400000).selectExpr('rand()').cache(); f.count()",
        "r = spark.sparkContext.parallelize(range(400000), 2)._to_java_object_rdd().cache(); r.count()",
        "f = spark.range(400000).localCheckpoint(); f.count()",
        "b = spark._jsc.broadcast(bytearray(__import__('os').urandom(4000000)))",
    ],
)
def test_blocks_of_a_session_are_gone_when_it_ends(box: SparkBox, code: str) -> None:
    box.evaluate(PLAIN)
    before = figures(box)["storage_bytes"]
    slot = box.slot(code + "\nemit(1)\nask()")
    assert slot.next() == 1
    assert figures(box)["storage_bytes"] > before + 300_000
    box.end(slot)
    wait_until(lambda: figures(box)["storage_bytes"] < before + 100_000)


def half_closed(box: SparkBox) -> int:
    """Connections of the JVM whose other side is gone."""
    _, jvm = box.environment.process_ids
    return sum(one.status == psutil.CONN_CLOSE_WAIT for one in psutil.Process(jvm).net_connections("tcp"))


def test_the_connection_for_accumulators_is_closed_when_a_session_ends(box: SparkBox) -> None:
    before = half_closed(box)
    for _ in range(3):
        assert box.evaluate(COUNTED) == 6
    wait_until(lambda: half_closed(box) <= before)


COUNTED = """
seen = spark.sparkContext.accumulator(0)
spark.sparkContext.parallelize(range(4), 2).foreach(seen.add)
emit(seen.value)
"""


FREEZES = """
import threading, time
seen = spark.sparkContext.accumulator(0)
def add(number):
    time.sleep(2)
    seen.add(number)
def work():
    spark.sparkContext.parallelize(range(4), 2).foreach(add)
    emit(seen.value)
threading.Thread(target=work).start()
emit(__import__("os").getpid())
"""


def tasks_active(box: SparkBox) -> int:
    return sum(one.tasks_active for one in box.run(box.environment.progress()).values())


def test_a_frozen_process_holds_up_its_own_job_only(box: SparkBox) -> None:
    frozen = box.slot(FREEZES)
    pid = frozen.next()
    wait_until(lambda: tasks_active(box))
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: not tasks_active(box))
        assert box.evaluate(PLAIN, slot_index=1) == [10, 6]
    finally:
        os.kill(pid, signal.SIGCONT)
    assert frozen.next() == 6
    box.end(frozen)


LISTENS = """
from pyspark.sql.streaming import StreamingQueryListener
class Listener(StreamingQueryListener):
    def onQueryStarted(self, event): pass
    def onQueryTerminated(self, event): pass
    def onQueryProgress(self, event):
        emit("told")
        {then}
spark.streams.addListener(Listener())
query = spark.readStream.format("rate").load().writeStream.format("noop").start()
ask()
"""


def test_a_listener_that_hangs_holds_up_its_own_slot_only(box: SparkBox) -> None:
    hanging = box.slot(LISTENS.format(then="ask()"))
    assert hanging.next() == "told"
    beside = box.slot(LISTENS.format(then="pass"), slot_index=1)
    assert beside.next() == "told"
    for slot in (hanging, beside):
        slot.kill()
        box.close(slot.session)


def test_nothing_holds_a_session_that_has_ended(box: SparkBox) -> None:
    box.evaluate(PLAIN)
    before = figures(box)["gateways"]
    for _ in range(5):
        box.evaluate(PLAIN)
    wait_until(lambda: figures(box)["gateways"] <= before)


def test_no_thread_of_all_keeps_the_session_for_which_it_was_started(box: SparkBox) -> None:
    box.evaluate(SHUFFLES)
    before = figures(box)["sessions"]
    for _ in range(6):
        box.evaluate(SHUFFLES)
    wait_until(lambda: figures(box)["sessions"] <= before + 1)


def test_no_thread_of_all_keeps_the_session_of_a_query_that_failed(box: SparkBox) -> None:
    box.run(box.environment.restart())  # or what other tests have left might hide it
    box.evaluate(SHUFFLES)
    before = figures(box)["sessions"]
    box.evaluate(FAILING)
    wait_until(lambda: figures(box)["sessions"] <= before)


FAILING = """
try:
    spark.range(100).groupBy("id").count().selectExpr("raise_error(string(count))").collect()
except Exception as error:
    emit(type(error).__name__)
"""


def test_queries_that_wait_for_others_hold_up_no_other_session(box: SparkBox) -> None:
    assert box.evaluate(NESTED) == list(range(1, 25))
    assert box.evaluate(SHUFFLES) == 100


NESTED = """
import threading
from pyspark.sql.functions import udf
plus = udf(lambda number: number + 1, "bigint")
count = 24  # each needs a thread of a pool of all, and another one for its subquery
for number in range(count):
    spark.range(number, number + 1).repartition(1).select(plus("id").alias("n")).createOrReplaceTempView(f"t{number}")
found, together = [], threading.Barrier(count)
def work(number):
    together.wait()
    found.append(spark.sql(f"select (select max(n) from t{number}) + count(*) - 1 from range(1)").head()[0])
threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
emit(sorted(found))
"""


def test_a_job_that_a_query_begins_after_its_end_is_forgotten_with_its_session(box: SparkBox) -> None:
    box.evaluate(LATE)
    before = figures(box)["sessions"]
    for _ in range(6):
        box.evaluate(LATE)
    wait_until(lambda: figures(box)["sessions"] <= before + 1)


LATE = """
sc = spark.sparkContext
sc.setLocalProperty("spark.sql.execution.id", "987654321")  # as a thread has it that outlives the query that began it
sc.setLocalProperty("spark.sql.execution.root.id", "987654321")
emit(spark.range(4)._jdf.toJavaRDD().count())
"""

SHUFFLES = "emit(spark.range(100).repartition(3).groupBy('id').count().count())"

PLAIN = "emit([spark.range(10).count(), spark.sparkContext.parallelize(range(4), 2).map(lambda n: n).sum()])"

NAMED = """
import threading
sc = spark.sparkContext
def work(ended):
    sc.setJobGroup("nightly", "work")
    sc.addJobTag("mine")
    emit([sc.getLocalProperty("spark.jobGroup.id"), sorted(sc.getJobTags())])
    try:
        sc.parallelize(range(1), 1).foreach(lambda _: __import__("time").sleep(60))
    except Exception as error:
        emit("ended")
threading.Thread(target=work, args=(1,), daemon=True).start()
ask()
tracker = sc._jsc.sc().statusTracker()
emit([len(tracker.getJobIdsForGroup("nightly")), len(tracker.getJobIdsForTag("mine"))])
ask()
"""


@pytest.mark.parametrize(
    "call",
    [
        "cancelJobGroup('nightly')",
        pytest.param("cancelJobsWithTag('mine')", marks=pytest.mark.extended),
        "cancelAllJobs()",
    ],
)
def test_what_is_cancelled_by_name_is_the_sessions_own(box: SparkBox, call: str) -> None:
    slots = [box.slot(NAMED + f"sc.{call}; emit('cancelled'); ask()", slot_index=index) for index in range(2)]
    for slot in slots:
        assert slot.next() == ["nightly", ["mine"]]
    ids = {slot.session.session_id for slot in slots}
    wait_until(lambda: ids <= set(box.run(box.environment.progress())))
    for slot in slots:
        slot.tell()
        assert slot.next() == [1, 1]
    slots[0].tell()
    assert {slots[0].next(20), slots[0].next(20)} == {"ended", "cancelled"}
    wait_until(lambda: ids & set(box.run(box.environment.progress())) == {slots[1].session.session_id})
    wait_until(lambda: slots[1].session.session_id in box.run(box.environment.progress()))


TAGGED = """
import time
sc = spark.sparkContext
own = attached.session.session_id
def tags():
    raw = sc._jsc.sc().getLocalProperties().getProperty("spark.job.tags")
    return [sc.getLocalProperty("spark.job.tags"), sorted(sc.getJobTags()), own in raw.split(",")]
sc.setLocalProperty("spark.job.tags", "mine,other")
emit(tags())
sc.parallelize(range(2), 1).count()
tracker = sc._jsc.sc().statusTracker()
while not tracker.getJobIdsForTag("mine"):
    time.sleep(0.01)
emit(set(tracker.getJobIdsForTag("mine")) <= set(tracker.getJobIdsForTag(own)))
sc.setLocalProperty("spark.job.tags", None)
emit(tags())
"""


def test_a_script_that_sets_its_tags_as_a_property_keeps_the_one_of_its_session(box: SparkBox) -> None:
    slot = box.slot(TAGGED)
    assert slot.next() == ["mine,other", ["mine", "other"], True]
    assert slot.next() is True, "its jobs are ended by that tag"
    assert slot.next() == [None, [], True]


def test_system_properties_of_a_script_are_its_conf_or_refused(box: SparkBox) -> None:
    code = """
from pyspark import SparkContext
SparkContext.setSystemProperty("spark.sql.shuffle.partitions", "3")
try:
    SparkContext.setSystemProperty("user.timezone", "Mars")
except Exception as error:
    refused = str(error)
emit([spark.conf.get("spark.sql.shuffle.partitions"), refused,
      spark._jvm.java.lang.System.getProperty("spark.sql.shuffle.partitions")])
"""
    partitions, refused, in_jvm = box.evaluate(code)
    assert partitions == "3"
    assert in_jvm != "3"
    assert refused.startswith("user.timezone: system properties belong to the JVM")


def test_listeners_that_a_session_registers_end_with_it(box: SparkBox, tmp_path: Path) -> None:
    code = f"""
from pyspark.sql.streaming import StreamingQueryListener
class Listener(StreamingQueryListener):
    def onQueryStarted(self, event): pass
    def onQueryProgress(self, event): pass
    def onQueryIdle(self, event): pass
    def onQueryTerminated(self, event): pass
for session in (spark, spark.newSession()):
    session.streams.addListener(Listener())
query = (spark.newSession().readStream.format("rate").load().writeStream.format("noop")
    .option("checkpointLocation", {str(tmp_path / "c")!r}).start())
emit(1)
ask()
"""
    before = figures(box)
    slot = box.slot(code)
    assert slot.next() == 1
    assert figures(box)["listeners"] > before["listeners"]
    box.end(slot)
    assert figures(box)["listeners"] == before["listeners"]
    active: Any = box.evaluate("emit(spark._jsparkSession.sharedState().activeStreamingQueries().size())")
    assert active == 0
