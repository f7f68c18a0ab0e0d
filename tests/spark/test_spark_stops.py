"""R23: nothing that PySpark offers stops the Spark of all; what goes around that is known by name, and told."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.kit.spark.spark_box import SparkBox, spark_settings

COUNTS = "emit(spark.range(7).count() + spark.sparkContext.parallelize(range(3)).count())"

STOPS = {
    "session": "spark.stop()",
    "context": "sc.stop()",
    "java session": "spark._jsparkSession.stop(); spark._jsparkSession.close()",
    "java context": "sc._jsc.stop(); sc._jsc.close(); sc._jsc.sc().stop(); sc._jsc.sc().stopInNewThread()",
    "context of the session": "spark._jsparkSession.sparkContext().stop()",
    "active context": "sc._jvm.org.apache.spark.SparkContext.getOrCreate().stop()",
    "default session": "sc._jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get().stop()",
    "listener bus": "sc._jsc.sc().listenerBus().stop()",
}


def test_nobody_stops_the_context_of_all(box: SparkBox) -> None:
    jvm = box.environment.process_ids[1]
    other = box.slot(f"while ask(): {COUNTS}", slot_index=1)
    slot = box.slot("\n".join(["sc = spark.sparkContext", *(f"{call}; {COUNTS}; ask()" for call in STOPS.values())]))
    for name in STOPS:
        assert slot.next() == 10, name
        other.tell()
        assert other.next() == 10, name
        slot.tell()
    assert box.evaluate(COUNTS) == 10
    assert (box.environment.is_ready, box.environment.process_ids[1]) == (True, jvm)


QUEUE_STREAM = """
import time, warnings
from pyspark.streaming import StreamingContext
ssc = StreamingContext(spark.sparkContext, 1)
seen = []
stream = ssc.queueStream([ssc.sparkContext.parallelize(range(100), 2)])
stream.map(lambda x: (x % 10, 1)).reduceByKey(lambda a, b: a + b).foreachRDD(lambda rdd: seen.extend(rdd.collect()))
ssc.start()
until = time.monotonic() + 60
while not seen and time.monotonic() < until:
    time.sleep(0.05)
{end}
emit(len(seen))
ask()
"""


def test_the_end_of_a_dstream_script_stops_nothing_else(box: SparkBox) -> None:
    jvm = box.environment.process_ids[1]
    other = box.slot(f"ask(); {COUNTS}", slot_index=1)
    end = "ssc.stop(stopSparkContext=True, stopGraceFully=True); spark.range(7).count()"
    assert box.evaluate(QUEUE_STREAM.format(end=end)) == 10
    other.tell()
    assert other.next() == 10
    assert box.environment.process_ids[1] == jvm


def test_a_dstream_script_that_is_killed_leaves_room_for_the_next_one(box: SparkBox) -> None:
    for _ in range(2):
        slot = box.slot(QUEUE_STREAM.format(end=""))
        assert slot.next() == 10
        box.end(slot)


ENDS = {
    "java.lang.System.exit": "jvm.java.lang.System.exit(3)",
    "java.lang.Runtime.exit": "jvm.java.lang.Runtime.getRuntime().exit(3)",
    "java.lang.Runtime.halt": "jvm.java.lang.Runtime.getRuntime().halt(3)",
    "java.lang.System.exit by reflection": """
types = spark.sparkContext._gateway.new_array(jvm.java.lang.Class, 1)
types[0] = jvm.java.lang.Integer.TYPE
values = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 1)
values[0] = 3
jvm.java.lang.Class.forName("java.lang.System").getMethod("exit", types).invoke(None, values)
""",
}


def tried(calls: Iterable[str]) -> str:
    attempts = [
        "\n".join(["try:", *(f"    {line}" for line in call.strip().splitlines()), "except Exception as error:"])
        + "\n    emit(str(error))"
        for call in calls
    ]
    return "\n".join(["jvm = spark._jvm", *attempts, COUNTS])


def test_the_gateway_refuses_to_end_the_jvm(box: SparkBox) -> None:
    slot = box.slot(tried(ENDS.values()))
    for name in ENDS:
        told = slot.next()
        assert f"{name.partition(' by')[0]} is refused: this JVM runs the Spark of other jobs too" in told
        assert "sys.exit()" in told
    assert slot.next() == 10
    assert box.environment.is_ready


CHANGES = {
    "java.util.TimeZone.setDefault": (
        "jvm.java.util.TimeZone.setDefault(jvm.java.util.TimeZone.getTimeZone('Asia/Tokyo'))",
        "set spark.sql.session.timeZone",
    ),
    "org.apache.spark.util.AccumulatorContext.clear": (
        "jvm.org.apache.spark.util.AccumulatorContext.clear()",
        "goes by itself",
    ),
    "org.apache.spark.sql.internal.SQLConf.setSQLConfGetter": (
        "jvm.org.apache.spark.sql.internal.SQLConf.setSQLConfGetter(None)",
        "goes by itself",
    ),
    "org.apache.spark.sql.execution.streaming.state.StateStore.stop": (
        "jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()",
        "goes by itself",
    ),
    "java.util.Locale.setDefault": ("jvm.java.util.Locale.setDefault(jvm.java.util.Locale.JAPAN)", "option `locale`"),
    "org.apache.hadoop.security.UserGroupInformation.setLoginUser": (
        """
