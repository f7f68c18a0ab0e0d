"""What people do to a base while a job commits to it: nothing of theirs is taken for the job's, nor lost (R28)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

from runtime.common.errors import InvalidInputError
from runtime.gateways.task import APPEND, OVERWRITE, OVERWRITE_PARTITIONS, OutputDirectory
from runtime.taskexecutor.outputs import repeat_commit
from runtime.taskexecutor.outputs.move_permit import MoveStoppedError, Permit
from runtime.taskexecutor.storage.core.output_plan import OutputPlan, PlannedFile
from runtime.taskexecutor.storage.local_output_files import LocalOutputFiles
from tests.kit.control_plane.committed_outputs import (
    COMMIT,
    JOB,
    attempt,
    attempt_path,
    commit,
    everything,
    tree,
    visible,
)


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


# --- sources that others delete ---------------------------------------------------------------------------------------


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
    from runtime.taskexecutor.storage.remote_output_files import RemoteOutputFiles

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


# --- bases whose path leads to another directory ----------------------------------------------------------------------


OLD = {f"part-{number}": "old" for number in range(20)}


def fill(directory: Path) -> Path:
    directory.mkdir()
    for name, text in OLD.items():
        (directory / name).write_text(text)
    return directory


def retarget(base: Path, target: Path) -> None:
    """As people switch from one version to the next."""
    (base.parent / "next").symlink_to(target)
    (base.parent / "next").replace(base)


def replaced(base: Path) -> Path:
    """Where the directory is from now on."""
    now = base.rename(base.parent / "now")
    fill(base)
    return now


@contextlib.contextmanager
def when_written(name: str, do: Callable[[], object]) -> Iterator[None]:
    """Of the records of the commit."""
    real = LocalOutputFiles.write

    def write(self: LocalOutputFiles, written: str, data: bytes, /) -> None:
        real(self, written, data)
        if written.endswith(f"/{name}"):
            do()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalOutputFiles, "write", write)
        yield


@pytest.mark.parametrize("step", ["order", "plan", "moved"])
def test_a_link_that_is_retargeted_takes_the_commit_nowhere_else(
    tmp_path: Path, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, base = fill(tmp_path / "v1"), fill(tmp_path / "v2"), tmp_path / "cur"
    base.symlink_to(first)
    with when_written(step, lambda: retarget(base, second)):
        commit([attempt(base, 0, mode=OVERWRITE, new="new")])
    assert everything(second) == OLD.keys()
    assert tree(first) == {"new", "_SUCCESS"}
    assert f"are in {first}: {base} leads to another directory" in caplog.text


@pytest.mark.parametrize("step", ["order", "plan", "moved"])
def test_a_directory_that_is_put_in_the_place_of_the_base_is_left_alone(tmp_path: Path, step: str) -> None:
    base = fill(tmp_path / "base")
    with when_written(step, lambda: replaced(base)):
        commit([attempt(base, 0, mode=OVERWRITE, new="new")])
    assert everything(base) == OLD.keys()
    assert tree(tmp_path / "now") == {"new", "_SUCCESS"}


def test_the_next_mover_of_a_base_that_leads_elsewhere_is_refused_until_it_leads_back(tmp_path: Path) -> None:
    first, second, base = fill(tmp_path / "v1"), fill(tmp_path / "v2"), tmp_path / "cur"
    base.symlink_to(first)
    output = attempt(base, 0, mode=OVERWRITE, new="new")
    stopped_behind(output, "moved")
    retarget(base, second)
    with pytest.raises(InvalidInputError, match=r"this name has to lead to that directory.*has become visible there"):
        commit([output], 2)
    assert visible(second) == OLD
    retarget(base, first)
    commit([output], 3)
    assert tree(first) == {"new", "_SUCCESS"}


def test_a_failure_says_where_the_path_has_to_lead_for_its_repeat(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, base = fill(tmp_path / "v1"), fill(tmp_path / "v2"), tmp_path / "cur"
    base.symlink_to(first)
    output = attempt(base, 0, mode=OVERWRITE, a="new", b="new")
    source = first / attempt_path(output).name / "b"

    def meddle() -> None:
        source.rename(tmp_path / "away")
        retarget(base, second)

    with when_written("plan", meddle), pytest.raises(InvalidInputError) as failed:
        commit([output])
    assert f"1 of 2 files of the job are visible, what its tasks wrote is kept; to repeat the commit, once {base}" in (
        str(failed.value)
    )
    assert str(failed.value).endswith(f"leads to {first} again: bin/commit-outputs.sh {base}/{COMMIT}")
    (tmp_path / "away").rename(source)
    assert repeat_commit.main([f"{first}/{COMMIT}"]) == 1
    assert f"leads to another directory now: let it lead to {first} again" in capsys.readouterr().err
    assert visible(second) == OLD
    retarget(base, first)
    assert repeat_commit.main([f"{base}/{COMMIT}"]) == 0, capsys.readouterr().err
    assert visible(first) == {"a": "new", "b": "new"}


def test_messages_have_the_path_that_people_know(tmp_path: Path) -> None:
    output = attempt(tmp_path, 0, a="1")
    (tmp_path / COMMIT).write_text("in the way")
    with pytest.raises(InvalidInputError) as failed:
        commit([output])
    assert f"'{tmp_path}/{COMMIT}" in str(failed.value)
    assert "/proc/" not in str(failed.value)


@pytest.mark.parametrize("name", ["a", "taken"])
def test_a_commit_leaves_no_directory_open(tmp_path: Path, name: str) -> None:
    outputs = [attempt(tmp_path / base, number, **{name: base}) for number, base in enumerate("xyz")]
    outputs.append(attempt(tmp_path / "x", 9, other="1"))
    (tmp_path / "z/taken").write_text("old")
    refused = pytest.raises(InvalidInputError, match="exists already") if name == "taken" else contextlib.nullcontext()
    before = set(Path("/proc/self/fd").iterdir())
    with refused:
        commit(outputs)
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_a_directory_that_was_let_go_is_reached_by_nobody(tmp_path: Path) -> None:
    """Not the one either that has got its number since."""
    files = LocalOutputFiles(str(tmp_path))
    files.hold()
    files.write("a", b"1")
    files.release()
    files.release()
    other = os.open("/", os.O_PATH)
    try:
        assert files.read("a") is None
        with pytest.raises(FileNotFoundError):
            files.make_room("b")
    finally:
        os.close(other)


# --- what a job may not write -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [f".commit-{JOB}.turn", f".commit-{JOB}", ".attempt-x/part", "day=1/.commit-x"])
@pytest.mark.parametrize("kind", ["local", "memory"])
def test_names_of_the_commits_own_are_refused_before_anything_is_seen(tmp_path: Path, name: str, kind: str) -> None:
    output = attempt(tmp_path, 0, mode=OVERWRITE, a="1", **{name: "mine"})
    if kind == "memory":
        root = f"memory://{tmp_path}"
        output = OutputDirectory(root, f"{root}/{attempt_path(output).name}", OVERWRITE)
        fsspec.filesystem("memory").pipe({f"{output.directory}/{one}": b"1" for one in ("a", name)})
    said = f"{name}: names that begin with .* are those of commits.* nothing of the job has become visible, what"
    with pytest.raises(InvalidInputError, match=said):
        commit([output])
    assert visible(tmp_path) == {}


@pytest.mark.parametrize("way", ["{attempt}/a", "{alias}/a", "{attempt}", "{attempt}/out", "{hop}", "../{name}/a"])
def test_a_link_into_the_directory_of_an_attempt_is_refused_before_anything_is_seen(tmp_path: Path, way: str) -> None:
    """It would lead nowhere when that directory is gone."""
    base = tmp_path / "base"
    output = attempt(base, 0, a="1", b="2")
    directory = attempt_path(output)
    (tmp_path / "alias").symlink_to(directory)
    (tmp_path / "hop").symlink_to(directory / "a")
    (directory / "out").symlink_to("/dev/null")
    target = way.format(attempt=directory, alias=tmp_path / "alias", hop=tmp_path / "hop", name=directory.name)
    (directory / "link").symlink_to(target)
    said = (
        f"{directory.name}/link is a link to .*, in the hidden directory of an attempt.*nothing of the job has become"
    )
    with pytest.raises(InvalidInputError, match=said):
        commit([output])
    assert visible(base) == {}
    (directory / "link").unlink()
    (directory / "link").symlink_to("a")
    commit([output], 2)
    assert (base / "link").read_text() == "1"
