"""What people do to a base while a job commits to it: nothing of theirs is taken for the job's, nor lost (R28)."""

from __future__ import annotations

import os
from pathlib import Path

import fsspec
import pytest

from runtime.common.errors import InvalidInputError
from runtime.gateways.task import APPEND, OVERWRITE, OVERWRITE_PARTITIONS, OutputDirectory
from runtime.taskexecutor.core.output_plan import OutputPlan, PlannedFile
from runtime.taskexecutor.local_output_files import LocalOutputFiles
from runtime.taskexecutor.output_move import MoveStoppedError, Permit
from tests.kit.committed_outputs import JOB, attempt, attempt_path, commit, visible


def stopped_behind(output: OutputDirectory, name: str) -> None:
    """As a mover that was killed when it had written the file of that name."""
    permit, real = Permit(), LocalOutputFiles.write

    def write(self: LocalOutputFiles, written: str, data: bytes, /) -> None:
        real(self, written, data)
        if written.endswith(f"/{name}"):
            permit.withdraw("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalOutputFiles, "write", write)
        with pytest.raises(MoveStoppedError):
            commit([output], permit=permit)


# --- sources that somebody deletes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [OVERWRITE, OVERWRITE_PARTITIONS])
def test_an_old_file_is_not_taken_for_the_accepted_one_that_is_gone(tmp_path: Path, mode: str) -> None:
    """It has its name, its size, and the time that both were given."""
    output = attempt(tmp_path, 0, mode=mode, a="new", b="new")
    for name in "ab":
        (tmp_path / name).write_text("old")
        for path in (tmp_path / name, attempt_path(output) / name):
            os.utime(path, ns=(0, 0))
    stopped_behind(output, "plan")
    (attempt_path(output) / "b").unlink()
    for order in (2, 3):
        with pytest.raises(InvalidInputError, match=r"/b, which was accepted, is gone; .*commit-outputs\.sh"):
            commit([output], order)
    assert (tmp_path / "b").read_text() == "old"
    assert not (tmp_path / "_SUCCESS").exists()


@pytest.mark.parametrize("mode", [APPEND, OVERWRITE])
def test_somebodys_new_file_is_not_taken_for_the_accepted_one_that_is_gone(tmp_path: Path, mode: str) -> None:
    output = attempt(tmp_path, 0, mode=mode, a="new")
    stopped_behind(output, "plan")
    (attempt_path(output) / "a").unlink()
    (tmp_path / "a").write_text("own")
    os.utime(tmp_path / "a", ns=(0, 0))
    with pytest.raises(InvalidInputError, match="a, which was accepted, is gone"):
        commit([output], 2)
    assert (tmp_path / "a").read_text() == "own"


@pytest.mark.parametrize("mode", [APPEND, OVERWRITE, OVERWRITE_PARTITIONS])
def test_what_an_earlier_mover_has_moved_is_known_by_what_it_is(tmp_path: Path, mode: str) -> None:
    output = attempt(tmp_path, 0, mode=mode, a="new", b="new")
    if mode != APPEND:
        (tmp_path / "a").write_text("old")
    stopped_behind(output, "plan")
    (attempt_path(output) / "a").rename(tmp_path / "a")
    commit([output], 2)
    assert visible(tmp_path) == {"a": "new", "b": "new"}


def test_a_remote_file_of_somebody_is_not_taken_for_the_accepted_one_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There sources stay until all is done: one that is gone was deleted."""
    from runtime.taskexecutor.remote_output_files import RemoteOutputFiles

    files, root = fsspec.filesystem("memory"), f"memory://{tmp_path}"
    output = OutputDirectory(root, f"{root}/.attempt-{JOB}_0", OVERWRITE)
    files.pipe_file(f"{output.directory}/a", b"new")
    real = RemoteOutputFiles.make_room

    def meddle(self: RemoteOutputFiles, name: str, /) -> None:
        real(self, name)
        files.pipe_file(f"{root}/a", b"own")
        if files.exists(f"{output.directory}/a"):
            files.rm_file(f"{output.directory}/a")

    monkeypatch.setattr(RemoteOutputFiles, "make_room", meddle)
    with pytest.raises(InvalidInputError, match="a, which was accepted, is gone"):
        commit([output])
    assert files.cat_file(f"{root}/a") == b"own"


def test_a_plan_without_identities_is_carried_out() -> None:
    """As earlier releases stored it; and one of today's is read by them."""
    known = OutputPlan(OVERWRITE, (PlannedFile(".a", "x", 1, (2, 3)), PlannedFile(".b", "y", 4, (5, 6))))
    unknown = OutputPlan(OVERWRITE, (PlannedFile(".a", "x", 1), PlannedFile(".b", "y", 4)))
    assert [OutputPlan.decode(plan.encode()) for plan in (known, unknown)] == [known, unknown]
    assert b'"version":1' in known.encode()
    assert b"identities" not in unknown.encode()
