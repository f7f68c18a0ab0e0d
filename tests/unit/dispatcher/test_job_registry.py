"""The registry of jobs: what each event leads to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar
from unittest.mock import ANY

import pytest

from runtime.common.errors import BackpressureError, ConflictError, NotFoundError, UnavailableError
from runtime.common.ids import Incarnation, JobId
from runtime.common.namespaces import UNKNOWN_NAMESPACE
from runtime.common.states import JobStatus
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.job_entry import JOB_PHASES, JobPhase
from runtime.dispatcher.core.jobs import JobRegistry
from runtime.dispatcher.core.retention import FinishedJob, FinishedJobs, RememberedIds, RememberedJob, Retention
from runtime.dispatcher.core.shown_summary import initial_summary
from runtime.dispatcher.core.submits import JobRegistryLimits
from runtime.dispatcher.stored_jobs import recovered_job
from runtime.gateways.dispatcher import AssignJob, JobInventoryEntry, JobSummary, SubmitOutcome
from runtime.highavailability.jobs.job_reader import EMPTY_GRAPH
from runtime.highavailability.records import OwnerRecord, StoredJob
from tests.kit.control_plane.process_events import (
    assignment_refused,
    inventory_received,
    process_known,
    process_registered,
)

EffectT = TypeVar("EffectT")
LIMITS = JobRegistryLimits(jobs_max=5, submits_in_flight_max=3)
RETENTION = Retention(count_max=3, age_millis_max=1000)
P1, P2, P3 = (Incarnation(digit * 32) for digit in "123")


def job(number: int) -> JobId:
    return JobId(f"{number:032x}")


def source(number: int, digest: str = "d") -> ev.JobSource:
    return ev.JobSource(job(number), digest, f"job-{number}", b"{}", "", 1000 + number, "tests")


def registry(*processes: Incarnation, capacity: int = 10) -> JobRegistry:
    made = JobRegistry(LIMITS, RETENTION)
    for process in processes:
        made.handle(process_registered(process, f"{process[0]}:1", capacity, "v"))
    return made


def only(effects: list[Any], kind: type[EffectT]) -> EffectT:
    found = [effect for effect in effects if isinstance(effect, kind)]
    assert len(found) == 1, effects
    return found[0]


def kinds(effects: list[Any]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def assigned(made: JobRegistry, number: int, epoch: int = 7) -> list[Any]:
    """Submit a job and let its transaction succeed with an owner."""
    made.handle(ev.SubmitRequested(number, source(number)))
    return made.handle(ev.SubmitStored(job(number), epoch, ""))


def pushed(number: int, status: JobStatus, epoch: int = 7, sequence: int = 1, millis: int = 5000) -> JobSummary:
    return replace(
        initial_summary(source(number)),
        status=status,
        epoch=epoch,
        sequence=sequence,
        last_modification_millis=millis,
        end_millis=millis if status.is_globally_terminal else -1,
    )


def ended(made: JobRegistry, number: int, status: JobStatus = JobStatus.FINISHED) -> list[Any]:
    return made.handle(ev.SummariesReceived((pushed(number, status, sequence=9),)))


def test_phases_end_in_done() -> None:
    assert [phase for phase in JobPhase if JOB_PHASES.is_terminal(phase)] == [JobPhase.DONE]


def test_submit_writes_graph_and_owner_together_and_answers_after_it() -> None:
    made = registry(P1)
    effects = made.handle(ev.SubmitRequested(1, source(1)))
    assert effects == [ef.StoreJob(source(1), P1, "1:1")]
    assert made.summary(job(1)) is None, "nothing is shown before it is durable"
    effects = made.handle(ev.SubmitStored(job(1), 7, ""))
    assert only(effects, ef.ReplySubmitted).outcome is SubmitOutcome.ACCEPTED
    order = only(effects, ef.SendAssign)
    assert (order.incarnation, order.message.epoch, order.message.is_fresh, order.message.graph) == (P1, 7, True, b"{}")
    assert made.owner(job(1)) == ev.JobOwner(P1, "1:1", 7)


def test_jobs_go_to_the_least_loaded_process_in_turns() -> None:
    made = registry(P1, P2)
    chosen = [only(made.handle(ev.SubmitRequested(n, source(n))), ef.StoreJob).incarnation for n in (1, 2)]
    assert chosen == [P1, P2]
    for number in (1, 2):
        made.handle(ev.SubmitStored(job(number), 7, ""))
        ended(made, number)
    made.handle(process_registered(Incarnation("3" * 32), "3:1", 10, "v"))
    assert only(made.handle(ev.SubmitRequested(3, source(3))), ef.StoreJob).incarnation == "3" * 32


def test_the_same_submit_again_joins_the_first() -> None:
    made = registry(P1)
    made.handle(ev.SubmitRequested(1, source(1)))
    assert made.handle(ev.SubmitRequested(2, source(1))) == []
    effects = made.handle(ev.SubmitStored(job(1), 7, ""))
    outcomes = [effect.outcome for effect in effects if isinstance(effect, ef.ReplySubmitted)]
    assert outcomes == [SubmitOutcome.ACCEPTED, SubmitOutcome.ALREADY_SUBMITTED]


@pytest.mark.parametrize("stage", ["running", "ended", "cleaned"])
def test_a_taken_id_is_the_same_job_or_a_conflict(stage: str) -> None:
    made = registry(P1)
    assigned(made, 1)
    if stage != "running":
        ended(made, 1)
    if stage == "cleaned":
        made.handle(ev.JobsCleaned((job(1),)))
    again = only(made.handle(ev.SubmitRequested(2, source(1))), ef.ReplySubmitted)
    assert again.outcome is SubmitOutcome.ALREADY_SUBMITTED
    assert again.status is (JobStatus.INITIALIZING if stage == "running" else JobStatus.FINISHED)
    other = only(made.handle(ev.SubmitRequested(3, source(1, digest="x"))), ef.Refuse)
    assert isinstance(other.error, ConflictError)


def test_an_id_that_only_the_store_knows_is_answered_from_there() -> None:
    made = registry(P1)
    made.handle(ev.SubmitRequested(1, source(1)))
    effects = made.handle(ev.SubmitFoundStored(job(1), "d", JobStatus.FAILED, is_cleaned=True))
    assert only(effects, ef.ReplySubmitted).status is JobStatus.FAILED
    assert not made._jobs


def test_a_stored_job_that_is_not_in_memory_is_taken_over() -> None:
    made = registry(P1)
    made.handle(ev.SubmitRequested(1, source(1)))
    made.handle(ev.CancelRequested(5, job(1)))
    effects = made.handle(ev.SubmitFoundStored(job(1), "", JobStatus.INITIALIZING, is_cleaned=False))
    assert only(effects, ef.ReplySubmitted).status is JobStatus.INITIALIZING
    assert only(effects, ef.ReloadJob) == ef.ReloadJob(job(1))
    nobodys = replace(source(1), name="", client="", namespace=UNKNOWN_NAMESPACE)
    assert made.summary(job(1)) == initial_summary(nobodys), "a client that has sent the id alone does not see the job"
    owner = OwnerRecord(P1, "1:1")
    unreadable = StoredJob(job(1), EMPTY_GRAPH, 7, owner, 7, None, 0, None, "unreadable")
    effects = made.handle(ev.JobReloaded(job(1), recovered_job(unreadable)))
    order = AssignJob(job(1), 7, True, b"", "", "", 0, UNKNOWN_NAMESPACE)
    assert only(effects, ef.SendAssign).message == order, "its owner finds out that the graph cannot be read"
    assert only(effects, ef.StoreWanted) == ef.StoreWanted(job(1))


def test_a_job_that_is_taken_over_is_the_stored_one() -> None:
    made = registry(P1)
    made.handle(ev.SubmitRequested(1, source(1, "another")))
    effects = made.handle(ev.SubmitFoundStored(job(1), "d", JobStatus.INITIALIZING, is_cleaned=False))
    assert isinstance(only(effects, ef.Refuse).error, ConflictError)
    found = ev.RecoveredJob(source(1), 7, ev.JobOwner(P1, "1:1", 7), False, None)
    effects = made.handle(ev.JobReloaded(job(1), found))
    assert only(effects, ef.SendAssign).message.digest == "d"


def test_too_many_jobs_are_refused_for_now() -> None:
    made = registry(P1)
    for number in range(3):
        made.handle(ev.SubmitRequested(number, source(number)))
    refused = only(made.handle(ev.SubmitRequested(4, source(4))), ef.Refuse)
    assert isinstance(refused.error, BackpressureError)
    assert refused.error.retry_after > 0
    for number in range(3):
        made.handle(ev.SubmitStored(job(number), 7, ""))
    for number in (3, 4):
        assigned(made, number)
    assert isinstance(only(made.handle(ev.SubmitRequested(9, source(9))), ef.Refuse).error, BackpressureError)


def test_a_failed_submit_leaves_nothing() -> None:
    made = registry(P1)
    made.handle(ev.SubmitRequested(1, source(1)))
    error = UnavailableError("etcd is away")
    assert made.handle(ev.SubmitFailed(job(1), error)) == [ef.Refuse(1, error)]
    assert not made._jobs
    process = made.processes.get(P1)
    assert process is not None
    assert not process.jobs


def test_a_job_without_process_waits_with_a_reason_and_is_assigned_when_one_registers() -> None:
    made = registry()
    assert only(made.handle(ev.SubmitRequested(1, source(1))), ef.StoreJob).incarnation == ""
    effects = made.handle(ev.SubmitStored(job(1), 0, ""))
    assert kinds(effects) == ["ReplySubmitted", "PublishSummary"]
    summary = made.summary(job(1))
    assert summary is not None
    assert summary.status is JobStatus.INITIALIZING
    assert "start-jobmaster.sh" in summary.pending_reason
    assert summary.pending_kind == "jobmasters"
    effects = made.handle(process_registered(P1, "1:1", 10, "v"))
    assert effects == [ef.StoreOwner(job(1), P1, "1:1", 0)]
    effects = made.handle(ev.OwnerStored(job(1), 9))
    assert only(effects, ef.SendAssign).message.is_fresh, "no process can have started anything"
    shown = made.summary(job(1))
    assert shown is not None
    assert shown.pending_reason == ""


def test_jobs_wait_in_order_for_room() -> None:
    made = registry(P1, capacity=1)
    assigned(made, 1)
    for number in (2, 3):
        made.handle(ev.SubmitRequested(number, source(number)))
        made.handle(ev.SubmitStored(job(number), 0, ""))
    effects = ended(made, 1)
    assert [effect.job_id for effect in effects if isinstance(effect, ef.StoreOwner)] == [job(2)]


def test_a_refused_job_goes_to_another_process_and_stays_fresh() -> None:
    made = registry(P1, P2)
    assigned(made, 1)
    effects = made.handle(assignment_refused(P1, job(1), 7, "full", is_permanent=False))
    assert effects == [ef.StoreOwner(job(1), P2, "2:1", 7, refusals=1), ef.PublishSummary(job(1))]
    effects = made.handle(ev.OwnerStored(job(1), 8))
    assert only(effects, ef.SendAssign).message.is_fresh
    effects = made.handle(assignment_refused(P2, job(1), 8, "full too", is_permanent=True))
    summary = made.summary(job(1))
    assert summary is not None
    assert "full too" in summary.pending_reason
    effects = made.handle(ev.Ticked())
    assert only(effects, ef.StoreOwner).incarnation == P1, "that refusal was not for good"


def test_a_late_refusal_of_an_older_epoch_is_ignored() -> None:
    made = registry(P1, P2)
    assigned(made, 1)
    assert made.handle(assignment_refused(P1, job(1), 6, "old", is_permanent=False)) == []
    assert made.handle(assignment_refused(P2, job(1), 7, "not yours", is_permanent=False)) == []


def test_the_jobs_of_a_lost_process_get_new_owners_that_are_not_fresh() -> None:
    made = registry(P1, P2)
    assigned(made, 1)
    made.handle(ev.ProcessDisconnected(P1))
    assert made.owner(job(1)) is not None, "an ended stream is not a lost process"
    effects = made.handle(ev.ProcessLost(P1))
    assert effects == [ef.StoreOwner(job(1), P2, "2:1", 7, ANY), ef.PublishSummary(job(1))]
    assert not only(made.handle(ev.OwnerStored(job(1), 8)), ef.SendAssign).message.is_fresh


def test_a_process_lost_during_the_transaction_loses_the_job() -> None:
    made = registry(P1, P2)
    made.handle(ev.SubmitRequested(1, source(1)))
    made.handle(ev.ProcessLost(P1))
    effects = made.handle(ev.SubmitStored(job(1), 7, ""))
    assert only(effects, ef.StoreOwner).incarnation == P2


def test_a_process_that_was_away_during_the_transaction_gets_the_job_when_it_is_back() -> None:
    made = registry(P1)
    made.handle(ev.SubmitRequested(1, source(1)))
    made.handle(ev.ProcessLost(P1))
    made.handle(process_known(P1, "1:1", 10))
    assert not [one for one in made.handle(ev.SubmitStored(job(1), 7, "")) if isinstance(one, ef.SendAssign)]
    made.handle(process_registered(P1, "1:1", 10, "v"))
    effects = made.handle(inventory_received(P1, (), 0, 0.5, 100))
    assert only(effects, ef.SendAssign).message.epoch == 7


class TestInventory:
    """What a process has of jobs is compared with what it owns (R5)."""

    def inventory(
        self, made: JobRegistry, *held: JobInventoryEntry, assignment: int, process: Incarnation = P1
    ) -> list[Any]:
        return made.handle(inventory_received(process, held, assignment, 0.5, 100))

    def test_an_order_on_its_way_is_not_repeated(self) -> None:
        made = registry(P1)
        assigned(made, 1, epoch=7)
        assert self.inventory(made, assignment=6) == []

    def test_a_missing_job_is_sent_again(self) -> None:
        made = registry(P1)
        assigned(made, 1, epoch=7)
        assert only(self.inventory(made, assignment=7), ef.SendAssign).message.job_id == job(1)

    def test_a_job_that_is_there_is_left_alone(self) -> None:
        made = registry(P1)
        assigned(made, 1, epoch=7)
        assert self.inventory(made, JobInventoryEntry(job(1), 7, JobStatus.RUNNING), assignment=7) == []

    def test_a_new_stream_gets_what_the_old_one_may_have_lost(self) -> None:
        made = registry(P1)
        assigned(made, 1, epoch=7)
        made.handle(ev.CancelRequested(2, job(1)))
        made.handle(ev.WantedStored(job(1), is_stored=True))
        made.handle(ev.ProcessDisconnected(P1))
        made.handle(process_registered(P1, "1:1", 10, "v"))
        assert kinds(self.inventory(made, assignment=3)) == ["SendAssign", "SendCancel"]
        made.handle(process_registered(P1, "1:1", 10, "v"))
        effects = self.inventory(made, JobInventoryEntry(job(1), 7, JobStatus.RUNNING), assignment=7)
        assert effects == [ef.SendCancel(P1, job(1))]

    @pytest.mark.parametrize("held", [(9, 7), (1, 6)])
    def test_what_is_not_owned_is_dropped(self, held: tuple[int, int]) -> None:
        made = registry(P1)
        assigned(made, 1, epoch=7)
        extra = JobInventoryEntry(job(held[0]), held[1], JobStatus.RUNNING)
        owned = JobInventoryEntry(job(1), 7, JobStatus.RUNNING)
        assert self.inventory(made, owned, extra, assignment=7) == [ef.SendDrop(P1, (extra,))]

    def test_an_end_that_was_not_heard_of_is_read(self) -> None:
        made = registry(P1)
        assigned(made, 1)
        held = JobInventoryEntry(job(1), 7, JobStatus.FINISHED)
        assert self.inventory(made, held, assignment=7) == [ef.ReloadJob(job(1))]
        found = ev.RecoveredJob(source(1), 7, ev.JobOwner(P1, "1:1", 7), False, pushed(1, JobStatus.FINISHED))
        effects = made.handle(ev.JobReloaded(job(1), found))
        assert kinds(effects) == ["PublishSummary", "EndJobEverywhere"]


class TestCancel:
    """A cancel is answered when the wish, or the end, is durable."""

    def test_of_a_running_job(self) -> None:
        made = registry(P1)
        assigned(made, 1)
        assert made.handle(ev.CancelRequested(5, job(1))) == [ef.StoreWanted(job(1))]
        assert made.handle(ev.CancelRequested(6, job(1))) == []
        effects = made.handle(ev.WantedStored(job(1), is_stored=True))
        assert effects == [ef.ReplyCancelled(5), ef.ReplyCancelled(6), ef.SendCancel(P1, job(1))]
        assert made.handle(ev.CancelRequested(7, job(1))) == [ef.ReplyCancelled(7)]

    def test_of_a_job_without_owner(self) -> None:
        made = registry()
        made.handle(ev.SubmitRequested(1, source(1)))
        made.handle(ev.SubmitStored(job(1), 0, ""))
        effects = made.handle(ev.CancelRequested(5, job(1)))
        assert kinds(effects) == ["StoreEnd"]
        assert made.handle(process_registered(P1, "1:1", 10, "v")) == [], "not assigned meanwhile"
        effects = made.handle(ev.EndStored(job(1), pushed(1, JobStatus.CANCELED, epoch=0)))
        assert kinds(effects) == ["ReplyCancelled", "PublishSummary", "EndJobEverywhere"]

    def test_before_the_submit_is_stored(self) -> None:
        made = registry(P1)
        made.handle(ev.SubmitRequested(1, source(1)))
        assert made.handle(ev.CancelRequested(5, job(1))) == []
        assert ef.StoreWanted(job(1)) in made.handle(ev.SubmitStored(job(1), 7, ""))

    @pytest.mark.parametrize("is_failed", [True, False])
    def test_of_a_submit_that_is_not_stored(self, is_failed: bool) -> None:
        made = registry(P1)
        made.handle(ev.SubmitRequested(1, source(1)))
        made.handle(ev.CancelRequested(5, job(1)))
        error = UnavailableError("etcd is away")
        failed = ev.SubmitFailed(job(1), error)
        event = failed if is_failed else ev.SubmitFoundStored(job(1), "d", JobStatus.FINISHED, is_cleaned=True)
        effects: list[Any] = list(made.handle(event))
        assert {effect.request for effect in effects} == {1, 5}

    def test_while_the_owner_is_being_written(self) -> None:
        made = registry()
        made.handle(ev.SubmitRequested(1, source(1)))
        made.handle(ev.SubmitStored(job(1), 0, ""))
        made.handle(process_registered(P1, "1:1", 10, "v"))
        assert made.handle(ev.CancelRequested(5, job(1))) == [ef.StoreWanted(job(1))]
        made.handle(ev.WantedStored(job(1), is_stored=True))
        assert kinds(made.handle(ev.OwnerStored(job(1), 9))) == ["PublishSummary", "SendAssign", "SendCancel"]

    def test_that_cannot_be_stored(self) -> None:
        made = registry()
        made.handle(ev.SubmitRequested(1, source(1)))
        made.handle(ev.SubmitStored(job(1), 0, ""))
        made.handle(ev.CancelRequested(5, job(1)))
        error = UnavailableError("etcd is away")
        assert ef.Refuse(5, error) in made.handle(ev.EndFailed(job(1), error))
        assert kinds(made.handle(process_registered(P1, "1:1", 10, "v"))) == ["StoreOwner"]

    def test_of_a_job_that_ended_meanwhile(self) -> None:
        made = registry(P1)
        assigned(made, 1)
        made.handle(ev.CancelRequested(5, job(1)))
        assert made.handle(ev.WantedStored(job(1), is_stored=False)) == [ef.ReloadJob(job(1))]
        found = ev.RecoveredJob(source(1), 7, ev.JobOwner(P1, "1:1", 7), False, pushed(1, JobStatus.FINISHED))
        refused = only(made.handle(ev.JobReloaded(job(1), found)), ef.Refuse)
        assert isinstance(refused.error, ConflictError)

    @pytest.mark.parametrize("is_cleaned", [False, True])
    @pytest.mark.parametrize("status", [JobStatus.CANCELED, JobStatus.FINISHED, JobStatus.FAILED])
    def test_of_an_ended_job(self, status: JobStatus, is_cleaned: bool) -> None:
        made = registry(P1)
        assigned(made, 1)
        ended(made, 1, status)
        if is_cleaned:
            made.handle(ev.JobsCleaned((job(1),)))
        answer = made.handle(ev.CancelRequested(5, job(1)))[0]
        assert isinstance(answer, ef.ReplyCancelled) is (status is JobStatus.CANCELED)

    def test_of_an_unknown_job(self) -> None:
        refused = only(registry().handle(ev.CancelRequested(5, job(1))), ef.Refuse)
        assert isinstance(refused.error, NotFoundError)


class TestSummaries:
    """(epoch, sequence) orders what owners push."""

    def test_older_ones_are_dropped(self) -> None:
        made = registry(P1)
        assigned(made, 1)
        made.handle(ev.SummariesReceived((pushed(1, JobStatus.RUNNING, sequence=3),)))
        assert made.handle(ev.SummariesReceived((pushed(1, JobStatus.CREATED, sequence=2),))) == []
        assert made.handle(ev.SummariesReceived((pushed(1, JobStatus.RUNNING, epoch=6, sequence=9),))) == []
        summary = made.summary(job(1))
        assert summary is not None
        assert summary.status is JobStatus.RUNNING

    def test_the_time_of_change_always_rises(self) -> None:
        made = registry(P1)
        assigned(made, 1)
        seen = []
        for sequence in (1, 2, 3):
            made.handle(ev.SummariesReceived((pushed(1, JobStatus.RUNNING, sequence=sequence, millis=5000),)))
            summary = made.summary(job(1))
            assert summary is not None
            seen.append(summary.last_modification_millis)
        assert seen == sorted(set(seen))

    def test_the_local_end_of_an_owner_is_not_shown(self) -> None:
        made = registry(P1)
        assigned(made, 1)
        assert made.handle(ev.SummariesReceived((pushed(1, JobStatus.SUSPENDED),))) == []

    def test_an_end_is_published_told_everywhere_and_cleaned(self) -> None:
        made = registry(P1)
        assigned(made, 1)
        assert kinds(ended(made, 1)) == ["PublishSummary", "EndJobEverywhere"]
        dropped = only(made.handle(ev.Ticked()), ef.SendDrop)
        assert dropped == ef.SendDrop(P1, (JobInventoryEntry(job(1), 7, JobStatus.FINISHED),))
        assert made.handle(ev.Ticked()) == []
        assert made.owner(job(1)) is None
        assert made.dirty(10) == [job(1)]
        made.handle(ev.JobsCleaned((job(1),)))
        assert made.dirty(10) == []
        assert [summary.job_id for summary in made.shown.newest_first()] == [job(1)]


class TestRecovery:
    """A new term knows everything before it serves."""

    def test_of_each_kind(self) -> None:
        made = JobRegistry(LIMITS, RETENTION)
        made.handle(process_known(P1, "1:1", 10))
        stored = [
            ev.RecoveredJob(source(1), 5, ev.JobOwner(P1, "1:1", 5), False, None),
            ev.RecoveredJob(source(2), 6, ev.JobOwner(P2, "2:1", 6), False, None),
            ev.RecoveredJob(source(3), 7, None, True, None),
            ev.RecoveredJob(source(4), 8, ev.JobOwner(P2, "2:1", 8), False, pushed(4, JobStatus.FAILED)),
        ]
        done = FinishedJob(pushed(9, JobStatus.FINISHED), "d")
        effects = made.recover(stored, [done])
        assert kinds(effects) == ["PublishSummary", "PublishSummary", "PublishSummary", "EndJobEverywhere"]
        assert {summary.job_id for summary in made.shown.newest_first()} == {job(n) for n in (1, 2, 3, 4, 9)}
        effects = made.handle(process_registered(P1, "1:1", 10, "v"))
        assert [(e.job_id, e.previous_epoch) for e in effects if isinstance(e, ef.StoreOwner)] == [
            (job(2), 6),
            (job(3), 0),
        ]
        effects = made.handle(inventory_received(P1, (), 0, 0.0, 0))
        order = only(effects, ef.SendAssign)
        assert (order.message.job_id, order.message.epoch, order.message.is_fresh) == (job(1), 5, True)


def test_an_assignment_that_finds_a_result_ends_the_job() -> None:
    made = registry(P1, P2)
    assigned(made, 1)
    made.handle(ev.ProcessLost(P1))
    found = ev.RecoveredJob(source(1), 7, ev.JobOwner(P1, "1:1", 7), False, pushed(1, JobStatus.FINISHED))
    effects = made.handle(ev.OwnerNotStored(job(1), found))
    assert "EndJobEverywhere" in kinds(effects)


def test_a_job_whose_owner_cannot_be_read_gets_another_one_under_a_later_epoch() -> None:
    stored = StoredJob(job(1), EMPTY_GRAPH, 5, None, 7, None, 0, None, "unreadable")
    made = registry(P1)
    order = only(made.recover([recovered_job(stored)], []), ef.StoreOwner)
    assert (order.incarnation, order.previous_epoch) == (P1, 7)
    sent = only(made.handle(ev.OwnerStored(job(1), 9)), ef.SendAssign)
    assert not sent.message.is_fresh, "its tasks may run"


def test_a_job_whose_graph_cannot_be_read_is_whoever_submits_it_again() -> None:
    made = registry()
    made.recover([recovered_job(StoredJob(job(1), EMPTY_GRAPH, 5, None, 0, None, 0, None, "unreadable"))], [])
    again = only(made.handle(ev.SubmitRequested(2, source(1))), ef.ReplySubmitted)
    assert again.outcome is SubmitOutcome.ALREADY_SUBMITTED


def test_an_assignment_that_was_made_after_all_is_taken_over() -> None:
    made = registry(P1, P2)
    assigned(made, 1)
    made.handle(ev.ProcessLost(P1))
    found = ev.RecoveredJob(source(1), 7, ev.JobOwner(P2, "2:1", 12), False, None)
    order = only(made.handle(ev.OwnerNotStored(job(1), found)), ef.SendAssign)
    assert (order.incarnation, order.message.epoch, order.message.is_fresh) == (P2, 12, False)


class TestFinishedJobs:
    """Bounded by count and age."""

    def finished(self, number: int, end: int) -> FinishedJob:
        return FinishedJob(replace(pushed(number, JobStatus.FINISHED), end_millis=end), "d")

    def test_the_oldest_leaves_first(self) -> None:
        jobs = FinishedJobs(RETENTION)
        for number in range(5):
            jobs.add(self.finished(number, number))
        assert [job_.summary.job_id for job_ in jobs] == [job(4), job(3), job(2)]

    def test_age(self) -> None:
        jobs = FinishedJobs(RETENTION)
        for number in range(3):
            jobs.add(self.finished(number, number * 1000))
        assert jobs.expire(2500) == (job(0), job(1))
        assert len(jobs) == 1


class TestRememberedIds:
    """Ids are forgotten by age, and the oldest ones when there are too many."""

    def ids(self, count_max: int = 10, bytes_max: int = 1000) -> RememberedIds:
        made = RememberedIds(Retention(count_max, 1000, bytes_max))
        made.add(job(9), RememberedJob(9000, 10, 5))
        made.load({job(number): RememberedJob(number * 1000, 10, 5) for number in (3, 1, 2)})
        return made

    def test_age(self) -> None:
        assert self.ids().due(3500, 10) == [job(1), job(2)]

    def test_count(self) -> None:
        assert self.ids(count_max=1).due(0, 10) == [job(1), job(2), job(3)]

    def test_size_of_archives(self) -> None:
        made = self.ids(bytes_max=25)
        assert made.due(0, 10) == [job(1), job(2)]
        made.forget([job(1), job(2)])
        assert made.due(0, 10) == []
        made.add(job(10), RememberedJob(9500, 10, 5))
        assert made.due(0, 10) == [job(3)]

    def test_in_batches(self) -> None:
        made = self.ids(count_max=0)
        assert made.due(0, 3) == [job(1), job(2), job(3)]
        made.forget(made.due(0, 3))
        assert made.due(0, 3) == [job(9)]
        assert len(made) == 1


def test_a_process_that_was_reserved_for_a_job_of_another_owner_is_lost_without_it() -> None:  # R5
    made = registry(P1, P2)
    assigned(made, 1)
    made.handle(ev.ProcessLost(P1))
    found = ev.RecoveredJob(source(1), 7, ev.JobOwner(P3, "3:1", 12), False, None)
    made.handle(process_registered(P3, "3:1", 10, "v"))
    made.handle(ev.OwnerNotStored(job(1), found))
    effects = made.handle(ev.ProcessLost(P2))
    assert "StoreOwner" not in kinds(effects)
    assert made.owner(job(1)) == ev.JobOwner(P3, "3:1", 12)
