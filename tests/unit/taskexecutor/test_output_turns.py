"""Jobs that commit to one base do so one after the other: a reader sees the whole of one of them (R27)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

from runtime.aio.clock import BootClock, LoopClock
from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import APPEND, ERROR, OVERWRITE, OVERWRITE_PARTITIONS, OutputDirectory
from runtime.taskexecutor.outputs import output_turns, repeat_commit
from runtime.taskexecutor.outputs.commit_records import commit_names
from runtime.taskexecutor.outputs.move_permit import MoveStoppedError, Permit
from runtime.taskexecutor.outputs.output_turns import CommitTurns
from runtime.taskexecutor.storage.core.output_plan import Present
from runtime.taskexecutor.storage.local_output_files import LocalOutputFiles
from tests.kit.control_plane.commits_of_jobs import Known, killed_behind, move, moving, names, room_for, wanted, written
from tests.kit.control_plane.committed_outputs import everything, visible
from tests.kit.control_plane.task_messages import VERTEX, job_id
from tests.kit.control_plane.virtual_time import run_virtual

T = TypeVar("T")

A, B, C = job_id(1), job_id(2), job_id(3)

STEPS_MAX = 1000
"""Of three jobs that do not wait for each other for ever: the longest of these orders takes a hundred."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_turns, "INTERVAL", 0.0)


class _Looks:
    """Steps of one job that waits, in the time of the loop; the other one is over after `seconds`."""

    def __init__(self, turn: Path, seconds: float) -> None:
        self._turn, self._seconds = turn, seconds
        self._begun = 0.0
        self.steps = 0

    @property
    def waited(self) -> float:
        return asyncio.get_running_loop().time() - self._begun

    async def __call__(self, work: Callable[[], T], /) -> T:
        self._begun = self._begun or asyncio.get_running_loop().time()
        self.steps += 1
        if self.waited >= self._seconds:
            self._turn.unlink(missing_ok=True)
        return work()


@pytest.mark.parametrize(
    ("seconds", "late", "looks"), [(0.03, 0.02, 3), (0.2, 0.05, 12), (1.0, 0.25, 20), (3600.0, 0.5, 7230)]
)
def test_a_turn_is_found_soon_and_nobody_looks_too_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, late: float, looks: int
) -> None:
    """A commit takes some milliseconds or hours: who waits is late by a quarter of that, half a second at most."""
    monkeypatch.undo()
    step = _Looks(wanted(tmp_path, A), seconds)

    async def wait() -> float:
        turns = CommitTurns(
            CommitOutputs(B, 1, VERTEX, (), 1), Known(), LoopClock(), BootClock(), patience=0.0, is_by_hand=False
        )
        await turns.take([(LocalOutputFiles(str(tmp_path)), OVERWRITE)], step, lambda _: None)
        return step.waited

    assert run_virtual(wait()) - seconds <= late + 1e-6
    assert step.steps <= looks + 7, "besides: whose turn it is, its own file, and the looks before and behind"


async def waits(mover: asyncio.Task[None], base: Path, job: JobId, jobs: Known) -> None:
    """It has looked again and again, and has begun nothing."""
    before = jobs.asked
    while jobs.asked < before + 5:
        assert not mover.done(), "it waits for no other job"
        await asyncio.sleep(0)
    assert not (base / commit_names(job).plan).exists()


