"""R22: what Spark's JVM and Python workers print and log for a task is in its own output, and in no other's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import JobId
from runtime.gateways.task import TaskExecutionReport
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.spark_box import SparkBox

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def slots(box: SparkBox, tmp_path: Path) -> Iterator[SlotBox]:
    made = SlotBox(box, tmp_path)
    yield made
    made.stop()


def outputs(slots: SlotBox, report: TaskExecutionReport) -> tuple[str, str]:
    assert report.failure is None, report.failure.stack_trace
    return slots.bench.log(report, "stdout"), slots.bench.log(report, "stderr")


def printing(ctx: Any, name: str = "one") -> None:
    import os
    import subprocess
    import sys

    from pyspark.sql.functions import udf

    def told(value: int) -> str:
        print(f"{name} udf prints {value}")
        print(f"{name} udf complains {value}", file=sys.stderr)
        sys.stdout.write(f"{name} without an end {value}, ")
        subprocess.run(["echo", f"{name} child of {os.getpid()} prints"], check=True)
        return str(value)

    spark = ctx.spark
    jvm = spark._jvm
    rows = spark.range(0, 3, 1, 1).select(udf(told)("id")).collect()
    assert len(rows) == 3
    jvm.java.lang.System.out.println(f"{name} Java prints \u00fc")
    jvm.java.lang.System.err.println(f"{name} Java complains")
    jvm.org.apache.logging.log4j.LogManager.getLogger("my.Logger").warn(f"{name} log4j warns")
    jvm.org.apache.logging.log4j.LogManager.getLogger("my.Logger").debug(f"{name} log4j details")
    jvm.scala.Console.println(f"{name} Scala prints")


def test_what_is_printed_for_a_task_is_in_its_output(slots: SlotBox, box: SparkBox) -> None:
    stdout, stderr = outputs(slots, slots.report(printing))

    assert [line for line in stdout.splitlines() if "udf prints" in line] == [
        "one udf prints 0",
        "one without an end 0, one udf prints 1",
        "one without an end 1, one udf prints 2",
    ], stdout
    assert "one without an end 2, " in stdout
    assert stdout.count("child of") == 3
    assert "one Java prints \u00fc\n" in stdout
    assert "one Scala prints\n" in stdout
    assert stderr.count("one udf complains") == 3
    assert "one Java complains\n" in stderr
    assert " WARN Logger: one log4j warns\n" in stderr
    assert "details" not in stderr
    jvm = box.settings.log_file("jvm").read_text()
    assert "one log4j warns" in jvm
    assert "one udf" not in jvm
    assert "one Java" not in jvm


def logging_at(ctx: Any, *levels: str) -> None:
    jvm = ctx.spark._jvm
    java = [jvm.org.apache.logging.log4j.LogManager.getLogger(name) for name in ("mine", "org.apache.spark.Some")]
    for level in ("nothing set", *levels):
        if level in levels:
            ctx.spark.sparkContext.setLogLevel(level)
        for one in java:
            one.info(f"{level}: info")
            one.warn(f"{level}: warn")
            one.error(f"{level}: error")


def lines_of_two(stderr: str) -> list[str]:
    return [line.split(" ", 2)[2] for line in stderr.splitlines() if " mine: " in line or " Some: " in line]


def test_a_job_chooses_the_log_level_of_its_output(slots: SlotBox) -> None:
    _, stderr = outputs(slots, slots.report(lambda ctx: logging_at(ctx, "info", "ERROR", "DEBUG", "OFF")))

    assert lines_of_two(stderr) == [
        "INFO mine: nothing set: info",
        "WARN mine: nothing set: warn",
        "ERROR mine: nothing set: error",
        "WARN Some: nothing set: warn",
        "ERROR Some: nothing set: error",
        *(
            f"{at} {logger}: {level}: {at.lower()}"
            for level, seen in (("info", ("INFO", "WARN", "ERROR")), ("ERROR", ("ERROR",)))
            for logger in ("mine", "Some")
            for at in seen
        ),
        *(f"{at} {logger}: DEBUG: {at.lower()}" for logger in ("mine", "Some") for at in ("INFO", "WARN", "ERROR")),
    ], stderr
    assert "The log level DEBUG shows no more than INFO: this Spark JVM logs that for all jobs.\n" in stderr
    assert "INFO DAGScheduler" not in stderr, "nothing of what Spark does for each job"


def test_what_is_read_back_is_not_said_to_be_ignored(slots: SlotBox, tmp_path: Path) -> None:
    """Spark warns of each hidden directory that is read by its name, as that of an attempt is, and reads it."""

    def write_and_read(ctx: Any, base: str) -> int:
        own, hidden = f"{base}/.attempt-{'a' * 8}", f"{base}/_mine"
        for path in (own, hidden):
            ctx.spark.range(5).write.parquet(path)
        return int(ctx.spark.read.parquet(own).count() + 10 * ctx.spark.read.parquet(hidden).count())

    base = str(tmp_path)
    report = slots.report(lambda ctx: write_and_read(ctx, base))
    _, stderr = outputs(slots, report)
    said = [line for line in stderr.splitlines() if "paths were ignored" in line]
    assert (json.loads(report.value), len(said)) == (55, 1), stderr
    assert f"{base}/.attempt-" not in stderr
    assert f"{base}/_mine" in stderr, "a directory that users call so"


def test_a_log_level_is_that_of_one_attempt(slots: SlotBox) -> None:
    def of(*levels: str) -> Any:
        return slots.work(lambda ctx: logging_at(ctx, *levels), job_id=JobId("b" * 32))

    slots.report(of("OFF"))
    _, stderr = outputs(slots, slots.report(of()))
    assert "WARN mine: nothing set: warn" in stderr


@pytest.mark.parametrize("level", ["ERROR", "info"])
def test_conf_of_the_job_sets_the_log_level(slots: SlotBox, level: str) -> None:
    conf = {"spark.log.level": level}
    _, stderr = outputs(slots, slots.report(slots.work(logging_at, spark_conf=conf)))
    assert lines_of_two(stderr) == [
        f"{at} {logger}: nothing set: {at.lower()}"
        for logger in ("mine", "Some")
        for at in (("ERROR",) if level == "ERROR" else ("INFO", "WARN", "ERROR"))
    ]
    assert ("INFO DAGScheduler" in stderr) == (level == "info")


def test_an_unknown_log_level_is_refused(slots: SlotBox) -> None:
    def wrong(ctx: Any) -> None:
        ctx.spark.sparkContext.setLogLevel("LOUD")

    by_conf = slots.report(slots.work(logging_at, spark_conf={"spark.log.level": "LOUD"}))
    said = "the log level LOUD is none of ALL, TRACE, DEBUG, INFO, WARN, ERROR, FATAL, OFF"
    for report in (slots.report(wrong), by_conf):
        assert report.failure is not None
        assert said in report.failure.stack_trace


def failing(ctx: Any) -> None:
    import sys

    from pyspark.sql.functions import udf

    def told(value: int) -> str:
        sys.stdout.write("the last words")
        raise ValueError(value)

    ctx.spark.range(0, 1, 1, 1).select(udf(told)("id")).collect()


def test_a_function_that_fails_has_told_all_that_it_has_printed(slots: SlotBox) -> None:
    report = slots.report(failing)

    assert report.failure is not None
    assert slots.bench.log(report, "stdout") == "the last words"
    assert "ERROR Executor: Exception in task 0.0 in stage" in slots.bench.log(report, "stderr")


def two_streams(ctx: Any, name: str, rounds: int) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from pyspark.sql.functions import udf

    spark = ctx.spark
    jvm = spark._jvm

    def told(value: int) -> int:
        print(f"{name} udf {value}")
        return value

    def once(number: int) -> None:
        spark.range(0, 4, 1, 2).select(udf(told, "long")("id")).repartition(2).collect()
        jvm.java.lang.System.out.println(f"{name} Java {number}")
        jvm.org.apache.logging.log4j.LogManager.getLogger("x").warn(f"{name} log4j {number}")
        # It prints where it runs: in two of Spark's tasks.
        spark.range(0, 2, 1, 2).selectExpr("java_method('java.lang.Thread', 'dumpStack')").collect()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(once, range(rounds)))


def test_two_tasks_at_once_have_their_own(slots: SlotBox) -> None:
    def of(name: str) -> Any:
        return lambda ctx: two_streams(ctx, name, 6)

    async def both() -> tuple[TaskExecutionReport, TaskExecutionReport]:
        return await asyncio.gather(slots.bench.run(of("first"), slot=0), slots.bench.run(of("second"), slot=1))

    first, second = slots.do(both())
    for report, own, other in ((first, "first", "second"), (second, "second", "first")):
        stdout, stderr = outputs(slots, report)
        assert other not in stdout + stderr
        assert stdout.count(f"{own} udf") == 4 * 6
        assert stdout.count(f"{own} Java") == 6
        assert stderr.count(f"{own} log4j") == 6
        assert stderr.count("java.lang.Exception: Stack trace") == 2 * 6


def test_attempts_of_one_process_have_their_own(slots: SlotBox) -> None:
    """A session goes from attempt to attempt of its job."""

    def of(name: str) -> Any:
        def run(ctx: Any) -> int:
            import os

            two_streams(ctx, name, 1)
            return os.getpid()

        return slots.work(run, job_id=JobId("a" * 32))

    reports = [slots.report(of(name)) for name in ("first", "second")]
    assert len({report.value for report in reports}) == 1, "one process"
    for report, own, other in zip(reports, ("first", "second"), ("second", "first"), strict=True):
        stdout, stderr = outputs(slots, report)
        assert other not in stdout + stderr
        assert stdout.count(f"{own} udf") == 4
        assert f"{own} Java 0" in stdout
        assert f"{own} log4j 0" in stderr


THREADS = """
jvm = spark._jvm
lang = jvm.java.lang
lang.System.out.println("of the connection")
def println(text):
    array = spark.sparkContext._gateway.new_array(lang.Object, 1)
    array[0] = text
    kinds = spark.sparkContext._gateway.new_array(lang.Class, 1)
    kinds[0] = lang.Class.forName("java.lang.String")
    kind = lang.invoke.MethodType.methodType(lang.Void.TYPE, kinds)
    found = lang.invoke.MethodHandles.lookup().findVirtual(lang.Class.forName("java.io.PrintStream"), "println", kind)
    bound = lang.invoke.MethodHandles.insertArguments(found.bindTo(lang.System.out), 0, array)
    return lang.invoke.MethodHandleProxies.asInterfaceInstance(lang.Class.forName("java.lang.Runnable"), bound)
