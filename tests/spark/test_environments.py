"""Spark environments on demand: static conf of jobs, their jars and extensions, and what others see of them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.common.states import ExecutionState
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.slot_work import script
from tests.kit.spark.spark_box import SparkBox, wait_until
from tests.spark.test_jars import MADE

GIB = 1 << 30
KRYO = {"spark.serializer": "org.apache.spark.serializer.KryoSerializer", "spark.driver.memory": "600m"}
EXTENSION = """
package mine;
public class Extension extends scala.runtime.AbstractFunction1 {
  public Object apply(Object extensions) {
    System.setProperty("mine.extension", extensions.getClass().getSimpleName());
    return scala.runtime.BoxedUnit.UNIT;
  }
}
"""


@pytest.fixture
def slots(box: SparkBox, tmp_path: Path) -> Iterator[SlotBox]:
    made = SlotBox(box, tmp_path, environment_bytes=2 * GIB + 512 * (1 << 20))
    yield made
    made.stop()


def look(ctx: Any) -> dict[str, Any]:
    runtime = ctx.spark._jvm.java.lang
    return {
        "jvm": runtime.ProcessHandle.current().pid(),
        "heap": runtime.Runtime.getRuntime().maxMemory() >> 20,
        "serializer": ctx.spark.sparkContext.getConf().get("spark.serializer"),
        "rows": ctx.spark.range(100).count(),
    }


def wait(ctx: Any) -> int:
    import time

    ctx.spark.range(1).count()
    while not ctx.cancelled:
        time.sleep(0.01)
    return 1


def use_extension(ctx: Any) -> str:
    ctx.spark.range(1).count()
    return str(ctx.spark._jvm.java.lang.System.getProperty("mine.extension"))


def plus(ctx: Any) -> int:
    return int(ctx.spark.sql("SELECT reflect('mine.Plus5', 'plus', 2L)").first()[0])


def test_jobs_with_the_same_static_conf_share_a_jvm_that_has_it(slots: SlotBox) -> None:
    first = slots.value(slots.work(look, spark_conf=KRYO, job_id="1" * 32))
    same = {"spark.driver.memory": "614400k", **KRYO, "spark.sql.shuffle.partitions": "3"}
    second = slots.value(slots.work(look, spark_conf=same, job_id="2" * 32), slot=1)
    default = slots.value(slots.work(look, job_id="3" * 32))
    assert (
        first
        == second
        == {"jvm": slots.made[0].process_ids[1], "heap": 600, "serializer": KRYO["spark.serializer"], "rows": 100}
    )
    assert (default["jvm"], default["serializer"]) == (slots.box.environment.process_ids[1], None)


def test_the_end_of_one_jvm_is_the_end_of_its_users_only(slots: SlotBox) -> None:
    others, in_default = slots.begin(slots.work(wait, job_id="1" * 32))
    listener, in_other = slots.begin(slots.work(wait, spark_conf=KRYO, job_id="2" * 32), slot=1)
    wait_until(lambda: all(slot.attempt is not None and slot.attempt.uses_spark for slot in slots.pool._slots))
    os.kill(slots.made[0].process_ids[1], signal.SIGKILL)
    slots.end(in_other)
    assert listener.terminal.state is ExecutionState.FAILED
    assert not in_default.done()
    assert slots.box.environment.is_ready
    slots.do(slots.pool.cancel(0, slots.pool._slots[0].attempt.attempt_id))  # type: ignore[union-attr]
    slots.end(in_default)
    assert others.terminal.state is ExecutionState.CANCELED
    assert slots.value(slots.work(look, spark_conf=KRYO, job_id="3" * 32))["jvm"] == slots.made[1].process_ids[1]


def test_an_unused_one_gives_way_to_another(slots: SlotBox) -> None:
    slots.value(slots.work(look, spark_conf=KRYO, job_id="1" * 32))
    larger = {"spark.driver.memory": "1800m"}
    assert slots.value(slots.work(look, spark_conf=larger, job_id="2" * 32), slot=1)["heap"] == 1800
    assert slots.made[0].process_ids == (0, 0)
    wait_until(lambda: not slots.made[0]._settings.work_directory.exists())


def options(ctx: Any) -> list[Any]:
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = ctx.spark._jvm.java.lang.System.getProperty("a")
    return [found, [str(one.message) for one in caught]]


def variable(ctx: Any) -> list[str]:
    import os

    from pyspark.sql.functions import udf

    read = udf(lambda _: os.environ.get("MINE", ""))
    return [row[0] for row in ctx.spark.range(2).select(read("id")).collect()]


def test_java_options_of_a_job_come_behind_those_of_the_task_manager_and_are_its_own(slots: SlotBox) -> None:
    for job, value in (("1", "B"), ("2", "b")):
        conf = {"spark.driver.extraJavaOptions": f"-Da={value}", "spark.driver.memory": "512m"}
        assert slots.value(slots.work(options, spark_conf=conf, job_id=job * 32)) == [value, []]


def test_variables_of_executors_reach_python_workers_without_an_environment(slots: SlotBox) -> None:
    conf = {"spark.executorEnv.MINE": "x"}
    assert slots.value(slots.work(variable, spark_conf=conf, job_id="1" * 32)) == ["x", "x"]
    assert slots.made == []
    assert slots.value(slots.work(variable, job_id="2" * 32)) == ["", ""]


def test_conf_that_spark_does_not_start_with_fails_the_task_that_asked_for_it(slots: SlotBox) -> None:
    failure = slots.failure(slots.work(look, spark_conf={"spark.serializer": "no.such.Serializer"}, job_id="1" * 32))
    assert "no.such.Serializer" in failure.message
    assert (failure.kind, failure.is_recoverable) == ("USER", False), failure
    failure = slots.failure(slots.work(look, spark_conf={"spark.jars": "local:/no/a.jar"}, job_id="3" * 32))
    assert "spark.jars: local:/no/a.jar is not on this TaskManager's host" in failure.message
    assert (failure.kind, failure.is_recoverable) == ("USER", False), failure
    assert slots.value(slots.work(look, job_id="2" * 32))["rows"] == 100


def test_jars_and_extensions_of_a_job_are_in_its_jvm_only(slots: SlotBox, tmp_path: Path) -> None:
    jar = tmp_path / "mine.jar"
    code = (
        MADE
        + f"""