# --- one after the other ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_never_two_at_once_however_their_steps_fall(tmp_path: Path, seed: int) -> None:
    """Three jobs, two bases each of which two of them share, and every order of their steps."""
    chance = random.Random(seed)
    bases = [LocalOutputFiles(str(tmp_path / name)) for name in "xyz"]
    shares = {A: (0, 1), B: (1, 2), C: (2, 0)}
    inside: dict[int, JobId] = {}
    entered: list[JobId] = []
    steps = count()

    async def step(work: Callable[[], T], /) -> T:
        assert next(steps) < STEPS_MAX, "they wait for each other"
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        return work()

    async def run(job: JobId) -> None:
        turns = CommitTurns(
            CommitOutputs(job, 1, VERTEX, (), 1), Known(), LoopClock(), BootClock(), patience=0.0, is_by_hand=False
        )
        mine = [(bases[index], OVERWRITE) for index in shares[job]]
        await turns.take(mine, step, lambda _: None)
        entered.append(job)
        for index in shares[job]:
            assert inside.setdefault(index, job) == job, "two commit to one base"
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
        for index in shares[job]:
            del inside[index]
        for files, _ in mine:
            await step(lambda: turns.give_back(files))  # noqa: B023 - done before the next

    async def all_movers() -> None:
        await asyncio.gather(*map(run, chance.sample([A, B, C], 3)))

    asyncio.run(all_movers())
    assert sorted(entered) == [A, B, C]


@pytest.mark.parametrize("mode", [OVERWRITE, OVERWRITE_PARTITIONS])
def test_two_jobs_that_overwrite_one_base_leave_the_whole_of_one(tmp_path: Path, mode: str) -> None:
    (tmp_path / "old").write_text("old")
    jobs = Known()

    async def commit(job: JobId) -> None:
        await moving(job, written(tmp_path, job, mode), jobs)

    async def both() -> None:
        await asyncio.gather(commit(A), commit(B))

    asyncio.run(both())
    assert visible(tmp_path) in (names(A), names(B))
    assert not [name for name in everything(tmp_path) if name.endswith(".turn")]


def test_who_appends_waits_for_who_appends(tmp_path: Path) -> None:
    """`_SUCCESS` of one would stand over a half of the other."""
    jobs, theirs, mine = Known(), written(tmp_path, A, APPEND), written(tmp_path, B, APPEND)
    with killed_behind("/plan") as permit, pytest.raises(MoveStoppedError):
        move(A, theirs, jobs, permit)

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            mover = group.create_task(moving(B, mine, jobs))
            await waits(mover, tmp_path, B, jobs)
            await moving(A, theirs, jobs)

    asyncio.run(run())
    assert visible(tmp_path) == names(A) | names(B)


@pytest.mark.parametrize(
    ("theirs", "mine"), [(OVERWRITE, APPEND), (APPEND, OVERWRITE), (APPEND, APPEND), (OVERWRITE, OVERWRITE)]
)
def test_a_job_that_nobody_can_be_asked_about_is_waited_for_and_then_named(
    tmp_path: Path, theirs: str, mine: str
) -> None:
    turn = wanted(tmp_path, A, cluster="elsewhere", mode=theirs)
    output = written(tmp_path, B, mine)
    with pytest.raises(InvalidInputError, match=rf"job {A} commits to .* too, .*{turn.name} back: .* delete that file"):
        move(B, output, jobs=Known(A))
    assert visible(tmp_path) == {}
    assert not (tmp_path / commit_names(B).turn).exists(), "no job has to wait for one that has failed"
    turn.unlink()
    assert repeat_commit.main([f"{tmp_path}/{commit_names(B).directory}"]) == 0
    assert visible(tmp_path) == names(B)


def test_what_cannot_be_read_is_somebody_s_turn(tmp_path: Path) -> None:
    wanted(tmp_path, A).write_text("{")  # R31
    with pytest.raises(InvalidInputError, match=f"job {A} commits"):
        move(B, written(tmp_path, B, APPEND))


# --- deaths -----------------------------------------------------------------------------------------------------------


def test_a_job_that_is_over_is_waited_for_no_more(tmp_path: Path) -> None:
    wanted(tmp_path, A)
    move(B, written(tmp_path, B), jobs=Known(A))
    assert visible(tmp_path) == names(B)


def test_a_job_that_goes_on_is_waited_for_as_long_as_it_takes(tmp_path: Path) -> None:
    """Also while the store is away, so that this is not known."""
    wanted(tmp_path, A)
    jobs = Known(is_away=True)
    output = written(tmp_path, B)

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            mover = group.create_task(moving(B, output, jobs))
            await waits(mover, tmp_path, B, jobs)
            jobs.is_away = False
            await waits(mover, tmp_path, B, jobs)
            jobs.over.add(A)

    asyncio.run(run())
    assert visible(tmp_path) == names(B)