users = jvm.org.apache.hadoop.security.UserGroupInformation
users.setLoginUser(users.createRemoteUser("alice"))
""",
        "spark.hadoop.*",
    ),
}


def test_the_gateway_refuses_what_would_change_the_jvm_for_all(box: SparkBox) -> None:
    slot = box.slot(tried(call for call, _ in CHANGES.values()))
    for name, (_, instead) in CHANGES.items():
        told = slot.next()
        assert f"{name} is refused: this JVM runs the Spark of other jobs too" in told
        assert instead in told
    assert slot.next() == 10
    read = "spark.sql(\"select current_timezone() != 'Asia/Tokyo', current_user() != 'alice'\").head()"
    assert box.evaluate(f"emit(list({read}))") == [True, True]


PARTS = {
    "scheduler.LiveListenerBus.stop": "shared.listenerBus().stop()",
    "scheduler.DAGScheduler.stop": "shared.dagScheduler().stop(0)",
    "scheduler.DAGScheduler.cancelAllJobs": "shared.dagScheduler().cancelAllJobs()",
    "scheduler.DAGSchedulerEventProcessLoop.stop": "sc._jsc.sc().dagScheduler().eventProcessLoop().stop()",
    "scheduler.TaskSchedulerImpl.stop": "sc._jsc.sc().taskScheduler().stop(0)",
    "scheduler.local.LocalSchedulerBackend.stop": "sc._jsc.sc().schedulerBackend().stop()",
    "ContextCleaner.stop": "sc._jsc.sc().cleaner().get().stop()",
    "status.AppStatusStore.close": "shared.statusStore().close()",
    "scheduler.DAGScheduler.stop by reflection": """
types = sc._gateway.new_array(jvm.java.lang.Class, 1)
types[0] = jvm.java.lang.Integer.TYPE
values = sc._gateway.new_array(jvm.java.lang.Object, 1)
values[0] = 0
scheduler = shared.dagScheduler()
scheduler.getClass().getMethod("stop", types).invoke(scheduler, values)
""",
}
"""Below org.apache.spark: what Spark has once, and how a script comes to it."""

OWN = """
query = spark.readStream.format("rate").load().writeStream.format("noop").start()
query.stop()
broadcast = sc.broadcast([1])
broadcast.unpersist()
broadcast.destroy()
listening = jvm.org.apache.spark.SparkContext.getOrCreate().dagScheduler().eventProcessLoop().isActive()
sc._jsc.sc().cancelAllJobs()
emit([listening, query.isActive, shared.isStopped()])
"""
"""What a session ends and asks is its own, or harms nobody."""


def test_the_gateway_refuses_to_stop_a_part_of_the_spark_of_all(box: SparkBox) -> None:
    jvm = box.environment.process_ids[1]
    victim = box.slot(f"while ask(): {COUNTS}", slot_index=1)
    find = "sc = spark.sparkContext\nshared = spark._jvm.org.apache.spark.SparkContext.getOrCreate()\n"
    slot = box.slot(find + tried(PARTS.values()) + OWN)
    for name in PARTS:
        told = slot.next()
        assert f"org.apache.spark.{name.partition(' by')[0]} is refused: this JVM runs the Spark of other jobs" in told
        victim.tell()
        assert victim.next() == 10, name
    assert slot.next() == 10
    assert slot.next() == [True, False, False]
    assert (box.environment.is_ready, box.environment.process_ids[1]) == (True, jvm)


REACHES = """
for call in (lambda: spark._jvm.org.apache.spark.SparkEnv.get().stop(),
             lambda: spark.sparkContext._jsc.sc().env().stop(),
             lambda: spark._jvm.org.apache.spark.SparkEnv.get().blockManager().stop()):
    try:
        emit(str(call()))
    except Exception as error:
        emit("refused")
