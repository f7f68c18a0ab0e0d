"""Clients that promise to be back: what is stored, what is answered, and when a job is cancelled without its client."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.common.errors import ConflictError, FlinklikeError, NotFoundError, UnavailableError
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.client_promises import GRACE_SECONDS, LATE_SECONDS, Promise
from runtime.dispatcher.core.jobs import JobRegistry
from runtime.dispatcher.core.retention import Retention
from runtime.dispatcher.core.shown_summary import initial_summary
from runtime.dispatcher.core.submits import JobRegistryLimits
from runtime.gateways.dispatcher import JobSummary
from tests.kit.control_plane.process_events import inventory_received, process_known, process_registered

P1, P2 = Incarnation("1" * 32), Incarnation("2" * 32)
JOB = JobId("a" * 32)
SOURCE = ev.JobSource(JOB, "d", "job", b"{}", "", 1000, "tests")
NOON = 1_767_268_800_000
REASON = "its client did not come back by 2026-01-01T12:00:00Z"
OWNER = ev.JobOwner(P1, "1:1", 7)


@dataclass
class Box:
    """A registry with one job, and both clocks."""

    registry: JobRegistry = field(default_factory=lambda: JobRegistry(JobRegistryLimits(9, 9), Retention(9, 1000)))
    now: float = 50.0
    millis: int = NOON - 60_000
    requests: int = 0

    def handle(self, event: ev.DispatcherEvent) -> list[Any]:
        return self.registry.handle(event)

    def running(self) -> Box:
        self.handle(process_registered(P1, "1:1", 9, "v"))
        self.handle(ev.SubmitRequested(0, SOURCE))
        self.handle(ev.SubmitStored(JOB, 7, ""))
        return self

    def ask(self, expires: int) -> list[Any]:
        self.requests += 1
        return self.handle(ev.HeartbeatRequested(self.requests, JOB, expires))

    def promise(self, expires: int) -> list[Any]:
        assert self.ask(expires) == [ef.StorePromise(JOB, expires)]
        return self.handle(ev.PromiseStored(JOB, expires, is_stored=True))

    def tick(self, seconds: float = 1.0, *, wall: float | None = None) -> list[Any]:
        self.now += seconds
        self.millis += round(1000 * (seconds if wall is None else wall))
        return self.handle(ev.Ticked(self.millis, self.now))

    def ticks(self, seconds: int) -> list[Any]:
        return [effect for _ in range(seconds) for effect in self.tick()]


def refusal(effects: list[Any]) -> FlinklikeError:
    (effect,) = effects
    assert isinstance(effect, ef.Refuse), effect
    return effect.error


def shown(status: JobStatus) -> JobSummary:
    return replace(initial_summary(SOURCE), status=status, epoch=7, sequence=9)


def test_of_two_writes_of_a_cancel_the_one_that_succeeds_says_why() -> None:
    box = Box().running()
    box.promise(NOON)
    box.tick(61)
    assert ef.StoreWanted(JOB, REASON) in box.handle(ev.ProcessLost(P1)), "the first write goes on beside it"
    box.handle(ev.CancelFailed(JOB, UnavailableError("etcd is away")))
    box.handle(ev.WantedStored(JOB, is_stored=True, reason=REASON))
    box.handle(process_registered(P2, "2:1", 9, "v"))
    assert ef.SendCancel(P2, JOB, REASON) in box.handle(ev.OwnerStored(JOB, 8))


class TestWhatIsPromised:
    def test_it_is_answered_when_it_is_durable(self) -> None:  # R3
        box = Box().running()
        assert box.ask(NOON) == [ef.StorePromise(JOB, NOON)]
        assert box.handle(ev.PromiseStored(JOB, NOON, is_stored=True)) == [ef.ReplyDone(1)]

    def test_the_same_again_joins_the_write_and_is_no_write_of_its_own_later(self) -> None:
        box = Box().running()
        box.ask(NOON)
        assert box.ask(NOON) == []
        assert box.handle(ev.PromiseStored(JOB, NOON, is_stored=True)) == [ef.ReplyDone(1), ef.ReplyDone(2)]
        assert box.ask(NOON) == [ef.ReplyDone(3)]

    def test_another_one_meanwhile_is_asked_again_by_its_client(self) -> None:  # R2
        box = Box().running()
        box.ask(NOON)
        assert isinstance(refusal(box.ask(0)), UnavailableError)
        box.handle(ev.PromiseStored(JOB, NOON, is_stored=True))
        assert box.ask(0) == [ef.StorePromise(JOB, 0)]

    def test_who_has_promised_nothing_withdraws_nothing(self) -> None:
        """A retry that adopts a job withdraws the promise each time: a repeat costs no write."""
        assert Box().running().ask(0) == [ef.ReplyDone(1)]

    def test_what_cannot_be_stored_is_said_and_what_was_promised_before_counts(self) -> None:
        box = Box().running()
        box.promise(NOON)
        box.ask(0)
        assert isinstance(refusal(box.handle(ev.PromiseFailed(JOB, UnavailableError("away")))), UnavailableError)
        assert box.ticks(60) == [ef.StoreWanted(JOB, REASON)]

    def test_a_job_that_has_ended_needs_nobody(self) -> None:
        box = Box().running()
        box.handle(ev.SummariesReceived((shown(JobStatus.FINISHED),)))
        assert box.ask(NOON) == [ef.ReplyDone(1)]
        box.handle(ev.JobsCleaned((JOB,)))
        assert box.ask(NOON) == [ef.ReplyDone(2)]

    def test_a_job_that_is_not_known(self) -> None:
        assert isinstance(refusal(Box().ask(NOON)), NotFoundError)

    def test_a_submit_that_is_being_stored(self) -> None:
        box = Box()
        box.handle(ev.SubmitRequested(9, SOURCE))
        assert isinstance(refusal(box.ask(NOON)), NotFoundError | UnavailableError)

    def test_a_result_was_faster_and_the_leader_looks_for_it(self) -> None:
        box = Box().running()
        box.ask(NOON)
        effects = box.handle(ev.PromiseStored(JOB, NOON, is_stored=False))
        assert effects == [ef.ReplyDone(1), ef.ReloadJob(JOB)]
        box.handle(ev.JobReloaded(JOB, ev.RecoveredJob(SOURCE, 7, OWNER, wants_cancel=False,
                                                       ended=shown(JobStatus.FINISHED))))  # fmt: skip
        assert not [effect for effect in box.ticks(100) if isinstance(effect, ef.StoreWanted)]

    def test_the_job_ends_while_it_is_stored(self) -> None:
        box = Box().running()
        box.ask(NOON)
        box.handle(ev.SummariesReceived((shown(JobStatus.FINISHED),)))
        assert box.handle(ev.PromiseStored(JOB, NOON, is_stored=False)) == [ef.ReplyDone(1)]


class TestWhoDoesNotComeBack:
    def test_the_job_is_cancelled_with_the_reason(self) -> None:
        box = Box().running()
        box.promise(NOON)
        assert box.ticks(59) == []
        assert box.tick() == [ef.StoreWanted(JOB, REASON)]
        assert box.handle(ev.WantedStored(JOB, is_stored=True, reason=REASON)) == [ef.SendCancel(P1, JOB, REASON)]
        assert box.ticks(100) == []

    def test_a_new_owner_is_told_the_reason(self) -> None:
        box = Box().running()
        box.promise(NOON)
        box.ticks(60)
        box.handle(ev.WantedStored(JOB, is_stored=True, reason=REASON))
        box.handle(process_registered(P2, "2:1", 9, "v"))
        box.handle(ev.ProcessLost(P1))
        assert ef.SendCancel(P2, JOB, REASON) in box.handle(ev.OwnerStored(JOB, 9))

    def test_who_withdraws_in_time_is_not_waited_for(self) -> None:
        box = Box().running()
        box.promise(NOON)
        box.ticks(59)
        box.promise(0)
        assert box.ticks(1000) == []

    def test_a_later_promise_takes_the_place_of_an_earlier_one(self) -> None:
        box = Box().running()
        box.promise(NOON)
        box.ticks(59)
        box.promise(NOON + 60_000)
        assert box.ticks(60) == []
        assert len(box.ticks(1)) == 1

    def test_nothing_is_decided_while_a_promise_is_being_stored(self) -> None:  # R2
        box = Box().running()
        box.promise(NOON)
        box.ask(0)
        assert box.ticks(200) == []
        box.handle(ev.PromiseStored(JOB, 0, is_stored=True))
        assert box.ticks(200) == []

    def test_who_comes_while_the_cancel_is_being_stored_hears_what_has_become_of_it(self) -> None:
        box = Box().running()
        box.promise(NOON)
        box.ticks(60)
        assert isinstance(refusal(box.ask(0)), UnavailableError)
        box.handle(ev.WantedStored(JOB, is_stored=True, reason=REASON))
        error = refusal(box.ask(0))
        assert isinstance(error, ConflictError)
        assert REASON in str(error)

    def test_a_cancel_that_cannot_be_stored_is_tried_again_and_the_client_may_come_back_meanwhile(self) -> None:
        box = Box().running()
        box.promise(NOON)
        box.ticks(60)
        box.handle(ev.CancelFailed(JOB, UnavailableError("away")))
        assert box.ticks(round(GRACE_SECONDS) - 1) == []
        assert box.tick() == [ef.StoreWanted(JOB, REASON)]
        box.handle(ev.CancelFailed(JOB, UnavailableError("away")))
        box.promise(0)
        assert box.ticks(100) == []

    def test_a_person_cancels_without_a_reason(self) -> None:
        box = Box().running()
        box.promise(NOON)
        box.ticks(60)
        box.handle(ev.CancelFailed(JOB, UnavailableError("away")))
        assert box.handle(ev.CancelRequested(8, JOB)) == [ef.StoreWanted(JOB)]
        assert box.ticks(100) == [], "the cancel is wanted already"

    def test_a_job_that_nobody_runs_ends_at_once_with_the_reason(self) -> None:
        box = Box()
        box.handle(ev.SubmitRequested(0, SOURCE))
        box.handle(ev.SubmitStored(JOB, 0, ""))
        box.promise(NOON)
        (end,) = box.ticks(60)
        assert isinstance(end, ef.StoreEnd)
        assert (end.status, end.reason, end.previous_epoch) == (JobStatus.CANCELED, REASON, 0)

    def test_a_job_that_has_lost_its_owner_is_cancelled_by_the_next_one(self) -> None:
        box = Box().running()
        box.promise(NOON)
        box.handle(ev.ProcessLost(P1))
        assert box.ticks(60) == [ef.StoreWanted(JOB, REASON)]
        assert box.handle(ev.WantedStored(JOB, is_stored=True, reason=REASON)) == []
        box.handle(process_registered(P2, "2:1", 9, "v"))
        assert ef.SendCancel(P2, JOB, REASON) in box.handle(ev.OwnerStored(JOB, 9))

    def test_a_move_that_is_being_stored_goes_first(self) -> None:
        box = Box().running()
        box.promise(NOON)
        box.handle(process_registered(P2, "2:1", 9, "v"))
        box.handle(ev.MoveRequested(8, JOB, P2))
        assert box.ticks(60) == []
        assert ef.StoreWanted(JOB, REASON) in box.handle(ev.MoveWishFailed(JOB, UnavailableError("away")))


class TestClocks:
    @pytest.mark.parametrize("step", [-7200.0, 7200.0])
    def test_a_step_of_the_wall_clock_within_a_term_changes_nothing(self, step: float) -> None:
        box = Box().running()
        box.promise(NOON)
        box.tick()
        assert box.tick(1.0, wall=step) == []
        assert box.ticks(57) == []
        assert len(box.tick()) == 1

    def test_who_could_not_reach_this_process_is_not_judged_for_it(self) -> None:  # R4
        box = Box().running()
        box.promise(NOON)
        box.tick()
        assert box.tick(100.0) == []
        assert box.ticks(round(GRACE_SECONDS) - 1) == []
        assert len(box.tick()) == 1

    def test_a_tick_that_is_a_little_late_is_none(self) -> None:
        box = Box().running()
        box.promise(NOON)
        box.ticks(59)
        assert len(box.tick(LATE_SECONDS)) == 1

    @pytest.mark.parametrize("late", [0, 3_600_000])
    def test_a_new_leader_gives_clients_time_to_find_it(self, late: int) -> None:  # R4
        box = Box(millis=NOON + late)
        found = ev.RecoveredJob(SOURCE, 7, OWNER, wants_cancel=False, ended=None, client_expires_millis=NOON)
        box.handle(process_known(P1, "1:1", 9))
        box.registry.recover([found], [])
        assert box.ticks(round(GRACE_SECONDS)) == []
        assert box.tick() == [ef.StoreWanted(JOB, REASON)]

    def test_a_new_leader_knows_why_a_job_is_cancelled(self) -> None:
        box = Box()
        found = ev.RecoveredJob(SOURCE, 7, OWNER, wants_cancel=True, ended=None, cancel_reason=REASON)
        box.handle(process_known(P1, "1:1", 9))
        box.registry.recover([found], [])
        box.handle(process_registered(P1, "1:1", 9, "v"))
        held = inventory_received(P1, (), 7, 0.0, 0)
        assert ef.SendCancel(P1, JOB, REASON) in box.handle(held)

    def test_a_read_that_was_under_way_brings_no_withdrawn_promise_back(self) -> None:
        box = Box().running()
        box.promise(NOON)
        box.promise(0)
        box.tick()
        box.handle(ev.WantedStored(JOB, is_stored=False))
        found = ev.RecoveredJob(SOURCE, 7, OWNER, wants_cancel=False, ended=None, client_expires_millis=NOON)
        box.handle(ev.JobReloaded(JOB, found))
        assert box.ticks(1000) == []


@given(
    expires=st.integers(0, 600_000),
    steps=st.lists(st.tuples(st.floats(0.01, 30.0), st.integers(-10_000_000, 10_000_000)), min_size=1, max_size=30),
    is_recovered=st.booleans(),
)
@settings(deadline=None)
def test_nobody_is_judged_before_the_time_by_the_clock_of_the_first_look(
    expires: int, steps: list[tuple[float, int]], is_recovered: bool
) -> None:
    """However the wall clock changes afterwards. After that time and the grace the promise is over."""
    promise, now, millis = Promise(NOON + expires, is_recovered=is_recovered), 0.0, NOON
    before, extra = 0.0, GRACE_SECONDS if is_recovered else 0.0
    for seconds, step in [(0.0, 0), *steps]:
        now, millis = now + seconds, millis + step
        is_late = now - before > LATE_SECONDS
        before = now
        if is_late:
            extra = max(extra, now + GRACE_SECONDS - expires / 1000)
        is_over = promise.is_over(millis, now, GRACE_SECONDS, is_late=is_late)
        if is_over:
            assert now >= expires / 1000 - 1e-6
            assert not is_late
        else:
            assert now < expires / 1000 + max(extra, 0.0) + 1e-6