@pytest.mark.parametrize("mine", [A, B])
def test_the_next_mover_of_a_commit_that_is_under_way_waits_for_nobody(tmp_path: Path, mine: JobId) -> None:
    """A job that has seen its file waits, whatever its id: it has shown something already."""
    other = B if mine == A else A
    output = written(tmp_path, mine)
    with killed_behind("/plan") as permit, pytest.raises(MoveStoppedError):
        move(mine, output, permit=permit)
    wanted(tmp_path, other)
    move(mine, output)  # no store knows the other one: a job that waits for it fails at once
    assert visible(tmp_path) == names(mine)


def test_who_has_failed_behind_its_plan_is_waited_for_until_it_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its mover has ended, and its job has not: it is not known yet that no other mover goes on."""
    jobs = Known()
    with room_for(1), pytest.raises(InvalidInputError, match=r"denied.* 1 of 3 files of the job are visible"):
        move(A, written(tmp_path, A), jobs)

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            mover = group.create_task(moving(B, written(tmp_path, B), jobs))
            await waits(mover, tmp_path, B, jobs)
            jobs.over.add(A)

    asyncio.run(run())
    assert visible(tmp_path) == names(B)
    assert repeat_commit.main([f"{tmp_path}/{commit_names(A).directory}"]) == 1
    assert f"job {B} has committed to {tmp_path}" in capsys.readouterr().err
    assert visible(tmp_path) == names(B)


def test_the_next_mover_of_one_that_has_failed_goes_on_before_anybody_else(tmp_path: Path) -> None:
    """The failure was lost with its TaskManager."""
    output, jobs, shown = written(tmp_path, A), Known(), {}
    with room_for(1), pytest.raises(InvalidInputError, match="Permission denied"):
        move(A, output, jobs)

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            mover = group.create_task(moving(B, written(tmp_path, B), jobs))
            await waits(mover, tmp_path, B, jobs)
            with pytest.MonkeyPatch.context() as patch:
                real = LocalOutputFiles.write

                def write(self: LocalOutputFiles, name: str, data: bytes, /) -> None:
                    if name == commit_names(A).done:
                        shown.update(visible(tmp_path))
                    real(self, name, data)

                patch.setattr(LocalOutputFiles, "write", write)
                await moving(A, output, jobs)

    asyncio.run(run())
    assert shown == names(A)
    assert visible(tmp_path) == names(B)


@pytest.mark.parametrize("jobs", [None, Known(), Known(is_away=True)], ids=["nobody", "goes on", "away"])
def test_who_was_overtaken_fails_and_does_not_go_on(tmp_path: Path, jobs: Known | None) -> None:
    """A job that has its turn knows that no other is under way, and need not ask."""
    output = written(tmp_path, A)
    with room_for(1), pytest.raises(InvalidInputError, match="Permission denied"):
        move(A, output)
    move(B, written(tmp_path, B), jobs)
    with pytest.raises(InvalidInputError, match=rf"job {B} has committed to .*: run the job again"):
        move(A, output)
    assert visible(tmp_path) == names(B)


def test_who_was_overtaken_overtakes_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both have failed half way. The later one can be repeated, also when the earlier one was tried first."""
    for job in (A, B):
        with room_for(1), pytest.raises(InvalidInputError, match="Permission denied"):
            move(job, written(tmp_path, job))
    assert repeat_commit.main([f"{tmp_path}/{commit_names(A).directory}"]) == 1
    assert f"job {B} has committed to {tmp_path}" in capsys.readouterr().err
    assert repeat_commit.main([f"{tmp_path}/{commit_names(B).directory}"]) == 0
    assert visible(tmp_path) == names(B)


