"""From options to the settings of a TaskManager."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.common.errors import InvalidInputError
from runtime.common.spark_environments import SparkOffer, SparkWish, refused_static_conf
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.options import taskmanager as tm
from runtime.entrypoint.control.daemon import LOG_FILE_VARIABLE
from runtime.entrypoint.process import ProcessContext
from runtime.entrypoint.task_manager_options import (
    _open_spark,
    _secrets_directory,
    _spark_settings,
    attempt_logs,
    registration_of,
    slot_settings,
)
from runtime.gateways.resource_manager import spark_offer
from runtime.taskexecutor.spark_protocol.settings import effective_conf
from runtime.taskexecutor.task_environment import TaskEnvironment


def context(
    run: Path, *, master: str = "", options: dict[str, Any] | None = None, environment: dict[str, str] | None = None
) -> ProcessContext:
    values = {tm.TASKMANAGER_HOST.key: "tm-1.example", tm.TASKMANAGER_BIND_HOST.key: "0.0.0.0", **(options or {})}
    configuration = Configuration(values, {"spark.master": master} if master else {})
    return ProcessContext(configuration, Layout(home=run, conf=run, run=run), environment or {})


@pytest.mark.parametrize(
    ("master", "host", "bound"),
    [
        ("spark://m:7077", "tm-1.example", "0.0.0.0"),
        ("local[2]", "127.0.0.1", "127.0.0.1"),
        ("", "127.0.0.1", "127.0.0.1"),
    ],
)
def test_only_executors_of_a_cluster_dial_the_task_managers_host(
    tmp_path: Path, master: str, host: str, bound: str
) -> None:
    conf = effective_conf(_spark_settings(context(tmp_path, master=master), tmp_path))
    assert conf["spark.driver.host"] == host
    assert conf["spark.driver.bindAddress"] == bound


def test_who_dials_the_driver_has_to_know_its_secret(tmp_path: Path) -> None:
    options = {tm.SPARK_SECRET_FILE.key: "/secret", tm.SPARK_NETWORK_ENCRYPTION.key: True}
    settings = _spark_settings(context(tmp_path, master="spark://m:7077", options=options), tmp_path)
    conf = effective_conf(settings)
    assert (settings.secret_file, conf["spark.authenticate"]) == ("/secret", "true")
    assert conf["spark.network.crypto.enabled"] == "true"
    assert conf["spark.network.crypto.saslFallback"] == "false"
    assert effective_conf(_spark_settings(context(tmp_path), tmp_path))["spark.authenticate"] == "true"
    options = {tm.SPARK_ALLOW_UNAUTHENTICATED.key: True}
    settings = _spark_settings(context(tmp_path, master="spark://m:7077", options=options), tmp_path)
    assert effective_conf(settings)["spark.authenticate"] == "false"
    assert "0.0.0.0 can run code as this user; start the cluster at spark://m:7077" in _open_spark(settings)


@pytest.mark.parametrize(("wanted", "refused"), [("2g", []), ("2048m", []), ("4g", ["spark.driver.memory"])])
def test_a_job_may_ask_for_the_heap_that_there_is(tmp_path: Path, wanted: str, refused: list[str]) -> None:
    registration = registration_of(context(tmp_path, options={tm.SPARK_MEMORY.key: 2 << 30}), "guard:1")
    problems = refused_static_conf({"spark.driver.memory": wanted}, [SparkOffer(json.loads(registration.spark_conf))])
    assert [one.split()[1].rstrip(":") for one in problems] == refused


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 4 << 30),
        ({tm.SPARK_MEMORY.key: 9 << 30}, 4 << 30),
        ({tm.SPARK_MEMORY_TOTAL.key: 0}, 0),
        ({tm.SPARK_MEMORY_TOTAL.key: 6 << 30}, (6 << 30) - (1536 << 20)),
        ({tm.SLOT_UIDS.key: (20000, 20099)}, 0),
        ({tm.SLOT_UIDS.key: (20000, 20099), tm.SPARK_USER.key: ("one",)}, 0),
        ({tm.SLOT_UIDS.key: (20000, 20099), tm.SPARK_USER.key: ("one", "two")}, 4 << 30),
        ({tm.SPARK_ENABLED.key: False}, 0),
        ({tm.SLOT_ISOLATION.key: "jvm"}, (4 << 30) + (1536 << 20)),
        ({tm.SLOT_ISOLATION.key: "jvm", tm.SPARK_MEMORY_TOTAL.key: 6 << 30}, 6 << 30),
    ],
)
def test_memory_for_spark_environments_of_jobs(tmp_path: Path, options: dict[str, Any], expected: int) -> None:
    assert registration_of(context(tmp_path, options=options), "guard:1").environment_bytes == expected


def test_jvms_of_jobs_are_offered_by_the_registered_conf(tmp_path: Path) -> None:
    """R53: so that JobManager, JobMaster and TaskManager name the same environment."""
    made = context(tmp_path, options={tm.SLOT_ISOLATION.key: "jvm"})
    registration = registration_of(made, "guard:1")
    offer = spark_offer(registration)
    one, other = (offer.environment(SparkWish(job_id)) for job_id in ("1" * 32, "2" * 32))
    assert one.key != other.key
    assert (one.conf, one.memory_bytes, one.job_id) == ({}, 1536 << 20, "1" * 32)
    settings = slot_settings(made.configuration, registration, TaskEnvironment({}), checkpoint_directory="/c")
    assert not settings.attaches_ahead, "there is nothing to attach to ahead"


def test_task_managers_of_one_host_have_logs_of_their_own(tmp_path: Path) -> None:
    first, second = (
        context(tmp_path, environment={LOG_FILE_VARIABLE: f"{tmp_path}/log/taskmanager-{number}.log"})
        for number in (0, 1)
    )
    files = [_spark_settings(one, tmp_path).log_file("jvm").name for one in (first, second, context(tmp_path))]
    assert files == ["taskmanager-0-spark-jvm.log", "taskmanager-1-spark-jvm.log", "spark-jvm.log"]
    directories = [attempt_logs(one, registration_of(one, "guard:1")).directory for one in (first, second)]
    assert directories[0] != directories[1]
    assert [one.parent for one in directories] == [tmp_path / "log/attempts"] * 2


def test_secrets_that_are_nowhere_keep_it_from_starting(tmp_path: Path) -> None:
    for path in ("", str(tmp_path)):
        assert _secrets_directory(context(tmp_path, options={tm.SECRETS_DIRECTORY.key: path}).configuration) == path
    with pytest.raises(InvalidInputError, match=r"taskmanager\.secrets\.directory: .*nowhere is no directory here"):
        _secrets_directory(context(tmp_path, options={tm.SECRETS_DIRECTORY.key: f"{tmp_path}/nowhere"}).configuration)


@pytest.mark.parametrize(("uids", "attaches"), [(None, True), ((20000, 20099), False)])
def test_root_attaches_to_no_jvm(tmp_path: Path, uids: tuple[int, int] | None, *, attaches: bool) -> None:
    """R50: where slots have users, processes without work are root's, and a JVM is its jobs'."""
    made = context(tmp_path, options={tm.SLOT_UIDS.key: uids})
    settings = slot_settings(
        made.configuration, registration_of(made, "guard:1"), TaskEnvironment({}), checkpoint_directory="/c"
    )
    assert settings.attaches_ahead is attaches
