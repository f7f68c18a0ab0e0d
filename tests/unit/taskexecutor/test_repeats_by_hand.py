"""Several repeats of one commit, one while its job goes on, one that dies: one mover at a time (R27, R28)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from runtime.aio.clock import BootClock, LoopClock
from runtime.common.errors import InvalidInputError, UnauthenticatedError, UnavailableError
from runtime.common.ids import JobId
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import APPEND, OVERWRITE, OutputDirectory
from runtime.taskexecutor.outputs import output_turns, repeat_commit, turn_looks
from runtime.taskexecutor.outputs.commit_records import commit_names
from runtime.taskexecutor.outputs.move_permit import Permit
from runtime.taskexecutor.outputs.output_move import OutputMove
from runtime.taskexecutor.outputs.output_turns import CommitTurns
from runtime.taskexecutor.outputs.repeat_commit import JOB_IS_OVER, AskCluster, KnownJob
from runtime.taskexecutor.outputs.storage_steps import PARALLEL_MAX
from runtime.taskexecutor.outputs.turn_looks import MoveReplacedError
from runtime.taskexecutor.storage.local_output_files import LocalOutputFiles
from tests.kit.control_plane.commits_of_jobs import Known, move, names, room_for, wanted, written
from tests.kit.control_plane.committed_outputs import everything, visible
from tests.kit.control_plane.task_messages import VERTEX, job_id
from tests.kit.control_plane.virtual_time import ManualClock

T = TypeVar("T")

A, B = job_id(1), job_id(2)
OLD = [f"part-{number:03}" for number in range(64)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_turns, "INTERVAL", 0.0)


def directory(base: Path, job: JobId = A) -> str:
    return f"{base}/{commit_names(job).directory}"


def old_files(base: Path, job: JobId) -> OutputDirectory:
    """What a job writes under the names of all the old ones."""
    output = OutputDirectory(str(base), f"{base}/.attempt-{job}_0", OVERWRITE)
    for name in OLD:
        path = Path(output.directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(job)
    return output


class Gate:
    """Before which the threads of one mover stand, until it is opened."""

    def __init__(self) -> None:
        self.is_closed = True
        self.stood: set[str] = set()
        self._opened = threading.Event()

    def pass_through(self, name: str) -> None:
        if self.is_closed and name in OLD:
            self.stood.add(name)
            assert self._opened.wait(60)

    def reached(self) -> None:
        """All threads stand there, and no later one will."""
        for _ in range(6000):
            if len(self.stood) == PARALLEL_MAX:
                break
            threading.Event().wait(0.01)
        assert len(self.stood) == PARALLEL_MAX
        self.is_closed = False

    def open(self) -> None:
        self.is_closed = False
        self._opened.set()


@pytest.fixture
def removals(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate, real = Gate(), LocalOutputFiles.remove

    def remove(self: LocalOutputFiles, name: str, /) -> None:
        gate.pass_through(name)
        real(self, name)

    monkeypatch.setattr(LocalOutputFiles, "remove", remove)
    yield gate
    gate.open()


@contextlib.contextmanager
def beside(work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """On another thread; called, its result."""
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(work)
        yield lambda: future.result(60)


def failed_half_way(base: Path, jobs: Known | None = None) -> None:
    """It replaces all old files, of which none has gone."""
    move(B, old_files(base, B))
    with room_for(1), pytest.raises(InvalidInputError, match="to repeat the commit"):
        move(A, written(base, A), jobs)


# --- one after the other ----------------------------------------------------------------------------------------------


def test_a_repeat_that_stood_still_deletes_nothing_of_a_later_job(
    tmp_path: Path, removals: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    """But the files before which its threads stood. Another repeat has ended the commit, the job came behind it."""
    removals.is_closed = False
    failed_half_way(tmp_path)
    removals.is_closed = True
    later = job_id(3)
    with beside(lambda: repeat_commit.main([directory(tmp_path)])) as first:
        removals.reached()
        assert repeat_commit.main([directory(tmp_path)]) == 0, capsys.readouterr().err
        assert visible(tmp_path) == names(A)
        move(later, old_files(tmp_path, later))
        assert visible(tmp_path) == dict.fromkeys(OLD, later)
        removals.open()
        assert first() == 3
    assert set(OLD) - visible(tmp_path).keys() == removals.stood
    assert "is gone: another repeat has ended this commit" in capsys.readouterr().err
    assert not (tmp_path / commit_names(A).directory).exists()


def test_a_repeat_that_was_replaced_stops_and_the_other_one_goes_on(
    tmp_path: Path, removals: Gate, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The later one stands too, behind the turn that it has taken."""
    removals.is_closed = False
    failed_half_way(tmp_path)
    removals.is_closed = True
    has_turn, may_go_on, real = threading.Event(), threading.Event(), OutputMove._settle

    async def settle(self: OutputMove, base: Any) -> None:
        if not removals.is_closed:  # it is the later one
            has_turn.set()
            await asyncio.to_thread(may_go_on.wait, 60)
        await real(self, base)

    monkeypatch.setattr(OutputMove, "_settle", settle)
    with beside(lambda: repeat_commit.main([directory(tmp_path)])) as first:
        removals.reached()
        with beside(lambda: repeat_commit.main([directory(tmp_path)])) as second:
            assert has_turn.wait(60)
            removals.open()
            assert first() == 3
            assert "another mover goes on with this commit, process" in capsys.readouterr().err
            left = set(OLD) & visible(tmp_path).keys()
            assert len(left) == len(OLD) - PARALLEL_MAX, "each thread has done what it stood before, and no more"
            may_go_on.set()
            assert second() == 0
    assert visible(tmp_path) == names(A)
    assert everything(tmp_path) == {*names(A), "_SUCCESS", commit_names(B).done}


