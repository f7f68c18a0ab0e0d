"""An Airflow home of the tests' own, set before Airflow is imported anywhere."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from tests.kit.fake_rest import TOKEN, FakeCluster, fake_cluster

_HOME = tempfile.mkdtemp(prefix="flinklike-airflow-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)

os.environ.update(
    {
        "AIRFLOW_HOME": _HOME,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": os.path.join(_HOME, "dags"),  # noqa: PTH118 - before anything else is imported
    }
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Airflow and its dependencies warn about themselves; that is not ours to fail on."""
    for item in items:
        if "tests/airflow" in str(item.path):
            item.add_marker(pytest.mark.airflow)
            item.add_marker(pytest.mark.filterwarnings("default"))


def connection_json(url: str, *, token: str | None = TOKEN, **extra: str) -> str:
    """An Airflow connection of our type."""
    host, _, port = url.removeprefix("http://").partition(":")
    return json.dumps(
        {"conn_type": "flinklike", "host": host, "port": int(port), "password": token, "extra": extra or {}}
    )


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A fake cluster, to which the default connection leads."""
    with fake_cluster() as cluster:
        monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", connection_json(cluster.url))
        yield cluster
