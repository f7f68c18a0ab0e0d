"""R62: a TaskManager deletes savepoints by order, of the job that is named, where they may lie, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.checkpoint.savepoint.savepoint_files import disposed_path
from runtime.common.errors import InvalidInputError, NotFoundError, UnavailableError
from runtime.common.ids import JobId
from runtime.gateways.task_executor import DisposeSavepointRequest, SavepointFound, SavepointRequest
from runtime.taskexecutor import savepoint_disposal
from runtime.taskexecutor.savepoint_disposal import dispose_savepoint, find_savepoint
from tests.kit.checkpoint.query_directories import query_directory, saved

JOB = JobId("a" * 32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return saved(tmp_path / "s", query_directory(tmp_path / "query", batches=1), batch_id=0, job_id=JOB)


def order(path: Path | str, below: Path | str = "", job: JobId = JOB) -> DisposeSavepointRequest:
    return DisposeSavepointRequest(str(path), str(below), job)


def test_a_savepoint_is_found_and_deleted(path: Path) -> None:
    assert find_savepoint(SavepointRequest(str(path), str(path.parent))) == SavepointFound(JOB)
    assert find_savepoint(SavepointRequest(path.as_uri(), "")) == SavepointFound(JOB)
    dispose_savepoint(order(path, path.parent))
    assert list(path.parent.iterdir()) == []
    with pytest.raises(NotFoundError):
        dispose_savepoint(order(path))
    with pytest.raises(NotFoundError, match="is not there"):
        find_savepoint(SavepointRequest("/nowhere/savepoint-1", ""))


def test_what_an_interrupted_order_left_is_deleted(path: Path) -> None:
    path.rename(disposed_path(path))
    dispose_savepoint(order(path))
    assert list(path.parent.iterdir()) == []


def test_another_job_has_made_it(path: Path) -> None:
    """What was found may have been replaced before it was deleted."""
    with pytest.raises(InvalidInputError, match=r"of job a{32} by now"):
        dispose_savepoint(order(path, job=JobId("b" * 32)))
    assert path.is_dir()


def test_what_is_no_savepoint_stays(tmp_path: Path, path: Path) -> None:
    data = tmp_path / "savepoint-data"
    data.mkdir()
    (data / "rows").write_text("1")
    with pytest.raises(NotFoundError):
        dispose_savepoint(order(data))
    for name in (tmp_path / "query", path / ".."):
        with pytest.raises(InvalidInputError):
            dispose_savepoint(order(name))
    for strange in ("rows", ".hidden", "sink/0/notes", "sink/savepoint-inner/_metadata"):
        (path / strange).parent.mkdir(parents=True, exist_ok=True)
        (path / strange).write_text("1")
        with pytest.raises(InvalidInputError, match=f"'{strange}'.* beside the savepoint"):
            dispose_savepoint(order(path))
        (path / strange).unlink()
    (path / "sink" / "elsewhere").symlink_to(tmp_path)
    with pytest.raises(InvalidInputError, match="'sink/elsewhere'"):
        dispose_savepoint(order(path))
    (path / "rows").write_text("1")
    assert (data / "rows").exists()
    assert (path / "rows").exists()
    with pytest.raises(InvalidInputError, match="no absolute path"):
        dispose_savepoint(order("s3://bucket/savepoint-1"))


def test_links_lead_out_of_nothing(tmp_path: Path, path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "elsewhere").symlink_to(path.parent)
    (allowed / path.name).symlink_to(path)
    with pytest.raises(InvalidInputError, match="not below"):
        dispose_savepoint(order(allowed / "elsewhere" / path.name, allowed))
    with pytest.raises(InvalidInputError, match="is a link"):
        dispose_savepoint(order(allowed / path.name, allowed))
    with pytest.raises(InvalidInputError, match="not below"):
        find_savepoint(SavepointRequest(str(path), str(allowed)))
    (allowed / "loop").symlink_to(allowed / "loop")
    with pytest.raises((UnavailableError, NotFoundError)):
        find_savepoint(SavepointRequest(str(allowed / "loop" / path.name), ""))
    assert path.is_dir()


def test_a_job_id_that_is_none(tmp_path: Path) -> None:
    made = saved(tmp_path / "s", query_directory(tmp_path / "query", batches=1), batch_id=0, job_id="x/../y")
    with pytest.raises(InvalidInputError):
        find_savepoint(SavepointRequest(str(made), ""))


def test_storage_that_fails_may_do_it_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(of: Path) -> None:
        raise OSError(5, "Input/output error", str(of))

    monkeypatch.setattr(savepoint_disposal, "dispose", fail)
    with pytest.raises(UnavailableError, match="Input/output error"):
        dispose_savepoint(order(path))