def test_two_that_write_one_turn_at_once_leave_that_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has written its own when both give it its name: none of them fails, and none is found under the other's."""
    files, turn, both, real = LocalOutputFiles(str(tmp_path)), commit_names(A).turn, threading.Barrier(2), os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        both.wait(60)

    monkeypatch.setattr(os, "fsync", fsync)
    with beside(lambda: files.write(turn, b"first")) as first:
        files.write(turn, b"the second one")
        first()
    assert files.read(turn) in (b"first", b"the second one")
    assert files.names() == [turn]


def test_a_turn_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        LocalOutputFiles(str(tmp_path)).write(commit_names(A).turn, b"turn")
    assert not list(tmp_path.iterdir())


def test_who_waits_for_another_job_stops_when_a_later_repeat_has_come(tmp_path: Path) -> None:
    """It has taken its turn back meanwhile."""
    files, theirs = LocalOutputFiles(str(tmp_path)), wanted(tmp_path, A)
    turn = tmp_path / commit_names(B).turn

    def waiting(_: str) -> None:
        if theirs.exists():
            theirs.unlink()
            turn.write_text(json.dumps({"cluster": "", "mode": OVERWRITE, "by": "host 7 0123"}))

    async def run() -> None:
        turns = CommitTurns(
            CommitOutputs(B, 0, VERTEX, (), 1), None, LoopClock(), BootClock(), patience=60.0, is_by_hand=True
        )
        await turns.take([(files, OVERWRITE)], blocking, waiting)

    with pytest.raises(MoveReplacedError, match="process 7 on host"):
        asyncio.run(run())
    assert "0123" in turn.read_text()


def test_a_look_counts_for_a_fraction_of_a_second_and_a_turn_that_was_taken_is_waited_behind() -> None:
    from runtime.taskexecutor.outputs.turn_looks import LOOK, SETTLE

    assert LOOK <= 0.5
    assert SETTLE >= 2 * LOOK


def test_a_mover_of_a_cluster_stops_where_a_repeat_has_taken_its_turn(tmp_path: Path, removals: Gate) -> None:
    """The answer was that its job is over, and it is not."""
    removals.is_closed = False
    move(B, old_files(tmp_path, B))
    removals.is_closed = True
    output = written(tmp_path, A)

    def moves() -> str:
        async def run() -> None:
            message = CommitOutputs(A, 1, VERTEX, (output,), 1)
            with ThreadPoolExecutor(PARALLEL_MAX) as executor:
                move = OutputMove(message, Permit(), executor, lambda *_: None, LoopClock(), patience=0.0, jobs=Known())
                await move.run()

        with pytest.raises(MoveReplacedError) as stopped:
            asyncio.run(run())
        return str(stopped.value)

    with beside(moves) as mover:
        removals.reached()
        assert repeat_commit.main([directory(tmp_path)]) == 0
        later = job_id(3)
        move(later, old_files(tmp_path, later))
        removals.open()
        assert "is gone: a repeat has ended this commit" in mover()
    assert set(OLD) - visible(tmp_path).keys() == removals.stood


def test_a_look_does_not_count_behind_a_suspension_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the first file the host sleeps for an hour, of which the loop's clock knows nothing."""
    output, boot_clock, real = written(tmp_path, A), ManualClock(), LocalOutputFiles.put

    def put(self: LocalOutputFiles, *arguments: Any, **options: Any) -> None:
        real(self, *arguments, **options)
        boot_clock.advance(3600.0)
        (tmp_path / commit_names(A).turn).write_text('{"cluster":"","by":"host 7 0123"}')

    async def run() -> None:
        message = CommitOutputs(A, 1, VERTEX, (output,), 1)
        with ThreadPoolExecutor(1) as executor:
            mover = OutputMove(
                message, Permit(), executor, lambda *_: None, LoopClock(), patience=0.0, boot_clock=boot_clock
            )
            await mover.run()

    monkeypatch.setattr(LocalOutputFiles, "put", put)
    with pytest.raises(MoveReplacedError, match="process 7 on host"):
        asyncio.run(run())
    assert len(visible(tmp_path)) == 1


