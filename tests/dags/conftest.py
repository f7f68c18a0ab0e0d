"""TPC-H data, and the DAG folder on the path, as Airflow puts it there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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