make_jar({str(jar)!r}, 5)
compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
compiler.cook({EXTENSION!r})
made = compiler.getBytecodes()
with zipfile.ZipFile({str(jar)!r}, "a") as archive:
    for name in list(made):
        archive.writestr(name.replace(".", "/") + ".class", bytes(made[name]))
emit(1)
"""
    )
    assert slots.box.evaluate(code) == 1
    conf = {"spark.jars": str(jar), "spark.sql.extensions": "mine.Extension"}
    assert slots.value(slots.work(use_extension, spark_conf=conf, job_id="1" * 32)) == "SparkSessionExtensions"
    assert slots.value(slots.work(plus, spark_conf=conf, job_id="2" * 32)) == 7
    assert slots.value(slots.work(use_extension, job_id="3" * 32)) == "None"


POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>mine</groupId><artifactId>lib</artifactId><version>1.0</version></project>"""


def test_packages_come_from_a_repository(slots: SlotBox, tmp_path: Path) -> None:
    artifact = tmp_path / "maven" / "mine" / "lib" / "1.0"
    artifact.mkdir(parents=True)
    (artifact / "lib-1.0.pom").write_text(POM)
    assert slots.box.evaluate(MADE + f"make_jar({str(artifact / 'lib-1.0.jar')!r}, 5)\nemit(1)") == 1
    conf = {"spark.jars.packages": "mine:lib:1.0", "spark.jars.repositories": (tmp_path / "maven").as_uri()}
    assert slots.value(slots.work(plus, spark_conf=conf, job_id="1" * 32)) == 7
    missing = {**conf, "spark.jars.packages": "mine:lib:2.0"}
    failure = slots.failure(slots.work(plus, spark_conf=missing, job_id="2" * 32))
    sentence, _, rest = failure.message.partition("; logs in ")
    assert sentence == (
        "Spark does not start with the conf of this job: starting Spark: "
        "unresolved dependency: mine#lib;2.0: not found (java.lang.RuntimeException)"
    )
    assert "\n" not in rest
    assert (failure.kind, failure.is_recoverable) == ("USER", False), failure