async def blocking(work: Callable[[], T], /) -> T:
    return work()


def under_way(base: Path, by: str = "") -> Path:
    """The turn that an earlier mover has, or the repeat that has taken it."""
    turn = wanted(base, B)
    if by:
        turn.write_text(json.dumps({"cluster": "here", "mode": OVERWRITE, "by": by}))
    return turn


def take(*bases: Path, waiting: Callable[[str], None] = lambda _: None) -> None:
    """The next mover of the job's cluster."""

    async def run() -> None:
        turns = CommitTurns(
            CommitOutputs(B, 1, VERTEX, (), 2), Known(), LoopClock(), BootClock(), patience=0.0, is_by_hand=False
        )
        await turns.take([(LocalOutputFiles(str(base)), OVERWRITE) for base in bases], blocking, waiting)

    asyncio.run(run())


@pytest.mark.parametrize("held", [0, 1])
def test_a_turn_that_a_repeat_has_in_one_of_several_bases_is_taken_back(tmp_path: Path, held: int) -> None:
    """And the repeat waits for a job that has begun there meanwhile."""
    bases = [tmp_path / "x", tmp_path / "y"]
    turns = [under_way(base, "host 7 0123" if number == held else "") for number, base in enumerate(bases)]
    for base in bases:
        (base / commit_names(B).directory).mkdir()
        (base / commit_names(B).plan).touch()
    theirs, told = wanted(bases[held], A), list[str]()

    def waiting(text: str) -> None:
        told.append(text)
        theirs.unlink()

    take(*bases, waiting=waiting)
    assert told == [f"job {A} commits to {bases[held]}: waiting for it"]
    assert not [turn for turn in turns if "by" in json.loads(turn.read_text())]


def test_who_had_its_turn_in_all_bases_goes_on_though_only_the_first_is_planned(tmp_path: Path) -> None:
    bases = [tmp_path / "x", tmp_path / "y"]
    for base in bases:
        under_way(base)
        wanted(base, A)
    (bases[0] / commit_names(B).directory).mkdir()
    (bases[0] / commit_names(B).plan).touch()
    take(*bases)


def test_a_repeat_that_fails_gives_back_all_its_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also when it looks before each step: the one that is gone is the one that it has given back."""
    bases = tmp_path / "x", tmp_path / "y"
    outputs = tuple(written(base, A) for base in bases)
    with room_for(1), pytest.raises(InvalidInputError):
        asyncio.run(moving_all(outputs))
    monkeypatch.setattr(turn_looks, "LOOK", 0.0)
    with room_for(0):
        assert repeat_commit.main([directory(bases[0])]) == 1
    assert "Permission denied" in capsys.readouterr().err
    assert not [base for base in bases if (base / commit_names(A).turn).exists()]


# --- its job goes on --------------------------------------------------------------------------------------------------


def told(cluster: str, *, is_going_on: bool = False, is_over: bool = False) -> AskCluster:
    async def ask(_: JobId) -> KnownJob:
        return KnownJob(cluster, is_going_on, is_over)

    return ask


async def nobody(_: JobId) -> KnownJob:
    message = "etcd is away"
    raise UnavailableError(message)


def stored(base: Path) -> dict[str, bytes]:
    return {name: (base / name).read_bytes() for name in everything(base)}


@pytest.mark.parametrize("arguments", [[], [JOB_IS_OVER]])
def test_a_job_that_is_not_over_is_left_to_its_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """Its mover waits for a storage that fails. Nothing is written: a repeat that asks another cluster asks in vain."""
    failed_half_way(tmp_path, Known())
    before = stored(tmp_path)
    assert repeat_commit.main([*arguments, directory(tmp_path)], told("here", is_going_on=True)) == 1
    refusal = capsys.readouterr().err
    assert f"job {A} is not over" in refusal
    assert "Wait until it has ended" in refusal
    assert stored(tmp_path) == before


@pytest.mark.parametrize(
    ("ask", "why"),
    [(nobody, "etcd is away"), (told("elsewhere"), "elsewhere, does not know it")],
    ids=["away", "other"],
)
def test_where_nobody_knows_whether_it_is_over_somebody_has_to_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ask: AskCluster, why: str
) -> None:
    failed_half_way(tmp_path, Known())
    before = stored(tmp_path)
    assert repeat_commit.main([directory(tmp_path)], ask) == 1
    refusal = capsys.readouterr().err
    assert why in refusal
    assert f"with {JOB_IS_OVER}" in refusal
    assert stored(tmp_path) == before
    with room_for(0):
        assert repeat_commit.main([JOB_IS_OVER, directory(tmp_path)], ask) == 1
    assert repeat_commit.main([directory(tmp_path)], ask) == 1, "the repeat that failed has not made it anybody's"
    assert repeat_commit.main([JOB_IS_OVER, directory(tmp_path)], ask) == 0
    assert visible(tmp_path) == names(A)


def test_who_is_refused_by_the_cluster_cannot_say_that_the_job_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is a store to ask: what is wrong is a password, and not the safety."""

    async def ask(_: JobId) -> KnownJob:
        message = "etcd refuses user flinklike"
        raise UnauthenticatedError(message)

    failed_half_way(tmp_path, Known())
    before = stored(tmp_path)
    assert repeat_commit.main([JOB_IS_OVER, directory(tmp_path)], ask) == 1
    refusal = capsys.readouterr().err
    assert "etcd refuses user flinklike" in refusal
    assert JOB_IS_OVER not in refusal
    assert stored(tmp_path) == before


