"""A plain local SparkSession, TPC-H data, and the DAG folder on the path, as Airflow puts it there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.plain_spark import plain_spark_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAGS = Path(__file__).resolve().parents[2] / "dags"
SCALE_FACTOR = 0.01


@pytest.fixture(scope="session", autouse=True)
def _dags_on_path() -> Iterator[None]:
    sys.path.insert(0, str(DAGS))
    yield
    sys.path.remove(str(DAGS))


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TPC-H at a small scale, made as the DAG makes it."""
    from tpch.tables import make_tables

    return make_tables(tmp_path_factory.mktemp("tpch"), SCALE_FACTOR)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark as it comes."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", plain_spark_environment()["JAVA_HOME"])
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .getOrCreate()
        )
    yield session
    session.stop()
