"""Accepted outputs become visible, others disappear, and a commit can be repeated at every point."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import fsspec
import pytest
import pytest_asyncio

from runtime.aio.clock import LoopClock
from runtime.aio.scope import ServiceScope
from runtime.common.errors import InvalidInputError
from runtime.common.ids import VertexId
from runtime.common.states import ExecutionState
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import APPEND, ERROR, OVERWRITE, OVERWRITE_PARTITIONS, OutputDirectory
from runtime.taskexecutor import repeat_commit
from runtime.taskexecutor.contact import ContactKeeper, ContactSettings
from runtime.taskexecutor.core.contact import ContactAccepted
from runtime.taskexecutor.core.events import MoveProgressed, OutputsMoved
from runtime.taskexecutor.output_files import LocalOutputFiles
from runtime.taskexecutor.output_move import (
    MoveStoppedError,
    MoveSupersededError,
    OutputMove,
    Permit,
    claim,
    commit_names,
    read_claim,
)
from runtime.taskexecutor.outputs import OutputCommitter
from runtime.taskexecutor.partitions import RemoteFilesError
from tests.kit.task_messages import VERTEX, job_id, report

JOB = job_id(1)
COMMIT = commit_names(JOB).directory
DONE = commit_names(JOB).done


def attempt(base: Path, number: int, *, mode: str = APPEND, **files: str) -> OutputDirectory:
    directory = base / f".attempt-{JOB}_{number}"
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return OutputDirectory(str(base), str(directory), mode)


def tree(base: Path) -> set[str]:
    """All files but the tombstone of the commit."""
    return {name for path in base.rglob("*") if path.is_file() and (name := str(path.relative_to(base))) != DONE}


def everything(base: Path) -> set[str]:
    return {str(path.relative_to(base)) for path in base.rglob("*") if path.is_file()}


def order(outputs: Sequence[OutputDirectory], number: int = 1, epoch: int = 1) -> CommitOutputs:
    return CommitOutputs(JOB, epoch, VERTEX, tuple(outputs), number)


def commit(outputs: Sequence[OutputDirectory], number: int = 1, permit: Permit | None = None) -> list[tuple[int, int]]:
    """Move. How far it was said to be, from time to time."""
    told: list[tuple[int, int]] = []

    async def run() -> None:
        def report(moved: int, total: int, _problem: str) -> None:
            told.append((moved, total))

        await OutputMove(order(outputs, number), permit or Permit(), None, report, LoopClock(), patience=0.0).run()

    asyncio.run(run())
    return told


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


def attempt_path(output: OutputDirectory) -> Path:
    return Path(output.directory)


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
        patch.setattr("runtime.taskexecutor.output_move._claim_in", lambda _: None)
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


def visible(base: Path) -> dict[str, str]:
    return {
        name: path.read_text()
        for path in base.rglob("*")
        if path.is_file() and not (name := str(path.relative_to(base))).startswith((".", "_"))
    }


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
            assert shown(root) == expected, (step, when)
        step += 1
    assert total >= 15
    files.rm("/", recursive=True)


def written(root: str, mode: str) -> OutputDirectory:
    files, base = fsspec.core.url_to_fs(root)
    hidden = f"{base}/.attempt-{JOB}_0"
    new = {f"{hidden}/a": b"new", f"{hidden}/day=1/b": b"new"}
    for name, data in {**new, f"{base}/keep": b"old", f"{base}/day=1/old": b"old"}.items():
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
    assert "_SUCCESS" in names
    return {
        ("a" if name == "day=1/a" else name): files.cat_file(path).decode()
        for name, path in names.items()
        if not name.startswith((".", "_"))
    }


def killed_at(output: OutputDirectory, step: int, when: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many steps there were until then."""
    from runtime.taskexecutor.output_files import RemoteOutputFiles

    count = 0
    with monkeypatch.context() as patch:
        for storage in (LocalOutputFiles, RemoteOutputFiles):
            for name in ("make_room", "put", "remove", "remove_tree", "write", "read", "sizes"):
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
    assert shown(root) == {"a": "new", "day=1/b": "new"}


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
    from runtime.taskexecutor.output_files import RemoteOutputFiles

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
    from runtime.taskexecutor.output_files import RemoteOutputFiles

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
    said = r"memory://base: LookupError: no credentials; nothing .* is kept; .*commit-outputs.sh memory://base/.commit-"
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


