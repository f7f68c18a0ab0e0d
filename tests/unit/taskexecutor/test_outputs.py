"""Accepted outputs become visible, others disappear, and a commit can be repeated at every point."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

from runtime.aio.clock import LoopClock
from runtime.common.errors import InvalidInputError
from runtime.common.ids import VertexId
from runtime.gateways.task import APPEND, ERROR, OVERWRITE, OVERWRITE_PARTITIONS, OutputDirectory
from runtime.taskexecutor.outputs import repeat_commit
from runtime.taskexecutor.outputs.commit_records import claim, commit_names, read_claim
from runtime.taskexecutor.outputs.move_permit import MoveStoppedError, MoveSupersededError, Permit
from runtime.taskexecutor.outputs.output_move import OutputMove
from runtime.taskexecutor.outputs.storage_steps import PARALLEL_MAX
from runtime.taskexecutor.storage.directory_tree import RemoteFilesError
from runtime.taskexecutor.storage.local_output_files import LocalOutputFiles
from tests.kit.control_plane.committed_outputs import (
    COMMIT,
    JOB,
    attempt,
    attempt_path,
    commit,
    order,
    tree,
    visible,
)


def test_files_of_all_attempts_move_into_the_base(tmp_path: Path) -> None:
    first = attempt(
        tmp_path, 0, **{"part-0.parquet": "a", "day=1/part-1.parquet": "b", "_SUCCESS": "", "._SUCCESS.crc": ""}
    )
    second = attempt(tmp_path, 1, **{"part-2.parquet": "c", "_temporary/0/part-9": "x", ".part-2.parquet.crc": "1"})
    assert commit([first, second])[-1] == (4, 4)
    assert tree(tmp_path) == {
        "part-0.parquet",
        "day=1/part-1.parquet",
        "part-2.parquet",
        ".part-2.parquet.crc",
        "_SUCCESS",
    }
    assert not list(tmp_path.glob(".attempt-*"))


@pytest.mark.parametrize("mode", [APPEND, OVERWRITE, ERROR, OVERWRITE_PARTITIONS])
def test_a_repeated_commit_changes_nothing(tmp_path: Path, mode: str) -> None:
    output = attempt(tmp_path, 0, mode=mode, a="1")
    commit([output])
    commit([output], 2)
    assert tree(tmp_path) == {"a", "_SUCCESS"}


def test_a_commit_that_ended_half_way_goes_on(tmp_path: Path) -> None:
    output = attempt(tmp_path, 0, a="1", b="2")
    os.link(attempt_path(output) / "a", tmp_path / "a")  # between link and unlink, behind the plan
    plan_only(output)
    commit([output])
    assert tree(tmp_path) == {"a", "b", "_SUCCESS"}


def plan_only(output: OutputDirectory) -> None:
    """As a mover that was killed behind its plan."""
    (Path(output.base) / "a").unlink()
    stopper = Permit()
    real = LocalOutputFiles.write

    def write(self: LocalOutputFiles, name: str, data: bytes, /) -> None:
        real(self, name, data)
        if name.endswith("/plan"):
            stopper.withdraw("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalOutputFiles, "write", write)
        with pytest.raises(MoveStoppedError):
            commit([output], permit=stopper)
    os.link(attempt_path(output) / "a", Path(output.base) / "a")


def test_an_attempt_that_wrote_nothing_still_gets_its_marker(tmp_path: Path) -> None:
    (tmp_path / "new/.attempt-0").mkdir(parents=True)
    commit([OutputDirectory(str(tmp_path / "new"), str(tmp_path / "new/.attempt-0"))])
    assert tree(tmp_path / "new") == {"_SUCCESS"}


@pytest.mark.parametrize("spelling", ["file:{}", "file://{}", "{}/", "{}/../{name}"])
def test_two_spellings_of_one_base_are_one_base(tmp_path: Path, spelling: str) -> None:
    base = tmp_path / "out"
    first, second = attempt(base, 0, mode=OVERWRITE, a="1"), attempt(base, 1, mode=OVERWRITE, b="2")
    other = spelling.format(base, name=base.name)
    commit([first, OutputDirectory(other, f"{other.rstrip('/')}/{attempt_path(second).name}", OVERWRITE)])
    assert visible(base) == {"a": "1", "b": "2"}


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_an_accepted_directory_that_is_gone_is_an_error_and_nothing_is_replaced(tmp_path: Path, kind: str) -> None:
    """As a TaskManager sees it that has another disk under that name."""
    root = str(tmp_path) if kind == "local" else f"memory://{tmp_path}"
    files, base = fsspec.core.url_to_fs(root)
    files.makedirs(base, exist_ok=True)
    files.pipe_file(f"{base}/old", b"old")
    with pytest.raises(InvalidInputError, match=r"\.attempt-0, which was accepted, is gone, or .* one name from every"):
        commit([OutputDirectory(root, f"{root}/.attempt-0", OVERWRITE)])
    assert files.cat_file(f"{base}/old") == b"old"


def test_a_plan_is_not_made_behind_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order is claimed before another mover is done, and planned behind that: what is there then is new."""
    output = attempt(tmp_path, 0, mode=OVERWRITE, a="1")
    later = order([output], 1, epoch=2)
    real, is_first = OutputMove._plan, True

    def plan(self: OutputMove, base: Any) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            commit([output])
        real(self, base)

    async def run() -> None:
        await OutputMove(later, Permit(), None, lambda *_: None, LoopClock(), patience=0.0).run()

    with monkeypatch.context() as patch:
        patch.setattr(OutputMove, "_plan", plan)
        patch.setattr("runtime.taskexecutor.outputs.output_move.claim_in", lambda _: None)
        asyncio.run(run())
    assert visible(tmp_path) == {"a": "1"}


