"""Beside a commit that is left half done no job says that the base is whole (R27)."""

from __future__ import annotations

import os
import shlex
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId
from runtime.gateways.task import APPEND, ERROR, OVERWRITE, OVERWRITE_PARTITIONS, OutputDirectory
from runtime.taskexecutor.outputs import output_turns, repeat_commit
from runtime.taskexecutor.outputs.commit_records import commit_names
from runtime.taskexecutor.outputs.move_permit import MoveStoppedError
from runtime.taskexecutor.outputs.storage_steps import PARALLEL_MAX
from runtime.taskexecutor.storage.local_output_files import LocalOutputFiles
from runtime.taskexecutor.storage.remote_output_files import RemoteOutputFiles
from tests.kit.control_plane.commits_of_jobs import Known, killed_behind, move, room_for
from tests.kit.control_plane.committed_outputs import visible
from tests.kit.control_plane.task_messages import job_id

A, B, C, D = job_id(1), job_id(2), job_id(3), job_id(4)

HALF = "has failed half way in"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_turns, "INTERVAL", 0.0)


def wrote(base: Path, job: JobId, mode: str, *partitions: str, names: str = "") -> OutputDirectory:
    """A file in each partition, of a name that no other job uses unless it is told."""
    directory = base / f".attempt-{job}_0"
    directory.mkdir(parents=True)
    for partition in partitions:
        path = directory / partition / (names or f"rows-{job[-1]}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(job[-1])
    return OutputDirectory(str(base), str(directory), mode)


def rows(base: Path) -> dict[str, str]:
    """Of each partition, whose."""
    found: dict[str, str] = {}
    for name, job in sorted(visible(base).items()):
        partition = name.rpartition("/")[0]
        found[partition] = found.get(partition, "") + job
    return found


def fails_half_way(
    base: Path, job: JobId, mode: str, *partitions: str, names: str = "", over: tuple[JobId, ...] = ()
) -> str:
    """Behind its first file. `over`: jobs that are known to be over."""
    with room_for(1), pytest.raises(InvalidInputError, match=f"1 of {len(partitions)} files") as failed:
        move(job, wrote(base, job, mode, *partitions, names=names), Known(*over) if over else None)
    return str(failed.value)


def is_whole(base: Path) -> bool:
    return (base / "_SUCCESS").exists()


def repeat(failure: str) -> int:
    """The last command that it names."""
    return repeat_commit.main(shlex.split(failure.rpartition("bin/commit-outputs.sh ")[2]))


# --- who is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("later", "partitions"),
    [(APPEND, ["p=1"]), (OVERWRITE_PARTITIONS, ["p=1"]), (OVERWRITE_PARTITIONS, ["p=3"]), (ERROR, ["p=3"])],
)
@pytest.mark.parametrize("failed", [OVERWRITE, APPEND, OVERWRITE_PARTITIONS])
def test_the_half_of_a_commit_is_not_told_to_be_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], failed: str, later: str, partitions: list[str]
) -> None:
    """What mends it is the repeat that it has named."""
    move(C, wrote(tmp_path, C, APPEND, "p=1", "p=2"))
    failure = fails_half_way(tmp_path, A, failed, "p=1", "p=2")
    before = visible(tmp_path)
    with pytest.raises(InvalidInputError) as refused:
        move(B, wrote(tmp_path, B, later, *partitions), Known(A))
    assert visible(tmp_path) == before
    assert not is_whole(tmp_path)
    if later != ERROR:  # that one has its own sentence
        command = f"bin/commit-outputs.sh {tmp_path}/{commit_names(A).directory} "
        assert f"job {A} {HALF} {tmp_path}" in str(refused.value)
        assert command in str(refused.value)
        assert "nothing of the job has become visible, what its tasks wrote is kept" in str(refused.value)
    assert repeat(failure) == 0, capsys.readouterr().err
    whole = "1" if failed != APPEND else "13"
    assert rows(tmp_path) == {"p=1": whole, "p=2": whole}
    assert is_whole(tmp_path)


def test_a_retry_of_an_append_that_has_failed_half_way_doubles_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = fails_half_way(tmp_path, A, APPEND, "p=1", "p=2")
    with pytest.raises(InvalidInputError, match="nothing else is to be done if this job is a retry of that one"):
        move(B, wrote(tmp_path, B, APPEND, "p=1", "p=2"), Known(A))
    assert not is_whole(tmp_path)
    assert repeat(failure) == 0, capsys.readouterr().err
    assert rows(tmp_path) == {"p=1": "1", "p=2": "1"}
    move(C, wrote(tmp_path, C, APPEND, "p=1"), Known(A, B))
    assert rows(tmp_path) == {"p=1": "13", "p=2": "1"}