# --- the committer ----------------------------------------------------------------------------------------------------


class Committer:
    def __init__(self, scope: ServiceScope) -> None:
        self.posted: asyncio.Queue[OutputsMoved | MoveProgressed] = asyncio.Queue()
        self.real = OutputCommitter(scope, self.posted.put_nowait, LoopClock())

    async def commit(self, *outputs: OutputDirectory) -> OutputsMoved:
        self.real.begin(order(outputs))
        while not isinstance(event := await self.posted.get(), OutputsMoved):
            pass
        return event


@pytest_asyncio.fixture
async def committer() -> AsyncIterator[Committer]:
    scope = ServiceScope("test")
    await scope.open()
    yield Committer(scope)
    await scope.close()


def note(committer: Committer, *outputs: OutputDirectory) -> None:
    for number, output in enumerate(outputs):
        finished = replace(report(1, number), state=ExecutionState.FINISHED, outputs=(output,))
        committer.real.note(finished)


@pytest.mark.asyncio
async def test_outputs_that_were_not_accepted_disappear_with_the_job(tmp_path: Path, committer: Committer) -> None:
    accepted, rejected = attempt(tmp_path, 0, a="1"), attempt(tmp_path / "other", 1, b="2")
    note(committer, accepted, rejected)
    assert await committer.commit(accepted) == OutputsMoved(JOB)
    await committer.real.end_job(JOB, is_over=True)
    await committer.real.end_job(JOB, is_over=True)
    assert everything(tmp_path) == {"a", "_SUCCESS"}


@pytest.mark.asyncio
async def test_what_was_accepted_is_kept_when_its_commit_fails(tmp_path: Path, committer: Committer) -> None:
    """R28: also by a TaskManager that has heard nothing of the commit, only that the job is over."""
    accepted, other = attempt(tmp_path, 0, a="1"), attempt(tmp_path, 1, b="2")
    note(committer, accepted, other)
    (tmp_path / "a").write_text("taken")
    failed = await committer.commit(accepted, other)
    assert failed.failure is not None
    assert "exists already" in failed.failure.message
    await committer.real.end_job(JOB, is_over=True)
    assert (Path(accepted.directory) / "a").read_text() == "1"
    assert (Path(other.directory) / "b").read_text() == "2"


