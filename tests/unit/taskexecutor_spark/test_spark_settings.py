"""Settings and the conf, command line and environment that follow from them."""

import dataclasses
import os
import re
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.common.spark_conf import OWNED
from runtime.taskexecutor.driver_jvm.command import (
    class_path,
    command_line,
    jvm_environment,
    properties_text,
    spark_home,
)
from runtime.taskexecutor.driver_jvm.java import JavaRuntime
from runtime.taskexecutor.spark.environment_process import ProcessSparkEnvironment
from runtime.taskexecutor.spark_protocol import settings as module
from runtime.taskexecutor.spark_protocol.settings import SparkSettings, allocations, effective_conf
from tests.kit.spark.spark_box import spark_settings

JAVA = JavaRuntime(Path("/java/bin/java"), Path("/java"), 17, "build", "PATH")


@pytest.mark.parametrize("key", sorted(OWNED))
def test_a_key_that_we_own_is_refused_by_name(tmp_path: Path, key: str) -> None:
    settings = spark_settings(tmp_path, spark_conf={key: "x"})
    assert settings.problems() == (f"{key}: {OWNED[key]}",)
    with pytest.raises(InvalidInputError, match=re.escape(f"{key}: {OWNED[key]}")) as refused:
        ProcessSparkEnvironment(settings)
    assert refused.value.problems == settings.problems()


def test_all_problems_are_listed_at_once(tmp_path: Path) -> None:
    settings = spark_settings(tmp_path, master="sc://host", slots=0, spark_conf={"spark.local.dir": "/x"})
    assert len(settings.problems()) == 3


def test_the_address_of_the_driver_is_the_task_managers_and_its_ports_are_sparks(tmp_path: Path) -> None:
    ports = {"spark.driver.port": "7201", "spark.driver.blockManager.port": "7202"}
    hosts = {"spark.driver.host": "tm-1", "spark.driver.bindAddress": "0.0.0.0"}
    settings = spark_settings(tmp_path, master="spark://m:7077", advertised_host="tm-1", spark_conf=ports)
    assert ({**ports, "spark.driver.host": "tm-1"}).items() <= effective_conf(settings).items()
    assert dataclasses.replace(settings, spark_conf={**ports, **hosts}).problems() == (
        "spark.driver.host: use taskmanager.host",
        "spark.driver.bindAddress: use taskmanager.bind-host",
    )


@pytest.mark.parametrize(
    ("asked", "shown"), [("1g", "1g"), (" 1024m", "1024m"), ("1048576k", "1048576k"), ("512m", "1024m")]
)
def test_the_heap_stands_in_the_conf_as_the_job_has_written_it(tmp_path: Path, asked: str, shown: str) -> None:
    settings = spark_settings(tmp_path, heap_bytes=1 << 30, spark_conf={"spark.driver.memory": asked})
    conf = effective_conf(settings)
    assert conf["spark.driver.memory"] == shown
    command = command_line(JAVA, conf=conf, properties_file=tmp_path / "x", archive_options=())
    assert "-Xmx1024m" in command


def test_keys_of_the_user_win_over_defaults_only(tmp_path: Path) -> None:
    user = {"spark.ui.enabled": "true", "spark.sql.shuffle.partitions": "9", "spark.eventLog.enabled": "true"}
    conf = effective_conf(spark_settings(tmp_path, spark_conf=user))
    assert user.items() <= conf.items()
    assert conf["spark.scheduler.mode"] == "FAIR"
    assert conf["spark.local.dir"].startswith(str(tmp_path))
    assert conf["spark.sql.warehouse.dir"].startswith(tmp_path.as_uri())


def test_files_are_found_in_a_directory_with_a_blank(tmp_path: Path) -> None:
    """Hadoop's Path does not decode what it is given."""
    conf = effective_conf(spark_settings(tmp_path / "a b"))
    assert conf["spark.scheduler.allocation.file"] == f"file://{tmp_path}/a b/work/fair-pools.xml"


def test_a_cluster_master_keeps_its_own_partitions_and_daemon(tmp_path: Path) -> None:
    conf = effective_conf(spark_settings(tmp_path, master="spark://127.0.0.1:7077"))
    assert "spark.sql.shuffle.partitions" not in conf
    assert "spark.python.daemon.module" not in conf


def test_a_wildcard_is_bound_but_never_dialled(tmp_path: Path) -> None:
    settings = spark_settings(tmp_path, master="spark://m:7077", bind_address="0.0.0.0")
    conf = effective_conf(settings)
    assert conf["spark.driver.bindAddress"] == "0.0.0.0"
    assert "spark.driver.host" not in conf
    conf = effective_conf(dataclasses.replace(settings, advertised_host="tm-1"))
    assert conf["spark.driver.host"] == "tm-1"


def test_settings_survive_the_way_to_the_host(tmp_path: Path) -> None:
    settings = spark_settings(tmp_path, spark_conf={"spark.x": "1"})
    assert SparkSettings.parse(settings.to_json()) == settings


def test_pools_have_fixed_names(tmp_path: Path) -> None:
    text = allocations(3)
    assert [f'name="{module.pool_name(index)}"' in text for index in range(4)] == [True, True, True, False]
    assert module.HOST_POOL in text


def test_the_command_has_no_incubator_module_and_ends_on_an_exhausted_heap(tmp_path: Path) -> None:
    user = {"spark.driver.extraJavaOptions": "-Da=b -Dc='d e'", "spark.driver.extraClassPath": "/first.jar"}
    conf = effective_conf(spark_settings(tmp_path, heap_bytes=1 << 30, spark_conf=user))
    command = command_line(JAVA, conf=conf, properties_file=tmp_path / "p", archive_options=("-Xshare:auto",))
    assert not [part for part in command if "jdk.incubator.vector" in part]
    assert "-XX:+ExitOnOutOfMemoryError" in command
    assert {"-Xmx1024m", "-Da=b", "-Dc=d e", "-Xshare:auto"} <= set(command)
    assert command[-4:] == [
        "org.apache.spark.deploy.SparkSubmit",
        "--properties-file",
        str(tmp_path / "p"),
        "pyspark-shell",
    ]
    assert command[command.index("-cp") + 1].startswith("/first.jar:")


def test_the_class_path_has_one_order() -> None:
    jars = class_path(spark_home(), {}).split(os.pathsep)
    assert jars == sorted(jars)
    assert len(jars) > 100


def test_the_environment_hides_an_outer_spark(tmp_path: Path) -> None:
    outer = {"PYSPARK_GATEWAY_PORT": "1", "SPARK_REMOTE": "sc://x", "HOME": "/home"}
    environment = jvm_environment(outer, connection_file=tmp_path / "gateway", local_host="127.0.0.1")
    assert "SPARK_REMOTE" not in environment
    assert "PYSPARK_GATEWAY_PORT" not in environment
    assert environment["HOME"] == "/home"
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_properties_are_escaped_as_java_reads_them() -> None:
    text = properties_text({"spark.a": "x=y: z\\w\n", "spark.b": "ä\U0001f600"})
    assert text == "spark.a=x\\=y\\:\\ z\\\\w\\n\nspark.b=\\u00e4\\ud83d\\ude00\n"


def test_settings_are_values(tmp_path: Path) -> None:
    settings = spark_settings(tmp_path)
    assert dataclasses.replace(settings) == settings