def test_who_was_refused_can_be_committed_behind_the_repeat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both append: the two commands of its failure, one after the other."""
    fails_half_way(tmp_path, A, APPEND, "p=1", "p=2")
    with pytest.raises(InvalidInputError, match="to commit it behind that: ") as refused:
        move(B, wrote(tmp_path, B, APPEND, "p=2"), Known(A))
    first = shlex.split(str(refused.value).split("bin/commit-outputs.sh ")[1])[0]
    assert repeat(str(refused.value)) == 1, "it is refused until then by hand too"
    assert f"job {A} {HALF}" in capsys.readouterr().err
    assert repeat_commit.main([first]) == 0
    assert repeat(str(refused.value)) == 0, capsys.readouterr().err
    assert rows(tmp_path) == {"p=1": "1", "p=2": "12"}


def test_of_two_that_were_planned_one_goes_on_when_the_other_one_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first one had changed nothing when the second one failed half way."""
    output = wrote(tmp_path, A, APPEND, "p=1", "p=2")
    with killed_behind("/plan") as permit, pytest.raises(MoveStoppedError):
        move(A, output, Known(), permit)
    (tmp_path / commit_names(A).turn).unlink()  # no store knows about it, as its failure has said
    failure = fails_half_way(tmp_path, B, APPEND, "p=1", "p=2")
    directory = f"{tmp_path}/{commit_names(A).directory}"
    assert repeat_commit.main([directory]) == 1
    assert f"job {B} {HALF}" in capsys.readouterr().err
    assert repeat(failure) == 0
    assert repeat_commit.main([directory]) == 0, capsys.readouterr().err
    assert rows(tmp_path) == {"p=1": "12", "p=2": "12"}


