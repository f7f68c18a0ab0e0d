"""Where Spark's Python workers work when their job's directory is not there, or is none (R24)."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.taskexecutor.worker_protocol.session_work import enter_working_directory


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "plain"
    made.mkdir()
    monkeypatch.chdir(tmp_path)
    return made


def test_a_worker_works_where_its_job_works(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    enter_working_directory(str(tmp_path / "job"), str(plain))
    assert Path.cwd() == tmp_path / "job"


def test_one_whose_job_has_ended_says_nothing(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    enter_working_directory(str(tmp_path / "gone"), str(plain))
    assert (Path.cwd(), capsys.readouterr().err) == (plain, "")


def test_one_that_may_not_enter_it_says_so_and_goes_on(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no directory")
    enter_working_directory(str(tmp_path / "file"), str(plain))
    assert Path.cwd() == plain
    assert "cannot work in its job's working directory" in capsys.readouterr().err