def test_who_meets_a_later_order_is_told_that_another_one_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which has come while this one asked."""
    failed_half_way(tmp_path, Known())
    order = tmp_path / commit_names(A).order

    async def ask(_: JobId) -> KnownJob:
        claimed = json.loads(order.read_text())
        order.write_text(json.dumps({**claimed, "order": claimed["order"] + 2}) + "\n")
        return KnownJob("here", is_going_on=False, is_over=True)

    assert repeat_commit.main([directory(tmp_path)], ask) == 3
    assert "is under way in" in capsys.readouterr().err


def test_what_never_began_is_asked_about_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argument = f"overwrite={written(tmp_path, A).directory}"
    assert repeat_commit.main([argument], told("here", is_going_on=True)) == 1
    assert repeat_commit.main([argument], nobody) == 1
    assert visible(tmp_path) == {}
    assert repeat_commit.main([argument], told("here", is_over=True)) == 0, capsys.readouterr().err
    assert visible(tmp_path) == names(A)


@pytest.mark.parametrize("jobs", [Known(), None], ids=["of a cluster", "of none"])
def test_a_job_that_is_over_is_repeated(tmp_path: Path, jobs: Known | None) -> None:
    """Of its own cluster nothing is stored any more; where it had none there is no store to ask."""
    failed_half_way(tmp_path, jobs)
    assert repeat_commit.main([directory(tmp_path)], told("here") if jobs else nobody) == 0
    assert visible(tmp_path) == names(A)


# --- it dies ----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("mode", [OVERWRITE, APPEND])
def test_a_repeat_may_die_at_every_step(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command ends it, and leaves nothing of it behind."""
    monkeypatch.setattr(output_turns, "SETTLE", 0.0)
    total, step = 0, 0
    while step <= total:
        bases = tmp_path / f"{step}-x", tmp_path / f"{step}-y"
        outputs = tuple(written(base, A, mode) for base in bases)
        for base in bases:
            (base / "old").write_text("old")
        with room_for(4), pytest.raises(InvalidInputError):
            asyncio.run(moving_all(outputs))
        total = max(total, killed_at(step, directory(bases[0])))
        if repeat_commit.main([directory(bases[0])]) != 0:
            assert not (bases[0] / commit_names(A).directory).exists(), step
        expected = {**names(A), **({"old": "old"} if mode == APPEND else {})}
        for base in bases:
            assert visible(base) == expected, step
            assert not list(base.glob(".attempt-*")), step
            assert everything(base) - {commit_names(A).done} == {*expected, "_SUCCESS"}, step
        step += 1
    assert total >= 30


async def moving_all(outputs: tuple[OutputDirectory, ...]) -> None:
    message = CommitOutputs(A, 1, VERTEX, outputs, 1)
    await OutputMove(message, Permit(), None, lambda *_: None, LoopClock(), patience=0.0).run()


def killed_at(step: int, argument: str) -> int:
    """How many steps there were until then."""
    count = 0
    with pytest.MonkeyPatch.context() as patch:
        for name in ("make_room", "put", "remove", "remove_tree", "write", "read", "written", "present", "names"):
            real = getattr(LocalOutputFiles, name)

            def operation(*args: object, _real: object = real, **options: object) -> object:
                nonlocal count
                count += 1
                if count > step:
                    raise Killed
                return _real(*args, **options)  # type: ignore[operator]

            patch.setattr(LocalOutputFiles, name, operation)
        with contextlib.suppress(Killed, BaseExceptionGroup):
            repeat_commit.main([argument])
    return count
