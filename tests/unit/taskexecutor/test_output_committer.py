"""A TaskManager deletes what was not accepted, keeps what a commit needs, and lets no mover outlive it."""

from __future__ import annotations

import asyncio
import os
import shlex
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from runtime.aio.clock import LoopClock
from runtime.aio.scope import ServiceScope
from runtime.common.errors import InvalidInputError, UnavailableError
from runtime.common.ids import ExecutionAttemptId, VertexId
from runtime.common.states import ExecutionState
from runtime.gateways.kept_outputs import commit_command, named_directories
from runtime.gateways.task import OVERWRITE, OutputDirectory
from runtime.taskexecutor.connections.contact import ContactKeeper, ContactSettings
from runtime.taskexecutor.core.contact import ContactAccepted
from runtime.taskexecutor.core.events import MoveProgressed, OutputsMoved
from runtime.taskexecutor.outputs import repeat_commit
from runtime.taskexecutor.outputs.commit_records import commit_names
from runtime.taskexecutor.outputs.committer import OutputCommitter
from runtime.taskexecutor.outputs.storage_steps import PARALLEL_MAX
from runtime.taskexecutor.storage.local_output_files import LocalOutputFiles
from tests.kit.control_plane.committed_outputs import (
    COMMIT,
    JOB,
    attempt,
    attempt_path,
    commit,
    everything,
    order,
    tree,
    visible,
)
from tests.kit.control_plane.task_messages import VERTEX, job_id, report

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
    await committer.real.end_job(JOB, deletes_finished=True)
    await committer.real.end_job(JOB, deletes_finished=True)
    assert everything(tmp_path) == {"a", "_SUCCESS"}


