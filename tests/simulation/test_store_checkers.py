"""Each checker of what is written into the store refuses a history that breaks its rule."""

from __future__ import annotations

import pytest

from runtime.common.ids import AllocationId, Incarnation
from runtime.common.states import JobStatus
from runtime.gateways.resource_manager import RequestSlot, ResourceProfile
from runtime.highavailability.kv.conditions import absent, leads, unchanged
from runtime.highavailability.kv.key_value_store import Delete, KeyValue, Put, WatchEvent
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import (
    FenceRecord,
    WantedRecord,
)
from tests.kit.simulation.history import (
    Acknowledged,
    Answered,
    Cancelling,
    Expired,
    Refused,
    Sent,
    Submitting,
)
from tests.kit.simulation.past import JOB, KEYS, OTHER_JOB, Past, owner


def slot_request(epoch: int) -> RequestSlot:
    return RequestSlot(AllocationId("f" * 32), 0, JOB, epoch, Incarnation("b" * 32), "master-1:1", ResourceProfile())


@pytest.fixture
def past() -> Past:
    made = Past()
    made.submit()
    return made


class TestWrites:
    """R33"""

    CANCEL = encode_record(WantedRecord(wants_cancel=True, client=""))
    MOVE = encode_record(WantedRecord(wants_cancel=False, client="", move_to=Incarnation("d" * 32), move_epoch=7))

    def test_one_that_does_not_compare_its_key(self, past: Past) -> None:
        conditions = (leads(past.term), unchanged(KEYS.owner(JOB), past.epoch))
        past.write_blindly("jm-1", Put(KEYS.wanted(JOB), self.MOVE), conditions=conditions)
        assert past.violations()["R33"] == [f"jm-1 puts {KEYS.wanted(JOB)}, whatever is there"]

    def test_one_that_takes_effect_again(self, past: Past) -> None:
        """It compares with "absent", and was deleted meanwhile."""
        fence = KEYS.fence(Incarnation("c" * 32), JOB)
        for _ in range(2):
            put = Put(fence, encode_record(FenceRecord(past.epoch)))
            past.write_blindly("master-1", put, conditions=(*past.owned, absent(fence)))
            past.write_blindly("master-1", Delete(fence), conditions=past.owned)
        assert f"master-1 has put {fence} before, and its repeat takes effect too" in past.violations()["R33"]

    def test_a_wish_after_an_acknowledged_cancel(self, past: Past) -> None:
        past.write("jm-1", Put(KEYS.wanted(JOB), self.CANCEL), conditions=(leads(past.term),))
        past.add("client", Cancelling(JOB))
        past.add("client", Acknowledged(JOB, "cancel"))
        assert past.violations() == {"promise 1": [f"job {JOB} was acknowledged and has not ended"]}
        past.write("jm-1", Put(KEYS.wanted(JOB), self.MOVE), conditions=(leads(past.term),))
        assert "another wish takes its place" in past.violations()["R33"][0]

    def test_a_fence_that_its_owner_deletes(self, past: Past) -> None:
        fence = KEYS.fence(Incarnation("c" * 32), JOB)
        past.write("master-1", Put(fence, encode_record(FenceRecord(past.epoch))), conditions=past.owned)
        past.write("master-1", Delete(fence), conditions=past.owned)
        assert past.violations()["R33"] == [f"master-1 deletes {fence}, which it may write again"]

    def test_that_a_guard_was_reached_may_be_said_again(self, past: Past) -> None:
        for _ in range(2):
            past.write_blindly("jm-1", Put(KEYS.guard(Incarnation("c" * 32)), b""), conditions=(leads(past.term),))
        assert "R33" not in past.violations()


class TestRefusedSubmits:
    """R32"""

    def test_that_is_stored(self, past: Past) -> None:
        past.add("client", Refused(JOB))
        assert past.violations()["R32"] == [f"job {JOB} is answered 507, and is stored"]

    def test_that_is_stored_later(self, past: Past) -> None:
        past.add("client", Submitting(OTHER_JOB, JobStatus.FINISHED))
        past.add("client", Refused(OTHER_JOB))
        conditions = (leads(past.term),)
        past.write("jm-1", Put(KEYS.graph(OTHER_JOB), b""), conditions=conditions)
        assert past.violations()["R32"] == [f"job {OTHER_JOB} was answered 507, and is stored after that"]

    def test_that_is_sent_again(self, past: Past) -> None:
        past.add("client", Submitting(OTHER_JOB, JobStatus.FINISHED))
        past.add("client", Refused(OTHER_JOB))
        past.submit(OTHER_JOB)
        assert "R32" not in past.violations()


class TestSlotRequests:
    """R7"""

    def test_for_an_owner_that_the_leader_has_replaced(self, past: Past) -> None:
        first = past.epoch
        past.add("jm-1", Sent("tm-1", slot_request(first)))
        second = past.write("jm-1", owner("master-2"), conditions=(leads(past.term),))
        past.add("jm-1", Sent("tm-1", slot_request(second)))
        past.add("jm-2", Sent("tm-1", slot_request(first)))
        assert "R7" not in past.violations(), "another leader may not know"
        past.add("jm-1", Sent("tm-1", slot_request(first)))
        assert f"at epoch {first}, after it has written epoch {second}" in past.violations()["R7"][0]


class TestLeases:
    """R4"""

    def lapse(self, past: Past, *, is_revoked: bool) -> float:
        gone = WatchEvent(KeyValue(past.term.key, b"", 0, 9, 0, 0), is_delete=True)
        past.add("etcd", Expired(1, (gone,), is_revoked))
        return past.history.records[-1].at

    def test_an_answer_after_the_lease_has_run_out(self, past: Past) -> None:
        at = self.lapse(past, is_revoked=False)
        past.add("jm-1", Answered(at - 1))
        assert "R4" not in past.violations(), "it was asked before"
        past.add("jm-1", Answered(at + 1))
        assert "its lease ran out 2.00 s before" in past.violations()["R4"][0]

    def test_who_was_declared_dead_may_not_know(self, past: Past) -> None:
        past.add("jm-1", Answered(self.lapse(past, is_revoked=True) + 1))
        assert "R4" not in past.violations()

    def test_an_earlier_candidacy_says_nothing(self, past: Past) -> None:
        past.new_leader()
        past.add("jm-1", Answered(self.lapse(past, is_revoked=False) + 1))
        assert "R4" not in past.violations()

    def test_who_leads_again_may_answer(self, past: Past) -> None:
        at = self.lapse(past, is_revoked=False)
        past.new_leader()
        past.add("jm-1", Answered(at + 1))
        assert "R4" not in past.violations()
