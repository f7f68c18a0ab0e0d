"""Accepted outputs become visible, others disappear, and a commit can be repeated."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
import pytest_asyncio

from runtime.aio.scope import ServiceScope
from runtime.common.errors import InvalidInputError
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import OutputDirectory
from runtime.taskexecutor.outputs import OutputCommitter, commit
from runtime.taskexecutor.partitions import RemoteFilesError
from tests.kit.task_messages import VERTEX, job_id, report


def attempt(base: Path, number: int, **files: str) -> OutputDirectory:
    directory = base / f".attempt-{number}"
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return OutputDirectory(str(base), str(directory))


def tree(base: Path) -> set[str]:
    return {str(path.relative_to(base)) for path in base.rglob("*") if path.is_file()}


def test_files_of_all_attempts_move_into_the_base(tmp_path: Path) -> None:
    first = attempt(
        tmp_path, 0, **{"part-0.parquet": "a", "day=1/part-1.parquet": "b", "_SUCCESS": "", "._SUCCESS.crc": ""}
    )
    second = attempt(tmp_path, 1, **{"part-2.parquet": "c", "_temporary/0/part-9": "x", ".part-2.parquet.crc": "1"})
    commit([first, second])
    assert tree(tmp_path) == {
        "part-0.parquet",
        "day=1/part-1.parquet",
        "part-2.parquet",
        ".part-2.parquet.crc",
        "_SUCCESS",
    }
    assert not list(tmp_path.glob(".attempt-*"))


def test_a_repeated_commit_changes_nothing(tmp_path: Path) -> None:
    output = attempt(tmp_path, 0, a="1")
    commit([output])
    commit([output])
    assert tree(tmp_path) == {"a", "_SUCCESS"}


def test_a_commit_that_ended_half_way_goes_on(tmp_path: Path) -> None:
    output = attempt(tmp_path, 0, a="1", b="2")
    os.link(tmp_path / ".attempt-0/a", tmp_path / "a")  # between link and unlink
    commit([output])
    assert tree(tmp_path) == {"a", "b", "_SUCCESS"}


def test_an_attempt_that_wrote_nothing_still_gets_its_marker(tmp_path: Path) -> None:
    commit([OutputDirectory(str(tmp_path / "new"), str(tmp_path / "new/.attempt-0"))])
    assert tree(tmp_path) == {"new/_SUCCESS"}


def test_two_attempts_with_one_name_publish_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="b exists already"):
        commit([attempt(tmp_path, 0, a="1", b="1"), attempt(tmp_path, 1, b="2", c="2")])
    assert tree(tmp_path) == {".attempt-0/a", ".attempt-0/b", ".attempt-1/b", ".attempt-1/c"}


def test_a_name_that_is_taken_in_one_base_publishes_nothing_in_any(tmp_path: Path) -> None:
    first, second = attempt(tmp_path / "x", 0, a="1"), attempt(tmp_path / "y", 0, b="new", z="new")
    (tmp_path / "y/z").write_text("old")
    with pytest.raises(InvalidInputError, match="y/z exists already"):
        commit([first, second])
    assert tree(tmp_path) == {"x/.attempt-0/a", "y/.attempt-0/b", "y/.attempt-0/z", "y/z"}
    assert (tmp_path / "y/z").read_text() == "old"


@pytest.mark.parametrize("url", ["foo://bucket", "s3://bucket"])
def test_a_file_system_that_is_not_there_is_a_sentence(url: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{url} cannot be reached from this TaskManager: .*(not known|s3fs)"):
        commit([OutputDirectory(url, f"{url}/.attempt-0")])


def test_what_a_driver_raises_becomes_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        message = "no credentials"
        raise LookupError(message)

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "find", refuse)
    with pytest.raises(RemoteFilesError, match="memory://base: LookupError: no credentials"):
        commit([OutputDirectory("memory://base", "memory://base/.attempt-0")])


def test_file_urls_are_local_paths(tmp_path: Path) -> None:
    output = attempt(tmp_path, 0, a="1")
    commit([OutputDirectory(f"file://{output.base}", f"file://{output.directory}")])
    assert tree(tmp_path) == {"a", "_SUCCESS"}


def test_other_file_systems_go_through_fsspec() -> None:
    files = fsspec.filesystem("memory")
    files.pipe("/base/.attempt-0/day=1/a", b"1")
    files.pipe("/base/.attempt-0/_SUCCESS", b"")
    commit([OutputDirectory("memory://base", "memory://base/.attempt-0")])
    assert sorted(files.find("/base")) == ["/base/_SUCCESS", "/base/day=1/a"]
    files.pipe("/base/.attempt-1/day=1/a", b"2")
    with pytest.raises(InvalidInputError, match="exists already"):
        commit([OutputDirectory("memory://base", "memory://base/.attempt-1")])
    files.rm("/base", recursive=True)


@pytest_asyncio.fixture
async def committer() -> AsyncIterator[OutputCommitter]:
    scope = ServiceScope("test")
    await scope.open()
    yield OutputCommitter(scope)
    await scope.close()


@pytest.mark.asyncio
async def test_outputs_that_were_not_accepted_disappear_with_the_job(
    tmp_path: Path, committer: OutputCommitter
) -> None:
    accepted, rejected = attempt(tmp_path, 0, a="1"), attempt(tmp_path, 1, b="2")
    for number, output in enumerate((accepted, rejected)):
        committer.note(replace(report(1, number), outputs=(output,)))
    await committer.commit(CommitOutputs(job_id(1), 1, VERTEX, (accepted,)))
    await committer.end_job(job_id(1))
    await committer.end_job(job_id(1))
    assert tree(tmp_path) == {"a", "_SUCCESS"}


@pytest.mark.asyncio
async def test_an_output_that_cannot_be_deleted_is_logged_and_does_not_keep_the_others(
    tmp_path: Path, committer: OutputCommitter, caplog: pytest.LogCaptureFixture
) -> None:
    lost, local = OutputDirectory("foo://b", "foo://b/.attempt-0"), attempt(tmp_path, 1, b="2")
    blocked = attempt(tmp_path / "blocked", 2, c="3")
    Path(blocked.directory).parent.chmod(0o500)
    committer.note(replace(report(1, 0), outputs=(lost, blocked, local)))
    try:
        await committer.end_job(job_id(1))
    finally:
        Path(blocked.directory).parent.chmod(0o700)
    assert "b" not in {path.rpartition("/")[2] for path in tree(tmp_path)}
    assert "foo://b/.attempt-0" in caplog.text
    if os.geteuid() != 0:  # root may delete it
        assert blocked.directory in caplog.text
