"""The Airflow home of the tests, set before any import of Airflow."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from tests.kit.airflow.connection import connection_json
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.rest.fake_cluster import FakeCluster, fake_cluster
from tests.kit.spark.spark_box import QUICK_JVM

ROOT = Path(__file__).resolve().parents[2]

_HOME = tempfile.mkdtemp(prefix="flinklike-airflow-")
DAGS = Path(_HOME) / "dags"
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)

os.environ.update(
    {
        "AIRFLOW_HOME": _HOME,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "0",  # a task with retries that fails here fails soon
    }
)


def _copy_dags() -> None:
    """The example DAGs and the DAGs of these tests in one folder, as in a deployment."""
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in (ROOT / "dags", Path(__file__).parent / "dag_cases"):
        shutil.copytree(folder, DAGS, ignore=ignore, dirs_exist_ok=True)


def _announce_provider() -> None:
    """Entry points as an installation writes them, for a checkout that is not installed."""
    try:
        distribution("airflow-flinklike")
    except PackageNotFoundError:
        directory = Path(_HOME) / "site"
        info = directory / "airflow_flinklike-0.0.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: airflow-flinklike\nVersion: 0.0.0\n")
        (info / "entry_points.txt").write_text(
            "[apache_airflow_provider]\nprovider_info = airflow_flinklike.provider_info:get_provider_info\n"
            "[airflow.plugins]\nflinklike = airflow_flinklike.plugin:FlinklikePlugin\n"
        )
        sys.path.append(str(directory))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(directory)])


_copy_dags()
_announce_provider()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings of Airflow and its dependencies do not fail these tests."""
    for item in items:
        if "tests/airflow" in str(item.path):
            item.add_marker(pytest.mark.airflow)
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A fake cluster, to which the default connection leads."""
    with fake_cluster() as cluster:
        monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", connection_json(cluster.url))
        yield cluster


SPARK = {
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.task.size": "1 gb",
    "taskmanager.memory.spark.size": "1 gb",
    "taskmanager.spark.class-archive": "false",
    "taskmanager.spark.warm-up.count": "2",
    "spark.sql.shuffle.partitions": "2",
    **QUICK_JVM,
}


@pytest.fixture(scope="session")
def cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    """A real cluster with Spark and split JobMasters, from the scripts."""
    with ScriptCluster(SPARK, class_archive=class_archive) as found:
        yield found


@pytest.fixture(scope="session")
def data_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example DAGs put data and reports."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def metadata_database() -> None:
    """A migrated database."""
    from airflow.utils.db import initdb

    initdb()


@pytest.fixture(scope="session")
def airflow_database(data_directory: Path, cluster: ScriptCluster, metadata_database: None) -> Iterator[None]:
    """The environment of a deployment: the database, the connection and the data directory."""
    del metadata_database
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", connection_json(cluster.url, token=cluster.token))
        patch.setenv("FLINKLIKE_DATA_DIR", str(data_directory))
        patch.syspath_prepend(str(DAGS))
        yield
