"""One environment for all tests of this folder; only one JVM at a time runs on a small machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.spark.spark_box import SparkBox, spark_settings


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs a JVM; warnings of pyspark and pandas themselves are not ours to fix."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)
            for module in ("pyspark", "pandas", "py4j"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::Warning:{module}"))


@pytest.fixture(scope="session")
def shared_box(tmp_path_factory: pytest.TempPathFactory, class_archive: Path | None) -> Iterator[SparkBox]:
    directory = tmp_path_factory.mktemp("spark")
    box = SparkBox(spark_settings(directory, archive=class_archive), directory)
    box.run(box.environment.start())
    yield box
    box.shut()


@pytest.fixture
def box(shared_box: SparkBox) -> Iterator[SparkBox]:
    """The shared environment, clean; started again when an earlier test has lost it."""
    if not shared_box.environment.is_ready:
        shared_box.run(shared_box.environment.restart())
    yield shared_box
    shared_box.end_slots()