pool = jvm.java.util.concurrent.Executors.newFixedThreadPool(1)
pool.submit(println("of a pool")).get()
pool.shutdown()
emit("done")
ask()
"""


def test_what_no_session_owns_stays_in_the_log_of_the_jvm(box: SparkBox) -> None:
    """A thread that serves all sessions inherits the mark of the one that had it started."""
    slot = box.slot(THREADS)
    assert slot.next() == "done"
    printed = (slot.logs / "stdout").read_text()
    assert printed == "of the connection\n"
    assert "of a pool\n" in box.settings.log_file("jvm").read_text()
    box.end(slot)


@pytest.mark.parametrize("instead", ['os.mkfifo(logs + "/stdout")', 'os.symlink(logs + "/others", logs + "/stdout")'])
def test_a_file_that_cannot_be_written_costs_the_output_only(box: SparkBox, instead: str) -> None:
    code = f"""
import os
logs = attached.binding.log_directory
open(logs + "/others", "w").close()
os.remove(logs + "/stdout")
{instead}
spark = attached.spark
spark._jvm.java.lang.System.out.println("to nobody")
emit(spark.sparkContext.parallelize([0], 1).map(lambda n: print("udf to nobody") or 7).collect())
ask()
"""
    slot = box.slot("#lazy" + code)
    assert slot.next() == [7]
    log = box.settings.log_file("jvm").read_text()
    assert "to nobody\n" in log
    assert "udf to nobody\n" in log
    assert "what Spark prints and logs for a job stays in this log: " in log
    assert "what Python functions print to stdout stays in the log of Spark's JVM: " in log
    assert not (slot.logs / "others").read_text()
    box.end(slot)


def check_all_kinds(slots: SlotBox, work: Any) -> None:
    stdout, stderr = outputs(slots, slots.report(work))
    assert [text for text in ("one udf prints 0\n", "one Java prints", "one Scala prints") if text not in stdout] == []
    assert " WARN Logger: one log4j warns\n" in stderr


def test_an_environment_of_a_job_and_the_next_jvm_do_as_the_first_one(box: SparkBox, tmp_path: Path) -> None:
    slots = SlotBox(box, tmp_path, environment_bytes=2 * (1 << 30) + 512 * (1 << 20))
    try:
        static = {"spark.serializer": "org.apache.spark.serializer.KryoSerializer", "spark.driver.memory": "600m"}
        check_all_kinds(slots, slots.work(printing, spark_conf=static))
        assert len(slots.made) == 1
        box.run(box.environment.restart())
        check_all_kinds(slots, slots.work(printing))
    finally:
        slots.stop()