def test_what_cannot_be_tidied_behind_done_does_not_fail_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    output = attempt(tmp_path, 0, a="1")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(LocalOutputFiles, "remove_tree", refuse)
    commit([output])
    assert visible(tmp_path) == {"a": "1"}
    assert f"stay in {tmp_path}: [Errno 13]" in caplog.text


def test_two_attempts_with_one_name_publish_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"b exists already: another subtask .* nothing of the job has become"):
        commit([attempt(tmp_path, 0, a="1", b="1"), attempt(tmp_path, 1, b="2", c="2")])
    assert visible(tmp_path) == {}
    assert len(list(tmp_path.glob(".attempt-*/*"))) == 4, "what was accepted is kept"


def test_a_name_that_is_taken_in_one_base_publishes_nothing_in_any(tmp_path: Path) -> None:
    first, second = attempt(tmp_path / "x", 0, a="1"), attempt(tmp_path / "y", 0, b="new", z="new")
    (tmp_path / "y/z").write_text("old")
    with pytest.raises(InvalidInputError, match=r"y/z exists already: an earlier job .*bin/commit-outputs.sh"):
        commit([first, second])
    assert (visible(tmp_path / "x"), visible(tmp_path / "y")) == ({}, {"z": "old"})
    (tmp_path / "y/z").unlink()
    commit([first, second], 2)
    assert (visible(tmp_path / "x"), visible(tmp_path / "y")) == ({"a": "1"}, {"b": "new", "z": "new"})


# --- modes ------------------------------------------------------------------------------------------------------------


def old(base: Path) -> None:
    for name in ("part-old", "same", "day=1/old", "day=2/old", ".part-old.crc"):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("old")


NEW = {"part-new": "new", "same": "new", "day=1/new": "new"}


def test_overwrite_replaces_what_was_there(tmp_path: Path) -> None:
    old(tmp_path)
    foreign = tmp_path / ".attempt-other_0/part-1"
    foreign.parent.mkdir()
    foreign.touch()
    files = [attempt(tmp_path, 0, mode=OVERWRITE, **NEW), attempt(tmp_path, 1, mode=OVERWRITE, other="new")]
    commit(files)
    assert visible(tmp_path) == {**NEW, "other": "new"}
    assert foreign.exists(), "what another job writes there"
    assert not (tmp_path / "day=2").exists()
    assert not (tmp_path / ".part-old.crc").exists()


def test_overwrite_partitions_replaces_the_files_of_directories_that_get_new_ones(tmp_path: Path) -> None:
    old(tmp_path)
    commit([attempt(tmp_path, 0, mode=OVERWRITE_PARTITIONS, **{"day=1/new": "new"})])
    assert visible(tmp_path) == {"part-old": "old", "same": "old", "day=1/new": "new", "day=2/old": "old"}