def test_a_base_whose_old_files_go_is_not_whole_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An overwrite by nothing."""
    move(C, wrote(tmp_path, C, APPEND, "p=1", "p=2"))
    real, names = LocalOutputFiles.remove, iter([True])

    def remove(self: LocalOutputFiles, name: str, /) -> None:
        if name.startswith("p=") and not next(names, False):
            raise PermissionError(13, "Permission denied")
        real(self, name)

    output = wrote(tmp_path, A, OVERWRITE)
    with monkeypatch.context() as patch:
        patch.setattr(LocalOutputFiles, "remove", remove)
        with pytest.raises(InvalidInputError, match="Permission denied"):
            move(A, output)
    with pytest.raises(InvalidInputError, match=f"job {A} {HALF}"):
        move(B, wrote(tmp_path, B, APPEND, "p=1"), Known(A))


def test_where_there_is_no_rename_it_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = f"memory://{tmp_path}"
    files, real, left = RemoteOutputFiles(root), RemoteOutputFiles.put, iter([True])

    def put(self: RemoteOutputFiles, *arguments: str | int, **options: bool) -> None:
        if not next(left, False):
            raise PermissionError(13, "Permission denied")
        real(self, *arguments, **options)  # type: ignore[arg-type]

    def output(job: JobId) -> OutputDirectory:
        for name in ("p=1", "p=2"):
            files.write(f".attempt-{job}_0/{name}/rows-{job[-1]}", b"row")
        return OutputDirectory(root, f"{root}/.attempt-{job}_0", APPEND)

    first = output(A)
    with monkeypatch.context() as patch:
        patch.setattr(RemoteOutputFiles, "put", put)
        with pytest.raises(InvalidInputError, match="1 of 2 files") as failed:
            move(A, first)
    with pytest.raises(InvalidInputError, match=f"job {A} {HALF}"):
        move(B, output(B), Known(A))
    assert files.read("_SUCCESS") is None
    assert repeat(str(failed.value)) == 0, capsys.readouterr().err
    assert sorted(files.present().files) == ["p=1/rows-1", "p=2/rows-1"]


def test_of_files_that_are_moved_many_at_once_each_counts(tmp_path: Path) -> None:
    """What is said to be invisible is."""
    partitions = [f"p={number}" for number in range(4 * PARALLEL_MAX * 8)]
    with room_for(3), pytest.raises(InvalidInputError, match=f"; 3 of {len(partitions)} files of the job are visible"):
        move(A, wrote(tmp_path, A, APPEND, *partitions))
    assert len(visible(tmp_path)) == 3


# --- who goes on ------------------------------------------------------------------------------------------------------


def test_what_was_planned_and_has_changed_nothing_keeps_nobody(tmp_path: Path) -> None:
    move(C, wrote(tmp_path, C, APPEND, "p=1"))
    with room_for(0), pytest.raises(InvalidInputError, match="nothing of the job has become visible"):
        move(A, wrote(tmp_path, A, OVERWRITE, "p=1", "p=2"))
    move(B, wrote(tmp_path, B, APPEND, "p=1"), Known(A))
    assert rows(tmp_path) == {"p=1": "23"}
    assert is_whole(tmp_path)


@pytest.mark.parametrize(("later", "partitions"), [(OVERWRITE, ["p=3"]), (OVERWRITE_PARTITIONS, ["p=1", "p=2", "p=3"])])
def test_who_replaces_the_half_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], later: str, partitions: list[str]
) -> None:
    """A retry of an overwrite; what is left of the first one means nothing to those that come behind it."""
    failure = fails_half_way(tmp_path, A, OVERWRITE_PARTITIONS, "p=1", "p=2", names="rows")
    move(B, wrote(tmp_path, B, later, *partitions, names="rows"), Known(A))
    assert rows(tmp_path) == dict.fromkeys(partitions, "2")
    assert repeat(failure) == 1
    assert f"job {B} has committed to" in capsys.readouterr().err
    move(C, wrote(tmp_path, C, APPEND, "p=1"), Known(A, B))
    assert rows(tmp_path) == dict.fromkeys(partitions, "2") | {"p=1": "23" if "p=1" in partitions else "3"}
    assert is_whole(tmp_path)


def test_an_overwrite_of_partitions_replaces_no_half_that_has_others_too(tmp_path: Path) -> None:
    move(C, wrote(tmp_path, C, APPEND, "p=1", "p=2", "p=3"))
    fails_half_way(tmp_path, A, OVERWRITE, "p=1", "p=2")  # p=3 was to go
    with pytest.raises(InvalidInputError, match=f"job {A} {HALF}"):
        move(B, wrote(tmp_path, B, OVERWRITE_PARTITIONS, "p=1", "p=2"), Known(A))


@pytest.mark.parametrize("is_deleted", [False, True])
def test_the_half_stays_one_until_who_overtakes_it_has_replaced_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_deleted: bool
) -> None:
    """An overwrite has marked it, and failed before it changed anything; what that one has left may be deleted."""
    fails_half_way(tmp_path, A, APPEND, "p=1", "p=2")
    output = wrote(tmp_path, B, OVERWRITE, "p=1")
    with killed_behind("/overtaken") as permit, pytest.raises(MoveStoppedError):
        move(B, output, Known(A), permit)
    if is_deleted:
        for name in (commit_names(B).directory, f".attempt-{B}_0"):
            LocalOutputFiles(str(tmp_path)).remove_tree(name)
    with pytest.raises(InvalidInputError, match=rf"job {B} {HALF} .*commit-outputs.sh \S+/.commit-{B} "):
        move(C, wrote(tmp_path, C, APPEND, "p=1"), Known(A, B))
    assert not is_whole(tmp_path)
    if not is_deleted:
        assert repeat_commit.main([f"{tmp_path}/{commit_names(B).directory}"]) == 0, capsys.readouterr().err
        assert rows(tmp_path) == {"p=1": "2"}
    move(D, wrote(tmp_path, D, OVERWRITE, "p=2"), Known(A, B, C))
    LocalOutputFiles(str(tmp_path)).remove_tree(commit_names(D).directory)
    assert rows(tmp_path) == {"p=2": "4"}
    last = wrote(tmp_path, job_id(5), APPEND, "p=2")
    move(job_id(5), last, Known(A, B, C, D))
    assert rows(tmp_path) == {"p=2": "45"}


def test_of_two_halves_the_one_that_replaces_the_other_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The repeat of the older one would be refused for the newer one's sake."""
    fails_half_way(tmp_path, A, OVERWRITE_PARTITIONS, "p=1", "p=2", names="rows")
    output = wrote(tmp_path, B, OVERWRITE_PARTITIONS, "p=1", "p=2", "p=3", names="rows")
    with killed_behind("/plan") as permit, pytest.raises(MoveStoppedError):
        move(B, output, Known(A), permit)
    with pytest.raises(InvalidInputError, match=f"job {B} {HALF}"):
        move(C, wrote(tmp_path, C, APPEND, "p=1"), Known(A, B))
    assert repeat_commit.main([f"{tmp_path}/{commit_names(B).directory}"]) == 0, capsys.readouterr().err
    assert rows(tmp_path) == {"p=1": "2", "p=2": "2", "p=3": "2"}
    move(D, wrote(tmp_path, D, APPEND, "p=1"), Known(A, B, C))