@pytest.mark.asyncio
async def test_a_claim_in_one_base_keeps_what_was_accepted_in_all(
    tmp_path: Path, committer: Committer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = attempt(tmp_path / "x", 0, mode=OVERWRITE, a="1"), attempt(tmp_path / "y", 1, mode=OVERWRITE, b="2")
    (tmp_path / "y/old").write_text("old")
    real = LocalOutputFiles.write

    def write(self: LocalOutputFiles, name: str, data: bytes, /) -> None:
        if self.base.endswith("y"):
            raise PermissionError(13, "Permission denied")
        real(self, name, data)

    note(committer, first, second)
    with monkeypatch.context() as patch:
        patch.setattr(LocalOutputFiles, "write", write)
        failed = await committer.commit(first, second)
    assert failed.failure is not None
    await committer.real.end_job(JOB, is_over=True)
    assert await asyncio.to_thread(repeat_commit.main, [f"{tmp_path}/x/{COMMIT}"]) == 0, capsys.readouterr().err
    assert (everything(tmp_path / "x"), everything(tmp_path / "y")) == ({"a", "_SUCCESS"}, {"b", "_SUCCESS"})


@pytest.mark.asyncio
async def test_behind_an_order_that_cannot_be_read_nothing_that_finished_is_deleted(
    tmp_path: Path, committer: Committer, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = attempt(tmp_path / "x", 0, a="1"), attempt(tmp_path / "y", 1, b="2")
    (tmp_path / "x" / COMMIT).mkdir()
    (tmp_path / "x" / commit_names(JOB).order).write_bytes(b"{}\n")
    note(committer, first, second)
    await committer.real.end_job(JOB, is_over=True)
    assert attempt_path(first).exists()
    assert attempt_path(second).exists()
    assert "is kept: " in caplog.text


@pytest.mark.asyncio
async def test_a_stop_returns_when_no_thread_moves_any_more(
    tmp_path: Path, committer: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R13: the key of this TaskManager goes behind that."""
    is_moving, may_go_on = threading.Event(), threading.Event()
    real = LocalOutputFiles.put

    def put(*args: object, **options: object) -> None:
        is_moving.set()
        may_go_on.wait()
        real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalOutputFiles, "put", put)
    committer.real.begin(order([attempt(tmp_path, 0, a="1")]))
    await asyncio.to_thread(is_moving.wait)
    committer.real.stop_all("this TaskManager stops")
    stopped = asyncio.ensure_future(committer.real.wait_stopped())
    done, _ = await asyncio.wait({stopped}, timeout=0.05)
    assert not done
    may_go_on.set()
    await stopped
    assert committer.posted.get_nowait() == OutputsMoved(JOB, is_stopped=True)


@pytest.mark.asyncio
async def test_a_mover_asks_the_clock_of_the_contact(tmp_path: Path) -> None:
    """It goes on while the host is suspended, and the loop's does not."""

    class Boot:
        def __init__(self) -> None:
            self.now = 0.0

        def monotonic(self) -> float:
            return self.now

        def epoch_millis(self) -> int:
            return 0

    boot, output = Boot(), attempt(tmp_path, 0, a="1")
    contact = ContactKeeper(ContactSettings(2.0, 60.0, 5.0), cast("Any", None), cast("Any", None), boot)
    contact.obeyer = cast("Any", object())
    contact._handle(ContactAccepted(0.0))
    scope = ServiceScope("test")
    await scope.open()
    posted: asyncio.Queue[OutputsMoved | MoveProgressed] = asyncio.Queue()
    real = OutputCommitter(scope, posted.put_nowait, LoopClock(), contact)
    boot.now = 3600.0
    real.begin(order([output]))
    assert await posted.get() == OutputsMoved(JOB, is_stopped=True)
    await scope.close()
    assert visible(tmp_path) == {}


@pytest.mark.asyncio
async def test_who_leaves_a_job_that_goes_on_keeps_what_has_finished(tmp_path: Path, committer: Committer) -> None:
    """R28: it was declared dead, and others commit what it has reported."""
    finished, failed = attempt(tmp_path, 0, a="1"), attempt(tmp_path, 1, b="2")
    note(committer, finished)
    committer.real.note(replace(report(1, 1), state=ExecutionState.FAILED, outputs=(failed,)))
    await committer.real.end_job(JOB, is_over=False)
    assert tree(tmp_path) == {f".attempt-{JOB}_0/a"}


@pytest.mark.asyncio
async def test_an_output_that_cannot_be_deleted_is_logged_and_does_not_keep_the_others(
    tmp_path: Path, committer: Committer, caplog: pytest.LogCaptureFixture
) -> None:
    lost, local = OutputDirectory("foo://b", "foo://b/.attempt-0"), attempt(tmp_path, 1, b="2")
    blocked = attempt(tmp_path / "blocked", 2, c="3")
    Path(blocked.directory).parent.chmod(0o500)
    note(committer, lost, blocked, local)
    try:
        await committer.real.end_job(JOB, is_over=True)
    finally:
        Path(blocked.directory).parent.chmod(0o700)
    assert "b" not in {path.rpartition("/")[2] for path in tree(tmp_path)}
    assert "in foo://b cannot be deleted" in caplog.text
    if os.geteuid() != 0:  # root may delete it
        assert blocked.directory in caplog.text


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_a_commit_that_has_failed_is_repeated_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = attempt(tmp_path, 0, a="new")
    (tmp_path / "a").write_text("taken")
    with pytest.raises(InvalidInputError, match=r"to repeat the commit: bin/commit-outputs.sh (\S+)$") as failed:
        commit([output])
    directory = str(failed.value).rpartition(" ")[2]
    assert repeat_commit.main([directory]) == 1
    assert "exists already" in capsys.readouterr().err
    (tmp_path / "a").unlink()
    assert repeat_commit.main([directory]) == 0
    assert everything(tmp_path) == {"a", "_SUCCESS"}
    assert repeat_commit.main([directory]) == 1
    assert "nothing to repeat" in capsys.readouterr().err
    assert repeat_commit.main([]) == 2
