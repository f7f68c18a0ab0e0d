"""What becomes of a session when a step of its opening or its end fails: the other steps are taken, and it is told."""

import psutil
import pytest

from runtime.taskexecutor.spark.environment import SparkLostError
from runtime.taskexecutor.spark_protocol.settings import sessions_directory
from tests.kit.spark.spark_box import SparkBox, wait_until

BREAK = """
frame = spark.range(400000).selectExpr("rand()").cache()
frame.count()
spark.sparkContext.parallelize(range(400000), 2)._to_java_object_rdd().cache().count()
jvm = spark._jvm
owner = jvm.java.lang.Class.forName("org.apache.spark.SlotContext")
jvm.org.apache.spark.Fields.set(owner, spark._jsc.sc(), {field!r}, None)
emit(1)
ask()
"""


def figures(box: SparkBox) -> dict[str, int]:
    return box.run(box.environment.figures())


@pytest.mark.parametrize("field", ["listeners"])
def test_a_step_of_a_release_that_fails_is_told_and_the_others_are_taken(box: SparkBox, field: str) -> None:
    assert box.evaluate("emit(spark.range(1).count())") == 1
    before = figures(box)
    slot = box.slot(BREAK.format(field=field))
    assert slot.next() == 1
    assert figures(box)["storage_bytes"] > before["storage_bytes"] + 300_000
    box.end(slot)
    assert box.environment.is_ready
    wait_until(lambda: figures(box)["storage_bytes"] < before["storage_bytes"] + 100_000)
    assert figures(box)["open_sessions"] == before["open_sessions"]
    log = box.settings.log_file("host").read_text()
    assert f"session {slot.session.session_id} has left something in the JVM: {field}: " in log
    assert box.evaluate("emit(spark.range(1).count())") == 1


def listening(box: SparkBox) -> int:
    jvm = psutil.Process(box.environment.process_ids[1])
    return sum(connection.status == psutil.CONN_LISTEN for connection in jvm.net_connections("tcp"))


OPEN_AGAIN = """
try:
    tag, sessions = attached.session.session_id, spark._jvm.org.apache.spark.SlotSession
    sessions.open(spark._jsc.sc(), spark._jsparkSession, tag, "", {})
except Exception as error:
    emit(str(error.__cause__ or error) + str(getattr(error, "java_exception", "")))
ask()
emit(spark.range(3).count())
"""


def test_a_session_that_fails_to_open_leaves_no_gateway(box: SparkBox) -> None:
    slot = box.slot("emit(1); ask()\n" + OPEN_AGAIN)
    assert slot.next() == 1
    before = listening(box)
    slot.tell()
    assert "opening the session" in slot.next()
    assert listening(box) == before
    slot.tell()
    assert slot.next() == 3, "the one that was open goes on"


def test_a_session_without_room_for_its_files_leaves_nothing_in_the_jvm(box: SparkBox) -> None:
    assert box.environment.is_ready
    before, ports = figures(box), listening(box)
    directory = sessions_directory(box.settings)
    directory.rename(directory.with_name("away"))
    try:
        with pytest.raises(SparkLostError, match="FileNotFoundError"):
            box.open()
    finally:
        directory.with_name("away").rename(directory)
    assert figures(box)["open_sessions"] == before["open_sessions"]
    assert listening(box) == ports
    assert box.evaluate("emit(spark.range(1).count())") == 1


POOL = """
root = spark._jsc.sc().taskScheduler().rootPool()
named = root.getSchedulableByName(spark.sparkContext.getLocalProperty("spark.scheduler.pool"))
emit([named.name(), named.weight(), spark.range(7).count()])
"""


@pytest.mark.parametrize("shares", [1, 3])
def test_a_session_of_several_slots_has_their_weight(
    box: SparkBox, monkeypatch: pytest.MonkeyPatch, shares: int
) -> None:
    monkeypatch.setattr(box, "open", lambda index=0: box.run(box.environment.open_session(index, shares)))
    assert box.evaluate(POOL) == ["slot-0" if shares == 1 else f"slot-0-x{shares}", 4 * shares, 7]
