"""A real standalone master and worker, started from pyspark's own jars; the TaskManager's driver is their client."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.kit.spark.spark_box import ONE_COMPILER, SparkBox, is_alive, spark_settings, wait_until
from tests.kit.spark.standalone import standalone
from tests.kit.strangers.foreign_jvm import ForeignJvm

SECRET = "secret-of-the-standalone-cluster"


@pytest.fixture(scope="module")
def standalone_box(tmp_path_factory: pytest.TempPathFactory, class_archive: Path | None) -> Iterator[SparkBox]:
    directory = tmp_path_factory.mktemp("standalone")
    (directory / "conf").mkdir()
    (directory / "events").mkdir()
    secret_file = directory / "secret"
    secret_file.touch(0o600)
    secret_file.write_text(f"{SECRET}\n")
    secured = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": SECRET,
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.saslFallback": "false",
        "spark.network.crypto.authEngineVersion": "2",
    }
    with standalone(directory, cores=2, memory="1g", conf=secured) as master:
        conf = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (directory / "events").as_uri(),
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": ONE_COMPILER,
            "spark.cores.max": "2",
            "spark.sql.shuffle.partitions": "2",
        }
        settings = spark_settings(
            directory,
            archive=class_archive,
            master=master,
            spark_conf=conf,
            secret_file=str(secret_file),
            network_encryption=True,
        )
        box = SparkBox(settings, directory)
        try:
            box.run(box.environment.start())
            yield box
        finally:
            box.shut()


def test_slots_run_on_a_standalone_cluster(standalone_box: SparkBox) -> None:
    code = """
from pyspark.sql.functions import udf
counter = spark.sparkContext.accumulator(0)
spark.sparkContext.parallelize(range(5), 2).foreach(lambda n: counter.add(n))
emit([spark.sparkContext.master.split(":")[0], spark.range(1000).count(), counter.value,
      spark.range(4).select(udf(lambda n: n * 2, "long")("id").alias("n")).groupBy().sum("n").first()[0]])
"""
    assert standalone_box.evaluate(code) == ["spark", 1000, 10, 12]


def test_a_killed_slot_leaves_no_task_on_the_cluster(standalone_box: SparkBox) -> None:
    code = """
emit("started")
spark.sparkContext.parallelize(range(2), 2).foreach(lambda _: __import__("time").sleep(60))
"""
    slot = standalone_box.slot(code)
    assert slot.next() == "started"
    session = slot.session.session_id
    wait_until(lambda: session in standalone_box.run(standalone_box.environment.progress()))
    standalone_box.end(slot)
    assert standalone_box.environment.is_ready
    assert is_alive(standalone_box.environment.process_ids[1])
    assert standalone_box.evaluate("emit(spark.range(3).count())") == 3


def test_the_secret_of_the_cluster_is_asked_for_and_not_shown(
    standalone_box: SparkBox, tmp_path_factory: pytest.TempPathFactory
) -> None:
    code = """
sc = spark.sparkContext
shown = [sc.getConf().getAll(), list(spark.conf.getAll.items()), [list(row) for row in spark.sql("SET -v").collect()]]
emit([int(sc.getConf().get("spark.driver.port")), str(shown)])
ask()
"""
    slot = standalone_box.slot(code)
    port, shown = slot.next()
    assert "spark.driver.port" in shown
    assert SECRET not in shown
    foreign = ForeignJvm(tmp_path_factory.mktemp("foreign") / "jvm")
    try:
        assert foreign.refusal(port, {})
        known = {"spark.authenticate": "true", "spark.authenticate.secret": SECRET}
        assert foreign.refusal(port, known)  # in plain text
        encrypted = {"spark.network.crypto.enabled": "true", "spark.network.crypto.authEngineVersion": "2"}
        assert "BlockManagerId(driver" in foreign.dial(port, known | encrypted)
    finally:
        foreign.end()
    standalone_box.end(slot)
    host, jvm = standalone_box.environment.process_ids
    for process in (psutil.Process(host), psutil.Process(jvm), *psutil.Process(jvm).children(recursive=True)):
        assert SECRET not in " ".join(process.cmdline())
        assert SECRET not in str(process.environ())
    own = {standalone_box.directory / "secret", *(standalone_box.directory / "cluster").rglob("*")}
    files = [path for path in standalone_box.directory.rglob("*") if path.is_file() and path not in own]
    assert any("events" in path.parts for path in files)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
