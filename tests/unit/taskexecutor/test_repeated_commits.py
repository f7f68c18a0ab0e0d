"""What another job has shown since is not undone by who repeats a commit by hand (R27, R28)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import APPEND, OVERWRITE, OVERWRITE_PARTITIONS, OutputDirectory
from runtime.taskexecutor.outputs import output_turns, repeat_commit
from runtime.taskexecutor.outputs.commit_records import claim, commit_names
from runtime.taskexecutor.outputs.move_permit import MoveStoppedError
from runtime.taskexecutor.storage.local_output_files import LocalOutputFiles
from runtime.taskexecutor.storage.remote_output_files import RemoteOutputFiles
from tests.kit.control_plane.commits_of_jobs import Known, killed_behind, move, names, room_for, wanted, written
from tests.kit.control_plane.committed_outputs import visible
from tests.kit.control_plane.task_messages import VERTEX, job_id

A, B, C, STRANGER = job_id(1), job_id(2), job_id(3), job_id(9)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_turns, "INTERVAL", 0.0)


@contextlib.contextmanager
def refused(step: str) -> Iterator[None]:
    """By the storage, for any caller."""

    def no(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalOutputFiles, step, no)
        yield


def wrote(base: Path, job: JobId, mode: str, **files: str) -> OutputDirectory:
    directory = base / f".attempt-{job}_0"
    for name, content in files.items():
        path = directory / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return OutputDirectory(str(base), str(directory), mode)


def repeat(base: Path, job: JobId) -> int:
    return repeat_commit.main([f"{base}/{commit_names(job).directory}"])


def is_refused(base: Path, job: JobId, by: JobId, capsys: pytest.CaptureFixture[str]) -> None:
    before = visible(base)
    assert repeat(base, job) == 1
    told = capsys.readouterr().err
    assert f"job {by} has committed to {base}" in told
    assert "run the job again" in told
    assert visible(base) == before


def fails_without_a_plan(base: Path, job: JobId, mode: str) -> None:
    """It has claimed, and then its ten minutes were over."""
    turn = wanted(base, STRANGER, cluster="elsewhere")
    with pytest.raises(InvalidInputError, match=f"job {STRANGER} commits"):
        move(job, written(base, job, mode), Known())
    turn.unlink()
    assert not (base / commit_names(job).plan).exists()


# --- a claim, and no plan ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failed", "later"),
    [(OVERWRITE, OVERWRITE), (OVERWRITE, APPEND), (APPEND, OVERWRITE), (OVERWRITE_PARTITIONS, APPEND)],
)
def test_a_commit_without_a_plan_is_not_repeated_over_what_came_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], failed: str, later: str
) -> None:
    fails_without_a_plan(tmp_path, A, failed)
    move(B, written(tmp_path, B, later), Known(A))
    is_refused(tmp_path, A, B, capsys)
    assert visible(tmp_path) == names(B)


def test_who_was_refused_before_it_planned_is_not_repeated_over_what_came_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through a dead link, which is deleted since."""
    (tmp_path / "latest").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InvalidInputError, match="is a link to"):
        move(A, wrote(tmp_path, A, OVERWRITE, latest__rows="monday"), Known())
    (tmp_path / "latest").unlink()
    move(B, wrote(tmp_path, B, OVERWRITE, latest__rows="tuesday"), Known(A))
    is_refused(tmp_path, A, B, capsys)
    assert visible(tmp_path) == {"latest/rows": "tuesday"}


def test_of_two_without_a_plan_only_the_first_is_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No store knows either of them, and the one that is repeated first shows its rows."""
    fails_without_a_plan(tmp_path, A, OVERWRITE)
    fails_without_a_plan(tmp_path, B, OVERWRITE)
    assert repeat(tmp_path, B) == 0, capsys.readouterr().err
    is_refused(tmp_path, A, B, capsys)
    assert visible(tmp_path) == names(B)


def test_who_claims_while_another_one_moves_is_not_repeated_over_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came behind that one's look for others, saw it, and had failed before that one was done."""
    output, real = written(tmp_path, A), LocalOutputFiles.write

    def write(self: LocalOutputFiles, name: str, data: bytes, /) -> None:
        real(self, name, data)
        if name == commit_names(B).moved:
            real(self, commit_names(A).order, claim(CommitOutputs(A, 1, VERTEX, (output,), 1)))

    monkeypatch.setattr(LocalOutputFiles, "write", write)
    move(B, written(tmp_path, B))
    is_refused(tmp_path, A, B, capsys)


