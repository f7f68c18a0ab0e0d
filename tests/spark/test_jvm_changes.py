"""R45: what a job has changed for all in the JVM is put back, or the JVM replaced, before another job begins there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.taskexecutor.attempt_logs.log_files import attempt_directory
from runtime.taskexecutor.spark.environment import ChangeOutcome, JvmChange
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.spark_box import SlotProcess, SparkBox, spark_settings, wait_until

pytestmark = pytest.mark.timeout(600)

HANDLES = """
jvm, sc = spark._jvm, spark.sparkContext
lang = jvm.java.lang
def set_default(owner, value):
    # By a method handle: what a gateway refuses by name goes this way, and so does Java code in a job's jars.
    array = sc._gateway.new_array(lang.Object, 1)
    array[0] = value
    cls = lang.Class.forName(owner._fqn)
    kind = lang.invoke.MethodType.methodType(lang.Void.TYPE, cls)
    lang.invoke.MethodHandles.lookup().findStatic(cls, "setDefault", kind).invokeWithArguments(array)
"""

READ = """
found = {
    "zone": spark._jvm.java.util.TimeZone.getDefault().getID(),
    "locale": spark._jvm.java.util.Locale.getDefault().toString(),
    "property": spark._jvm.java.lang.System.getProperty("my.flag"),
    "files": spark._jvm.org.apache.hadoop.conf.Configuration().toString(),
    "hadoop": spark._jvm.org.apache.spark.deploy.SparkHadoopUtil.get().conf().get("fs.my.setting"),
    "spark": spark._jvm.org.apache.spark.SparkContext.getOrCreate().conf().get("spark.my.setting", "none"),
    "log": spark._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString(),
    "java log": str(spark._jvm.java.util.logging.Logger.getLogger("").getLevel()),
    "redirects": spark._jvm.java.net.HttpURLConnection.getFollowRedirects(),
    "ttl": spark._jvm.java.security.Security.getProperty("networkaddress.cache.negative.ttl"),
    "rows": spark.range(10).count(),
}
emit(found)
"""

CHANGES = {
    "a time zone": (
        "zones = jvm.java.util.TimeZone; set_default(zones, zones.getTimeZone('Japan'))",
        "time zone: from '",
        "' to 'Japan'",
    ),
    "a locale": (
        "set_default(jvm.java.util.Locale, jvm.java.util.Locale.JAPAN)",
        "locale: from '",
        "ja_JP",
    ),
    "a property": (
        "lang.System.setProperty('my.flag', '1')",
        "system property my.flag: from none to '1'",
        "",
    ),
    "a default resource of Hadoop": (
        "jvm.org.apache.hadoop.conf.Configuration.addDefaultResource('mine.xml')",
        "Hadoop default resource mine.xml: from none",
        "",
    ),
    "a Hadoop conf": (
        "jvm.org.apache.spark.deploy.SparkHadoopUtil.get().conf().set('fs.my.setting', '1')",
        "Hadoop conf of Spark's own fs.my.setting: from none to '1'",
        "",
    ),
    "the conf of Spark": (
        "jvm.org.apache.spark.SparkContext.getOrCreate().conf().set('spark.my.setting', '1')",
        "Spark conf spark.my.setting: from none to '1'",
        "",
    ),
    "a log level": (
        "jvm.org.apache.logging.log4j.core.config.Configurator.setRootLevel(jvm.org.apache.logging.log4j.Level.OFF)",
        "log level: from '",
        "' to 'OFF'",
    ),
    "a log level of Java": (
        "jvm.java.util.logging.Logger.getLogger('').setLevel(jvm.java.util.logging.Level.SEVERE)",
        "log level of java.util.logging: from '",
        "' to 'SEVERE'",
    ),
    "a default of Java": (
        "jvm.java.net.HttpURLConnection.setFollowRedirects(False)",
        "default of Java followRedirects: from 'true' to 'false'",
        "",
    ),
    "security of Java": (
        "jvm.java.security.Security.setProperty('networkaddress.cache.negative.ttl', '77')",
        "security of Java networkaddress.cache.negative.ttl: from '",
        "' to '77'",
    ),
}


@pytest.fixture(scope="module")
def changing_box(tmp_path_factory: pytest.TempPathFactory, class_archive: Path | None) -> Iterator[SparkBox]:
    directory = tmp_path_factory.mktemp("changes")
    box = SparkBox(spark_settings(directory, archive=class_archive, change_timeout=3600.0), directory)
    box.run(box.environment.start())
    yield box
    box.shut()


@pytest.fixture
def box(changing_box: SparkBox) -> Iterator[SparkBox]:
    if not changing_box.environment.is_ready:
        changing_box.run(changing_box.environment.restart())
    yield changing_box
    changing_box.end_slots()


def ended(box: SparkBox, slot: SlotProcess) -> JvmChange:
    slot.kill()
    change = box.settled(slot.session)
    assert change is not None
    return change


@pytest.mark.parametrize("kind", CHANGES)
def test_a_job_finds_the_jvm_as_the_first_one_did(box: SparkBox, kind: str) -> None:
    code, begin, end = CHANGES[kind]
    before, jvm = box.evaluate(READ), box.environment.process_ids[1]
    slot = box.slot(f"{HANDLES}\n{code}\nemit(attached.rest().value)\n{READ}")
    assert slot.next() == "changed"
    assert slot.next() != before
    change = ended(box, slot)
    assert change.outcome is ChangeOutcome.RESTORED
    (told,) = change.changes
    assert told.startswith(begin)
    assert end in told
    assert box.evaluate(READ) == before
    assert (box.environment.is_ready, box.environment.process_ids[1]) == (True, jvm)


def test_no_value_of_a_secret_is_told(box: SparkBox) -> None:
    change = "spark._jvm.java.lang.System.setProperty('{}', 'hunter2\\x1b[2J')\n"
    names = ("my.password", "my.Secret", "fs.s3a.access.key", "my.token", "my.name")
    slot = box.slot("".join(map(change.format, names)) + "emit(attached.rest().value)")
    assert slot.next() == "changed"
    told = {line.split(":")[0].rpartition(" ")[2]: line for line in ended(box, slot).changes}
    assert [name for name, line in told.items() if "hunter2" in line] == ["my.name"]
    assert told["my.name"].endswith("from none to 'hunter2?[2J'")


def test_what_cannot_be_put_back_costs_the_jvm_and_no_task(box: SparkBox) -> None:
    jvm = box.environment.process_ids[1]
    slot = box.slot("spark._jvm.java.security.Security.removeProvider('SunEC'); emit(attached.rest().value)")
    assert slot.next() == "changed"
    change = ended(box, slot)
    assert change.outcome is ChangeOutcome.SPENT
    loss = box.run(box.environment.wait_lost(), 60)
    assert (loss.is_planned, loss.session_id) == (True, slot.session.session_id)
    box.run(box.environment.restart())
    assert box.environment.process_ids[1] != jvm
    assert box.evaluate("emit(spark._jvm.java.security.Security.getProvider('SunEC') is not None)") is True


BEGUN = "emit('begun'); ask()\nspark._jvm.java.lang.System.setProperty('my.flag', '1'); emit(attached.rest().value)"
ASKED = "emit('begun'); ask()\nemit(attached.rest().value)"


def test_while_others_work_nobody_begins_and_all_who_may_have_done_it_are_named(box: SparkBox) -> None:
    first, second = "a" * 32, "b" * 32
    guilty = box.slot(BEGUN, job_id=first)
    other = box.slot(ASKED, slot_index=1, job_id=second)
    assert (guilty.next(), other.next()) == ("begun", "begun")
    guilty.tell()
    assert guilty.next() == "changed"
    other.tell()
    assert other.next() == "changed"
    change = ended(box, other)
    assert (change.outcome, change.jobs) == (ChangeOutcome.WAITS, (first,))
    assert change.changes == ("system property my.flag: from none to '1'",)
    assert not box.environment.is_ready
    waiting = box.slot(READ, slot_index=1, job_id="c" * 32)
    change = ended(box, guilty)
    assert (change.outcome, change.jobs) == (ChangeOutcome.RESTORED, ())
    assert waiting.next()["property"] is None
    assert box.environment.is_ready


@pytest.fixture
def impatient(tmp_path: Path, class_archive: Path | None) -> Iterator[SparkBox]:
    box = SparkBox(spark_settings(tmp_path, archive=class_archive, change_timeout=0.0), tmp_path)
    box.run(box.environment.start())
    yield box
    box.end_slots()
    box.shut()


def test_who_does_not_end_keeps_nobody_from_beginning_for_ever(impatient: SparkBox) -> None:
    box = impatient
    seen = box.environment.put_back.generation
    guilty = box.slot(BEGUN, job_id="a" * 32)
    other = box.slot(ASKED, slot_index=1, job_id="b" * 32)
    assert (guilty.next(), other.next()) == ("begun", "begun")
    guilty.tell()
    assert guilty.next() == "changed"
    assert ended(box, other).outcome is ChangeOutcome.WAITS
    box.run(box.environment.put_back.wait_changed(seen + 1))
    change = box.environment.put_back.value
    assert change == JvmChange(ChangeOutcome.RESTORED, ("a" * 32,), ("system property my.flag: from none to '1'",))
    assert box.environment.is_ready
    assert box.evaluate(READ)["property"] is None
    box.end(guilty)


def change_and_go_on(ctx: Any, directory: str) -> int:
    import threading
    from pathlib import Path

    ctx.spark._jvm.java.lang.System.setProperty("my.flag", "1")
    Path(directory, "changed").touch()
    while not Path(directory, "end").exists():
        threading.Event().wait(0.01)
    return int(ctx.spark.range(7).count())


def test_both_tasks_that_may_have_done_it_are_told_and_one_goes_on(impatient: SparkBox, tmp_path: Path) -> None:
    slots = SlotBox(impatient, tmp_path / "slots")
    first, second = JobId("a" * 32), JobId("b" * 32)
    try:
        going_on = slots.work(lambda ctx: change_and_go_on(ctx, str(tmp_path)), job_id=first)
        log = attempt_directory(going_on.log_directory, going_on.task.attempt_id) / "stderr"
        _, running = slots.begin(going_on)
        wait_until((tmp_path / "changed").exists)
        other = slots.report(slots.work(lambda ctx: ctx.spark.range(7).count(), job_id=second), slot=1)
        assert other.state is ExecutionState.FINISHED, other.failure
        assert f"this task, or one of job {first}, has changed" in slots.bench.log(other, "stderr")
        wait_until(lambda: "It was put back." in log.read_text())
        slots.do(slots.pool.readiness.wait_until(bool))
        assert slots.value(slots.work(lambda ctx: ctx.spark.range(7).count(), job_id=second), slot=1) == 7
        (tmp_path / "end").touch()
        slots.end(running)
    finally:
        (tmp_path / "end").touch()
        slots.stop()


def test_a_session_that_was_opened_with_the_change_is_not_given_to_a_job(box: SparkBox) -> None:
    """It has copied Spark's conf, and nobody can tell what of it is its own."""
    slot = box.slot(
        "spark._jvm.org.apache.spark.SparkContext.getOrCreate().conf().set('spark.my.setting', '1'); emit(1)"
    )
    assert slot.next() == 1
    box.open(1)
    assert ended(box, slot).outcome is ChangeOutcome.SPENT
    box.run(box.environment.wait_lost(), 60)


