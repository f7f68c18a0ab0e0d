"""R44: who dials the Spark of a TaskManager, from this host only, has to know its secret, which nobody is shown."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.kit.spark.spark_box import SlotProcess, SparkBox, spark_settings
from tests.kit.strangers.foreign_jvm import ForeignJvm

DOORS = """
sc, jvm = spark.sparkContext, spark.sparkContext._jvm
spark.sparkContext.parallelize(range(4), 2).map(str).collect()
shown = [sc.getConf().getAll(), list(spark.conf.getAll.items()), [list(row) for row in spark.sql("SET -v").collect()]]
hadoop = jvm.org.apache.hadoop
credentials = hadoop.security.UserGroupInformation.getCurrentUser().getCredentials()
secret = credentials.getSecretKey(hadoop.io.Text("sparkCookie"))
emit([int(sc.getConf().get("spark.driver.port")), bytes(secret or b"").decode(), str(shown)])
ask()
"""


@pytest.fixture(scope="module")
def open_box(tmp_path_factory: pytest.TempPathFactory, class_archive: Path | None) -> Iterator[SparkBox]:
    """Told to listen everywhere, as a TaskManager of several hosts is, and to write down what it does."""
    directory = tmp_path_factory.mktemp("doors")
    (directory / "events").mkdir()
    events = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": (directory / "events").as_uri()}
    settings = spark_settings(directory, archive=class_archive, bind_address="0.0.0.0", spark_conf=events)
    box = SparkBox(settings, directory)
    try:
        box.run(box.environment.start())
        yield box
    finally:
        box.shut()


@pytest.fixture(scope="module")
def doors(open_box: SparkBox) -> Iterator[tuple[SlotProcess, int, str, str]]:
    """A slot that uses Spark, the port of its driver, the driver's secret, and all that Spark shows of its conf."""
    slot = open_box.slot(DOORS)
    port, secret, shown = slot.next()
    yield slot, port, secret, shown
    open_box.end(slot)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignJvm]:
    jvm = ForeignJvm(tmp_path_factory.mktemp("foreign") / "jvm")
    yield jvm
    jvm.end()


def test_a_foreign_jvm_is_refused(doors: tuple[SlotProcess, int, str, str], foreign: ForeignJvm) -> None:
    _, port, secret, _ = doors
    assert foreign.refusal(port, {})
    guess = {"spark.authenticate": "true", "spark.authenticate.secret": secret[::-1]}
    assert foreign.refusal(port, guess)
    assert foreign.refusal(port, guess | {"spark.network.crypto.enabled": "true"})


def test_who_has_the_secret_is_answered(doors: tuple[SlotProcess, int, str, str], foreign: ForeignJvm) -> None:
    _, port, secret, _ = doors
    conf = {"spark.authenticate": "true", "spark.authenticate.secret": secret}
    assert "BlockManagerId(driver, 127.0.0.1" in foreign.dial(port, conf)


def test_nobody_is_shown_the_secret(open_box: SparkBox, doors: tuple[SlotProcess, int, str, str]) -> None:
    slot, _, secret, shown = doors
    assert len(secret) >= 64
    assert "spark.driver.port" in shown
    assert secret not in shown
    host, jvm = open_box.environment.process_ids
    processes = [psutil.Process(pid) for pid in (host, jvm, slot.pid)]
    workers = processes[1].children(recursive=True)
    assert workers
    for process in (*processes, *workers):
        assert secret not in " ".join(process.cmdline())
        assert secret not in str(process.environ())
    files = [path for path in open_box.directory.rglob("*") if path.is_file()]
    assert any("events" in path.parts for path in files)
    assert [path for path in files if secret.encode() in path.read_bytes()] == []


def test_nothing_below_the_jvm_gains_rights_by_a_program(
    open_box: SparkBox, doors: tuple[SlotProcess, int, str, str]
) -> None:
    host, jvm = open_box.environment.process_ids
    workers = [child.pid for child in psutil.Process(jvm).children(recursive=True)]
    assert workers
    for pid in (host, jvm, *workers):
        assert "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text()


def test_with_local_executors_nothing_listens_beyond_loopback(
    open_box: SparkBox, doors: tuple[SlotProcess, int, str, str]
) -> None:
    slot, port, _, _ = doors
    host, jvm = open_box.environment.process_ids
    processes = [psutil.Process(pid) for pid in (host, jvm, slot.pid)]
    listening = [
        one.laddr
        for process in (*processes, *processes[1].children(recursive=True))
        for one in process.net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    ]
    assert port in {address.port for address in listening}
    assert {address.ip.removeprefix("::ffff:") for address in listening} <= {"127.0.0.1", "::1"}


CALLBACK = """
seen = []
def note(frame, number):
    seen.append(frame.count())
query = spark.readStream.format("rate").option("rowsPerSecond", 20).load().writeStream.foreachBatch(note).start()
while not seen:
    query.awaitTermination(0.05)
emit(spark.sparkContext._gateway._callback_server.port)
ask()
emit(query.exception() is None)
query.stop()
"""


def test_only_the_jvm_calls_functions_of_a_script(open_box: SparkBox) -> None:
    slot = open_box.slot(CALLBACK, slot_index=1)
    port = slot.next()
    for words in (b"c\np0\nhashCode\ne\n", b"A\nfalse\ne\n", b"A\nfalse\ne\nc\np0\nhashCode\ne\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(words)
            assert b"!y" not in _answers(connection)
    slot.tell()
    assert slot.next() is True
    open_box.end(slot)


def _answers(connection: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    found = b""
    try:
        while part := connection.recv(4096):
            found += part
    except ConnectionResetError:
        pass
    return found