def test_who_waited_meanwhile_is_not_overtaken_by_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It plans over what came before it, and what it has left behind that is repeated."""
    output = written(tmp_path, A)
    with killed_behind("/order") as permit, pytest.raises(MoveStoppedError):
        move(A, output, permit=permit)
    move(B, written(tmp_path, B))
    with refused("present"), pytest.raises(InvalidInputError, match="Permission denied"):
        move(A, output)  # it has its turn behind B, and no plan
    assert repeat(tmp_path, A) == 0, capsys.readouterr().err
    assert visible(tmp_path) == names(A)


def test_who_planned_after_another_one_goes_on(tmp_path: Path) -> None:
    output = written(tmp_path, A)
    with killed_behind("/order") as permit, pytest.raises(MoveStoppedError):
        move(A, output, permit=permit)
    move(B, written(tmp_path, B))
    with room_for(1), pytest.raises(InvalidInputError, match="Permission denied"):
        move(A, output)
    move(A, output)
    assert visible(tmp_path) == names(A)


# --- nothing claimed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("later", [OVERWRITE, APPEND])
def test_a_commit_that_never_began_is_not_done_over_what_came_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], later: str
) -> None:
    output = written(tmp_path, A)
    move(B, written(tmp_path, B, later))
    assert repeat_commit.main([f"overwrite={output.directory}"]) == 1
    assert f"job {B} has committed to {tmp_path}" in capsys.readouterr().err
    assert visible(tmp_path) == names(B)


def test_what_was_said_of_a_job_that_never_began_goes_with_its_attempts(tmp_path: Path) -> None:
    """They are deleted when it has failed, and nothing can be repeated then."""
    output = written(tmp_path, A)
    move(B, written(tmp_path, B))
    assert (tmp_path / commit_names(A).preceded).exists()
    assert not (tmp_path / commit_names(A).directory).exists(), "its mover may be another user, and makes it"
    LocalOutputFiles(str(tmp_path)).remove_tree(Path(output.directory).name)
    move(C, written(tmp_path, C))
    assert not (tmp_path / commit_names(A).preceded).exists()


def test_where_there_are_no_directories_it_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = f"memory://{tmp_path}"
    files = RemoteOutputFiles(root)

    def output(job: JobId, content: bytes) -> OutputDirectory:
        files.write(f".attempt-{job}_0/rows", content)
        return OutputDirectory(root, f"{root}/.attempt-{job}_0", OVERWRITE)

    never_began = output(A, b"monday")
    with killed_behind("/order", RemoteOutputFiles) as permit, pytest.raises(MoveStoppedError):
        move(C, output(C, b"sunday"), permit=permit)
    move(B, output(B, b"tuesday"))
    for arguments in ([f"overwrite={never_began.directory}"], [f"{root}/{commit_names(C).directory}"]):
        assert repeat_commit.main(arguments) == 1
        assert f"job {B} has committed to {root}" in capsys.readouterr().err
    assert files.read("rows") == b"tuesday"


# --- a plan -----------------------------------------------------------------------------------------------------------


def test_a_file_that_was_appended_is_not_replaced_by_a_repeat(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with room_for(0), pytest.raises(InvalidInputError, match="nothing of the job has become visible"):
        move(A, wrote(tmp_path, A, OVERWRITE, rows="monday"), Known())
    move(B, wrote(tmp_path, B, APPEND, rows="tuesday"), Known(A))
    is_refused(tmp_path, A, B, capsys)
    assert visible(tmp_path) == {"rows": "tuesday"}


def test_a_directory_that_was_appended_to_is_not_set_aside_by_a_repeat(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "y").mkdir()
    (tmp_path / "y/old").write_text("old")
    with refused("set_aside"), pytest.raises(InvalidInputError, match="Permission denied"):
        move(A, wrote(tmp_path, A, OVERWRITE, y="monday"), Known())
    with pytest.raises(InvalidInputError, match=f"job {A} has failed half way"):
        move(B, wrote(tmp_path, B, APPEND, y__new="tuesday"), Known(A))
    assert repeat(tmp_path, A) == 0, capsys.readouterr().err
    assert visible(tmp_path) == {"y": "monday"}


def test_an_old_name_that_was_used_again_is_not_deleted_by_a_repeat(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "old").write_text("old")
    with refused("remove_tree"), killed_behind("/moved") as permit, pytest.raises(MoveStoppedError):
        move(A, wrote(tmp_path, A, OVERWRITE, rows="monday"), Known(), permit)
    (tmp_path / "old").unlink()  # it was about to
    with pytest.raises(InvalidInputError, match=f"job {A} has failed half way"):
        move(B, wrote(tmp_path, B, APPEND, old="tuesday"), Known(A))
    assert repeat(tmp_path, A) == 0, capsys.readouterr().err
    assert visible(tmp_path) == {"rows": "monday"}


# --- those that append ------------------------------------------------------------------------------------------------


def test_an_append_is_repeated_after_other_appends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It replaces nothing and deletes nothing, whether it was planned before or not."""
    with room_for(0), pytest.raises(InvalidInputError, match="nothing of the job has become visible"):
        move(A, written(tmp_path, A, APPEND))
    fails_without_a_plan(tmp_path, C, APPEND)
    move(B, written(tmp_path, B, APPEND))
    assert (repeat(tmp_path, A), repeat(tmp_path, C)) == (0, 0), capsys.readouterr().err
    assert visible(tmp_path) == names(A) | names(B) | names(C)


def test_an_append_that_is_planned_is_not_overtaken_by_another_one(tmp_path: Path) -> None:
    """Its job was over before anything of it was visible."""
    output = written(tmp_path, A, APPEND)
    with killed_behind("/plan") as permit, pytest.raises(MoveStoppedError):
        move(A, output, Known(), permit)
    move(B, written(tmp_path, B, APPEND), Known(A))
    move(A, output, Known())
    assert visible(tmp_path) == names(A) | names(B)


def test_an_append_is_not_repeated_when_another_job_has_replaced_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with room_for(1), pytest.raises(InvalidInputError, match="Permission denied"):
        move(A, written(tmp_path, A, APPEND))
    move(B, written(tmp_path, B, OVERWRITE), Known(A))
    is_refused(tmp_path, A, B, capsys)
    assert visible(tmp_path) == names(B)