def test_who_is_refused_overtakes_nobody(tmp_path: Path) -> None:
    """It changes nothing, so what another one has left half done can be repeated."""
    with room_for(1), pytest.raises(InvalidInputError, match="Permission denied"):
        move(A, written(tmp_path, A))
    with pytest.raises(InvalidInputError, match="mode='error' refuses"):
        move(B, written(tmp_path, B, ERROR))
    assert repeat_commit.main([f"{tmp_path}/{commit_names(A).directory}"]) == 0
    assert visible(tmp_path) == names(A)


@pytest.mark.parametrize("seen", ["plan", "overtaken"])
def test_the_next_mover_marks_what_its_predecessor_has_not(tmp_path: Path, seen: str) -> None:
    """It died behind its plan, before others were marked, or while they were."""
    with room_for(1), pytest.raises(InvalidInputError, match="Permission denied"):
        move(A, written(tmp_path, A))
    output = written(tmp_path, B)
    with killed_behind(f"/{seen}") as permit, pytest.raises(MoveStoppedError):
        move(B, output, permit=permit)
    assert names(B).keys().isdisjoint(visible(tmp_path)), "nothing appears before that"
    move(B, output)
    with pytest.raises(InvalidInputError, match=f"job {B} has committed"):
        move(A, OutputDirectory(str(tmp_path), str(tmp_path / f".attempt-{A}_0"), OVERWRITE))
    assert visible(tmp_path) == names(B)


def test_who_waits_asks_for_those_that_it_has_seen_and_does_not_list_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at the top of a base is a request for each thousand of names, where it is no local directory."""
    theirs, jobs, looks = wanted(tmp_path, A), Known(), 0
    real = LocalOutputFiles.names

    def counted(self: LocalOutputFiles) -> list[str]:
        nonlocal looks
        looks += 1
        return real(self)

    monkeypatch.setattr(LocalOutputFiles, "names", counted)

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            mover = group.create_task(moving(B, written(tmp_path, B), jobs))
            await waits(mover, tmp_path, B, jobs)
            assert looks == 1
            theirs.unlink()

    asyncio.run(run())
    assert visible(tmp_path) == names(B)
    assert looks == 3, "when it has its turn, and when it tidies"


def test_a_mover_that_was_given_up_leaves_the_turn_to_the_one_that_replaced_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hung in a call of the storage, which fails after all; the other one has the turn under the same file (R27)."""
    output, permit = written(tmp_path, A), Permit()

    def present(_self: LocalOutputFiles) -> Present:
        permit.withdraw("its fence was waited out")
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(LocalOutputFiles, "present", present)
        with pytest.raises(MoveStoppedError, match="waited out"):
            move(A, output, permit=permit)
    assert (tmp_path / commit_names(A).turn).exists()
    move(A, output)
    assert visible(tmp_path) == names(A)


def test_what_is_left_of_a_commit_is_not_repeated_over_what_came_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed half way, and another job has replaced everything since."""
    output = written(tmp_path, A)
    with monkeypatch.context() as patch:

        def put(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        patch.setattr(LocalOutputFiles, "put", put)
        with pytest.raises(InvalidInputError, match="Permission denied"):
            move(A, output)
    move(B, written(tmp_path, B), jobs=Known(A))
    assert repeat_commit.main([f"{tmp_path}/{commit_names(A).directory}"]) == 1
    assert f"job {B} has committed to {tmp_path}" in capsys.readouterr().err
    assert visible(tmp_path) == names(B)


def test_by_hand_an_old_turn_is_got_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job is over: others take the file that a killed mover has left for nothing, and may be at work."""
    output = written(tmp_path, A)
    with killed_behind("/plan") as permit, pytest.raises(MoveStoppedError):
        move(A, output, permit=permit)
    assert (tmp_path / commit_names(A).turn).exists()
    theirs = wanted(tmp_path, B)
    monkeypatch.setattr(repeat_commit, "PATIENCE", 0.0)
    directory = f"{tmp_path}/{commit_names(A).directory}"
    assert repeat_commit.main([directory]) == 1
    assert f"job {B} commits to {tmp_path} too" in capsys.readouterr().err
    theirs.unlink()
    assert repeat_commit.main([directory]) == 0
    assert visible(tmp_path) == names(A)
