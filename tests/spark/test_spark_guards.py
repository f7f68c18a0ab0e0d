"""What user code may call on the shared context, and what it reaches: its own session only."""

import time
from pathlib import Path

import pytest

from runtime.common.spark_conf import SPARK_NAMESPACES, STATIC_SQL
from runtime.common.spark_defaults import SPARK_DEFAULTS
from tests.kit.spark.spark_box import SparkBox, wait_until

SLEEPING = """
import threading
def work():
    try:
        spark.sparkContext.parallelize(range(1), 1).foreach(lambda _: __import__("time").sleep(60))
    except Exception as error:
        emit("ended: " + type(error).__name__)
threading.Thread(target=work, daemon=True).start()
emit("started")
"""


def test_stop_detaches_and_get_or_create_returns_the_same_session(box: SparkBox) -> None:
    code = """#lazy
from pyspark import SparkContext
from pyspark.sql import SparkSession
first = SparkSession.builder.appName("mine").getOrCreate()
first.stop()
first.sparkContext.stop()
second = SparkSession.builder.getOrCreate()
with SparkSession.builder.getOrCreate() as third:
    count = third.range(5).count()
same_context = SparkContext.getOrCreate() is second.sparkContext
emit([first is second, second is third, count, second.range(3).count(), same_context])
"""
    assert box.evaluate(code) == [True, True, 5, 3, True]


def test_stop_ends_the_jobs_of_its_own_session_only(box: SparkBox) -> None:
    other = box.slot(SLEEPING + "ask()", slot_index=1)
    assert other.next() == "started"
    wait_until(lambda: other.session.session_id in box.run(box.environment.progress()))
    code = SLEEPING + "import time; time.sleep(1); spark.sparkContext.{call}; ask()"
    for call in ("cancelAllJobs()", "stop()"):
        slot = box.slot(code.format(call=call))
        assert slot.next() == "started"
        assert slot.next(15).startswith("ended")
        box.end(slot)
    assert other.session.session_id in box.run(box.environment.progress())
    box.end(other)


def test_the_own_tag_cannot_be_removed(box: SparkBox) -> None:
    code = """
context = spark.sparkContext
context.addJobTag("mine")
context.removeJobTag(attached.session.session_id)
seen = sorted(context.getJobTags())
context.clearJobTags()
shared = spark._jvm.org.apache.spark.SparkContext.getOrCreate()
emit([seen, sorted(context.getJobTags()), shared.getLocalProperty("spark.job.tags")])
"""
    slot = box.slot(code)
    seen, cleared, raw = slot.next()
    assert (seen, cleared) == (["mine"], [])
    assert slot.session.session_id in raw
    box.end(slot)


def test_contexts_and_sessions_of_a_script_are_the_warm_ones(box: SparkBox) -> None:
    code = """#lazy
from pyspark import SparkConf, SparkContext
from pyspark.sql import SQLContext, SparkSession
conf = SparkConf().setAppName("etl").setMaster("local[4]").set("spark.sql.shuffle.partitions", "3")
sc = SparkContext(conf=conf)
spark = SparkSession(sc)
emit([sc is attached.context, spark._jsparkSession.equals(attached.spark._jsparkSession),
      spark.conf.get("spark.sql.shuffle.partitions"), sc.parallelize(range(10)).sum(),
      spark.range(4).rdd.map(lambda row: row.id).sum()])
"""
    assert box.evaluate(code) == [True, True, "3", 45, 6]


STATIC = """#lazy
import json, warnings
from pyspark.sql import SparkSession
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        spark = (SparkSession.builder.appName("a").master("local[7]").config("spark.executor.memory", "7g")
            .config("spark.sql.warehouse.dir", "/nowhere").config("spark.sql.ansi.enabled", False).getOrCreate())
    emit([[str(w.message).split(" ")[0] for w in caught], spark.conf.get("spark.sql.ansi.enabled")])
"""


def test_static_conf_of_a_script_gives_one_warning_per_key(box: SparkBox) -> None:
    keys, ansi = box.evaluate(STATIC)
    assert sorted(keys) == ["spark.executor.memory", "spark.sql.warehouse.dir"]  # for two reasons: two warnings
    assert ansi == "false"


STATIC_KEYS = """
spark._jvm.java.lang.Class.forName("org.apache.spark.sql.hive.HiveUtils$")  # it registers keys when it is loaded
internal = spark._jvm.org.apache.spark.sql.internal
entries = getattr(getattr(internal, "SQLConf$"), "MODULE$").getConfigEntries()
emit([entry.key() for entry in entries.toArray() if internal.SQLConf.isStaticConfigKey(entry.key())])
"""


