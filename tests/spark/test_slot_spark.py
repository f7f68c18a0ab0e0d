"""Spark in slot processes: attached while idle, untouched by tasks that do not want it, ended with its attempt."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.gateways.task import Fault
from runtime.taskexecutor.slots.slot_handle import Attachment
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.slot_work import operator, script
from tests.kit.spark.spark_box import SparkBox, wait_until


@pytest.fixture(scope="module")
def slots(shared_box: SparkBox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlotBox]:
    if not shared_box.environment.is_ready:
        shared_box.run(shared_box.environment.restart())
    box = SlotBox(shared_box, tmp_path_factory.mktemp("slots"))
    yield box
    box.stop()


pytestmark = pytest.mark.timeout(600)  # one JVM per module, and it may have to wait for its turn

_jobs = iter(range(1, 10_000))


def new_job() -> JobId:
    return JobId(f"{next(_jobs):032x}")


def fresh_processes(slots: SlotBox) -> list[Any]:
    return [slot.fresh for slot in slots.pool._slots if slot.fresh is not None]


def wait_attached(slots: SlotBox) -> None:
    wait_until(
        lambda: (
            len(fresh_processes(slots)) == 2
            and all(process.attachment.value is Attachment.ATTACHED for process in fresh_processes(slots))
        )
    )


def count(ctx: Any) -> Any:
    return ctx.spark.range(1000).count()


def pid_after_spark(ctx: Any) -> int:
    import os

    ctx.spark.range(10).count()
    return os.getpid()


NAMES = """
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

def names():
    sc = spark.sparkContext
    return [sc.appName, spark.conf.get("spark.app.name"), sc.getConf().get("spark.app.name"), sc._jsc.sc().appName(),
            spark.newSession().conf.get("spark.app.name")]