def test_who_shows_what_looks_like_the_one_that_it_has_overtaken_is_not_its_half(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs may use the same names each time."""
    output = wrote(tmp_path, A, OVERWRITE_PARTITIONS, "p=1", names="rows")
    with killed_behind("/plan") as permit, pytest.raises(MoveStoppedError):
        move(A, output, Known(), permit)
    failure = fails_half_way(tmp_path, B, APPEND, "p=1", "p=2", names="rows", over=(A,))
    (tmp_path / commit_names(A).turn).unlink()  # as the failure of a repeat says: there is no cluster to ask
    assert rows(tmp_path) == {"p=1": "2"}
    assert repeat(failure) == 0, capsys.readouterr().err
    assert rows(tmp_path) == {"p=1": "2", "p=2": "2"}
    move(C, wrote(tmp_path, C, APPEND, "p=1"), Known(A, B))


# --- markers of directories within ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["local", "memory"])
@pytest.mark.parametrize("mode", [OVERWRITE, OVERWRITE_PARTITIONS, APPEND])
def test_a_marker_within_goes_before_what_it_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, kind: str
) -> None:
    """Jobs had had the directories for their bases, and then one writes all of them anew."""
    storage = LocalOutputFiles if kind == "local" else RemoteOutputFiles
    root = str(tmp_path) if kind == "local" else f"memory://{tmp_path}"
    files = storage(root)
    for name in ("day=1", "day=2"):
        for job in (A, B):
            files.write(f"{name}/.attempt-{job}_0/rows-{job[-1]}", b"old")
        day = f"{root}/{name}"
        move(A, OutputDirectory(day, f"{day}/.attempt-{A}_0", APPEND))
        files.write(f"{name}/._SUCCESS.crc", b"")
    files.write(f".attempt-{C}_0/day=1/new", b"new")
    real, seen = storage.put, list[set[str]]()

    def put(self: RemoteOutputFiles, *arguments: str | int, **options: bool) -> None:
        seen.append(markers())
        real(self, *arguments, **options)  # type: ignore[arg-type]

    def markers() -> set[str]:
        names = [f"{one}/{marker}" for one in ("day=1", "day=2") for marker in ("_SUCCESS", "._SUCCESS.crc")]
        return {name for name in names if files.read(name) is not None}

    everything = markers()
    assert len(everything) == 4
    monkeypatch.setattr(storage, "put", put)
    move(C, OutputDirectory(root, f"{root}/.attempt-{C}_0", mode))
    stay = {OVERWRITE: set[str](), APPEND: everything}.get(mode, {name for name in everything if "day=2" in name})
    assert seen == [stay]
    assert markers() == stay
    assert files.read("_SUCCESS") is not None
    assert files.read(f"day=2/.attempt-{B}_0/rows-2") is not None, "what another job writes there"


def test_a_directory_that_held_its_marker_only_goes_with_it(tmp_path: Path) -> None:
    (tmp_path / "day=2").mkdir()
    (tmp_path / "day=2/_SUCCESS").touch()
    (tmp_path / "file").mkdir()
    (tmp_path / "file/_SUCCESS").touch()
    (tmp_path / "file/old").touch()
    output = wrote(tmp_path, A, OVERWRITE, ".", names="file")
    with room_for(0), pytest.raises(InvalidInputError, match="Permission denied"):
        move(A, output)
    move(A, output)
    assert sorted(name for name in os.listdir(tmp_path) if name[0] != ".") == ["_SUCCESS", "file"]  # noqa: PTH208


def test_markers_within_go_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object store takes its time for each; and `_SUCCESS` of the base has gone before all of them."""
    days = [f"day={number}" for number in range(PARALLEL_MAX)]
    for day in days:
        (tmp_path / day).mkdir()
        (tmp_path / day / "_SUCCESS").touch()
    (tmp_path / "_SUCCESS").touch()
    together, real, was_whole = threading.Barrier(PARALLEL_MAX), LocalOutputFiles.remove, list[bool]()

    def remove(self: LocalOutputFiles, name: str, /) -> None:
        if name.startswith("day=") and name.endswith("/_SUCCESS"):
            was_whole.append(is_whole(tmp_path))
            together.wait(100)
        real(self, name)

    monkeypatch.setattr(LocalOutputFiles, "remove", remove)
    with ThreadPoolExecutor(PARALLEL_MAX) as executor:
        move(A, wrote(tmp_path, A, OVERWRITE, "day=0"), executor=executor)
    assert was_whole == [False] * len(days)
    assert not list(tmp_path.glob("day=*/_SUCCESS"))
