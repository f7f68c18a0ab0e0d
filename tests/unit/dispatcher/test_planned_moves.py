"""Jobs that get another owner although theirs lives: draining, wishes, rebalancing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from runtime.common.errors import ConflictError, FlinklikeError, NotFoundError, UnavailableError
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.job_entry import JobPhase
from runtime.dispatcher.core.jobs import JobRegistry
from runtime.dispatcher.core.planned_moves import MoveSettings
from runtime.dispatcher.core.retention import Retention
from runtime.dispatcher.core.shown_summary import initial_summary
from runtime.dispatcher.core.submits import JobRegistryLimits
from runtime.gateways.dispatcher import JobInventoryEntry, JobSummary, TaskCounts
from tests.kit.control_plane.process_events import (
    assignment_refused,
    inventory_received,
    process_known,
    process_registered,
)

EffectT = TypeVar("EffectT")
P1, P2, P3 = (Incarnation(digit * 32) for digit in "123")
LATER = 1_000_000


def job(number: int) -> JobId:
    return JobId(f"{number:032x}")


def source(number: int) -> ev.JobSource:
    return ev.JobSource(job(number), "d", f"job-{number}", b"{}", "", 1000, "tests")


def registry(*processes: Incarnation, moves: MoveSettings | None = None, capacity: int = 10) -> JobRegistry:
    made = JobRegistry(JobRegistryLimits(1000, 1000), Retention(10, 1000), moves or MoveSettings())
    for process in processes:
        join(made, process, capacity=capacity)
    return made


def join(made: JobRegistry, process: Incarnation, *, capacity: int = 10, is_draining: bool = False) -> list[Any]:
    return made.handle(process_registered(process, f"{process[0]}:1", capacity, "v", is_draining=is_draining))


def told(made: JobRegistry, process: Incarnation, *, is_draining: bool = True, held: Sequence[Any] = ()) -> list[Any]:
    return made.handle(inventory_received(process, tuple(held), 10**6, 0.0, 0, is_draining=is_draining))


def shown(number: int, epoch: int, status: JobStatus = JobStatus.RUNNING, sequence: int = 1) -> JobSummary:
    tasks = TaskCounts(running=1) if not status.is_globally_terminal else TaskCounts(finished=1)
    return replace(initial_summary(source(number)), status=status, epoch=epoch, sequence=sequence, tasks=tasks)


def speak(made: JobRegistry, *summaries: JobSummary) -> list[Any]:
    return made.handle(ev.SummariesReceived(summaries))


def run(made: JobRegistry, *numbers: int, epoch: int = 7) -> None:
    """Submit jobs, and let the processes that got them run them."""
    for number in numbers:
        made.handle(ev.SubmitRequested(number, source(number)))
        made.handle(ev.SubmitStored(job(number), epoch, ""))
        speak(made, shown(number, epoch))


def only(effects: list[Any], kind: type[EffectT]) -> EffectT:
    (found,) = [effect for effect in effects if isinstance(effect, kind)]
    return found


def moved(effects: list[Any]) -> dict[JobId, Incarnation]:
    return {effect.job_id: effect.incarnation for effect in effects if isinstance(effect, ef.StoreOwner)}


def owner(made: JobRegistry, number: int) -> tuple[Incarnation, int]:
    found = made.owner(job(number))
    assert found is not None
    return found.incarnation, found.epoch


def drained(made: JobRegistry) -> list[Incarnation]:
    return [process.incarnation for process in made.processes if process.is_draining]


class TestDraining:
    def test_every_job_goes_to_another_process_and_the_old_one_is_told_when_it_is_durable(self) -> None:
        made = registry(P1)
        run(made, 1, 2)
        join(made, P2)
        effects = told(made, P1, held=[JobInventoryEntry(job(n), 7, JobStatus.RUNNING) for n in (1, 2)])
        assert moved(effects) == {job(1): P2, job(2): P2}
        assert [one.previous_epoch for one in effects] == [7, 7]
        assert owner(made, 1) == (P1, 7), "the former owner decides until then"
        effects = made.handle(ev.OwnerStored(job(1), 8))
        assert only(effects, ef.SendDrop) == ef.SendDrop(P1, (JobInventoryEntry(job(1), 7, JobStatus.RUNNING),))
        order = only(effects, ef.SendAssign)
        assert (order.incarnation, order.message.epoch, order.message.is_fresh) == (P2, 8, False)  # R6
        assert owner(made, 1) == (P2, 8)

    def test_it_takes_no_job(self) -> None:
        made = registry(P1, P2)
        assert told(made, P1) == []
        made.handle(ev.SubmitRequested(1, source(1)))
        effects = made.handle(ev.SubmitRequested(2, source(2)))
        assert only(effects, ef.StoreJob).incarnation == P2

    def test_with_all_of_them_draining_a_job_waits_and_says_why(self) -> None:
        made = registry(P1)
        told(made, P1)
        assert only(made.handle(ev.SubmitRequested(1, source(1))), ef.StoreJob).incarnation == ""
        made.handle(ev.SubmitStored(job(1), 0, ""))
        summary = made.summary(job(1))
        assert summary is not None
        assert "draining" in summary.pending_reason
        assert moved(told(made, P1, is_draining=False)) == {}
        assert moved(made.handle(ev.Ticked())) == {job(1): P1}

    def test_a_submit_that_was_stored_for_it_meanwhile_goes_on_unbegun(self) -> None:  # R6
        made = registry(P1)
        made.handle(ev.SubmitRequested(1, source(1)))
        join(made, P2)
        told(made, P1)
        effects = made.handle(ev.SubmitStored(job(1), 7, ""))
        assert moved(effects) == {job(1): P2}
        assert not [one for one in effects if isinstance(one, ef.SendAssign)]
        assert only(made.handle(ev.OwnerStored(job(1), 8)), ef.SendAssign).message.is_fresh

    def test_only_so_many_are_under_way(self) -> None:
        made = registry(P1, moves=MoveSettings(drained_max=2))
        run(made, 1, 2, 3)
        join(made, P2)
        assert set(moved(told(made, P1))) == {job(1), job(2)}
        assert moved(made.handle(ev.OwnerStored(job(1), 8))) == {}
        assert moved(speak(made, shown(1, 8, JobStatus.INITIALIZING))) == {}, "not taken over yet"
        assert moved(speak(made, shown(1, 8, sequence=2))) == {job(3): P2}

    def test_an_end_in_between_wins(self) -> None:
        made = registry(P1)
        run(made, 1)
        join(made, P2)
        told(made, P1)
        found = ev.RecoveredJob(source(1), 7, ev.JobOwner(P1, "1:1", 7), wants_cancel=False,
                                ended=shown(1, 7, JobStatus.FINISHED))  # fmt: skip
        effects = made.handle(ev.OwnerNotStored(job(1), found))
        assert only(effects, ef.EndJobEverywhere).job_id == job(1)
        drops = made.handle(ev.Ticked())
        assert only(drops, ef.SendDrop).incarnation == P1, "the process that has the job stops running it"

    def test_a_target_that_dies_meanwhile_costs_another_assignment(self) -> None:
        made = registry(P1, P2)
        run(made, 1)
        join(made, P3)
        told(made, P1)
        made.handle(ev.ProcessLost(P2))
        effects = made.handle(ev.OwnerStored(job(1), 8))
        assert only(effects, ef.SendDrop).incarnation == P1
        assert moved(effects) == {job(1): P3}
        assert not only(made.handle(ev.OwnerStored(job(1), 9)), ef.SendAssign).message.is_fresh

    def test_its_death_meanwhile_changes_nothing(self) -> None:
        made = registry(P1, P2)
        run(made, 1)
        told(made, P1)
        assert moved(made.handle(ev.ProcessLost(P1))) == {}
        effects = made.handle(ev.OwnerStored(job(1), 8))
        assert [type(effect) for effect in effects] == [ef.SendAssign]

    def test_a_cancel_goes_along(self) -> None:
        made = registry(P1, P2)
        run(made, 1)
        told(made, P1)
        assert made.handle(ev.CancelRequested(9, job(1))) == [ef.StoreWanted(job(1))]
        assert made.handle(ev.WantedStored(job(1), is_stored=True)) == [ef.ReplyCancelled(9)]
        effects = made.handle(ev.OwnerStored(job(1), 8))
        assert only(effects, ef.SendCancel).incarnation == P2

    def test_nobody_to_take_them(self) -> None:
        made = registry(P1)
        run(made, 1)
        assert only(told(made, P1), ef.SendNotTaken).incarnation == P1
        assert only(made.handle(ev.Ticked()), ef.SendNotTaken).incarnation == P1
        made.handle(process_known(P2, "2:1", 10))
        assert made.handle(ev.Ticked()) == [], "a process has room, and its stream will be back"
        assert moved(join(made, P2)) == {job(1): P2}

    def test_one_that_is_full_takes_none(self) -> None:
        made = registry(P1, P2, capacity=1)
        run(made, 1, 2)
        assert only(told(made, P1), ef.SendNotTaken).reason == "no other JobMaster process has room"

    def test_without_jobs_there_is_nothing_to_say(self) -> None:
        assert told(registry(P1), P1) == []

    def test_a_new_leader_hears_of_it(self) -> None:
        made = registry()
        made.handle(process_known(P1, "1:1", 10, is_draining=True))
        assert drained(made) == [P1]
        join(made, P1)
        assert drained(made) == [], "the process knows better than the store"
        made.handle(process_known(P1, "1:1", 10, is_draining=True))
        assert drained(made) == []


class TestDrainRequests:
    def test_the_process_is_asked_and_answers(self) -> None:
        made = registry(P1)
        assert made.handle(ev.DrainRequested(5, P1, is_draining=True)) == [ef.SendDrain(P1, is_draining=True)]
        assert told(made, P1, is_draining=False) == [], "an older heartbeat"
        assert told(made, P1) == [ef.ReplyDone(5)]
        assert made.handle(ev.DrainRequested(6, P1, is_draining=True)) == [ef.ReplyDone(6)]
        assert made.handle(ev.DrainRequested(7, P1, is_draining=False)) == [ef.SendDrain(P1, is_draining=False)]
        assert told(made, P1, is_draining=False) == [ef.ReplyDone(7)]

    @pytest.mark.parametrize(
        ("event", "error"), [(ev.ProcessDisconnected(P1), UnavailableError), (ev.ProcessLost(P1), NotFoundError)]
    )
    def test_one_that_goes_has_not_answered(self, event: ev.DispatcherEvent, error: type[FlinklikeError]) -> None:
        made = registry(P1)
        made.handle(ev.DrainRequested(5, P1, is_draining=True))
        refused = only(made.handle(event), ef.Refuse)
        assert refused.request == 5
        assert isinstance(refused.error, error)
        again = only(made.handle(ev.DrainRequested(6, P1, is_draining=True)), ef.Refuse)
        assert isinstance(again.error, error)


class TestMoves:
    def wish(self, made: JobRegistry, number: int = 1, target: Incarnation = P2, request: int = 5) -> list[Any]:
        return made.handle(ev.MoveRequested(request, job(number), target))

    def test_the_wish_is_durable_before_it_is_answered_and_fulfilled(self) -> None:
        made = registry(P1, P2)
        run(made, 1)
        assert self.wish(made) == [ef.StoreMoveWish(job(1), P2, 7)]
        assert self.wish(made, request=6) == []
        effects = made.handle(ev.MoveWishStored(job(1), is_stored=True))
        assert effects[:2] == [ef.ReplyDone(5), ef.ReplyDone(6)]
        assert moved(effects) == {job(1): P2}
        made.handle(ev.OwnerStored(job(1), 8))
        assert owner(made, 1) == (P2, 8)
        assert self.wish(made) == [ef.ReplyDone(5)]
        assert moved(made.handle(ev.Ticked(LATER))) == {}

    def test_refusals(self) -> None:
        made = registry(P1, P2, P3)
        run(made, 1)

        def refusal(number: int = 1, target: Incarnation = P2) -> tuple[type[Exception], str]:
            error = only(self.wish(made, number, target), ef.Refuse).error
            return type(error), str(error)

        assert refusal(9)[0] is NotFoundError
        assert refusal(1, Incarnation("9" * 32))[0] is NotFoundError
        told(made, P2)
        assert refusal() == (ConflictError, f"JobMaster process {P2} takes no job: it is draining")
        told(made, P2, is_draining=False)
        self.wish(made)
        assert refusal(1, P3)[0] is UnavailableError
        made.handle(ev.MoveWishFailed(job(1), UnavailableError("away")))
        made.handle(ev.CancelRequested(4, job(1)))
        assert refusal()[0] is ConflictError
        speak(made, shown(1, 7, JobStatus.CANCELED, sequence=9))
        assert refusal() == (ConflictError, f"job {job(1)} cannot be moved: it is CANCELED")

    def test_a_job_without_owner_cannot_be_moved(self) -> None:
        made = registry(P1)
        run(made, 1)
        made.handle(process_known(P2, "2:1", 10))
        made.handle(ev.ProcessLost(P1))
        assert isinstance(only(self.wish(made), ef.Refuse).error, ConflictError)

    def test_a_wish_that_cannot_be_stored(self) -> None:
        made = registry(P1, P2)
        run(made, 1)
        self.wish(made)
        error = UnavailableError("away")
        assert made.handle(ev.MoveWishFailed(job(1), error)) == [ef.Refuse(5, error)]
        assert moved(made.handle(ev.Ticked(LATER))) == {}

    def test_a_cancel_waits_for_the_wish_so_that_it_is_written_last(self) -> None:
        made = registry(P1, P2)
        run(made, 1)
        self.wish(made)
        assert made.handle(ev.CancelRequested(6, job(1))) == []
        effects = made.handle(ev.MoveWishStored(job(1), is_stored=True))
        assert only(effects, ef.StoreWanted).job_id == job(1)

    @pytest.mark.parametrize("is_told", [True, False])
    def test_a_job_that_ended_meanwhile(self, is_told: bool) -> None:
        made = registry(P1, P2)
        run(made, 1)
        self.wish(made)
        if is_told:
            effects = speak(made, shown(1, 7, JobStatus.FINISHED, sequence=9))
        else:
            assert made.handle(ev.MoveWishStored(job(1), is_stored=False)) == [ef.ReloadJob(job(1))]
            found = ev.RecoveredJob(source(1), 7, None, wants_cancel=False, ended=shown(1, 7, JobStatus.FINISHED))
            effects = made.handle(ev.JobReloaded(job(1), found))
        assert isinstance(only(effects, ef.Refuse).error, ConflictError)
        assert made.handle(ev.MoveWishStored(job(1), is_stored=True)) == []

    @pytest.mark.parametrize("is_there", [True, False])
    def test_a_new_leader_fulfils_it_once_the_process_is_back(self, is_there: bool) -> None:
        made = registry()
        for process in (P1, P2) if is_there else (P1,):
            made.handle(process_known(process, f"{process[0]}:1", 10))
        found = ev.RecoveredJob(source(1), 7, ev.JobOwner(P1, "1:1", 7), wants_cancel=False, ended=None, move_to=P2)
        made.recover([found], [])
        assert moved(join(made, P1)) == {}
        made.handle(ev.Ticked())
        assert moved(join(made, P2)) == ({job(1): P2} if is_there else {})


class TestOwnersThatAreCutOff:
    """The ResourceManager says so after three rounds (R7)."""

    def test_another_process_gets_the_job(self) -> None:
        made = registry(P1, P2, P3)
        run(made, 1, 2)
        effects = made.handle(ev.OwnerCutOff(job(1), 7))
        assert moved(effects) == {job(1): P3}, "the least loaded one that is not the owner"
        assert only(effects, ef.StoreOwner).previous_epoch == 7
        made.handle(ev.OwnerStored(job(1), 8))
        assert owner(made, 1) == (P3, 8)

    def test_nobody_else_is_there(self) -> None:
        made = registry(P1)
        run(made, 1)
        assert made.handle(ev.OwnerCutOff(job(1), 7)) == []

    def test_a_process_that_refuses_the_job_for_good_is_not_asked(self) -> None:
        made = registry(P1, P2)
        made.handle(ev.SubmitRequested(1, source(1)))
        made.handle(ev.SubmitStored(job(1), 7, ""))
        made.handle(assignment_refused(P1, job(1), 7, "it broke", is_permanent=True))
        made.handle(ev.OwnerStored(job(1), 8))
        assert owner(made, 1) == (P2, 8)
        assert made.handle(ev.OwnerCutOff(job(1), 8)) == []

    def test_what_is_said_of_an_earlier_owner_does_not_count(self) -> None:
        made = registry(P1, P2)
        run(made, 1)
        assert made.handle(ev.OwnerCutOff(job(1), 6)) == []
        assert made.handle(ev.OwnerCutOff(job(9), 7)) == []

    def test_a_job_that_changes_hands_or_is_over_stays(self) -> None:
        made = registry(P1, P2)
        run(made, 1, 2)
        assert moved(made.handle(ev.OwnerCutOff(job(1), 7))) == {job(1): P2}
        assert made.handle(ev.OwnerCutOff(job(1), 7)) == [], "it is being moved"
        speak(made, shown(2, 7, JobStatus.FINISHED, sequence=9))
        assert made.handle(ev.OwnerCutOff(job(2), 7)) == []

    def test_not_again_before_it_has_settled(self) -> None:
        made = registry(P1, P2)
        run(made, 1)
        made.handle(ev.Ticked(LATER))
        assert moved(made.handle(ev.OwnerCutOff(job(1), 7))) == {job(1): P2}
        made.handle(ev.OwnerStored(job(1), 8))
        made.handle(ev.Ticked(LATER + 59_000))
        assert made.handle(ev.OwnerCutOff(job(1), 8)) == []
        made.handle(ev.Ticked(LATER + 60_000))
        assert moved(made.handle(ev.OwnerCutOff(job(1), 8))) == {job(1): P1}


class TestRebalancing:
    SETTINGS = MoveSettings(rebalanced_max=2)

    def full(self, count: int, moves: MoveSettings = SETTINGS) -> JobRegistry:
        made = registry(P1, moves=moves)
        run(made, *range(1, count + 1))
        assert made.handle(ev.Ticked(LATER)) == []
        return made

    def settle(self, made: JobRegistry, effects: list[Any], epoch: int) -> list[Any]:
        """Let all moves succeed, and the moves that follow from them. Returns what was moved."""
        done: list[Any] = []
        while moves := moved(effects):
            done += moves
            effects = []
            for job_id in moves:
                epoch += 1
                made.handle(ev.OwnerStored(job_id, epoch))
                effects += speak(made, shown(int(job_id, 16), epoch))
        return done

    def test_a_process_that_comes_gets_its_share_a_few_at_a_time(self) -> None:
        made = self.full(6)
        assert moved(join(made, P2)) == {job(1): P2, job(2): P2}
        made.handle(ev.OwnerStored(job(1), 8))
        assert moved(speak(made, shown(1, 8))) == {job(3): P2}
        made.handle(ev.OwnerStored(job(2), 9))
        made.handle(ev.OwnerStored(job(3), 10))
        assert moved(speak(made, shown(2, 9), shown(3, 10))) == {}
        assert [len(process.jobs) for process in made.processes] == [3, 3]

    def test_one_without_a_record_that_can_be_read_gives_nothing_and_gets_nothing(self) -> None:  # R31
        made = self.full(6)
        join(made, P1, capacity=0)
        assert moved(join(made, P2)) == {}
        assert moved(join(made, P3, capacity=0)) == {}

    @pytest.mark.parametrize("count", range(12))
    @pytest.mark.parametrize("capacities", [(10, 10), (20, 5), (5, 20)])
    def test_it_comes_to_rest_and_stays_there(self, count: int, capacities: tuple[int, int]) -> None:
        made = registry(P1, moves=self.SETTINGS, capacity=capacities[0])
        count = min(count, capacities[0])
        run(made, *range(1, count + 1))
        made.handle(ev.Ticked(LATER))
        done = self.settle(made, join(made, P2, capacity=capacities[1]), 100)
        assert len(done) == len(set(done)), "no job moves twice"
        first, second = (len(process.jobs) / process.capacity for process in made.processes)
        assert first + 1 / capacities[0] >= second, "no more than its share"
        assert (first - 1 / capacities[0]) < (second + 1 / capacities[1]), "its whole share"
        for moment in range(5):
            assert made.handle(ev.Ticked(2 * LATER * (moment + 1))) == []

    def test_a_stream_that_comes_back_is_no_new_process(self) -> None:
        made = registry(P1, P2, moves=self.SETTINGS)
        run(made, *range(1, 9))
        made.handle(ev.Ticked(LATER))
        for number in (2, 4, 6, 8):
            speak(made, shown(number, 7, JobStatus.FINISHED, sequence=9))
        made.handle(ev.ProcessDisconnected(P2))
        assert moved(join(made, P2)) == {}

    def test_one_that_is_undrained_is_as_new(self) -> None:
        made = registry(P1, P2, moves=self.SETTINGS)
        told(made, P2)
        run(made, 1, 2, 3, 4)
        made.handle(ev.Ticked(LATER))
        told(made, P2, is_draining=False)
        assert set(moved(made.handle(ev.Ticked(LATER))).values()) == {P2}

    @pytest.mark.parametrize(
        "summary",
        [
            replace(shown(1, 7), status=JobStatus.CANCELLING, sequence=2),
            replace(shown(1, 7), tasks=TaskCounts(finished=3), sequence=2),
            replace(shown(1, 7), start_millis=LATER - 100, sequence=2),
            replace(shown(1, 7), status=JobStatus.INITIALIZING, sequence=2),
        ],
        ids=["stops", "is done", "is young", "is being begun"],
    )
    def test_a_job_that_is_likely_to_end_soon_stays(self, summary: JobSummary) -> None:
        made = self.full(2)
        speak(made, summary)
        assert job(1) not in moved(join(made, P2))

    def test_one_that_was_moved_recently_stays(self) -> None:
        made = self.full(4)
        self.settle(made, join(made, P2), 100)
        assert len(self.settle(made, join(made, P3), 200)) == 1
        for process in (P1, P2):
            found = made.processes.get(process)
            assert found is not None
            assert found.jobs

    def test_a_new_leader_waits_because_it_does_not_know_what_was_moved(self) -> None:
        made = JobRegistry(JobRegistryLimits(100, 100), Retention(10, 1000), self.SETTINGS)
        made.handle(process_known(P1, "1:1", 10))
        owned = ev.JobOwner(P1, "1:1", 7)
        found = [ev.RecoveredJob(source(n), 7, owned, wants_cancel=False, ended=None) for n in (1, 2, 3)]
        made.recover(found, [])
        join(made, P1)
        speak(made, *(shown(number, 7) for number in (1, 2, 3)))
        assert moved(join(made, P2)) == {}
        assert moved(made.handle(ev.Ticked(LATER))) == {}
        assert moved(made.handle(ev.Ticked(LATER + self.SETTINGS.settled_millis - 1))) == {}
        assert moved(made.handle(ev.Ticked(LATER + self.SETTINGS.settled_millis))) == {job(1): P2}

    def test_it_can_be_turned_off(self) -> None:
        made = self.full(6, MoveSettings(rebalanced_max=0))
        assert moved(join(made, P2)) == {}
        assert moved(made.handle(ev.Ticked(LATER))) == {}

    def test_a_process_that_refuses_it_is_not_offered_it_again(self) -> None:
        made = self.full(2)
        assert moved(join(made, P2)) == {job(1): P2}
        made.handle(ev.OwnerStored(job(1), 8))
        effects = made.handle(assignment_refused(P2, job(1), 8, "no room", is_permanent=False))
        assert moved(effects) == {job(1): P1}
        made.handle(ev.OwnerStored(job(1), 9))
        assert moved(speak(made, shown(1, 9))) in ({}, {job(2): P2})


def test_a_job_on_its_way_is_assigned_once() -> None:
    made = registry(P1, P2)
    run(made, 1)
    told(made, P1)
    entry = made.entry(job(1))
    assert entry is not None
    assert entry.phase.state is JobPhase.ASSIGNING
    assert moved(made.handle(ev.Ticked(LATER))) == {}
    assert moved(told(made, P1)) == {}
