"""Files on disk: which are read, and how one is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_flinklike.migrate import files
from airflow_flinklike.migrate.analysis import analyse
from airflow_flinklike.migrate.files import UnreadableFileError, python_files, read
from runtime.common.errors import InvalidInputError

_DAG = (
    "from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator\n"
    "SparkSubmitOperator(task_id='a', application='ä.py')\n"
)


def made(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("pass\n")


def names_of(found: list[Path], root: Path) -> list[str]:
    return [str(path.relative_to(root)) for path in found]


def test_files_below_a_directory_are_found_once(tmp_path: Path) -> None:
    made(tmp_path, "b.py", "a/c.py", ".git/x.py", "a/.hidden.py", "a/notes.txt", "__pycache__/y.py")
    (tmp_path / "a" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "again.py").symlink_to(tmp_path / "b.py")
    assert names_of(python_files([tmp_path, tmp_path / "b.py"]), tmp_path) == ["again.py", "a/c.py"]
    assert names_of(python_files([tmp_path / "a" / "notes.txt"]), tmp_path) == ["a/notes.txt"]


def test_airflowignore_is_followed(tmp_path: Path) -> None:
    made(tmp_path, "a.py", "lib/b.py", "team/c.py", "team/old/d.py", "team/keep_me.py")
    (tmp_path / ".airflowignore").write_text("lib/  # of all\n*_me.py\n!keep_me.py\n")
    (tmp_path / "team" / ".airflowignore").write_text("old\n")
    assert names_of(python_files([tmp_path]), tmp_path) == ["a.py", "team/c.py", "team/keep_me.py"]


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, "a.py", "b.py", "c.py")
    monkeypatch.setattr(files, "FILES_MAX", 2)
    with pytest.raises(InvalidInputError, match="more than 2 files"):
        python_files([tmp_path])


def test_what_cannot_be_read_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No such file" in analyse(tmp_path / "none.py").problem
    (tmp_path / "bytes.py").write_bytes(b"x = '\xff'\n")
    assert analyse(tmp_path / "bytes.py").problem.startswith("it is no text in its encoding")
    (tmp_path / "coding.py").write_bytes(b"# coding: nonsense\n")
    assert "unknown encoding" in analyse(tmp_path / "coding.py").problem
    monkeypatch.setattr(files, "FILE_BYTES_MAX", 4)
    (tmp_path / "large.py").write_text("x = 12345\n")
    assert "larger than" in analyse(tmp_path / "large.py").problem


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_a_file_keeps_its_encoding_and_mode(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "dag.py"
    file.write_bytes((f"# coding: {encoding}\n" if encoding == "latin-1" else "").encode() + _DAG.encode(encoding))
    file.chmod(0o640)
    report = analyse(file)
    report.settle()
    report.write()
    assert report.is_written
    assert file.stat().st_mode & 0o777 == 0o640
    assert "FlinklikeSubmitOperator(task_id='a', application='ä.py')" in file.read_bytes().decode(encoding)
    assert file.read_bytes().startswith("\ufeff".encode()) == (encoding == "utf-8-sig")
    assert [path.name for path in tmp_path.iterdir()] == ["dag.py"]


def test_a_link_leads_to_the_new_text(tmp_path: Path) -> None:
    made(tmp_path, "real/dag.py")
    link = tmp_path / "dag.py"
    link.symlink_to(tmp_path / "real" / "dag.py")
    read(link).replace("x = 1\n")
    assert link.is_symlink()
    assert (tmp_path / "real" / "dag.py").read_text() == "x = 1\n"


def test_a_file_that_was_changed_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    made(tmp_path, "dag.py")
    source = read(tmp_path / "dag.py")
    (tmp_path / "dag.py").write_text("mine = 1\n")
    with pytest.raises(UnreadableFileError, match="changed in the meantime"):
        source.replace("x = 1\n")
    assert (tmp_path / "dag.py").read_text() == "mine = 1\n"
    (tmp_path / "dag.py").unlink()
    with pytest.raises(UnreadableFileError, match="cannot be replaced"):
        source.replace("x = 1\n")