ORDINARY = """
import os, threading
import pandas as pd
from pyspark import StorageLevel
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.regression import LinearRegression
from pyspark.sql import functions as F

sc, here = spark.sparkContext, os.getcwd()

def files(kind, **options):
    spark.range(9).selectExpr("id", "cast(id as string) s").write.format(kind).options(**options).save(f"{here}/{kind}")
    spark.read.format(kind).options(**options).load(f"{here}/{kind}").count()

def rdds():
    sc.parallelize([(1, "a")]).saveAsSequenceFile(f"{here}/sequence")
    sc.parallelize([(1, "a")]).saveAsNewAPIHadoopFile(
        f"{here}/new", "org.apache.hadoop.mapreduce.lib.output.SequenceFileOutputFormat")
    sc.parallelize(range(9)).map(str).saveAsTextFile(f"{here}/text")
    sc.wholeTextFiles(f"{here}/text").count()
    sc.setCheckpointDir(f"{here}/checkpoints")
    spark.range(9).checkpoint().count()

def functions():
    spark.range(9).select(F.udf(lambda x: x + 1, "long")("id")).collect()
    spark.range(9).select(F.pandas_udf(lambda x: x + 1, "long")("id")).toPandas()
    spark.createDataFrame(pd.DataFrame({"a": [1]})).mapInPandas(lambda rows: rows, "a long").count()

def caches():
    spark.range(9).cache().count()
    spark.range(9).persist(StorageLevel.DISK_ONLY).join(F.broadcast(spark.range(9)), "id").count()

def tables():
    spark.range(3).write.saveAsTable("kept")
    spark.sql("select transform(id) using 'cat' as (x) from kept").collect()
    spark.sql("cache table kept")
    spark.sql("select format_number(1.5, 2), date_format(now(), 'MMMM'), from_json('{}', 'a int')").collect()
    spark.sql("select sha2('a', 256), aes_encrypt('a', '0000111122223333'), 'a' collate UNICODE_CI = 'A'").collect()

def streams(store):
    state = "org.apache.spark.sql.execution.streaming.state"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", f"{state}.{store}StateStoreProvider")
    rows = spark.readStream.schema("id long, s string").json(f"{here}/json").groupBy("s").count()
    rows.writeStream.outputMode("complete").foreachBatch(lambda batch, number: batch.count()).option(
        "checkpointLocation", f"{here}/{store}").trigger(availableNow=True).start().awaitTermination()

def jdbc():
    access = dict(url=f"jdbc:derby:{here}/db;create=true", driver="org.apache.derby.iapi.jdbc.AutoloadedDriver")
    spark.range(3).write.format("jdbc").options(dbtable="t", **access).save()
    spark.read.format("jdbc").options(dbtable="t", **access).load().count()

def models():
    rows = spark.range(9).selectExpr("id", "id * 2.0 as label")
    rows = VectorAssembler(inputCols=["id"], outputCol="features").transform(rows)
    LinearRegression().fit(rows).write().save(f"{here}/model")

def own_conf():
    sc._jsc.hadoopConfiguration().set("fs.my.setting", "1")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    sc.setLogLevel("ERROR")
    sc.setSystemProperty("spark.my.setting", "1")
    spark.newSession().conf.set("spark.sql.ansi.enabled", "false")

def fails():
    try:
        spark.range(1).select(F.udf(lambda x: 1 / 0)("id")).collect()
    except Exception:
        pass

def hadoop():
    for name in ("hdfs.HdfsConfiguration", "mapred.JobConf", "yarn.conf.YarnConfiguration"):
        made = spark._jvm.java.lang.Class.forName(f"org.apache.hadoop.{name}").getConstructor(None).newInstance(None)

def loggers():
    spark._jvm.org.apache.log4j.LogManager.getLogger("com.acme.one").warn("told")
    spark._jvm.org.slf4j.LoggerFactory.getLogger("com.acme.two").warn("told")
    spark._jvm.java.util.logging.Logger.getLogger("com.acme.three").warning("told")

def rest():
    while (rest := attached.rest().value) == "active":  # Spark tells of a job's end after its result
        pause.wait(0.01)
    return rest

done, pause = {}, threading.Event()
for step in (files, rdds, functions, caches, tables, streams, jdbc, models, own_conf, fails, hadoop, loggers):
    kinds = {"files": ("parquet", "json", "csv", "orc"), "streams": ("HDFSBacked", "RocksDB")}
    for kind in kinds.get(step.__name__, ("",)):
        step(*filter(None, [kind]))
        done[f"{step.__name__} {kind}".strip()] = rest()
emit(done)
"""
"""What Spark, Hadoop and Java set for themselves when they are used for the first time is no change of a job's."""


@pytest.mark.extended
def test_ordinary_jobs_change_nothing(box: SparkBox) -> None:
    box.run(box.environment.restart())  # everything is used for the first time
    done = box.evaluate(ORDINARY)
    assert len(done) == 16
    assert {step: found for step, found in done.items() if found} == {}