spark = SparkSession.builder.getOrCreate()
print(set(names()))
SparkSession.builder.appName("own").getOrCreate()
print(set(names()))
SparkContext(conf=SparkConf().setAppName("by conf"))
print(set(names()))
SparkContext(appName="by context")
print(set(names()))
"""


def test_the_name_of_the_application_is_the_jobs_until_it_names_itself(slots: SlotBox) -> None:
    for _ in range(2):
        report = slots.report(slots.work(script(NAMES)))
        assert report.state is ExecutionState.FINISHED, report.failure and report.failure.message
        told = slots.bench.log(report).splitlines()
        assert told == ["{'test job'}", "{'own'}", "{'by conf'}", "{'by context'}"]


def test_who_touches_spark_before_its_slot_is_attached_is_told_of_no_threads(
    shared_box: SparkBox, tmp_path: Path
) -> None:
    """Attaching makes some, also in the middle of a task. They cost no process."""
    slots = SlotBox(shared_box, tmp_path, slots=1, attach_idle_delay=3600.0)
    try:
        assert slots.report(lambda ctx: 1 / 0).failure, "the next task gets a process that nobody attaches while idle"
        job = new_job()
        reports = [slots.report(slots.work(pid_after_spark, job_id=job)) for _ in range(2)]
        logs = [slots.bench.log(report, "stderr") for report in reports]
        assert [log for log in logs if "left when the task had returned" in log] == []
        assert len({report.value for report in reports}) == 1, "one process"
    finally:
        slots.stop()


def stream_into_python(ctx: Any, leave: str = "") -> int:
    import os
    import threading
    from pathlib import Path

    if leave == "thread":
        held = threading.Lock()
        held.acquire()
        threading.Thread(target=held.acquire, name="mine", daemon=True).start()
    Path("in").mkdir()
    Path("in/rows").write_text("a\nb\n")
    arrived = threading.Event()

    def batch(rows: Any, number: int) -> None:
        arrived.set()
        if leave == "batch":
            threading.Event().wait()

    query = ctx.spark.readStream.text("in").writeStream.foreachBatch(batch).option("checkpointLocation", "state")
    started = query.trigger(availableNow=True).start()
    if leave == "batch":
        assert arrived.wait(60)
    else:
        started.awaitTermination()
    return os.getpid()


@pytest.mark.parametrize(
    ("leave", "told"), [("", r"$"), ("thread", r"thread mine$"), ("batch", r"thread Thread-\d+ \(run\)$")]
)
def test_threads_by_which_the_jvm_calls_python_are_not_the_users(slots: SlotBox, leave: str, told: str) -> None:
    """Unless they are in user code. The process, which the JVM can call, is not used again in any case."""
    job = new_job()
    first = slots.report(slots.work(lambda ctx: stream_into_python(ctx, leave), job_id=job, reuse_key="k"))
    assert first.state is ExecutionState.FINISHED, first.failure
    begin = "left when the task had returned, and ended with its process: " if leave else ""
    left = [line for line in slots.bench.log(first, "stderr").splitlines() if line.startswith("left when")]
    assert re.match(begin + told, (left or [""])[0])
    after = slots.value(slots.work(lambda ctx: __import__("os").getpid(), job_id=job, reuse_key="k"))
    assert first.value
    assert after != json.loads(first.value)


def test_an_idle_slot_is_attached_and_a_task_takes_it_at_once(slots: SlotBox) -> None:
    wait_attached(slots)
    process = slots.pool._slots[0].fresh
    assert process is not None
    assert slots.value(slots.work(count, job_id=new_job())) == 1000
    assert slots.pool._slots[0].current is process
    assert process.has_used_session


def test_a_task_that_does_not_want_spark_leaves_it_alone(slots: SlotBox) -> None:
    """Its process, and its session, serve the next job with the same key."""
    first = slots.value(slots.work(lambda ctx: __import__("os").getpid(), job_id=new_job(), reuse_key="k"))
    process = slots.pool._slots[0].current
    assert process is not None
    has_used = [process.has_used_session]
    assert slots.value(slots.work(lambda ctx: __import__("os").getpid(), job_id=new_job(), reuse_key="k")) == first
    assert slots.value(slots.work(count, job_id=new_job(), reuse_key="k")) == 1000
    assert [*has_used, process.has_used_session] == [False, True]
    assert slots.value(slots.work(lambda ctx: __import__("os").getpid(), job_id=new_job(), reuse_key="k")) != first


def test_a_process_that_was_taken_before_it_was_attached_asks_for_its_session(slots: SlotBox) -> None:
    for _ in range(3):  # each one is too early for the idle delay of the process it gets
        assert slots.value(slots.work(count, job_id=new_job())) == 1000


def test_threads_may_be_the_first_to_touch_spark(slots: SlotBox) -> None:
    """Before the process is attached, and all at once."""

    def touches(ctx: Any) -> Any:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(4) as pool:
            counts = pool.map(lambda size: ctx.spark.range(size).count(), [10, 20, 30, 40])
            return [*counts, ctx.spark.catalog.currentDatabase(), ctx.spark.conf.get("spark.sql.warehouse.dir")]

    for _ in range(2):  # the second one is too early for the idle delay of the process it gets
        work = slots.work(touches, job_id=new_job())
        assert slots.value(work) == [10, 20, 30, 40, "default", f"file:{work.job_directory}/spark-warehouse"]


@pytest.mark.parametrize(
    "get",
    [
        "SparkSession.builder.appName('x').master('local[8]').getOrCreate()",
        "SparkSession(SparkContext.getOrCreate())",
        "SparkSession(SparkContext(conf=SparkConf().setAppName('x').setMaster('local[1]')))",
        "SparkSession.builder.config(conf=SparkConf().set('spark.sql.shuffle.partitions', '3')).getOrCreate()",
    ],
)
@pytest.mark.parametrize("is_attached", [True, pytest.param(False, marks=pytest.mark.extended)])
def test_scripts_find_the_warm_session(slots: SlotBox, get: str, is_attached: bool, tmp_path: Path) -> None:
    text = f"""
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
spark = {get}
assert spark.sparkContext.parallelize([1, 2, 3]).map(lambda x: x * 2).sum() == 12
open({str(tmp_path / "n")!r}, "w").write(str(spark.range(7).count()))
spark.stop()
"""
    if is_attached:
        wait_attached(slots)
    report = slots.report(slots.work(script(text), job_id=new_job()))
    assert report.state is ExecutionState.FINISHED, report.failure
    assert (tmp_path / "n").read_text() == "7"
    assert slots.value(slots.work(count, job_id=new_job())) == 1000


def test_functions_of_the_script_run_in_workers(slots: SlotBox, tmp_path: Path) -> None:
    text = f"""