def test_the_list_of_static_keys_is_sparks(box: SparkBox) -> None:
    keys = {key for key in box.evaluate(STATIC_KEYS) if key.startswith("spark.sql.")}
    assert {key for key in keys if not key.startswith("spark.sql.hive.metastore.")} == STATIC_SQL


REGISTERED = """
names = ["package$", *(f"{name}$" for name in (
    "Connect", "Deploy", "History", "Kryo", "Network", "Python", "R", "Status", "Streaming", "Tests", "UI", "Worker"))]
for name in names:
    try:
        spark._jvm.java.lang.Class.forName("org.apache.spark.internal.config." + name)
    except Exception as error:
        assert "ClassNotFoundException" in str(error), error
entries = getattr(getattr(spark._jvm.org.apache.spark.internal.config, "ConfigEntry$"), "MODULE$").knownConfigs()
emit([str(key) for key in entries.keySet()])
"""


def test_the_list_of_sparks_namespaces_has_every_key_that_spark_registers(box: SparkBox) -> None:
    keys = [key for key in box.evaluate(REGISTERED) if key.startswith("spark.")]
    assert {"spark.executor.memory", "spark.ui.port", "spark.python.worker.reuse"} <= set(keys)
    own = [key for key in keys if not key.startswith(("spark.sql.", "spark.hadoop."))]
    assert {key for key in own if key.split(".")[1] not in SPARK_NAMESPACES} == set()


DEFAULTS = (
    REGISTERED.replace("emit(", "known = (")
    + """
registry = getattr(getattr(spark._jvm.org.apache.spark.internal.config, "ConfigEntry$"), "MODULE$")
conf, wrong = spark._jvm.org.apache.spark.SparkConf(False), {}

def read(entry):
    try:
        return str(conf.get(entry))
    except ValueError as error:
        return str(error)  # with the number, which is none for py4j

for key, value in DEFAULTS.items():
    entry = registry.findEntry(key)
    if entry is None:
        wrong[key] = "not known"
        continue
    default = read(entry)
    conf.set(key, value)
    if read(entry) != default:
        wrong[key] = default
emit(wrong)
"""
)


def test_the_values_of_spark_are_those_of_the_jvm(box: SparkBox) -> None:
    assert box.evaluate(f"DEFAULTS = {dict(SPARK_DEFAULTS)!r}\n{DEFAULTS}") == {}


OWN_KEYS = """#lazy
from pyspark.sql import SparkSession
spark = (SparkSession.builder.config("spark.my.thing", "x").config("spark.hadoop.fs.mine.key", "secret")
    .config("spark.sql.shuffle.partitions", 5).getOrCreate())
sc = spark.sparkContext
keys = ["spark.my.thing", "spark.my.job", "spark.hadoop.fs.mine.key", "spark.sql.shuffle.partitions"]
emit([[spark.conf.get(key) for key in keys], [sc.getConf().get(key) for key in keys],
      [spark.newSession().conf.get(key) for key in keys], [sc._jsc.sc().conf().get(key) for key in keys]])
emit([sc._jsc.hadoopConfiguration().get("fs.mine.key"),
      spark._jsparkSession.sessionState().newHadoopConf().get("fs.mine.key")])
ask()
"""
SEEN_BY_OTHERS = """
sc = spark.sparkContext
keys = ["spark.my.thing", "spark.my.job", "spark.hadoop.fs.mine.key"]
emit([[spark.conf.get(key, None) for key in keys], [sc.getConf().get(key) for key in keys],
      sc._jsc.hadoopConfiguration().get("fs.mine.key"),
      spark.conf.get("spark.sql.shuffle.partitions") == sc.getConf().get("spark.sql.shuffle.partitions")])
"""


def test_keys_of_a_job_that_are_none_of_sparks_are_its_conf_and_nobody_elses(box: SparkBox) -> None:
    slot = box.slot(OWN_KEYS, static_conf="fail", spark_conf={"spark.my.job": "y", "spark.sql.shuffle.partitions": "6"})
    assert slot.next() == [["x", "y", "secret", "5"]] * 4
    assert slot.next() == ["secret", "secret"]
    assert box.evaluate(SEEN_BY_OTHERS, slot_index=1) == [[None] * 3, [None] * 3, None, True]
    box.end(slot)
    assert box.evaluate(SEEN_BY_OTHERS) == [[None] * 3, [None] * 3, None, True]


def test_static_conf_of_a_script_can_be_refused(box: SparkBox) -> None:
    slot = box.slot(STATIC, static_conf="fail")
    assert slot.finish() == 1
    error = slot.stderr_file.read_text()
    assert "StaticConfError" in error
    assert "started with: spark.sql.warehouse.dir;" in error, "nothing of executors has an effect in one JVM"