"""


def test_nobody_stops_what_spark_has_once(box: SparkBox) -> None:
    slot = box.slot(REACHES + COUNTS)
    assert [slot.next() for _ in range(4)] == ["refused", "refused", "refused", 10]


PROGRAMS = {
    "java.lang.ProcessBuilder": "jvm.java.lang.ProcessBuilder(['sleep', '1000']).start()",
    "java.lang.ProcessBuilder.startPipeline": "jvm.java.lang.ProcessBuilder.startPipeline(jvm.java.util.ArrayList())",
    "java.lang.Runtime.exec": "jvm.java.lang.Runtime.getRuntime().exec('sleep 1000')",
    "java.lang.Runtime.exec by reflection": """
types = spark.sparkContext._gateway.new_array(jvm.java.lang.Class, 1)
types[0] = jvm.java.lang.Class.forName("java.lang.String")
values = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 1)
values[0] = "sleep 1000"
runtime = jvm.java.lang.Runtime.getRuntime()
jvm.java.lang.Class.forName("java.lang.Runtime").getMethod("exec", types).invoke(runtime, values)
""",
}


def test_the_gateway_starts_no_program(box: SparkBox) -> None:
    """R29: nobody could tell for whom the JVM has started it."""
    slot = box.slot(tried(PROGRAMS.values()))
    for name in PROGRAMS:
        told = slot.next()
        assert f"{name.partition(' by')[0]} is refused: this JVM runs the Spark of other jobs too" in told
        assert "subprocess of Python" in told
    assert slot.next() == 10
    names = [child.name() for child in psutil.Process(box.environment.process_ids[1]).children(recursive=True)]
    assert "sleep" not in names


def test_what_shuts_the_gateway_shuts_the_own_one_only(box: SparkBox) -> None:
    other = box.slot(f"ask(); {COUNTS}", slot_index=1)
    assert box.evaluate("emit(1); spark.sparkContext._gateway.shutdown()") == 1
    other.tell()
    assert other.next() == 10


AROUND = """
handles = spark._jvm.java.lang.invoke
gateway = spark.sparkContext._gateway
type_ = handles.MethodType.methodType(spark._jvm.java.lang.Void.TYPE, spark._jvm.java.lang.Integer.TYPE)
owner = spark._jvm.java.lang.Class.forName({owner!r})
values = spark._jvm.java.util.ArrayList({values})
lookup = handles.MethodHandles.lookup()
handle = lookup.{find}(owner, {name!r}, type_)
emit("ready")
ask()
handle.invokeWithArguments(values)
"""


@pytest.fixture
def own_box(tmp_path: Path, class_archive: Path | None) -> Iterator[SparkBox]:
    box = SparkBox(spark_settings(tmp_path, archive=class_archive), tmp_path)
    box.run(box.environment.start())
    yield box
    box.end_slots()
    box.shut()


def test_an_exit_around_the_guard_names_the_session_that_called_it(own_box: SparkBox) -> None:
    other = own_box.slot("emit('there'); ask()", slot_index=1)
    assert other.next() == "there"
    slot = own_box.slot(AROUND.format(owner="java.lang.System", find="findStatic", name="exit", values="[5]"))
    assert slot.next() == "ready"
    slot.tell()
    loss = own_box.run(own_box.environment.wait_lost(), 60)
    assert (loss.session_id, loss.is_deed) == (slot.session.session_id, True)
    assert loss.reason.startswith(f"a call of session {slot.session.session_id} has ended the JVM")
    own_box.run(own_box.environment.restart())
    assert own_box.evaluate(COUNTS) == 10


def test_a_halt_around_the_guard_leaves_no_name_and_none_is_made_up(own_box: SparkBox) -> None:
    code = AROUND.format(
        owner="java.lang.Runtime",
        find="findVirtual",
        name="halt",
        values="[spark._jvm.java.lang.Runtime.getRuntime(), 6]",
    )
    slot = own_box.slot(code)
    assert slot.next() == "ready"
    slot.tell()
    loss = own_box.run(own_box.environment.wait_lost(), 60)
    assert (loss.session_id, loss.is_deed) == ("", False)
    assert loss.reason.startswith("the JVM ended with code 6 and has left no word, as after Runtime.halt")
