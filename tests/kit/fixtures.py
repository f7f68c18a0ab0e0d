"""Fixtures of several test folders; a folder's conftest imports those that it wants.

Nothing else of the kit imports pytest, so that benchmarks, simulation and chaos run in a user's environment.
`built_archive`: one class archive of Spark's JVM for all tests of a session. It is built as the product does it, in the
background of a running Spark host, unless the machine is so busy that what runs at the lowest priority comes to no end.
That takes as long as ten starts save, so only a session with a test that needs `built_archive` builds it; in others
`class_archive` is None, and Spark starts without.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from runtime.taskexecutor.spark_host.archive import ClassArchive
from runtime.taskexecutor.spark_host.archive_builder import archive_for
from runtime.taskexecutor.spark_protocol.settings import SparkSettings
from tests.kit.etcd.server import EtcdProcess
from tests.kit.spark.spark_box import SparkBox, spark_settings, wait_until

BACKGROUND_SECONDS = 100.0
BUILD_TIMEOUT = 250.0
_BUILD = "runtime.taskexecutor.spark_host.archive_builder"
_AT_OUR_PRIORITY = f"import os, runpy; os.nice = int; runpy.run_module({_BUILD!r}, run_name='__main__', alter_sys=True)"


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    """One etcd for the session. Tests keep apart by cluster id; none may stop it."""
    process = EtcdProcess(tmp_path_factory.mktemp("etcd"))
    process.start()
    yield process
    process.stop()


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    """An etcd that this test may kill and freeze."""
    process = EtcdProcess(tmp_path)
    process.start()
    yield process
    process.stop()


@pytest.fixture(scope="session")
def built_archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClassArchive]:
    """The archive. At the end of the session it must be as it was built: no test replaces or drops it."""
    directory = tmp_path_factory.mktemp("class-archive")
    settings = spark_settings(directory, class_archive=True, warm_up_count=1)
    archive = archive_for(settings)
    box = SparkBox(settings, directory)
    try:
        box.run(box.environment.start())
        assert not archive.exists(), "Spark is ready before there is an archive"
        with suppress(AssertionError):
            wait_until(archive.exists, BACKGROUND_SECONDS)
        assert box.environment.is_ready
    finally:
        box.shut()
    if not archive.exists():
        _build(settings)
    built = _content(archive)
    yield archive
    assert _content(archive) == built


def _build(settings: SparkSettings) -> None:
    """By the program that the host starts, at the priority of the tests."""
    file = settings.work_directory / "settings.json"
    file.write_text(settings.to_json())
    command = [sys.executable, "-c", _AT_OUR_PRIORITY, str(file)]
    workers = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    subprocess.run(command, env={**os.environ, **workers}, check=True, timeout=BUILD_TIMEOUT)


def _content(archive: ClassArchive) -> dict[str, int]:
    """The files of its directory, by name with what tells a new one apart."""
    return {path.name: path.stat().st_ino for path in archive.directory.iterdir() if path.suffix != ".lock"}


@pytest.fixture(scope="session")
def class_archive(request: pytest.FixtureRequest) -> Path | None:
    """The directory of the session's archive, for whoever starts Spark."""
    if not any("built_archive" in getattr(item, "fixturenames", ()) for item in request.session.items):
        return None
    archive: ClassArchive = request.getfixturevalue("built_archive")
    return archive.directory
