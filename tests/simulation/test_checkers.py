"""Each checker refuses a history that breaks its rule, and says nothing of the one that does not."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.common.ids import AllocationId, Incarnation
from runtime.common.shares import JobShare
from runtime.common.states import ExecutionState, JobStatus
from runtime.gateways.job_master import AcknowledgeReports, EndJob, FreeSlots, OfferSlots, RegisterJob, SlotOffer
from runtime.gateways.resource_manager import RequestSlot
from runtime.gateways.task import JobInformation, ResourceProfile
from runtime.highavailability.kv.conditions import absent, leads, unchanged
from runtime.highavailability.kv.key_value_store import Delete, Put, Txn
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import (
    EventsRecord,
    FenceRecord,
    Payload,
)
from runtime.scheduler.core.job_events import SubtasksReset
from tests.kit.simulation.checkers import QUEUE_MAX
from tests.kit.simulation.history import (
    AWAKE,
    FROZEN,
    KILLED,
    READABLE,
    STARTS,
    STOPPED,
    UNREADABLE,
    Acknowledged,
    Applied,
    AttemptEnded,
    AttemptStarted,
    BlobDeleted,
    Cancelling,
    Damaged,
    Fault,
    Happening,
    InContact,
    ProcessEvent,
    Received,
    Sent,
    Shown,
    SubmitUnreadable,
    place_of,
    whose,
)
from tests.kit.simulation.past import JOB, KEYS, OTHER_JOB, VERTEX, Past, attempt, deployment, owner, result


@pytest.fixture
def past() -> Past:
    made = Past()
    made.submit()
    return made


def test_a_good_history_pleases_everybody(past: Past) -> None:
    past.add("master-1", Sent("tm-1", deployment(attempt(epoch=past.epoch))))
    past.run(attempt())
    past.add("master-1", Sent("tm-1", AcknowledgeReports(JOB, past.epoch, (attempt(),))))
    past.finish()
    past.add("client", Shown(JOB, JobStatus.FINISHED))
    past.clean()
    past.add("client", Shown(JOB, JobStatus.FINISHED))
    assert past.violations() == {}


class TestTokens:
    def test_an_older_leader_writes_after_a_newer_one(self, past: Past) -> None:
        newer = past.new_leader()
        past.write("jm-2", owner("master-1", OTHER_JOB), conditions=(leads(newer),))
        past.write("jm-1", owner("master-2", OTHER_JOB), conditions=(leads(past.term),))
        assert "after one of term" in past.violations()["R1"][0]

    def test_a_write_without_a_fence(self, past: Past) -> None:
        past.write("master-1", result(JobStatus.FINISHED), conditions=(absent(KEYS.result(JOB)),))
        assert "without a fence" in past.violations()["R1"][0]

    def test_an_older_owner_writes_after_a_newer_one(self, past: Past) -> None:
        first = past.epoch
        past.epoch = past.write("jm-1", owner("master-2"), conditions=(leads(past.term),))
        past.accept(attempt())
        written = past.history.records[-1].what
        assert isinstance(written, Applied)
        stale = Txn((unchanged(KEYS.owner(JOB), first),), written.txn.success)
        past.add("master-1", Applied(stale, written.result, written.events))
        assert "after one of epoch" in past.violations()["R1"][0]


class TestOwners:
    def test_somebody_else_deploys(self, past: Past) -> None:
        past.add("master-2", Sent("tm-1", deployment(attempt(epoch=past.epoch))))
        assert "which belongs to master-1" in past.violations()["R5"][0]

    def test_somebody_else_writes(self, past: Past) -> None:
        past.finish(process="master-2")
        assert "which belongs to master-1" in past.violations()["R5"][0]

    def test_a_task_is_deployed_under_an_epoch_that_never_was(self, past: Past) -> None:
        past.add("master-1", Sent("tm-1", deployment(attempt(epoch=99))))
        assert "which belongs to None" in past.violations()["R5"][0]


class TestResults:
    def test_two_results(self, past: Past) -> None:
        past.finish()
        past.write("master-1", result(JobStatus.FAILED), conditions=past.owned)
        assert "written after its result" in past.violations()["one terminal result"][0]

    def test_an_event_after_the_result(self, past: Past) -> None:
        past.start(attempt())
        past.end(attempt())
        past.finish()
        past.accept(attempt())
        assert "events/0000000000 is written after its result" in past.violations()["one terminal result"][0]

    def test_a_job_is_stored_twice(self, past: Past) -> None:
        past.write("jm-1", Put(KEYS.graph(JOB), b"again"), conditions=(leads(past.term),))
        assert "stored twice" in past.violations()["one terminal result"][0]

    def test_a_job_comes_back_after_it_was_cleaned(self, past: Past) -> None:
        past.finish()
        past.clean()
        past.write("jm-1", Put(KEYS.graph(JOB), b""), conditions=(leads(past.term),))
        assert "graph is written after its result" in past.violations()["one terminal result"][0]

    def test_a_job_is_cleaned_as_something_else(self, past: Past) -> None:
        past.finish()
        past.clean(JobStatus.CANCELED)
        assert "cleaned as CANCELED" in past.violations()["one terminal result"][0]


class TestShown:
    def test_acknowledged_before_it_is_stored(self, past: Past) -> None:
        past.add("client", Acknowledged(OTHER_JOB, "submit"))
        assert "acknowledged and not stored" in past.violations()["R3"][0]

    def test_a_cancellation_only_in_memory(self, past: Past) -> None:
        past.add("client", Acknowledged(JOB, "cancel"))
        assert "cancellation" in past.violations()["R3"][0]

    def test_an_end_before_its_result(self, past: Past) -> None:
        past.add("client", Shown(JOB, JobStatus.FINISHED))
        assert "shown as FINISHED, its stored result is None" in past.violations()["R3"][0]

    def test_another_end_than_the_result(self, past: Past) -> None:
        past.finish()
        past.add("client", Shown(JOB, JobStatus.FAILED))
        assert "shown as FAILED" in past.violations()["R3"][0]

    def test_an_acknowledged_job_is_forgotten(self, past: Past) -> None:
        past.add("client", Shown(JOB, None))
        assert "not known any more" in past.violations()["R3"][0]


class TestWhose:
    def test_a_job_is_shown_as_that_of_somebody_else(self, past: Past) -> None:
        past.add("client", Shown(JOB, JobStatus.RUNNING, whose(JOB)))
        assert "R48" not in past.violations()
        past.add("client", Shown(JOB, JobStatus.RUNNING, ("", "default")))
        assert "is shown as one of" in past.violations()["R48"][0]

    def test_a_job_is_shown_in_another_queue(self, past: Past) -> None:
        past.add("client", Shown(JOB, JobStatus.RUNNING, whose(JOB), place_of(JOB)))
        assert "R48" not in past.violations()
        past.add("client", Shown(JOB, JobStatus.RUNNING, whose(JOB), JobShare()))
        assert "is shown at" in past.violations()["R48"][0]

    def test_a_job_that_cannot_be_read_may_be_nobodys(self, past: Past) -> None:
        past.add("fate", Damaged(KEYS.graph(JOB)))
        past.add("client", Shown(JOB, JobStatus.FAILED, ("", "?")))
        past.add("client", SubmitUnreadable(JOB))
        assert "R48" not in past.violations()

    def test_a_client_is_told_that_its_job_cannot_be_read_and_it_can(self, past: Past) -> None:
        past.add("client", SubmitUnreadable(JOB))
        assert "cannot be read" in past.violations()["R48"][0]


class TestAttempts:
    def test_an_id_is_used_twice(self, past: Past) -> None:
        past.run(attempt())
        past.start(attempt())
        assert "is started twice" in past.violations()["R9"][0]

    def test_exclusive_code_runs_twice_at_once(self, past: Past) -> None:
        past.start(attempt(0))
        past.start(attempt(1), tm="tm-2")
        assert "run at once" in past.violations()["R9"][0]

    def test_other_code_may(self, past: Past) -> None:
        past.start(attempt(0), exclusive=False)
        past.start(attempt(1), exclusive=False, tm="tm-2")
        assert "R9" not in past.violations()

    def test_a_slot_runs_two(self, past: Past) -> None:
        past.start(attempt(subtask=0))
        past.start(attempt(subtask=1))
        assert "slot 0 of tm-1" in past.violations()["R9"][0]

    def test_the_result_comes_while_exclusive_code_runs(self, past: Past) -> None:
        past.start(attempt())
        past.finish()
        assert "while exclusive" in past.violations()["R9"][0]

    def test_exclusive_code_starts_after_the_result(self, past: Past) -> None:
        past.finish()
        past.start(attempt())
        assert "after the result" in past.violations()["R9"][0]


class TestAcceptance:
    def test_a_report_is_acknowledged_before_its_event(self, past: Past) -> None:
        past.run(attempt(), accept=False)
        past.add("master-1", Sent("tm-1", AcknowledgeReports(JOB, past.epoch, (attempt(),))))
        assert "before its event" in past.violations()["R10"][0]

    @pytest.mark.parametrize("is_late", [False, True], ids=["ended before", "ended behind"])
    def test_one_that_was_replaced_needs_none(self, past: Past, is_late: bool) -> None:
        past.add("master-1", Sent("tm-1", deployment(attempt())))
        if not is_late:
            past.run(attempt(), accept=False)
        past.write_event(SubtasksReset(VERTEX, (0,), (1,)))
        if is_late:
            past.run(attempt(), accept=False)
        past.add("master-1", Sent("tm-1", AcknowledgeReports(JOB, past.epoch, (attempt(),))))
        assert "R10" not in past.violations()

    @pytest.mark.parametrize(
        ("fenced_epoch", "is_confirmed", "is_open"),
        [(6, True, False), (6, False, True), (5, True, True)],
        ids=["left behind", "not confirmed", "an attempt of the same owner"],
    )
    def test_one_that_was_fenced_off_needs_none(
        self, past: Past, fenced_epoch: int, is_confirmed: bool, is_open: bool
    ) -> None:
        """R14: the next owner of its job has gone on without its TaskManager, and takes nothing over that is there."""
        past.run(attempt(epoch=5), accept=False)
        fence = encode_record(FenceRecord(fenced_epoch, confirmed_revision=9 if is_confirmed else 0))
        past.write("tm-1", Put(KEYS.fence(Incarnation("c" * 32), JOB), fence), conditions=())
        past.add("master-1", Sent("tm-1", AcknowledgeReports(JOB, past.epoch, (attempt(epoch=5),))))
        assert ("R10" in past.violations()) is is_open

    def test_one_that_failed_needs_none(self, past: Past) -> None:
        past.start(attempt())
        past.end(attempt(), ExecutionState.CANCELED)
        past.add("master-1", Sent("tm-1", AcknowledgeReports(JOB, past.epoch, (attempt(),))))
        assert "R10" not in past.violations()

    def test_a_consumer_is_deployed_before_the_event_of_its_producer(self, past: Past) -> None:
        past.run(attempt(), accept=False)
        consumer = deployment(attempt(subtask=1, epoch=past.epoch), attempt())
        past.add("master-1", Sent("tm-1", consumer))
        assert "before its event" in past.violations()["R10"][0]

    @pytest.mark.parametrize("is_replaced", [False, True], ids=["its owner", "an owner that is over"])
    def test_a_consumer_is_deployed_on_what_was_reset(self, past: Past, is_replaced: bool) -> None:
        """Who has been replaced does not know of the reset, and is refused."""
        past.run(attempt())
        consumer = deployment(attempt(subtask=1, epoch=past.epoch), attempt())
        if is_replaced:
            past.epoch = past.write("jm-1", owner("master-2"), conditions=past.owned)
        past.write_event(SubtasksReset(VERTEX, (0,), (1,)), number=1)
        past.add("master-1", Sent("tm-1", consumer))
        assert ("R10" in past.violations()) is not is_replaced

    def test_two_attempts_of_a_subtask_take_effect(self, past: Past) -> None:
        past.run(attempt(0))
        past.start(attempt(1))
        past.end(attempt(1))
        past.accept(attempt(1), number=1)
        assert "take effect" in past.violations()["R10"][0]

    def test_a_late_copy_of_an_events_transaction_says_nothing_new(self, past: Past) -> None:
        """It was repeated because its outcome was unknown (R2), and the first copy arrives last."""
        past.write_event(SubtasksReset(VERTEX, (0,), (1,)), number=0)
        past.run(attempt(1), accept=False)
        past.accept(attempt(1), number=1)
        past.write_event(SubtasksReset(VERTEX, (0,), (1,)), number=0)
        past.add("master-1", Sent("tm-1", deployment(attempt(subtask=1, epoch=past.epoch), attempt(1))))
        assert "R10" not in past.violations()

    def test_an_event_that_is_written_is_changed(self, past: Past) -> None:
        past.write_event(SubtasksReset(VERTEX, (0,), (1,)), number=0)
        past.write_event(SubtasksReset(VERTEX, (0,), (2,)), number=0)
        assert "says something else" in past.violations()["R10"][0]

    def test_an_attempt_is_accepted_that_has_not_finished(self, past: Past) -> None:
        past.start(attempt())
        past.accept(attempt())
        assert "has not finished" in past.violations()["R10"][0]


def test_an_allocation_of_two_jobs(past: Past) -> None:
    for job in (JOB, OTHER_JOB):
        past.add("tm-1", Sent("master-1", OfferSlots(job, 5, (SlotOffer(AllocationId("d" * 32), 0),))))
    assert "allocation" in past.violations()["slots"][0]


def test_a_subtask_runs_again(past: Past) -> None:
    past.start(attempt(0))
    past.end(attempt(0), None)
    past.start(attempt(1))
    assert "runs again" in past.violations()["promise 2"][0]


def test_what_starts_behind_its_reset_runs_nothing_twice(past: Past) -> None:
    past.add("master-1", Sent("tm-1", deployment(attempt(0))))
    past.write_event(SubtasksReset(VERTEX, (0,), (1,)))
    past.start(attempt(0))
    past.end(attempt(0))
    past.start(attempt(1))
    assert "promise 2" not in past.violations()


class TestWhenATaskManagerDies:
    @pytest.mark.parametrize(
        "event", [Fault(KILLED), ProcessEvent(STARTS), ProcessEvent(STOPPED)], ids=["killed", "a new life", "stopped"]
    )
    def test_what_it_ran_may_run_again(self, past: Past, event: Happening) -> None:
        past.start(attempt())
        past.add("tm-1", event)
        past.end(attempt(), None)
        past.start(attempt(1), tm="tm-2")
        assert "promise 2" not in past.violations()

    def test_also_what_had_finished_if_nobody_knew(self, past: Past) -> None:
        past.run(attempt(), accept=False)
        past.add("tm-1", Fault(KILLED))
        past.start(attempt(1), tm="tm-2")
        assert "promise 2" not in past.violations()

    def test_also_what_nobody_could_find(self, past: Past) -> None:  # R31
        past.run(attempt(), accept=False)
        past.add("tm-1", Fault(UNREADABLE))
        past.add("tm-1", Fault(READABLE))
        past.start(attempt(1), tm="tm-2")
        assert "promise 2" not in past.violations()

    @pytest.mark.parametrize("is_frozen_when_ordered", [True, False])
    def test_also_what_was_ordered_while_it_was_frozen(self, past: Past, is_frozen_when_ordered: bool) -> None:
        for word in (FROZEN,) if is_frozen_when_ordered else (FROZEN, AWAKE):
            past.add("tm-1", Fault(word))
        past.add("master-1", Sent("tm-1", deployment(attempt())))
        if is_frozen_when_ordered:
            past.add("tm-1", Fault(AWAKE))
        past.start(attempt())
        past.start(attempt(1), tm="tm-2")
        assert ("promise 2" not in past.violations()) is is_frozen_when_ordered

    @pytest.mark.parametrize(("key", "may_it"), [("", True), ("/guard", False)])
    def test_also_what_had_finished_when_it_leaves(self, past: Past, key: str, may_it: bool) -> None:
        own = KEYS.task_manager(Incarnation("7" * 32)) + key
        past.write_blindly("tm-1", Put(own, b""), conditions=())
        past.run(attempt(), accept=False)
        past.write_blindly("tm-1", Delete(own), conditions=())
        past.start(attempt(1), tm="tm-2")
        assert ("promise 2" not in past.violations()) is may_it

    def test_but_not_what_was_accepted(self, past: Past) -> None:
        past.run(attempt())
        past.add("tm-1", Fault(KILLED))
        past.start(attempt(1), tm="tm-2")
        assert "runs again" in past.violations()["promise 2"][0]

    def test_nor_what_another_one_runs(self, past: Past) -> None:
        past.start(attempt())
        past.add("tm-2", Fault(KILLED))
        past.start(attempt(1), tm="tm-3")
        assert "runs again" in past.violations()["promise 2"][0]


class TestUserCodeHasFailedForGood:
    @pytest.fixture
    def past(self) -> Past:
        past = Past()
        past.submit()
        past.start(attempt(0))
        past.add("tm-1", AttemptEnded(attempt(0), ExecutionState.FAILED, is_users_last=True))
        return past

    def test_and_runs_again(self, past: Past) -> None:
        past.start(attempt(1), tm="tm-2")
        assert "failed for good" in past.violations()["R36"][0]

    def test_its_task_manager_took_the_report_along(self, past: Past) -> None:
        past.add("tm-1", Fault(KILLED))
        past.start(attempt(1), tm="tm-2")
        assert "R36" not in past.violations()

    def test_another_subtask_may_run(self, past: Past) -> None:
        past.start(attempt(0, subtask=1), tm="tm-2")
        assert "R36" not in past.violations()


def test_a_finished_exclusive_subtask_is_reset(past: Past) -> None:
    past.run(attempt())
    past.write_event(SubtasksReset(VERTEX, (1,), (1,)), 1)
    assert "R17" not in past.violations()
    past.write_event(SubtasksReset(VERTEX, (0,), (1,)), 2)
    assert "is exclusive, and is reset" in past.violations()["R17"][0]


class TestContact:
    def live(
        self, past: Past, seconds: float, *, exclusive: bool = True, contact: str = "tm-1"
    ) -> dict[str, list[str]]:
        begins = past.history.records[-1].at
        past.history.add(begins, "tm-1", InContact())
        past.history.add(begins, "tm-1", AttemptStarted(attempt(), 0, exclusive))
        past.history.add(begins + 10.0, contact, InContact())
        past.history.add(begins + seconds, "tm-1", AttemptEnded(attempt(), None))
        return past.violations()

    def test_exclusive_code_outlives_the_isolation_timeout(self, past: Past) -> None:
        assert "last in contact 20.50 s ago" in self.live(past, 30.5)["R14"][0]

    def test_somebody_elses_contact_does_not_count(self, past: Past) -> None:
        assert "last in contact 20.50 s ago" in self.live(past, 20.5, contact="tm-2")["R14"][0]

    def test_other_code_may_go_on(self, past: Past) -> None:
        assert "R14" not in self.live(past, 300.0, exclusive=False)

    def test_until_then_it_may_run(self, past: Past) -> None:
        assert "R14" not in self.live(past, 30.0)


def test_any_other_finished_subtask_may_be_reset(past: Past) -> None:
    past.start(attempt(), exclusive=False)
    past.end(attempt())
    past.accept(attempt())
    past.write_event(SubtasksReset(VERTEX, (0,), (1,)), 1)
    assert "R17" not in past.violations()


class TestEnds:
    def test_a_job_never_ends(self, past: Past) -> None:
        assert past.violations() == {"promise 1": [f"job {JOB} was acknowledged and has not ended"]}

    def test_a_job_fails_by_the_cluster(self, past: Past) -> None:
        past.finish(JobStatus.FAILED)
        assert past.violations() == {"promise 1": [f"job {JOB} ends as FAILED"]}

    def test_a_job_is_cancelled_and_nobody_wanted_it(self, past: Past) -> None:
        past.finish(JobStatus.CANCELED)
        assert past.violations() == {"promise 1": [f"job {JOB} ends as CANCELED"]}

    def test_somebody_wanted_it(self, past: Past) -> None:
        past.add("client", Cancelling(JOB))
        past.finish(JobStatus.CANCELED)
        assert past.violations() == {}

    @pytest.mark.parametrize("key", [KEYS.graph(JOB), KEYS.event(JOB, 3)])
    def test_a_job_may_fail_of_which_a_record_is_spoiled(self, past: Past, key: str) -> None:
        past.add("etcd", Damaged(key))
        past.finish(JobStatus.FAILED)
        assert past.violations() == {}

    @pytest.mark.parametrize("is_lost_first", [True, False])
    def test_a_job_may_fail_of_which_an_object_is_lost(self, past: Past, is_lost_first: bool) -> None:
        object_key = f"{'a' * 64}-{'b' * 32}"
        record = encode_record(EventsRecord(Payload("", b"", object_key)))
        if is_lost_first:
            past.add("storage", Damaged(object_key))
        past.write("master-1", Put(KEYS.event(JOB, 0), record), conditions=past.owned)
        if not is_lost_first:
            past.add("storage", Damaged(object_key))
        past.finish(JobStatus.FAILED)
        assert past.violations() == {}

    def test_others_may_not(self, past: Past) -> None:
        past.add("etcd", Damaged(KEYS.graph(OTHER_JOB)))
        past.add("storage", Damaged(f"{'a' * 64}-{'b' * 32}"))
        past.finish(JobStatus.FAILED)
        assert past.violations() == {"promise 1": [f"job {JOB} ends as FAILED"]}


class TestSlotsOfEndedJobs:
    def live(self, past: Past, *, epoch: int = 5, ends: bool = True, starts_anew: bool = False) -> dict[str, list[str]]:
        allocation = AllocationId("e" * 32)
        job = JobInformation(JOB, "job", 5, b"{}", b"{}", b"{}", (), (), (), (), "")
        past.add("tm-1", Received("master-1", RegisterJob(job)))
        if ends:
            past.add("tm-1", Received("master-1", EndJob(JOB, 5)))
        if starts_anew:
            past.add("tm-1", ProcessEvent(STARTS))
        owner_address = (Incarnation("b" * 32), "master-1:6124")
        past.add(
            "tm-1",
            Received("jm-1", RequestSlot(allocation, 0, JOB, epoch, *owner_address, ResourceProfile(0.0, 0, ""))),
        )
        offers = (SlotOffer(allocation, 0, ResourceProfile(0.0, 0, "")),)
        past.add("tm-1", Sent("master-1", OfferSlots(JOB, epoch, offers, "tm-1")))
        return past.violations()

    def test_a_late_request_is_taken(self, past: Past) -> None:
        assert "which has ended there" in self.live(past)["R7"][0]

    @pytest.mark.parametrize("how", [{"epoch": 6}, {"ends": False}, {"starts_anew": True}], ids=str)
    def test_any_other_may_be(self, past: Past, how: dict[str, Any]) -> None:
        assert "R7" not in self.live(past, **how)


def test_a_referenced_object_is_deleted(past: Past) -> None:
    past.write("jm-1", Put(KEYS.graph(OTHER_JOB), b'{"object_key":"abc-1"}'), conditions=(leads(past.term),))
    past.add("jm-1", BlobDeleted("abc-2"))
    assert "R19" not in past.violations()
    past.add("jm-1", BlobDeleted("abc-1"))
    assert "refers to it" in past.violations()["R19"][0]


def test_a_queue_without_a_bound(past: Past) -> None:
    message: Any = FreeSlots(JOB, 1, ())
    for _ in range(QUEUE_MAX - 1):
        past.add("master-1", Sent("tm-1", message))
        past.add("tm-1", Received("master-1", message))
        past.add("master-1", Sent("tm-2", message))
    assert "limits" not in past.violations()
    past.add("master-1", Sent("tm-2", message))
    assert "messages wait" in past.violations()["limits"][0]
