"""A job's phase, owner and wish to cancel: every arc, legal and illegal, and what follows from the states."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from runtime.common.fsm import IllegalTransitionError
from runtime.common.ids import Incarnation
from runtime.common.states import JobStatus
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.job_entry import JOB_PHASES, OWNERS_IN, JobEntry, JobPhase, new_entry, recovered_entry
from runtime.dispatcher.core.ownership import (
    OWNER_STATES,
    RECORD_GONE,
    Begun,
    Departure,
    Named,
    NeverOwned,
    Ownership,
    OwnerState,
    RecordLost,
    Reserved,
    Told,
    Vacated,
)
from runtime.dispatcher.core.wishes import (
    CANCEL_STATES,
    CancelState,
    CancelStored,
    CancelWanted,
    CancelWish,
    MoveWish,
    NotWanted,
)
from tests.unit.dispatcher.test_job_registry import P1, P2, source

OWNER = ev.JobOwner(P1, "1:1", 7)
S = OwnerState


def waiting() -> JobEntry:
    entry = new_entry(source(1))
    entry.wait()
    return entry


def reserved() -> JobEntry:
    entry = waiting()
    entry.assign_to(P1, "1:1")
    return entry


def named() -> JobEntry:
    entry = reserved()
    entry.own(7)
    return entry


def told() -> JobEntry:
    entry = named()
    entry.tell()
    return entry


def vacated() -> JobEntry:
    entry = told()
    entry.lose_owner("lost")
    return entry


def record_lost() -> JobEntry:
    entry = recovered_entry(source(1))
    entry.find_no_owner()
    return entry


IN: dict[OwnerState, Callable[[], JobEntry]] = {
    S.NEVER_OWNED: waiting,
    S.RESERVED: reserved,
    S.NAMED: named,
    S.TOLD: told,
    S.VACATED: vacated,
    S.RECORD_LOST: record_lost,
}
SAMPLES: dict[OwnerState, Ownership] = {
    S.NEVER_OWNED: NeverOwned(),
    S.RESERVED: Reserved(P2, "2:1", NeverOwned()),
    S.NAMED: Named(ev.JobOwner(P2, "2:1", 9), Begun.NOTHING),
    S.TOLD: Told(ev.JobOwner(P2, "2:1", 9), Begun.TASKS),
    S.VACATED: Vacated(Departure(ev.JobOwner(P2, "2:1", 9), "lost"), Begun.TASKS),
    S.RECORD_LOST: RecordLost(Departure(ev.JobOwner(P2, "2:1", 9), "lost")),
}


def found(entry: JobEntry) -> None:
    if entry.phase.state is not JobPhase.ASSIGNING:
        entry.reload()
    entry.find_owner(ev.JobOwner(P2, "2:1", 9), is_first=False)


def found_none(entry: JobEntry) -> None:
    if entry.phase.state is not JobPhase.ASSIGNING:
        entry.reload()
    entry.find_no_owner()


WAYS: dict[tuple[OwnerState, OwnerState], Callable[[JobEntry], object]] = {
    (S.NEVER_OWNED, S.RESERVED): lambda entry: entry.assign_to(P2, "2:1"),
    (S.NEVER_OWNED, S.TOLD): found,
    (S.RESERVED, S.NEVER_OWNED): found_none,
    (S.RESERVED, S.NAMED): lambda entry: entry.own(8),
    (S.RESERVED, S.TOLD): found,
    (S.NAMED, S.RESERVED): lambda entry: entry.move_to(P2, "2:1", "moved"),
    (S.NAMED, S.TOLD): lambda entry: entry.tell(),
    (S.NAMED, S.VACATED): lambda entry: entry.refuse("full", is_permanent=False),
    (S.NAMED, S.RECORD_LOST): found_none,
    (S.TOLD, S.RESERVED): lambda entry: entry.move_to(P2, "2:1", "moved"),
    (S.TOLD, S.TOLD): found,
    (S.TOLD, S.VACATED): lambda entry: entry.lose_owner("lost"),
    (S.TOLD, S.RECORD_LOST): found_none,
    (S.VACATED, S.RESERVED): lambda entry: entry.assign_to(P2, "2:1"),
    (S.VACATED, S.TOLD): found,
    (S.VACATED, S.RECORD_LOST): found_none,
    (S.RECORD_LOST, S.RESERVED): lambda entry: entry.assign_to(P2, "2:1"),
    (S.RECORD_LOST, S.TOLD): found,
}


@pytest.mark.parametrize("arc", WAYS, ids=lambda arc: f"{arc[0].name}-{arc[1].name}")
def test_every_legal_arc_of_an_owner_is_taken(arc: tuple[OwnerState, OwnerState]) -> None:
    entry = IN[arc[0]]()
    assert entry.ownership.state is arc[0]
    WAYS[arc](entry)
    assert entry.ownership.state is arc[1]


def test_a_moved_job_whose_record_is_lost_is_the_last_legal_arc() -> None:
    entry = told()
    entry.move_to(P2, "2:1", "moved")
    entry.find_no_owner()
    assert entry.ownership == RecordLost(Departure(OWNER, "moved", is_running=True))
    assert {*WAYS, (S.RESERVED, S.RECORD_LOST)} == set(OWNER_STATES.arcs())


@pytest.mark.parametrize(
    ("before", "after"), [arc for arc in product(OwnerState, OwnerState) if not OWNER_STATES.allows(*arc)]
)
def test_every_illegal_arc_of_an_owner_raises(before: OwnerState, after: OwnerState) -> None:
    entry = IN[before]()
    if entry.ownership == SAMPLES[after]:
        return  # that is no arc
    with pytest.raises(IllegalTransitionError, match=f"{before.name} -> {after.name}"):
        entry._become(SAMPLES[after])
    assert entry.ownership.state is before


@pytest.mark.parametrize(
    ("phase", "owner"), [pair for pair in product(JobPhase, OwnerState) if pair[1] not in OWNERS_IN[pair[0]]]
)
def test_no_phase_has_an_owner_that_it_cannot_have(phase: JobPhase, owner: OwnerState) -> None:
    entry = IN[owner]()
    with pytest.raises(IllegalTransitionError, match=f"cannot be {phase.name} while its owner is {owner.name}"):
        entry._enter(phase, entry.ownership)
    assert entry.phase.state is not phase


@pytest.mark.parametrize(
    ("before", "after"), [(a, b) for a in JobPhase for b in JobPhase if not JOB_PHASES.allows(a, b)]
)
def test_every_illegal_arc_of_a_phase_raises(before: JobPhase, after: JobPhase) -> None:
    entry = new_entry(source(1))
    entry.phase.state = before
    with pytest.raises(IllegalTransitionError, match=f"{before.name} -> {after.name}"):
        entry.phase.to(after)


@pytest.mark.parametrize("owner", [S.NEVER_OWNED, S.VACATED, S.RECORD_LOST, S.RESERVED])
@pytest.mark.parametrize(
    "act",
    [
        lambda entry: entry.tell(),
        lambda entry: entry.lose_owner("lost"),
        lambda entry: entry.refuse("full", is_permanent=False),
        lambda entry: entry.move_to(P2, "2:1", "moved"),
    ],
    ids=["tell", "lose", "refuse", "move"],
)
def test_what_only_an_owner_does_is_refused_without_one(owner: OwnerState, act: Callable[[JobEntry], object]) -> None:
    entry = IN[owner]()
    with pytest.raises(IllegalTransitionError):
        act(entry)
    assert entry.ownership == IN[owner]().ownership


@pytest.mark.parametrize("owner", [S.NAMED, S.TOLD, S.RESERVED])
def test_a_job_with_an_owner_gets_none_by_itself(owner: OwnerState) -> None:
    with pytest.raises(IllegalTransitionError):
        IN[owner]().assign_to(P2, "2:1")
    with pytest.raises(IllegalTransitionError):
        IN[owner]().submit_to(P2, "2:1")


@pytest.mark.parametrize("owner", [one for one in OwnerState if one is not S.RESERVED])
def test_only_the_process_of_a_transaction_becomes_owner_by_it(owner: OwnerState) -> None:
    with pytest.raises(IllegalTransitionError):
        IN[owner]().own(8)


# --- what may have begun ----------------------------------------------------------------------------------


def order_of_the_next(entry: JobEntry) -> bool:
    """Whether the next owner is told that it is the first one."""
    entry.assign_to(P2, "2:1")
    entry.own(9)
    return entry.tell().is_fresh


def test_an_owner_that_was_not_told_has_begun_nothing() -> None:  # R6
    entry = named()
    entry.lose_owner("lost")
    assert not entry.can_have_begun
    assert entry.end_without_owner().can_run is False, "nothing is to be stopped (R16)"
    assert order_of_the_next(waiting())


def test_an_owner_that_was_told_may_have_begun() -> None:  # R6, R16
    entry = vacated()
    assert entry.can_have_begun
    assert not order_of_the_next(entry)
    assert vacated().end_without_owner().can_run


def test_an_owner_that_refuses_for_now_has_begun_nothing() -> None:  # R6
    entry = told()
    entry.refuse("full", is_permanent=False)
    assert not entry.can_have_begun
    assert (entry.refusals, entry.refused_by) == (1, {P1: False})
    assert order_of_the_next(entry)


def test_an_owner_that_broke_may_have_begun() -> None:  # R6
    entry = named()
    entry.refuse("broke", is_permanent=True)
    assert not order_of_the_next(entry)


def test_a_first_owner_of_an_earlier_leader_is_a_first_one_of_which_nothing_is_known() -> None:  # R6, R16
    entry = recovered_entry(source(1))
    assert entry.can_have_begun, "until the store is read"
    entry.find_owner(OWNER, is_first=True)
    assert entry.can_have_begun
    assert entry.tell().is_fresh
    entry.refuse("full", is_permanent=False)
    assert entry.can_have_begun
    assert order_of_the_next(entry)


@pytest.mark.parametrize("is_told", [True, False])
def test_an_owner_goes_on_until_another_one_is_stored(is_told: bool) -> None:  # R1, R6
    entry = told() if is_told else named()
    entry.takeovers = ()
    stored = entry.move_to(P2, "2:1", "moved")
    assert entry.runner == OWNER
    assert (stored.incarnation, stored.previous_epoch) == (P2, 7)
    assert len(stored.takeovers) == is_told, "a first owner takes nothing over"
    entry.own(8)
    assert entry.runner == ev.JobOwner(P2, "2:1", 8)
    assert entry.former is None
    assert entry.tell().is_fresh is not is_told


def test_a_takeover_says_whom_and_why() -> None:
    entry = vacated()
    (takeover,) = entry.assign_to(P2, "2:1").takeovers
    assert (takeover.millis, takeover.former, takeover.former_address) == (0, P1, "1:1")
    assert (takeover.owner, takeover.owner_address, takeover.reason) == (P2, "2:1", "lost")


def test_a_lost_record_is_that_of_an_owner_that_may_run() -> None:  # R6
    entry = told()
    entry.refused_by = {P2: True}
    entry.reload()
    assert entry.find_no_owner() == RECORD_GONE
    assert not entry.refused_by, "processes have refused to go on under an epoch that is not stored any more"
    end = entry.end_without_owner()
    assert (end.previous_epoch, end.last_epoch, end.can_run) == (0, 7, True)


def test_of_a_job_that_was_found_without_owner_no_epoch_is_known() -> None:  # R6, R16
    entry = recovered_entry(source(1))
    assert entry.find_no_owner() == ""
    end = entry.end_without_owner()
    assert (end.previous_epoch, end.last_epoch, end.can_run) == (0, 0, True)


def test_a_new_job_without_owner_has_none_that_is_lost() -> None:
    entry = waiting()
    entry.reload()
    assert entry.find_no_owner() == ""
    assert entry.ownership == NeverOwned()


# --- wishes -----------------------------------------------------------------------------------------------

WISHES: dict[CancelState, CancelWish] = {
    CancelState.NOT_WANTED: NotWanted(),
    CancelState.WANTED: CancelWanted("because"),
    CancelState.STORED: CancelStored("because"),
}


@pytest.mark.parametrize(("before", "after"), list(product(CancelState, CancelState)))
def test_a_wish_to_cancel_changes_by_its_table_only(before: CancelState, after: CancelState) -> None:
    entry = waiting()
    if before is not CancelState.NOT_WANTED:
        entry.wish(WISHES[before])
    if CANCEL_STATES.allows(before, after):
        entry.wish(WISHES[after])
        assert entry.wants_cancel is (after is not CancelState.NOT_WANTED)
        return
    with pytest.raises(IllegalTransitionError, match=f"{before.name} -> {after.name}"):
        entry.wish(WISHES[after])


def test_a_job_that_is_wanted_cancelled_ends_as_cancelled() -> None:
    entry = vacated()
    entry.wish(CancelWanted("because"))
    end = entry.end_without_owner()
    assert (end.status, end.reason) == (JobStatus.CANCELED, "because")


@pytest.mark.parametrize("stored", [True, False])
def test_only_a_wish_that_is_not_durable_is_forgotten(stored: bool) -> None:
    entry = waiting()
    entry.wish(CancelStored("because") if stored else CancelWanted("because"))
    entry.forget_wish()
    assert entry.wants_cancel is stored


def test_a_wish_is_as_the_store_has_it() -> None:
    entry = waiting()
    wishes = []
    for wants_cancel in (True, False):
        entry.remember(ev.RecoveredJob(source(1), 7, None, wants_cancel, ended=None, cancel_reason="because"))
        wishes.append(entry.cancel)
    assert wishes == [CancelStored("because"), CancelWanted("because")], "one that has vanished is stored again"


def test_a_move_that_is_overtaken_is_answered_and_not_wanted() -> None:
    wish = MoveWish(P1, (1, 2))
    assert wish.is_being_stored
    assert wish.overtaken() == MoveWish(Incarnation(""), (1, 2))
    assert not MoveWish(P1).is_being_stored