import json, pandas as pd
from pyspark.sql import SparkSession, functions as F
class Scale:
    def __init__(self, by): self.by = by
    def __call__(self, x): return x * self.by
scale = Scale(10)
@F.udf("long")
def scaled(x): return scale(x)
@F.pandas_udf("double")
def half(s: pd.Series) -> pd.Series: return s / 2
spark = SparkSession.builder.getOrCreate()
rows = spark.range(3).select(scaled("id").alias("a"), half("id").alias("b")).collect()
doubled = spark.range(3).mapInPandas(lambda frames: (f * 2 for f in frames), "id long")
json.dump([[list(r) for r in rows], [r.id for r in doubled.collect()]], open({str(tmp_path / "out")!r}, "w"))
"""
    report = slots.report(slots.work(script(text), job_id=new_job()))
    assert report.state is ExecutionState.FINISHED, report.failure
    assert (tmp_path / "out").read_text() == "[[[0, 0.0], [10, 0.5], [20, 1.0]], [0, 2, 4]]"


def test_a_script_has_its_files_beside_it_and_in_its_workers(slots: SlotBox, tmp_path: Path) -> None:
    text = f"""
import sys, json, pathlib
from pyspark import SparkFiles
from pyspark.sql import SparkSession
import brought
spark = SparkSession.builder.getOrCreate()
def look(_): import brought; return [brought.VALUE, open("data.txt").read(), open("model/weights.txt").read()]
found = spark.sparkContext.parallelize([0], 1).map(look).collect()
open({str(tmp_path / "out")!r}, "w").write(json.dumps([found, open("data.txt").read(), sys.argv[1:]]))
assert pathlib.Path(SparkFiles.get("data.txt")).read_text() == "rows"
"""
    from dataclasses import replace

    python = tmp_path / "python"
    python.mkdir()
    (python / "brought.py").write_text("VALUE = 5\n")
    work = slots.work(script(text, "--day", "1"), job_id=new_job(), python_path=(python,))
    (work.job_directory / "data.txt").write_text("rows")
    (work.job_directory / "model").mkdir()
    (work.job_directory / "model" / "weights.txt").write_text("w")
    from runtime.gateways.task import BlobReference

    work = replace(work, job=replace(work.job, files=(BlobReference("k", "s", 1, "data.txt"),)))
    report = slots.report(work)
    assert report.state is ExecutionState.FINISHED, report.failure
    assert (tmp_path / "out").read_text() == '[[[5, "rows", "w"]], "rows", ["--day", "1"]]'


def test_pandas_on_spark_runs_in_a_script(slots: SlotBox) -> None:
    """Spark 4.0 refuses it in ANSI mode, which is on by default."""
    text = """
import pyspark.pandas as ps
from pyspark.sql import SparkSession
SparkSession.builder.getOrCreate().conf.set("spark.sql.ansi.enabled", "false")
frame = ps.DataFrame({"a": [1, 2, 3]})
assert frame.a.sum() == 6
"""
    report = slots.report(slots.work(script(text), job_id=new_job(), environment={"PYARROW_IGNORE_TIMEZONE": "1"}))
    assert report.state is ExecutionState.FINISHED, report.failure


def test_machine_learning_runs_in_a_script(slots: SlotBox) -> None:
    text = """
