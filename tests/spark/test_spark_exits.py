"""R23: who ended the JVM of all is known by the thread that called exit; what cannot be known is said to be unknown."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.taskexecutor.spark.environment import SparkLoss
from tests.kit.spark.spark_box import SparkBox, spark_settings

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def module_box(tmp_path_factory: pytest.TempPathFactory, class_archive: Path | None) -> Iterator[SparkBox]:
    directory = tmp_path_factory.mktemp("exits")
    box = SparkBox(spark_settings(directory, archive=class_archive), directory)
    box.run(box.environment.start())
    yield box
    box.shut()


@pytest.fixture
def box(module_box: SparkBox) -> Iterator[SparkBox]:
    """A Spark that the test may end."""
    if not module_box.environment.is_ready:
        module_box.run(module_box.environment.restart())
    yield module_box
    module_box.end_slots()


STREAM = """
rows = spark.readStream.format("rate").load().selectExpr("reflect('java.lang.System', 'exit', 3)")
rows.writeStream.format("noop").start().awaitTermination()
"""
READY = "spark.range(1).count(); emit('ready'); ask()\n"
EXIT_OF_A_THREAD = """
jvm, lang = spark._jvm, spark._jvm.java.lang
def array(cls, *values):
    made = spark.sparkContext._gateway.new_array(cls, len(values))
    for index, value in enumerate(values):
        made[index] = value
    return made
handles = lang.invoke.MethodHandles
signature = lang.invoke.MethodType.methodType(lang.Void.TYPE, lang.Integer.TYPE)
exit_ = handles.lookup().findStatic(lang.Class.forName("java.lang.System"), "exit", signature)
bound = handles.insertArguments(exit_, 0, array(lang.Object, 3))
runnable = lang.invoke.MethodHandleProxies.asInterfaceInstance(lang.Class.forName("java.lang.Runnable"), bound)
lang.Thread(runnable, "of the user").start()
"""
EXITS = {
    "a task": ("spark.sql(\"select reflect('java.lang.System', 'exit', 3)\").collect()", "task launch worker"),
    "a task of a table": (
        "spark.range(4).selectExpr(\"reflect('java.lang.System', 'exit', 3)\").collect()",
        "task launch worker",
    ),
    "a stream": (STREAM, "task launch worker"),
    "a thread": (EXIT_OF_A_THREAD, "of the user"),
}


EACH_TIME = ("a task", "a thread")
"""The others are further ones of tasks, and each costs a JVM."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in EACH_TIME else pytest.mark.extended) for kind in EXITS]
)
def test_an_exit_is_blamed_on_the_session_for_which_its_thread_works(box: SparkBox, kind: str) -> None:
    code, thread = EXITS[kind]
    other = box.slot(READY, slot_index=1)
    slot = box.slot(READY + code)
    assert (slot.next(), other.next()) == ("ready", "ready")
    slot.tell()
    loss = box.run(box.environment.wait_lost(), 60)
    assert (loss.session_id, loss.is_deed) == (slot.session.session_id, True)
    assert loss.reason.startswith(f"a call of session {slot.session.session_id} has ended the JVM")
    assert thread in loss.reason
    assert "heap" not in loss.reason


def test_a_session_cannot_work_in_the_name_of_another(box: SparkBox) -> None:
    """Local properties are a script's own to set, but not the one that says whose they are."""
    other = box.slot(READY, slot_index=1)
    assert other.next() == "ready"
    name = other.session.session_id
    code = f"""
sc = spark.sparkContext
sc.setLocalProperty("flinklike.session", {name!r})
spark._jsc.sc().setLocalProperty("flinklike.session", {name!r})
"""
    slot = box.slot(READY + code + EXITS["a task"][0])
    assert slot.next() == "ready"
    slot.tell()
    assert box.run(box.environment.wait_lost(), 60).session_id == slot.session.session_id


def lose(box: SparkBox, signal_number: int) -> SparkLoss:
    """End the JVM from outside."""
    os.kill(box.environment.process_ids[1], signal_number)
    return box.run(box.environment.wait_lost(), 60)


def test_a_native_crash_is_said_to_be_one_and_nobody_is_blamed(box: SparkBox) -> None:
    loss = lose(box, signal.SIGSEGV)
    assert (loss.session_id, loss.is_deed) == ("", False)
    assert loss.reason.startswith("the JVM has crashed: SIGSEGV (0xb) at pc=")
    report = box.settings.log_file("jvm-crash")
    assert str(report) in loss.reason
    assert report.is_file()


def test_a_jvm_that_is_killed_or_told_to_end_names_no_session(box: SparkBox) -> None:
    loss = lose(box, signal.SIGKILL)
    assert (loss.session_id, loss.is_deed) == ("", False)
    assert loss.reason.startswith("the JVM was killed by SIGKILL")
    box.run(box.environment.restart())
    loss = lose(box, signal.SIGTERM)
    assert (loss.session_id, loss.is_deed) == ("", False)
    assert loss.reason.startswith("the JVM was told by SIGTERM to end")