def test_conf_views_and_databases_stay_in_their_session(box: SparkBox) -> None:
    code = """
spark.range({n}).createOrReplaceTempView("t")
spark.range({n}).write.saveAsTable("stored")
emit([spark.catalog.currentDatabase(), spark.conf.get("spark.sql.shuffle.partitions")])
ask()
emit([spark.table("t").count(), spark.table("stored").count()])
"""
    slots = [
        box.slot(
            code.format(n=n),
            slot_index=n - 1,
            job_id=f"{n}" * 32,
            spark_conf={"spark.sql.shuffle.partitions": str(n + 5)},
        )
        for n in (1, 2)
    ]
    for n, slot in zip((1, 2), slots, strict=True):
        assert slot.next() == ["default", str(n + 5)]
    for n, slot in zip((1, 2), slots, strict=True):
        slot.tell()
        assert slot.next() == [n, n]
        box.end(slot)
        box.end_job(f"{n}" * 32)


def test_files_and_archives_lie_in_the_jobs_directory(box: SparkBox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "data.txt").write_text("hello")
    code = f"""
import os, shutil
from pyspark import SparkFiles
shutil.make_archive({str(source / "pack")!r}, "zip", {str(source)!r}, "data.txt")
sc = spark.sparkContext
sc.addFile({str(source / "data.txt")!r})
sc.addArchive({str(source / "pack.zip")!r} + "#box")
read = lambda _: [open(SparkFiles.get("data.txt")).read(), open("box/data.txt").read(), os.getcwd()]
emit([open(SparkFiles.get("data.txt")).read(), sc.parallelize([1], 1).map(read).first()])
"""
    job = tmp_path / "job"
    assert box.evaluate(code, directory=job, job_id="7" * 32) == ["hello", ["hello", "hello", str(job)]]
    box.end_job("7" * 32)


def test_user_code_in_python_workers_and_callbacks(box: SparkBox, tmp_path: Path) -> None:
    code = f"""
import os
import pandas as pd
from pyspark.sql.functions import pandas_udf, udf
doubled = pandas_udf(lambda series: series * 2, "long")
sc = spark.sparkContext
counter = sc.accumulator(0)
sc.parallelize(range(5), 2).foreach(lambda n: counter.add(n))
seen = []
def batch(frame, number):
    seen.append((os.getpid(), frame.count()))
(spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 4).load().writeStream.foreachBatch(batch)
    .option("checkpointLocation", {str(tmp_path / "c")!r}).trigger(availableNow=True).start().awaitTermination())
emit([
    spark.range(4).select(doubled("id")).toPandas().iloc[:, 0].sum().item(),
    spark.createDataFrame(pd.DataFrame({{"a": [1, 2]}})).count(),
    spark.range(4).mapInPandas(lambda frames: frames, "id long").count(),
    counter.value,
    {{pid == os.getpid() for pid, _ in seen}} <= {{True}},
])
"""
    assert box.evaluate(code) == [12, 2, 4, 10, True]


def test_a_soft_cancel_reaches_only_the_named_session(box: SparkBox) -> None:
    first, second = (box.slot(SLEEPING + "ask()", slot_index=index) for index in range(2))
    for slot in (first, second):
        assert slot.next() == "started"
    ids = {first.session.session_id, second.session.session_id}
    wait_until(lambda: ids <= set(box.run(box.environment.progress())))
    box.run(box.environment.cancel_session_jobs(first.session))
    assert first.next(10).startswith("ended")
    assert second.session.session_id in box.run(box.environment.progress())


def test_a_killed_slot_has_no_active_task_when_its_session_is_closed(box: SparkBox) -> None:
    slot = box.slot(SLEEPING + "ask()")
    assert slot.next() == "started"
    wait_until(lambda: slot.session.session_id in box.run(box.environment.progress()))
    started = time.monotonic()
    box.end(slot)
    # Spark looks every 2 s whether a Python worker's task was cancelled.
    assert time.monotonic() - started < 4
    assert slot.session.session_id not in box.run(box.environment.progress())
    code = """
scheduler = spark._jsc.sc().taskScheduler()
emit(str(scheduler.taskIdToTaskSetManager().size()))
"""
    assert box.evaluate(code) == "0"


@pytest.mark.parametrize("call", ["os._exit(4)", "os.kill(os.getpid(), 11)"])
def test_the_death_of_a_slot_disturbs_nobody(box: SparkBox, call: str) -> None:
    slot = box.slot(f"import os; {call}")
    assert slot.finish() != 0
    box.close(slot.session)
    assert box.environment.is_ready
    assert box.evaluate("emit(spark.range(3).count())") == 3


def test_the_interrupt_signal_keeps_its_default_effect(box: SparkBox) -> None:
    assert box.evaluate("import signal; emit(signal.getsignal(signal.SIGINT) == signal.SIG_DFL)") is True