from pyspark.ml import Pipeline
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.regression import LinearRegression
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
points = spark.createDataFrame([(float(n), 2.0 * n + 1) for n in range(20)], "x double, label double")
pipeline = Pipeline(stages=[VectorAssembler(inputCols=["x"], outputCol="features"), LinearRegression()])
line = pipeline.fit(points).stages[-1]
print(round(line.coefficients[0], 3), round(line.intercept, 3))
"""
    report = slots.report(slots.work(script(text), job_id=new_job()))
    assert report.state is ExecutionState.FINISHED, report.failure
    assert slots.bench.log(report) == "2.0 1.0\n"


def test_static_conf_of_a_script_warns(slots: SlotBox) -> None:
    text = "from pyspark.sql import SparkSession as S\nS.builder.config('spark.executor.memory', '9g').getOrCreate()\n"
    report = slots.report(slots.work(script(text), job_id=new_job()))
    assert report.state is ExecutionState.FINISHED, report.failure
    assert "spark.executor.memory" in slots.bench.log(report, "log")


def test_conf_of_the_job_reaches_its_session_only(slots: SlotBox) -> None:
    def partitions(ctx: Any) -> Any:
        return ctx.spark.conf.get("spark.sql.shuffle.partitions")

    work = slots.work(partitions, job_id=new_job(), spark_conf={"spark.sql.shuffle.partitions": "13"})
    assert slots.value(work) == "13"
    assert slots.value(slots.work(partitions, job_id=new_job())) != "13"


def test_columns_and_functions_may_come_before_the_session(slots: SlotBox) -> None:
    """With or without an attached process: what works must not depend on how busy the slot was."""

    def early(ctx: Any) -> Any:
        from pyspark.sql import functions as F  # noqa: N812 - as everybody does

        halved = F.udf(lambda value: value / 2, "double")
        wanted = F.col("id") > 1
        return [row.h for row in ctx.spark.range(3).where(wanted).select(halved("id").alias("h")).collect()]

    for _ in range(2):
        assert slots.value(slots.work(early, job_id=new_job())) == [1.0]


def test_spark_errors_keep_their_class(slots: SlotBox) -> None:
    failure = slots.failure(slots.work(lambda ctx: ctx.spark.sql("select no_such_column"), job_id=new_job()))
    assert failure.class_name.endswith("AnalysisException")
    assert "no_such_column" in failure.message


def slow_query(ctx: Any) -> Any:
    import pathlib
    import time

    def sleep(rows: Any) -> Any:
        time.sleep(60)
        return rows

    context = ctx.spark.sparkContext
    pathlib.Path(ctx.params["begun"]).write_text("x")
    return context.parallelize([1, 2], 2).mapPartitions(sleep).count()


@pytest.mark.parametrize("is_stubborn", [False, True])
def test_a_spark_task_is_canceled_soon(slots: SlotBox, is_stubborn: bool, tmp_path: Path) -> None:
    """R15: when the report is there, Spark runs nothing for the attempt any more."""

    def stubborn(ctx: Any) -> None:
        while True:
            try:
                slow_query(ctx)
            except Exception:  # noqa: BLE001 - the point of this task
                continue

    stubborn_or_not = stubborn if is_stubborn else slow_query
    begun = tmp_path / "begun"
    work = slots.work(operator(stubborn_or_not), job_id=new_job(), params={"begun": str(begun)})
    listener, running = slots.begin(work)
    wait_until(begun.exists)
    attempt = slots.pool._slots[0].attempt
    assert attempt is not None
    assert attempt.process is not None
    session = attempt.process.session
    assert session is not None
    wait_until(lambda: session.session_id in slots.do(slots.box.environment.progress()))
    start = time.monotonic()
    slots.do(slots.pool.cancel(0, work.task.attempt_id))
    slots.end(running)
    assert listener.terminal.state is ExecutionState.CANCELED
    # 0.5 s and 1.6 s on an idle machine; the bounds leave room for a busy one.
    assert time.monotonic() - start < (4 if is_stubborn else 3)
    assert session.session_id not in slots.do(slots.box.environment.progress())


def test_pitfall_12_a_failed_query_writes_to_its_own_attempt(slots: SlotBox, capfd: pytest.CaptureFixture[str]) -> None:
    def fails(ctx: Any) -> Any:
        from pyspark.errors import AnalysisException

        try:
            ctx.spark.sql("select no_such_column_of_mine").collect()
        except AnalysisException as error:
            return error.getCondition()

    report = slots.report(slots.work(fails, job_id=new_job()))
    assert report.value.startswith(b'"UNRESOLVED_COLUMN')
    assert "no_such_column_of_mine" in slots.bench.log(report, "stderr")
    for log in slots.box.settings.log_directory.iterdir():
        assert "no_such_column_of_mine" not in log.read_text(), log
    assert "no_such_column_of_mine" not in "".join(capfd.readouterr())


def test_progress_of_spark_is_told(slots: SlotBox, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    work = slots.work(slow_query, job_id=new_job(), params={"begun": str(begun)})
    listener, running = slots.begin(work)

    async def told() -> None:
        async with asyncio.timeout(100):
            await listener.progresses.wait_until(lambda all_: any(p.spark_tasks_total == 2 for p in all_))

    slots.do(told())
    slots.do(slots.pool.cancel(0, work.task.attempt_id))
    slots.end(running)


def exits_around_the_guard(ctx: Any) -> Any:
    jvm, handles = ctx.spark._jvm, ctx.spark._jvm.java.lang.invoke
    signature = handles.MethodType.methodType(jvm.java.lang.Void.TYPE, jvm.java.lang.Integer.TYPE)
    exit_ = handles.MethodHandles.lookup().findStatic(
        jvm.java.lang.Class.forName("java.lang.System"), "exit", signature
    )
    exit_.invokeWithArguments(jvm.java.util.ArrayList([5]))


def exits_in_a_task(ctx: Any) -> Any:
    return ctx.spark.sql("select reflect('java.lang.System', 'exit', 3)").collect()


@pytest.mark.parametrize("exits", [exits_around_the_guard, pytest.param(exits_in_a_task, marks=pytest.mark.extended)])
def test_who_ends_the_spark_of_all_is_told_and_others_are_not_charged(slots: SlotBox, exits: Any) -> None:
    def uses(ctx: Any) -> Any:
        import time

        ctx.spark.range(1).count()
        ctx.report_progress(0.5, "waiting")
        time.sleep(60)

    victim, victim_running = slots.begin(slots.work(uses, job_id=new_job()), slot=1)

    async def waiting() -> None:
        async with asyncio.timeout(60):
            await victim.progresses.wait_until(bool)

    slots.do(waiting())
    told = slots.failure(slots.work(exits, job_id=new_job()))
    slots.end(victim_running)
    assert (told.class_name, told.at_fault, told.is_recoverable) == ("SparkEndedError", Fault.USER, False)
    assert "this task has ended the Spark of its TaskManager, which other jobs use too" in told.message
    other = victim.terminal.failure
    assert other is not None
    assert (other.class_name, other.at_fault, other.is_recoverable) == ("SparkLostError", Fault.NOBODY, True)
    assert "another task was the cause" in other.message
    slots.do(slots.box.environment.restart())


def test_the_loss_of_spark_fails_only_what_used_it(slots: SlotBox) -> None:
    def waits(ctx: Any) -> Any:
        import time

        if ctx.params["uses"]:
            ctx.spark.range(1).count()
        ctx.report_progress(0.5, "waiting")
        time.sleep(ctx.params["for"])
        return "fine"

    wait_attached(slots)
    environment = slots.box.environment
    uses = slots.work(waits, job_id=new_job(), params={"uses": True, "for": 60})
    ignores = slots.work(waits, job_id=new_job(), params={"uses": False, "for": 3})
    user, user_running = slots.begin(uses, slot=0)
    ignorer, ignorer_running = slots.begin(ignores, slot=1)

    async def waiting() -> None:
        async with asyncio.timeout(100):
            for listener in (user, ignorer):
                await listener.progresses.wait_until(bool)

    slots.do(waiting())
    slots.do(environment.restart())
    slots.end(user_running)
    slots.end(ignorer_running)
    assert user.terminal.failure is not None
    assert "Spark of this TaskManager was lost" in user.terminal.failure.message
    assert (user.terminal.failure.kind, user.terminal.failure.is_recoverable) == ("SYSTEM", True)
    assert (ignorer.terminal.state, ignorer.terminal.value) == (ExecutionState.FINISHED, b'"fine"')
    # Its process had a session of the lost JVM: what comes next in the job gets another one.
    after = ignores.job.job_id
    assert slots.value(slots.work(count, job_id=after), slot=1) == 1000
    assert slots.value(slots.work(count, job_id=new_job())) == 1000


def test_a_session_that_goes_while_it_is_cancelled_ends_with_its_task_only(slots: SlotBox, tmp_path: Path) -> None:
    """As when a frozen TaskManager wakes: it stops what its guard has killed, and finds the JVM gone (R14)."""
    box = SlotBox(slots.box, tmp_path / "slots", slots=1, cancellation_timeout=60.0)
    try:
        begun = tmp_path / "begun"
        work = box.work(operator(slow_query), job_id=new_job(), params={"begun": str(begun)})
        listener, running = box.begin(work)
        wait_until(begun.exists)
        attempt = box.pool._slots[0].attempt
        assert attempt is not None
        process = attempt.process
        assert process is not None
        wait_until(lambda: process.uses_spark)
        host = slots.box.environment.process_ids[0]
        os.kill(host, signal.SIGSTOP)

        async def begin_cancel() -> asyncio.Task[None]:
            cancel = asyncio.create_task(box.pool.cancel(0, work.task.attempt_id))
            await asyncio.sleep(0)
            return cancel

        cancelling = box.do(begin_cancel())
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: process.session is None)
        assert not cancelling.done(), "it waits for Spark, which is frozen"
        os.kill(host, signal.SIGKILL)
        box.end(cancelling)
        box.end(running)
        assert listener.terminal.state.is_terminal
        assert box.value(box.work(lambda _: "fine", job_id=new_job())) == "fine", "others go on"
    finally:
        box.stop()
        slots.do(slots.box.environment.restart())


def change_the_jvm(ctx: Any, how: str) -> int:
    ctx.spark._jvm.java.lang.System.setProperty("my.flag", "1")
    if how == "fails":
        raise ValueError(how)
    if how == "exits":
        import os

        os._exit(3)
    return int(ctx.spark.range(7).count())


def flag(ctx: Any) -> Any:
    return ctx.spark._jvm.java.lang.System.getProperty("my.flag")


@pytest.mark.parametrize("how", ["finishes", "fails", "exits"])
def test_a_task_that_has_changed_the_jvm_of_all_is_told_so_in_its_log(
    slots: SlotBox, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = new_job()
    report = slots.report(slots.work(lambda ctx: change_the_jvm(ctx, how), job_id=job))
    assert (report.state is ExecutionState.FINISHED) == (how == "finishes"), report.failure
    told = [line for line in slots.bench.log(report, "stderr").splitlines() if "my.flag" in line]
    assert len(told) == 1
    what = (
        "what all jobs share in the JVM of its TaskManager: system property my.flag: from none to '1'. It was put back."
    )
    assert told[0].startswith(f"this task has changed {what}")
    assert f"job {job} has changed the JVM of all jobs: system property my.flag" in caplog.text
    assert slots.value(slots.work(flag, job_id=new_job())) is None


def test_a_task_whose_jvm_has_to_be_replaced_has_finished_all_the_same(slots: SlotBox) -> None:
    def remove(ctx: Any) -> int:
        ctx.spark._jvm.java.security.Security.removeProvider("SunEC")
        return int(ctx.spark.range(7).count())

    report = slots.report(slots.work(remove, job_id=new_job()))
    assert (report.state, report.value) == (ExecutionState.FINISHED, b"7"), report.failure
    assert "so the JVM is replaced" in slots.bench.log(report, "stderr")
    assert not slots.pool.readiness.value
    slots.box.run(slots.box.environment.restart())
    slots.do(slots.pool.readiness.wait_until(bool))
    assert slots.value(slots.work(count, job_id=new_job())) == 1000
