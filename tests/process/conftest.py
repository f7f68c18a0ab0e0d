"""Fixtures of tests with real processes.

`spark_cluster` is split, with Spark, and shared by all tests that leave it as they found it: a JVM takes ten seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_flinklike.client import FlinklikeClient
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.fixtures import etcd
from tests.kit.spark.spark_box import QUICK_JVM

__all__ = ["etcd"]

SPARK = {
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.task.size": "640 mb",
    "taskmanager.memory.spark.size": "768 mb",
    "taskmanager.spark.warm-up.count": "2",
    "taskmanager.spark.class-archive": "false",
    "spark.sql.shuffle.partitions": "2",
    **QUICK_JVM,
}
WITHOUT_SPARK = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "2"}
IN_PROCESS = {"jobmanager.jobmaster.single.enable": "false"}


@pytest.fixture(scope="session")
def spark_cluster(class_archive: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptCluster]:
    """It has the credentials `vault`, which programs of the documentation use."""
    vault = tmp_path_factory.mktemp("credentials") / "vault.json"
    vault.write_text('{"values": {"token": "of the vault"}}')
    vault.chmod(0o600)
    provider = "security.delegation.token.provider.vault"
    options = {**SPARK, f"{provider}.type": "file", f"{provider}.path": str(vault)}
    with ScriptCluster(options, class_archive=class_archive) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def in_process_cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    with ScriptCluster({**SPARK, **IN_PROCESS}, class_archive=class_archive) as cluster:
        yield cluster


@pytest.fixture(scope="session", params=["split", pytest.param("in-process", marks=pytest.mark.extended)])
def either_cluster(request: pytest.FixtureRequest) -> ScriptCluster:
    """The same jobs, with JobMasters in processes of their own and inside the JobManager."""
    name = "spark_cluster" if request.param == "split" else "in_process_cluster"
    found: ScriptCluster = request.getfixturevalue(name)
    return found


@pytest.fixture
def either_client(either_cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with either_cluster.connect() as client:
        yield client


@pytest.fixture
def spark_client(spark_cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with spark_cluster.connect() as client:
        yield client