def change_jvm(ctx: Any) -> list[str]:
    spark = ctx.spark
    jvm, context = spark._jvm, spark.sparkContext
    jvm.java.util.TimeZone.setDefault(jvm.java.util.TimeZone.getTimeZone("Asia/Tokyo"))
    jvm.java.util.Locale.setDefault(jvm.java.util.Locale.JAPAN)
    jvm.java.lang.System.setProperty("mine.one", "1")
    context.setSystemProperty("mine.two", "2")
    context.setLogLevel("DEBUG")
    jvm.org.apache.hadoop.conf.Configuration.addDefaultResource("mine.xml")
    jvm.org.apache.log4j.LogManager.getLogger("com.acme").debug("a line of mine")
    refused = []
    for end in (jvm.java.lang.System.exit, jvm.java.lang.Runtime.getRuntime().halt):
        try:
            end(0)
        except Exception as error:  # noqa: BLE001 - py4j has several
            refused.append(str(error).partition("UnsupportedOperationException: ")[2].splitlines()[0])
    return refused


def find_changes(ctx: Any) -> list[str]:
    java = ctx.spark._jvm.java
    ctx.spark.range(3).count()
    return [
        java.util.TimeZone.getDefault().getID(),
        java.util.Locale.getDefault().toString(),
        *map(java.lang.System.getProperty, ("mine.one", "mine.two")),
    ]


def test_a_jvm_of_one_job_is_the_jobs_to_change_but_not_to_end(slots: SlotBox) -> None:
    alone, job = {"spark.flinklike.isolation": "jvm"}, "1" * 32
    changed = slots.report(slots.work(change_jvm, spark_conf=alone, job_id=job))
    assert changed.state is ExecutionState.FINISHED, changed.failure
    end = " is refused: this JVM serves all tasks of the job. End a script with sys.exit(), or by reaching its end"
    assert json.loads(changed.value or b"") == [f"java.lang.System.exit{end}", f"java.lang.Runtime.halt{end}"]
    log = slots.bench.log(changed, "stderr")
    assert "DEBUG" in log
    assert "a line of mine" in log
    assert "shares" not in log
    assert "has changed" not in log
    found = slots.value(slots.work(find_changes, spark_conf=alone, job_id=job), slot=1)
    assert found == ["Asia/Tokyo", "ja_JP", "1", "2"], "its next task finds what it has changed"
    assert len(slots.made) == 1
    for conf in ({}, alone):
        assert "Asia/Tokyo" not in slots.value(slots.work(find_changes, spark_conf=conf, job_id="2" * 32)), conf


def use_hive(ctx: Any) -> list[Any]:
    spark = ctx.spark
    spark.sql("CREATE TABLE kept (n INT) STORED AS TEXTFILE")
    spark.sql("INSERT INTO kept VALUES (1), (2)")
    return [
        spark.conf.get("spark.sql.catalogImplementation"),
        spark.table("kept").count(),
        len(spark.catalog.listTables()),
    ]


def test_hive_support_has_a_metastore_of_its_job(slots: SlotBox) -> None:
    hive = {"spark.sql.catalogImplementation": "hive"}
    for job in "12":
        assert slots.value(slots.work(use_hive, spark_conf=hive, job_id=job * 32)) == ["hive", 2, 1]
    assert len(slots.made) == 2