@pytest.mark.asyncio
async def test_a_job_whose_storage_hangs_keeps_no_other_one_from_committing(
    tmp_path: Path, committer: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all the threads that it may have."""
    hangs, goes_on, real = threading.Semaphore(0), threading.Event(), LocalOutputFiles.put

    def put(self: LocalOutputFiles, *arguments: Any, **options: Any) -> None:
        if self.base.endswith("hangs"):
            hangs.release()
            goes_on.wait()
        real(self, *arguments, **options)

    monkeypatch.setattr(LocalOutputFiles, "put", put)
    files = {f"file{number}": "1" for number in range(4 * PARALLEL_MAX)}
    committer.real.begin(order([attempt(tmp_path / "hangs", 0, **files)]))
    try:
        for _ in range(PARALLEL_MAX):
            await asyncio.to_thread(hangs.acquire)
        other = job_id(2)
        committer.real.begin(replace(order([attempt(tmp_path / "other", 0, a="1")]), job_id=other))
        while not isinstance(event := await asyncio.wait_for(committer.posted.get(), 60), OutputsMoved):
            pass
        assert event == OutputsMoved(other)
    finally:
        goes_on.set()
        await committer.real.wait_stopped()
    assert len(visible(tmp_path / "hangs")) == len(files)


@pytest.mark.asyncio
async def test_what_others_said_of_a_job_goes_with_what_it_wrote(tmp_path: Path, committer: Committer) -> None:
    """Another job has committed to the base meanwhile; this one fails before its outcome is decided (R27)."""
    note(committer, attempt(tmp_path, 0, a="1"))
    (tmp_path / commit_names(JOB).preceded).write_text("another")
    await committer.real.end_job(JOB, deletes_finished=False)
    assert (tmp_path / commit_names(JOB).preceded).exists()
    note(committer, attempt(tmp_path, 0, a="1"))
    await committer.real.end_job(JOB, deletes_finished=True)
    assert everything(tmp_path) == set()


@pytest.mark.asyncio
async def test_what_was_accepted_is_kept_when_its_commit_fails(tmp_path: Path, committer: Committer) -> None:
    """R28: also by a TaskManager that has heard nothing of the commit, only that the job is over."""
    accepted, other = attempt(tmp_path, 0, a="1"), attempt(tmp_path, 1, b="2")
    note(committer, accepted, other)
    (tmp_path / "a").write_text("taken")
    failed = await committer.commit(accepted, other)
    assert failed.failure is not None
    assert "exists already" in failed.failure.message
    await committer.real.end_job(JOB, deletes_finished=True)
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
    await committer.real.end_job(JOB, deletes_finished=True)
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
    await committer.real.end_job(JOB, deletes_finished=True)
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


class RecordingGuard:
    """Takes no orders while it is frozen."""

    def __init__(self) -> None:
        self.orders: list[tuple[str, int]] = []
        self.is_frozen = False
        self.refused = 0

    def mark_exclusive(self, pid: int) -> None:
        self._take("mark", pid)

    def unmark(self, pid: int) -> None:
        self._take("unmark", pid)

    def _take(self, order: str, pid: int) -> None:
        if self.is_frozen:
            self.refused += 1
            message = "the guard takes no orders"
            raise UnavailableError(message)
        self.orders.append((order, pid))


@pytest.mark.asyncio
async def test_the_guard_holds_this_process_from_before_the_first_file_to_behind_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R27: of one move, and of two that overlap."""
    guard, scope = RecordingGuard(), ServiceScope("test")
    mark, unmark = ("mark", os.getpid()), ("unmark", os.getpid())
    posted: asyncio.Queue[OutputsMoved | MoveProgressed] = asyncio.Queue()
    real = OutputCommitter(scope, posted.put_nowait, LoopClock(), guard=guard)
    await scope.open()
    seen: list[list[tuple[str, int]]] = []
    may_go_on = threading.Event()
    write = LocalOutputFiles.write

    def observed(self: LocalOutputFiles, name: str, data: bytes, /) -> None:
        seen.append(list(guard.orders))
        if self.base.endswith("slow"):
            may_go_on.wait()
        write(self, name, data)

    async def moved(job: int) -> None:
        while not isinstance(event := await posted.get(), OutputsMoved):
            pass
        assert event == OutputsMoved(job_id(job))

    monkeypatch.setattr(LocalOutputFiles, "write", observed)
    guard.is_frozen = True
    real.begin(order([attempt(tmp_path / "slow", 0, a="1")]))
    async with asyncio.timeout(100):
        while guard.refused < 2:
            await asyncio.sleep(0.01)
    assert seen == [], "nothing is touched before the guard knows"
    guard.is_frozen = False
    real.begin(replace(order([attempt(tmp_path / "quick", 0, a="1")]), job_id=job_id(2)))
    await moved(2)
    assert unmark not in guard.orders, "the other one moves still"
    may_go_on.set()
    await moved(1)
    assert guard.orders == [mark, mark, unmark]
    assert all(mark in orders and unmark not in orders for orders in seen)
    await scope.close()


@pytest.mark.asyncio
async def test_a_mover_asks_the_clock_of_the_contact(tmp_path: Path) -> None:
    """It goes on while the host is suspended, and the loop's does not."""

    class Boot:
        def __init__(self) -> None:
            self.slept, self.loop = 0.0, asyncio.get_running_loop()

        def monotonic(self) -> float:
            return self.loop.time() + self.slept

        def epoch_millis(self) -> int:
            return 0

    boot, output = Boot(), attempt(tmp_path, 0, a="1")
    contact = ContactKeeper(ContactSettings(2.0, 60.0, 5.0), cast("Any", None), cast("Any", None), boot)
    contact.obeyer = cast("Any", object())
    contact._handle(ContactAccepted(boot.monotonic()))
    scope = ServiceScope("test")
    await scope.open()
    posted: asyncio.Queue[OutputsMoved | MoveProgressed] = asyncio.Queue()
    real = OutputCommitter(scope, posted.put_nowait, LoopClock(), contact)
    boot.slept = 3600.0
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
    await committer.real.end_job(JOB, deletes_finished=False)
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
        await committer.real.end_job(JOB, deletes_finished=True)
    finally:
        Path(blocked.directory).parent.chmod(0o700)
    assert "b" not in {path.rpartition("/")[2] for path in tree(tmp_path)}
    assert "in foo://b cannot be deleted" in caplog.text
    if os.geteuid() != 0:  # root may delete it
        assert blocked.directory in caplog.text


# --- by hand ----------------------------------------------------------------------------------------------------------


def commands(failure: BaseException | str) -> list[str]:
    _, found, arguments = str(failure).rpartition("bin/commit-outputs.sh ")
    assert found
    return shlex.split(arguments)


def test_a_commit_that_never_began_is_done_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No mover could claim anything; the message names the hidden directories."""
    first, second = attempt(tmp_path / "x y", 0, mode=OVERWRITE, a="1"), attempt(tmp_path / "z", 1, b="2")
    (tmp_path / "x y/old").write_text("old")
    (tmp_path / "x y" / COMMIT).write_text("in the way")
    with pytest.raises(InvalidInputError, match=r"nothing of the job has become visible, what .* is kept") as failed:
        commit([first, second])
    arguments = commands(failed.value)
    assert arguments == [f"overwrite={first.directory}", f"append={second.directory}"]
    (tmp_path / "x y" / COMMIT).unlink()
    assert repeat_commit.main(arguments) == 0, capsys.readouterr().err
    assert (everything(tmp_path / "x y"), everything(tmp_path / "z")) == ({"a", "_SUCCESS"}, {"b", "_SUCCESS"})


def test_of_many_directories_the_command_names_those_that_were_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By runs of subtasks; what lost attempts have left beside them does not count, and does not hinder."""
    base = tmp_path / "a b"
    outputs = [attempt_of(base, number, 2 if number == 7 else 1, f"part-{number}") for number in range(30)]
    lost, alone = attempt_of(base, 7, 1, "part-7-lost"), attempt_of(base, 30, 1, "part-30-lost")
    arguments = commands(commit_command(outputs))
    prefix = f"append={base}/.attempt-{JOB}_{VERTEX}"
    assert arguments == [f"{prefix}_{{0-6,8-29}}_1_1", f"{prefix}_7_1_2"]
    assert repeat_commit.main(arguments) == 0, capsys.readouterr().err
    assert visible(base) == {f"part-{number}": "row" for number in range(30)}
    assert not attempt_path(lost).exists()
    assert not attempt_path(alone).exists()


def test_of_many_bases_modes_and_vertices_each_run_is_one_argument(tmp_path: Path) -> None:
    other, outputs = VertexId("f" * 32), list[OutputDirectory]()
    for name, vertex, mode in [("x", VERTEX, "append"), ("y", VERTEX, "overwrite"), ("x", other, "append")]:
        base = f"{tmp_path}/{name}"
        for subtask in range(0, 20, 2):
            directory = f"{base}/.attempt-{ExecutionAttemptId(JOB, vertex, subtask, 1, 0)}"
            outputs.append(OutputDirectory(base, directory, mode))
    arguments = commands(commit_command(outputs))
    assert len(arguments) == 3
    runs = [text.split("=") for text in arguments]
    named = [(mode, name) for mode, one in runs for name in named_directories(one)]
    assert named == [(output.mode, output.directory) for output in outputs]


@pytest.mark.parametrize(
    "indices", ["", "3-1", "0-9999999", "1,,2", "-", "a", "1-2-3", "\u0661", ",".join(["0-9999"] * 200)]
)
def test_runs_of_subtasks_that_are_none_are_refused(indices: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert repeat_commit.main([f"append=/b/.attempt-{JOB}_{VERTEX}_{{{indices}}}_1_1"]) == 1
    assert "is no run of subtasks" in capsys.readouterr().err


def test_all_that_there_are_is_refused_where_a_subtask_has_left_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What an operator may write where the records of the job cannot be read."""
    attempt_of(tmp_path, 0, 1, "a")
    twice = attempt_of(tmp_path, 0, 2, "b")
    arguments = [f"append={tmp_path}/.attempt-{JOB}_*"]
    assert repeat_commit.main(arguments) == 1
    assert "more than one" in capsys.readouterr().err
    LocalOutputFiles(str(tmp_path)).remove_tree(attempt_path(twice).name)
    assert repeat_commit.main(arguments) == 0, capsys.readouterr().err
    assert visible(tmp_path) == {"a": "row"}


def attempt_of(base: Path, subtask: int, counter: int, name: str) -> OutputDirectory:
    directory = base / f".attempt-{ExecutionAttemptId(JOB, VERTEX, subtask, 1, counter)}"
    directory.mkdir(parents=True)
    (directory / name).write_text("row")
    return OutputDirectory(str(base), str(directory), "append")


def test_a_commit_that_had_begun_says_itself_what_belongs_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = attempt_of(tmp_path, 0, 1, "a"), attempt_of(tmp_path, 1, 1, "b")
    (tmp_path / "a").write_text("taken")
    with pytest.raises(InvalidInputError):
        commit([first, second])
    (tmp_path / "a").unlink()
    assert repeat_commit.main([f"append={first.directory}"]) == 0, capsys.readouterr().err
    assert visible(tmp_path) == {"a": "row", "b": "row"}


@pytest.mark.parametrize("arguments", [["x"], ["replace=/b/.attempt-1"], ["append=/b/part"], ["append=.attempt-1"]])
def test_arguments_that_are_none_are_answered_with_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert repeat_commit.main(arguments) == 2
    assert "usage: commit-outputs.sh" in capsys.readouterr().err


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