def test_append_adds(tmp_path: Path) -> None:
    (tmp_path / "part-old").write_text("old")
    commit([attempt(tmp_path, 0, a="new")])
    assert visible(tmp_path) == {"part-old": "old", "a": "new"}


def test_error_refuses_a_base_with_files(tmp_path: Path) -> None:
    output = attempt(tmp_path, 0, mode=ERROR, a="new")
    (tmp_path / "part-old").write_text("old")
    with pytest.raises(InvalidInputError, match="holds part-old, and mode='error' refuses"):
        commit([output])
    assert visible(tmp_path) == {"part-old": "old"}


# --- repeats ----------------------------------------------------------------------------------------------------------


class Step(BaseException):
    """The process is killed here."""


@pytest.mark.parametrize("mode", [OVERWRITE, APPEND, OVERWRITE_PARTITIONS])
@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_mover_may_die_at_every_step(tmp_path: Path, mode: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R28: at each operation of the storage, before it and after it; the next mover ends with the accepted files."""
    files = fsspec.filesystem("memory")
    total, step = 0, 0
    while step <= total:
        for when in ("before", "after"):
            root = str(tmp_path / f"{step}-{when}") if kind == "local" else f"memory://{tmp_path}/{step}-{when}"
            output = written(root, mode)
            total = max(total, killed_at(output, step, when, monkeypatch))
            commit([output], 2)
            expected = {"a": "new", "day=1/b": "new", **({} if mode == OVERWRITE else {"keep": "old"})}
            if mode == APPEND:
                expected["day=1/old"] = "old"
            if mode == OVERWRITE:
                expected.update({"file/c": "new", "directory": "new"})
            assert shown(root) == expected, (step, when)
        step += 1
    assert total >= 15
    files.rm("/", recursive=True)


def written(root: str, mode: str) -> OutputDirectory:
    files, base = fsspec.core.url_to_fs(root)
    hidden = f"{base}/.attempt-{JOB}_0"
    new = {f"{hidden}/a": b"new", f"{hidden}/day=1/b": b"new"}
    present = {f"{base}/keep": b"old", f"{base}/day=1/old": b"old"}
    if mode != APPEND:  # of jobs that had it for their base
        present[f"{base}/day=1/_SUCCESS"] = b""
    if mode == OVERWRITE:  # what is in the way of each other
        present.update({f"{base}/day=2/_SUCCESS": b"", f"{base}/directory/_SUCCESS": b""})
        new.update({f"{hidden}/file/c": b"new", f"{hidden}/directory": b"new"})
        present.update({f"{base}/file": b"old", f"{base}/directory/c": b"old", f"{base}/directory/more/d": b"old"})
    for name, data in {**new, **present}.items():
        files.makedirs(name.rpartition("/")[0], exist_ok=True)
        files.pipe_file(name, data)
    if mode == OVERWRITE_PARTITIONS:
        files.mv(f"{hidden}/a", f"{hidden}/day=1/a")
        files.mv(f"{hidden}/day=1/a", f"{hidden}/a2")
        files.rm_file(f"{hidden}/a2")
        files.pipe_file(f"{hidden}/day=1/a", b"new")
    return OutputDirectory(root, f"{root}/.attempt-{JOB}_0", mode)


def shown(root: str) -> dict[str, str]:
    files, base = fsspec.core.url_to_fs(root)
    names = {str(path)[len(base) + 1 :]: path for path in files.find(base)}
    assert [name for name in names if name.endswith("_SUCCESS")] == ["_SUCCESS"]
    return {
        ("a" if name == "day=1/a" else name): files.cat_file(path).decode()
        for name, path in names.items()
        if not name.startswith((".", "_"))
    }


def killed_at(output: OutputDirectory, step: int, when: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many steps there were until then."""
    from runtime.taskexecutor.storage.remote_output_files import RemoteOutputFiles

    count = 0
    with monkeypatch.context() as patch:
        for storage in (LocalOutputFiles, RemoteOutputFiles):
            for name in (
                "make_room",
                "put",
                "remove",
                "remove_tree",
                "write",
                "read",
                "written",
                "present",
                "set_aside",
            ):
                real = getattr(storage, name)

                def operation(*args: object, _real: object = real, **options: object) -> object:
                    nonlocal count
                    count += 1
                    if count > step and when == "before":
                        raise PermissionError("killed")
                    result = _real(*args, **options)  # type: ignore[operator]
                    if count > step:
                        raise PermissionError("killed")
                    return result

                patch.setattr(storage, name, operation)
        with contextlib.suppress(InvalidInputError):
            commit([output])
    return count


def test_an_accepted_file_that_is_gone_is_an_error_and_nothing_else_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    output = attempt(tmp_path, 0, mode=OVERWRITE, a="1", b="2")
    (attempt_path(output) / "x").touch()
    (tmp_path / "a").touch()
    plan_only(output)
    (tmp_path / "a").unlink()
    (attempt_path(output) / "b").unlink()
    with pytest.raises(InvalidInputError, match=r"b, which was accepted, is gone; .* what its tasks wrote is kept"):
        commit([output], 2)
    assert (tmp_path / "old").read_text() == "old"


def test_a_plan_that_was_written_in_part_is_made_again(tmp_path: Path) -> None:
    output = attempt(tmp_path, 0, a="1")
    plan_file = tmp_path / commit_names(JOB).plan
    plan_file.parent.mkdir()
    plan_file.write_bytes(b"0123\n{")
    (tmp_path / commit_names(JOB).order).write_bytes(claim(order([output]))[:-5])
    commit([output], 2)
    assert visible(tmp_path) == {"a": "1"}


def test_a_copy_is_proved_before_its_source_goes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """R28: a storage that copies half of a file, and says that all is well."""
    files = fsspec.filesystem("memory")
    root = f"memory://{tmp_path}"
    output = written(root, OVERWRITE)

    def half(path1: str, path2: str, **_: object) -> None:
        files.pipe_file(path2, files.cat_file(path1)[:1])

    with monkeypatch.context() as patch:
        patch.setattr(type(files), "cp_file", staticmethod(half))
        with pytest.raises(RemoteFilesError, match="is not what"):
            commit([output])
    assert files.exists(f"{output.directory}/a")
    assert files.cat_file(f"{root}/keep") == b"old"
    commit([output], 2)
    assert shown(root) == {"a": "new", "day=1/b": "new", "file/c": "new", "directory": "new"}


# --- one mover at a time ----------------------------------------------------------------------------------------------


def test_an_older_order_finds_that_a_later_one_is_under_way(tmp_path: Path) -> None:
    output = attempt(tmp_path, 0, a="1")
    (tmp_path / COMMIT).mkdir()
    later = order([output], 1, epoch=2)
    (tmp_path / commit_names(JOB).order).write_bytes(claim(later))
    with pytest.raises(MoveSupersededError, match=r"order 2\.1 is under way in .*, this is 1\.9"):
        commit([output], 9)
    assert read_claim(claim(later)) == replace(later, vertex_id=VertexId(""))
    assert visible(tmp_path) == {}


def test_a_permit_that_is_withdrawn_ends_each_thread_before_its_next_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R27: not only before its next bunch of files."""
    output = attempt(tmp_path, 0, **{f"f{n}": "x" for n in range(16 * 4 * PARALLEL_MAX)})
    permit, moved = Permit(), list[object]()

    def put(_: LocalOutputFiles, *names: object, **__: object) -> None:
        permit.withdraw("its fence was waited out")
        moved.append(names)

    monkeypatch.setattr(LocalOutputFiles, "put", put)
    with pytest.raises(MoveStoppedError):
        commit([output], permit=permit)
    assert 1 <= len(moved) <= PARALLEL_MAX, "one for each thread that had looked before that"


def test_a_permit_that_is_withdrawn_ends_the_move_before_its_next_file(tmp_path: Path) -> None:
    output = attempt(tmp_path, 0, **{f"f{number}": "1" for number in range(5)})
    moved = 0

    def loss() -> str:
        nonlocal moved
        moved = max(moved, len(visible(tmp_path)))
        return "no contact" if moved >= 2 else ""

    with pytest.raises(MoveStoppedError, match="no contact"):
        commit([output], permit=Permit(loss))
    assert 2 <= len(visible(tmp_path)) <= 5
    commit([output], 2)
    assert len(visible(tmp_path)) == 5


# --- storages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_digest", [True, False])
def test_no_file_of_somebody_else_is_taken_for_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_digest: bool
) -> None:
    """It appears between the plan and the copy, with the size of ours."""
    from runtime.taskexecutor.storage.remote_output_files import RemoteOutputFiles

    files = fsspec.filesystem("memory")
    root = f"memory://{tmp_path}"
    output = written(root, APPEND)
    real, make_room = type(files).info, RemoteOutputFiles.make_room

    def info(self: Any, path: str, **options: Any) -> dict[str, Any]:
        found = real(self, path, **options)
        return {**found, "crc32c": str(files.cat_file(path))} if found["type"] == "file" else found

    def foreign(self: RemoteOutputFiles, name: str, /) -> None:
        make_room(self, name)
        files.pipe_file(f"{root}/a", b"old")

    if has_digest:
        monkeypatch.setattr(type(files), "info", info)
    with monkeypatch.context() as patch:
        patch.setattr(RemoteOutputFiles, "make_room", foreign)
        with pytest.raises(InvalidInputError, match="a exists already: somebody wrote a file of that name since"):
            commit([output])
    assert (files.cat_file(f"{root}/a"), files.cat_file(f"{output.directory}/a")) == (b"old", b"new")
    files.pipe_file(f"{root}/a", b"ne")  # a copy of ours that was cut short
    commit([output], 2)
    assert files.cat_file(f"{root}/a") == b"new"


def test_names_that_appeared_elsewhere_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from runtime.taskexecutor.storage.remote_output_files import RemoteOutputFiles

    files = fsspec.filesystem("memory")
    files.pipe_file(f"memory://{tmp_path}/a", b"1")
    forgotten: list[object] = []
    monkeypatch.setattr(type(files), "invalidate_cache", lambda *_: forgotten.append(None))
    assert RemoteOutputFiles(f"memory://{tmp_path}").names() == ["a"]
    assert forgotten


@pytest.mark.parametrize("data", [b"{}\n", b"[]\n", b"{\n", b'{"outputs":[["a","b","c","d"]]}\n'])
def test_an_order_that_is_damaged_is_a_sentence(
    tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    output = attempt(tmp_path, 0, a="1")
    (tmp_path / COMMIT).mkdir()
    (tmp_path / commit_names(JOB).order).write_bytes(data)
    with pytest.raises(InvalidInputError, match="the order of a commit is damaged, or of a later release: "):
        commit([output])
    assert repeat_commit.main([f"{tmp_path}/{COMMIT}"]) == 1
    assert "the order of a commit is damaged" in capsys.readouterr().err
    assert (attempt_path(output) / "a").exists()


@pytest.mark.parametrize("url", ["foo://bucket", "s3://bucket"])
def test_a_file_system_that_is_not_there_is_a_sentence(url: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{url} cannot be reached from this TaskManager: .*(not known|s3fs)"):
        commit([OutputDirectory(url, f"{url}/.attempt-0")])


def test_what_a_driver_raises_becomes_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        message = "no credentials"
        raise LookupError(message)

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "cat_file", refuse)
    said = r"memory://base: LookupError: no credentials; nothing .* is kept in .*commit-outputs.sh append=memory://base/.attempt-0"
    with pytest.raises(RemoteFilesError, match=said):
        commit([OutputDirectory("memory://base", "memory://base/.attempt-0")])


def test_file_urls_are_local_paths(tmp_path: Path) -> None:
    output = attempt(tmp_path, 0, a="1")
    commit([OutputDirectory(f"file://{output.base}", f"file://{output.directory}")])
    assert tree(tmp_path) == {"a", "_SUCCESS"}


def test_a_directory_outside_of_the_base_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no hidden directory below"):
        commit([OutputDirectory(str(tmp_path / "base"), str(tmp_path / ".attempt-0"))])


def test_a_storage_that_fails_and_comes_back_costs_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = attempt(tmp_path, 0, a="1", b="2")
    real, failures, problems = LocalOutputFiles.put, iter([True, True, False, True]), []

    def put(*args: object, **options: object) -> None:
        if next(failures, False):
            raise OSError(5, "Input/output error")
        real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalOutputFiles, "put", put)

    async def run() -> None:
        def report(_moved: int, _total: int, problem: str) -> None:
            problems.append(problem)

        await OutputMove(order([output]), Permit(), None, report, LoopClock(), patience=60.0).run()

    asyncio.run(run())
    assert visible(tmp_path) == {"a": "1", "b": "2"}
    assert any("the storage fails, it is tried again: [Errno 5]" in problem for problem in problems)