FILES = """
import os, pathlib, shutil, sys
from pyspark import SparkFiles
from pyspark.sql import SparkSession

made = pathlib.Path(sys.argv[1])
(made / "taxes.py").write_text("RATE = 7")
(made / "in.csv").write_text("1,2")
(made / "in").mkdir()
(made / "in" / "lines").write_text("3")
shutil.make_archive(str(made / "packed"), "zip", made / "in")
archive, module = f"{made}/packed.zip#own", made / "taxes.py"
files = {"spark.files": made / "in.csv", "spark.archives": archive, "spark.submit.pyFiles": module}
spark = SparkSession.builder.config(map={key: str(value) for key, value in files.items()}).getOrCreate()
import taxes
print(open(SparkFiles.get("in.csv")).read(), open("own/lines").read(), taxes.RATE, spark.range(3).count())
"""


def test_files_that_a_script_names_by_conf_are_there(slots: SlotBox, tmp_path: Path) -> None:
    report = slots.report(slots.work(script(FILES, str(tmp_path))))
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.message
    assert slots.bench.log(report) == "1,2 3 7 3\n"
    assert "no effect" not in slots.bench.log(report, "stderr")
    assert slots.made == []


MOVES = """
import os, sys
from pyspark.sql import SparkSession

runs = open("runs", "a")
runs.write("x")
runs.close()
spark = SparkSession.builder.config("spark.ser" + "ializer", sys.argv[1]).config("spark.my.key", "7").getOrCreate()
print(len(open("runs").read()), spark.sparkContext.getConf().get("spark.serializer"), spark.range(4).count())
spark = SparkSession.builder.config("spark.driver." + "memory", "700m").getOrCreate()
print(spark.conf.get("spark.my.key"))
"""


@pytest.fixture
def moving(box: SparkBox, tmp_path: Path) -> Iterator[SlotBox]:
    made = SlotBox(box, tmp_path, environment_bytes=2 * GIB + 512 * (1 << 20), moves_scripts=True)
    yield made
    made.stop()


def test_a_script_that_computes_its_static_conf_begins_again_with_it(moving: SlotBox) -> None:
    report = moving.report(moving.work(script(MOVES, "org.apache.spark.serializer.KryoSerializer")))
    assert report.state is ExecutionState.FINISHED, report.failure
    kryo = "org.apache.spark.serializer.KryoSerializer"
    assert moving.bench.log(report).splitlines() == [f"2 {kryo} 4", "7"]
    told = moving.bench.log(report, "stderr")
    assert told.count("the script asks for static Spark conf: spark.serializer: it begins again") == 1
    assert "spark.driver.memory is static and has no effect here" in moving.bench.log(report, "log")
    assert len(moving.made) == 1


def test_static_conf_that_no_job_can_have_moves_no_script(moving: SlotBox) -> None:
    code = MOVES.replace('"spark.ser" + "ializer"', '"spark.local" + ".dir"').replace("spark.serializer", "a.b")
    report = moving.report(moving.work(script(code, "/tmp")))
    assert report.state is ExecutionState.FINISHED, report.failure
    assert moving.bench.log(report).splitlines() == ["1 None 4", "7"]
    assert "spark.local.dir is static and has no effect here" in moving.bench.log(report, "log")
    assert not moving.made


def test_conf_that_does_not_fit_leaves_the_script_where_it_is(moving: SlotBox) -> None:
    code = MOVES.replace('"spark.ser" + "ializer"', '"spark.driver" + ".memory"').replace("runtime", "r")
    report = moving.report(moving.work(script(code, "90g")))
    assert report.state is ExecutionState.FINISHED, report.failure
    assert moving.bench.log(report).splitlines()[0].startswith("2 ")
    assert "spark.driver.memory is static and has no effect here" in moving.bench.log(report, "log")
    assert not moving.made
