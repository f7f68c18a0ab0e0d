"""Contact, and what becomes of fences (R14)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.taskexecutor.core.contact import (
    ConfirmationEnded,
    ConfirmFence,
    ContactAccepted,
    ContactCore,
    ContactEffect,
    FenceStopped,
    OfferContact,
    PrefixRead,
    ReopenJob,
    SeenFence,
    StopEverything,
    StopFenced,
)
from tests.kit.control_plane.task_messages import job_id

TIMEOUT = 60.0


def fence(revision: int, *, epoch: int = 5, is_confirmed: bool = False) -> SeenFence:
    return SeenFence(epoch, revision, is_confirmed)


def read(sent_at: float, *, is_registered: bool = True, **fences: SeenFence) -> PrefixRead:
    """Fences by job: j1=fence(9)."""
    return PrefixRead(sent_at, is_registered, {job_id(int(name[1:])): seen for name, seen in fences.items()})


def core_in_contact(contact: float = 0.0) -> ContactCore:
    core = ContactCore(TIMEOUT, cancellation_timeout=1.0)
    core.handle(read(contact))
    core.handle(ContactAccepted(contact))
    return core


def test_before_the_first_contact_nothing_exclusive_runs() -> None:
    core = ContactCore(TIMEOUT, cancellation_timeout=1.0)
    assert "yet" in core.loss(0.0)
    assert core.handle(read(1.0)) == [OfferContact(1.0)]
    assert "yet" in core.loss(1.0), "the guard has not accepted it"
    core.handle(ContactAccepted(1.0))
    assert core.loss(1.0) == ""


@pytest.mark.parametrize(
    ("timeout", "cancellation", "stop_after"),
    [(60.0, 1.0, 55.0), (60.0, 0.0, 56.0), (2.0, 1.0, 1.0), (600.0, 1.0, 595.0), (60.0, 300.0, 30.0)],
)
def test_exclusive_tasks_stop_shortly_before_the_guard_stops_them(
    timeout: float, cancellation: float, stop_after: float
) -> None:
    core = ContactCore(timeout, cancellation_timeout=cancellation)
    core.handle(read(100.0))
    core.handle(ContactAccepted(100.0))
    assert core.stop_at == pytest.approx(100 + stop_after)
    assert core.loss(100 + stop_after - 0.01) == ""
    loss = core.loss(100 + stop_after + 0.01)
    assert f"taskmanager.isolation-timeout: {timeout:g} s" in loss
    assert f"for {stop_after + 0.01:.1f} s" in loss


def test_a_contact_never_goes_back() -> None:
    core = core_in_contact(50.0)
    core.handle(ContactAccepted(20.0))
    assert core.loss(100.0) == ""


def test_a_read_that_is_overtaken_says_nothing() -> None:
    core = core_in_contact(50.0)
    assert core.handle(read(49.0, is_registered=False)) == []
    assert core.handle(read(50.0)) == [OfferContact(50.0)]


def test_a_fence_is_stopped_once_then_confirmed_and_only_then_is_there_contact() -> None:
    core = core_in_contact()
    assert core.handle(read(2.0, j1=fence(9))) == [StopFenced(job_id(1), 5, 9)]
    assert core.handle(read(4.0, j1=fence(9))) == []
    assert core.handle(FenceStopped(job_id(1), 9)) == [ConfirmFence(job_id(1), 9), OfferContact(4.0)]
    assert core.handle(read(6.0, j1=fence(9))) == [OfferContact(6.0)], "the confirmation is on its way"
    core.handle(ConfirmationEnded(job_id(1), 9))
    assert core.handle(read(8.0, j1=fence(9))) == [ConfirmFence(job_id(1), 9), OfferContact(8.0)], "it was lost"
    core.handle(ConfirmationEnded(job_id(1), 9))
    assert core.handle(read(10.0, j1=fence(9, is_confirmed=True))) == [OfferContact(10.0)]


def test_every_fence_of_a_read_has_to_be_obeyed() -> None:
    core = core_in_contact()
    core.handle(read(2.0, j1=fence(9), j2=fence(10)))
    assert core.handle(FenceStopped(job_id(2), 10)) == [ConfirmFence(job_id(2), 10)]
    assert core.handle(FenceStopped(job_id(1), 9)) == [ConfirmFence(job_id(1), 9), OfferContact(2.0)]


def test_a_newer_fence_of_the_job_is_another_one() -> None:
    core = core_in_contact()
    core.handle(read(2.0, j1=fence(9)))
    assert core.handle(read(4.0, j1=fence(12, epoch=11))) == [StopFenced(job_id(1), 11, 12)]
    assert core.handle(FenceStopped(job_id(1), 9)) == [], "which is not the one that counts"
    assert core.handle(FenceStopped(job_id(1), 12)) == [ConfirmFence(job_id(1), 12), OfferContact(4.0)]


def test_a_lifted_fence_is_forgotten() -> None:
    core = core_in_contact()
    core.handle(read(2.0, j1=fence(9)))
    assert core.handle(read(4.0)) == [OfferContact(4.0)]
    assert core.handle(FenceStopped(job_id(1), 9)) == []
    assert core.handle(read(6.0, j1=fence(13))) == [StopFenced(job_id(1), 5, 13)]


def unreadable(revision: int) -> SeenFence:
    return SeenFence(revision, revision, is_confirmed=False, is_readable=False)


def test_a_fence_that_cannot_be_read_is_obeyed_and_confirmed_to_nobody() -> None:  # R31
    core = core_in_contact()
    assert core.handle(read(2.0, j1=unreadable(9))) == [StopFenced(job_id(1), 9, 9, is_readable=False)]
    assert core.handle(FenceStopped(job_id(1), 9)) == [OfferContact(2.0)], "other jobs' tasks go on"
    assert core.handle(read(4.0, j1=unreadable(9))) == [OfferContact(4.0)]


@pytest.mark.parametrize("later", [read(4.0), read(4.0, j1=SeenFence(5, 7, is_confirmed=True))])
def test_it_forbids_nothing_any_more_when_it_is_lifted_or_can_be_read(later: PrefixRead) -> None:  # R31
    core = core_in_contact()
    core.handle(read(2.0, j1=unreadable(9)))
    core.handle(FenceStopped(job_id(1), 9))
    assert core.handle(later) == [ReopenJob(job_id(1)), OfferContact(4.0)]
    assert core.handle(replace(later, sent_at=6.0)) == [OfferContact(6.0)]


def test_what_can_be_read_in_its_place_is_obeyed_first() -> None:
    core = core_in_contact()
    core.handle(read(2.0, j1=unreadable(9)))
    assert core.handle(read(4.0, j1=fence(12))) == [StopFenced(job_id(1), 5, 12), ReopenJob(job_id(1))]
    assert core.handle(FenceStopped(job_id(1), 12)) == [ConfirmFence(job_id(1), 12), OfferContact(4.0)]


def test_without_the_own_key_everything_stops() -> None:
    core = core_in_contact()
    assert core.handle(read(2.0, is_registered=False, j1=fence(9))) == [StopEverything()]
    assert core.handle(FenceStopped(job_id(1), 9)) == [ConfirmFence(job_id(1), 9)], "and there is no contact any more"


steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.sampled_from([(), (1,), (2,), (1, 2)])),
        st.tuples(st.just("fence"), st.integers(1, 2)),
        st.tuples(st.just("stopped"), st.integers(1, 2)),
        st.tuples(st.just("accept"), st.none()),
    ),
    max_size=40,
)


class Run:
    """A script against a core, with what must hold from outside."""

    def __init__(self) -> None:
        self.core = ContactCore(TIMEOUT, cancellation_timeout=1.0)
        self.now = 0.0
        self.accepted = -TIMEOUT
        self.revisions = {1: 1, 2: 1}
        self.stopping: dict[int, int] = {}
        self.obeyed: dict[int, int] = {}
        self.reads: dict[float, dict[int, int]] = {}
        self.offered: list[float] = []

    def step(self, word: str, argument: object) -> None:
        self.now += 1.0
        match word, argument:
            case "read", tuple(jobs):
                self.reads[self.now] = {job: self.revisions[job] for job in jobs}
                fences = {job_id(job): fence(self.revisions[job]) for job in jobs}
                self.heed(self.core.handle(PrefixRead(self.now, is_registered=True, fences=fences)))
            case "fence", int(job):
                self.revisions[job] += 1
            case "stopped", int(job) if job in self.stopping:
                self.obeyed[job] = self.stopping.pop(job)
                self.heed(self.core.handle(FenceStopped(job_id(job), self.obeyed[job])))
            case "accept", _ if self.offered:
                self.accepted = self.offered[-1]
                self.core.handle(ContactAccepted(self.accepted))

    def heed(self, effects: list[ContactEffect]) -> None:
        for effect in effects:
            match effect:
                case StopFenced(job, _, revision):
                    self.stopping[int(job, 16)] = revision
                case OfferContact(contact):
                    shown = self.reads[contact].items()
                    assert all(self.obeyed.get(job, 0) >= revision for job, revision in shown)  # R14
                    assert not self.offered or contact >= self.offered[-1]
                    self.offered.append(contact)
                case ConfirmFence(job, revision):
                    assert self.obeyed[int(job, 16)] >= revision
                case StopEverything() | ReopenJob():
                    raise AssertionError(effect)


@given(steps)
def test_contact_is_a_read_whose_fences_were_all_obeyed(script: list[tuple[str, object]]) -> None:
    run = Run()
    for word, argument in script:
        run.step(word, argument)
        assert (run.core.loss(run.now) == "") == (run.accepted + TIMEOUT - 5 > run.now)
