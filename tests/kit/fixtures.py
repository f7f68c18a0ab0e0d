"""Fixtures of several test folders; a folder's conftest imports those that it wants.

Nothing else of the kit imports pytest, so that benchmarks, simulation and chaos run in a user's environment.
`class_archive`: the directory of one class archive of Spark's JVM for all tests of a run, built by bin/test.sh. A build
takes as long as ten starts save, so another session builds one only for a test that needs `built_archive`. Without an
archive, also when the build has failed, `class_archive` is None and Spark starts without: only tests of `built_archive`
fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.taskexecutor.driver_jvm.archive import ClassArchive
from runtime.taskexecutor.spark.host_process import SparkStartError
from tests.kit.etcd.server import EtcdProcess
from tests.kit.spark.archive_build import build, given


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
    archive = given(directory) or build(directory)
    assert archive.exists(), f"no class archive was built in {archive.directory}"
    built = _content(archive)
    yield archive
    assert _content(archive) == built


def _content(archive: ClassArchive) -> dict[str, int]:
    """The files of its directory, by name with what tells a new one apart."""
    return {path.name: path.stat().st_ino for path in archive.directory.iterdir() if path.suffix != ".lock"}


@pytest.fixture(scope="session")
def class_archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The directory of the archive, for tests that start Spark."""
    is_wanted = any("built_archive" in getattr(item, "fixturenames", ()) for item in request.session.items)
    if not is_wanted and given(tmp_path_factory.mktemp("settings")) is None:
        return None
    try:
        archive: ClassArchive = request.getfixturevalue("built_archive")
    except (AssertionError, OSError, SparkStartError):
        return None
    return archive.directory
