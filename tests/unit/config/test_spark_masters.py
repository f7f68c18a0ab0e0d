"""What `spark.master` may be, and what has to stand beside it, and may not (D-139)."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.common.spark_masters import MasterKind, connect_endpoint, connect_parameters, has_tls, kind_of
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.loading import load
from runtime.entrypoint.process import ProcessContext
from runtime.entrypoint.task_manager_options import _spark_settings, connect_environment, registration_of
from runtime.taskexecutor.spark_protocol.settings import effective_conf

K8S = (
    "spark.master=k8s://https://api:6443",
    "spark.kubernetes.container.image=spark:4.3",
    "spark.kubernetes.namespace=jobs",
    "taskmanager.host=tm-1.example",
    "taskmanager.bind-host=0.0.0.0",
    "security.authentication=token",
)
OPEN = "taskmanager.spark.allow-unauthenticated=true"
TOKEN = "taskmanager.spark.secret-file=/token"
CONNECT = ("spark.master=sc://server:15002", OPEN)


def loaded(*dynamic: str) -> Configuration:
    return load(None, environment={}, dynamic=dynamic)


def problems_of(*dynamic: str) -> str:
    with pytest.raises(InvalidInputError) as caught:
        loaded(*dynamic)
    return str(caught.value)


@pytest.mark.parametrize(
    ("master", "kind"),
    [
        ("local", MasterKind.LOCAL),
        ("local[2, 3]", MasterKind.LOCAL),
        ("spark://a:7077,b:7077", MasterKind.STANDALONE),
        ("k8s://https://api:6443", MasterKind.KUBERNETES),
        ("k8s://api", MasterKind.KUBERNETES),
        ("yarn", MasterKind.YARN),
        ("sc://h", MasterKind.CONNECT),
        ("sc://h:1/;use_ssl=true", MasterKind.CONNECT),
        ("sc://[::1]:1", MasterKind.CONNECT),
        ("k8s://", None),
        ("yarn-client", None),
        ("sc://", None),
        ("sc://user@h:1", None),
        ("sc://h:1/path", None),
        ("mesos://h", None),
    ],
)
def test_a_master_has_a_kind(master: str, kind: MasterKind | None) -> None:
    assert kind_of(master) is kind


def test_the_address_of_a_connect_server() -> None:
    assert connect_endpoint("sc://h") == "h:15002"
    assert connect_endpoint("sc://h:7/;use_ssl=true") == "h:7"
    assert connect_endpoint("sc://[::1]:7") == "[::1]:7"
    assert connect_parameters("sc://h:7/;use_ssl=true;x=y") == {"use_ssl": "true", "x": "y"}
    assert [has_tls("sc://h/;use_ssl=true"), has_tls("sc://h/;use_ssl=false"), has_tls("sc://h")] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    "options",
    [
        K8S,
        ("spark.master=yarn",),
        CONNECT,
        ("spark.master=sc://h/;use_ssl=true", TOKEN),
        ("spark.master=sc://localhost:1", TOKEN),
        (*CONNECT, "spark.sql.shuffle.partitions=3"),
        ("spark.master=k8s://api", "taskmanager.spark.enabled=false"),
    ],
)
def test_what_is_accepted(options: tuple[str, ...]) -> None:
    assert loaded(*options).spark_conf


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("spark.master=mesos://h",), "expected local"),
        (K8S[:1] + K8S[2:], "needs spark.kubernetes.container.image"),
        (K8S[:2] + K8S[3:], "needs spark.kubernetes.namespace"),
        (K8S[:3] + K8S[4:], "needs taskmanager.host"),
        ((*K8S, "taskmanager.bind-host=127.0.0.1"), "do not reach the driver at taskmanager.bind-host: 127.0.0.1"),
        (("spark.master=yarn", "taskmanager.host=tm-1"), "do not reach the driver at taskmanager.bind-host: 127.0.0.1"),
        ((*K8S, "spark.submit.deployMode=cluster"), "spark.submit.deployMode: the driver lives in the TaskManager"),
        ((*K8S, OPEN), "is for spark.master spark://"),
        (("spark.master=yarn", "taskmanager.spark.secret-file=/s"), "is for spark.master spark://"),
        (("spark.master=sc://h",), "needs taskmanager.spark.secret-file, the token of the Spark Connect server"),
        (
            ("spark.master=sc://h", TOKEN),
            "sc://h with taskmanager.spark.secret-file: PySpark sends a token by TLS only",
        ),
        (("spark.master=sc://127.0.0.1:1/;use_ssl=false", TOKEN), "PySpark sends a token by TLS only"),
        (("spark.master=sc://h/;token=abc", OPEN), "the master is shown to people"),
        (("spark.master=sc://h/;session_id=x", OPEN), "each slot has a session of its own"),
        (("spark.master=sc://h/;use_ssl=maybe", OPEN), "only use_ssl=true or use_ssl=false"),
        ((*CONNECT, "taskmanager.memory.spark.size=1 gb"), "taskmanager.memory.spark.size has no effect with"),
        ((*CONNECT, "taskmanager.spark.warehouse=/w"), "taskmanager.spark.warehouse has no effect with"),
        ((*CONNECT, "taskmanager.slot.isolation=jvm"), "taskmanager.slot.isolation has no effect with"),
        ((*CONNECT, "spark.serializer=x"), "spark.serializer has no effect with"),
        ((*CONNECT, "spark.driver.memory=1g"), "start the Spark Connect server with it instead"),
    ],
)
def test_what_is_refused(options: tuple[str, ...], words: str) -> None:
    assert words in problems_of(*options)


def context(run: Path, *dynamic: str, environment: dict[str, str] | None = None) -> ProcessContext:
    return ProcessContext(loaded(*dynamic), Layout(home=run, conf=run, run=run), environment or {})


def test_yarn_is_found_by_hadoops_directory(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR in the environment"):
        _spark_settings(context(tmp_path, "spark.master=yarn"), tmp_path)
    with pytest.raises(InvalidInputError, match="HADOOP_CONF_DIR=/none is no directory"):
        _spark_settings(context(tmp_path, "spark.master=yarn", environment={"HADOOP_CONF_DIR": "/none"}), tmp_path)
    found = context(tmp_path, "spark.master=yarn", environment={"YARN_CONF_DIR": str(tmp_path)})
    settings = _spark_settings(found, tmp_path)
    assert settings.configuration_directories == (str(tmp_path),)
    assert type(settings).parse(settings.to_json()) == settings
    assert settings.problems() == ()


@pytest.mark.parametrize("options", [K8S, ("spark.master=yarn", *K8S[3:5])])
def test_spark_makes_the_secret_for_its_own_executors(tmp_path: Path, options: tuple[str, ...]) -> None:
    found = context(tmp_path, *options, environment={"HADOOP_CONF_DIR": str(tmp_path)})
    conf = effective_conf(_spark_settings(found, tmp_path))
    assert conf["spark.authenticate"] == "true"
    assert "spark.authenticate.secret" not in conf
    assert conf["spark.driver.host"] == "tm-1.example"
    assert conf["spark.submit.deployMode"] == "client"


def test_a_task_manager_of_a_connect_server_offers_no_jvm(tmp_path: Path) -> None:
    found = context(tmp_path, *CONNECT, "spark.sql.shuffle.partitions=3")
    registration = registration_of(found, "tm:1")
    assert (registration.has_spark, registration.environment_bytes) == (True, 0)
    assert registration.spark_conf == b'{"spark.master": "sc://server:15002", "spark.sql.shuffle.partitions": "3"}'
    assert connect_environment(found.configuration, registration) is not None
    assert connect_environment(loaded(), registration) is None
