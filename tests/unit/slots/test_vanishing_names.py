"""What a script has left in its working directory is told, whole and within bounds; nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.taskexecutor.slot_process.vanishing_files import ENTRIES_MAX, vanishing_files, vanishing_tables


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """As a job finds it: its script, a file, an archive, and what we and Python put there."""
    work = tmp_path / "work"
    for directory in ("env/lib", "spark-warehouse", "__pycache__"):
        (work / directory).mkdir(parents=True)
    for name in ("etl.py", "in.csv", "env/lib/a.py", "__pycache__/a.pyc"):
        (work / name).write_text("brought")
    return work


BROUGHT = ("etl.py", "in.csv", "env")


def test_nothing_is_said_of_what_was_brought(work: Path) -> None:
    assert vanishing_files(str(work), BROUGHT) == ""


def test_empty_directories_and_links_are_no_loss(work: Path, tmp_path: Path) -> None:
    (tmp_path / "kept.csv").write_text("kept")
    (work / "link.csv").symlink_to(tmp_path / "kept.csv")
    (work / "linked").symlink_to(tmp_path)
    (work / "empty" / "below").mkdir(parents=True)
    assert vanishing_files(str(work), BROUGHT) == ""


def test_entries_files_and_bytes_are_named(work: Path) -> None:
    (work / "out" / "day=1").mkdir(parents=True)
    (work / "out" / "_SUCCESS").write_text("")
    (work / "out" / "day=1" / "part-0").write_bytes(b"x" * 2048)
    (work / "result.csv").write_bytes(b"x" * 1024)
    said = vanishing_files(str(work), BROUGHT)
    assert "out/, result.csv (3 files, 3.0 KiB)" in said
    assert "absolute path" in said
    assert "warehouse" not in said
    assert "\n" not in said


def test_tables_are_told_as_tables(work: Path) -> None:
    (work / "spark-warehouse" / "t").mkdir()
    (work / "spark-warehouse" / "t" / "part-0").write_text("row")
    said = vanishing_files(str(work), BROUGHT)
    assert "spark-warehouse/ (1 file, " in said
    assert "taskmanager.spark.warehouse" in said


def test_a_look_at_many_files_is_bounded(work: Path) -> None:
    (work / "many").mkdir()
    for number in range(ENTRIES_MAX + 100):
        (work / "many" / str(number)).touch()
    (work / "more.csv").touch()
    said = vanishing_files(str(work), BROUGHT)
    assert f"many/, more.csv (at least {ENTRIES_MAX} files, " in said


def test_many_names_are_cut(work: Path) -> None:
    for number in range(15):
        (work / f"{number:02}.csv").touch()
    said = vanishing_files(str(work), BROUGHT)
    assert "08.csv, 09.csv and 5 more (15 files, " in said
    assert "10.csv" not in said


def test_a_directory_that_is_gone_has_nothing_to_lose(work: Path) -> None:
    assert vanishing_files(str(work / "gone"), BROUGHT) == ""


def test_tables_of_a_catalog_that_goes_with_its_spark_are_named(tmp_path: Path) -> None:
    job = tmp_path / "tm-1" / "jobs" / ("a" * 32) / "work"
    own, hive, kept = job / "spark-warehouse", tmp_path / "tm-1" / "spark-123" / "hive", tmp_path / "kept"
    for path in (own, hive, kept):
        (path / "mart.db" / "t").mkdir(parents=True)
    warning = vanishing_tables(f"file:{hive}", str(job))
    assert "WARNING: the Hive catalog of this job is deleted with its Spark environment" in warning
    assert "mart.db/" in warning
    assert "taskmanager.spark.warehouse, or a metastore of yours" in warning
    assert vanishing_tables(str(own), str(job)) == "", "that is told with the other files"
    assert vanishing_tables(f"file:{kept}", str(job)) == "", "which stays"
    assert vanishing_tables("", str(job)) == "", "of a script without Spark"
    (hive / "mart.db" / "t").rmdir()
    (hive / "mart.db").rmdir()
    (hive / ".hidden").touch()
    assert vanishing_tables(str(hive), str(job)) == ""
