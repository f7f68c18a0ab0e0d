"""Jobs whose owner is lost or refuses: what is shown, which process may begin them, and when they end."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import ANY

import pytest

from runtime.common.errors import UnavailableError
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.jobs import JobRegistry
from runtime.dispatcher.core.retention import Retention
from runtime.dispatcher.core.submits import JobRegistryLimits
from runtime.gateways.dispatcher import JobSummary, TaskCounts
from tests.kit.control_plane.process_events import assignment_refused, process_registered

P1, P2 = Incarnation("1" * 32), Incarnation("2" * 32)
JOB = JobId("a" * 32)
SOURCE = ev.JobSource(JOB, "d", "job", b"{}", "", 1000, "tests")
STORED = ev.RecoveredJob(SOURCE, 7, ev.JobOwner(P1, "1:1", 7), False, None)


def registry(*processes: Incarnation) -> JobRegistry:
    made = JobRegistry(JobRegistryLimits(10, 10), Retention(10, 1000))
    for incarnation in processes:
        made.handle(process_registered(incarnation, f"{incarnation[0]}:1", 10, "v"))
    made.handle(ev.SubmitRequested(1, SOURCE))
    return made


def running(*processes: Incarnation) -> JobRegistry:
    """The job runs at P1 under epoch 7, and P1 has said so."""
    made = registry(*processes)
    made.handle(ev.SubmitStored(JOB, 7, ""))
    shown = JobSummary(JOB, "job", JobStatus.RUNNING, 7, 1, 1000, -1, 5000, TaskCounts(running=1), "no free slot")
    made.handle(ev.SummariesReceived((shown,)))
    return made


def reason(made: JobRegistry) -> str:
    summary = made.summary(JOB)
    assert summary is not None
    return summary.pending_reason


def broke(epoch: int, process: Incarnation = P1) -> ev.AssignmentRefused:
    return assignment_refused(process, JOB, epoch, "its JobMaster broke", is_permanent=True)


def test_the_loss_of_the_owner_is_shown_until_there_is_another_one() -> None:
    made = running(P1)
    before = made.summary(JOB)
    assert ef.PublishSummary(JOB) in made.handle(ev.ProcessLost(P1))
    lost = made.summary(JOB)
    assert before is not None
    assert lost is not None
    assert (lost.status, lost.pending_reason) == (JobStatus.RUNNING, "its JobMaster process was lost")
    assert lost.last_modification_millis > before.last_modification_millis, "long polls wake"
    made.handle(process_registered(P2, "2:1", 10, "v"))
    made.handle(ev.OwnerStored(JOB, 8))
    assert reason(made) == ""


def test_what_an_owner_has_shown_is_not_taken_back() -> None:
    made = running(P1)
    made.handle(ev.CancelRequested(5, JOB))
    made.handle(ev.WantedStored(JOB, is_stored=False))
    made.handle(ev.JobReloaded(JOB, STORED))
    assert reason(made) == "no free slot"


ENDED = JobSummary(JOB, "job", JobStatus.CANCELED, 7, 9, 1000, 2000, 2000, TaskCounts(canceled=1), "")


def test_a_result_of_which_the_lost_owner_has_said_nothing_is_found_though_nobody_else_has_room() -> None:  # R3
    made = running(P1)
    assert ef.SeekResult(JOB) in made.handle(ev.ProcessLost(P1))
    assert ef.PublishSummary(JOB) in made.handle(ev.EndStored(JOB, ENDED))
    assert made.summary(JOB) == ENDED
    assert not made.handle(process_registered(P2, "2:1", 10, "v")), "there is nothing to run"


def test_a_process_that_comes_while_a_result_is_looked_for_is_assigned_the_job_and_finds_it() -> None:
    made = running(P1)
    made.handle(ev.ProcessLost(P1))
    (stored,) = made.handle(process_registered(P2, "2:1", 10, "v"))
    assert isinstance(stored, ef.StoreOwner)
    assert not made.handle(ev.EndStored(JOB, ENDED)), "the assign transaction finds the result too"
    made.handle(ev.OwnerNotStored(JOB, replace(STORED, ended=ENDED)))
    assert made.summary(JOB) == ENDED


def test_nothing_is_looked_for_where_another_process_takes_the_job() -> None:
    made = running(P1, P2)
    assert not [one for one in made.handle(ev.ProcessLost(P1)) if isinstance(one, ef.SeekResult)]


def test_an_order_that_was_never_sent_has_begun_nothing() -> None:  # R6
    made = registry(P1, P2)
    made.handle(ev.ProcessLost(P1))
    made.handle(ev.SubmitStored(JOB, 7, ""))
    (order,) = [one for one in made.handle(ev.OwnerStored(JOB, 8)) if isinstance(one, ef.SendAssign)]
    assert order.message.is_fresh
    made.handle(ev.ProcessLost(P2))
    made.handle(process_registered(P1, "1:1", 10, "v"))
    (order,) = [one for one in made.handle(ev.OwnerStored(JOB, 9)) if isinstance(one, ef.SendAssign)]
    assert not order.message.is_fresh, "the second order was sent"


def test_an_owner_of_an_earlier_term_may_have_begun() -> None:  # R6
    made = JobRegistry(JobRegistryLimits(10, 10), Retention(10, 1000))
    made.recover([ev.RecoveredJob(SOURCE, 7, ev.JobOwner(P1, "1:1", 7), False, None)], [])
    made.handle(process_registered(P2, "2:1", 10, "v"))
    (order,) = [one for one in made.handle(ev.OwnerStored(JOB, 8)) if isinstance(one, ef.SendAssign)]
    assert not order.message.is_fresh


def test_a_job_that_every_process_refuses_for_good_fails() -> None:
    made = running(P1, P2)
    assert ef.StoreOwner(JOB, P2, "2:1", 7, ANY, refusals=1) in made.handle(broke(7))
    made.handle(ev.OwnerStored(JOB, 8))
    (end,) = [one for one in made.handle(broke(8, P2)) if isinstance(one, ef.StoreEnd)]
    assert (end.status, end.previous_epoch, end.can_run) == (JobStatus.FAILED, 8, True)
    shown = made.summary(JOB)
    assert shown is not None
    assert (shown.status, "its JobMaster broke" in shown.pending_reason) == (JobStatus.FAILING, True)  # R16
    assert made.shown.newest_first() == [shown], "the lists show it too"
    assert made.shown.counts()[JobStatus.FAILING] == 1
    assert "2:1 refused: its JobMaster broke" in end.reason
    assert made.handle(ev.EndFailed(JOB, UnavailableError("etcd is away"))) == []
    assert [type(one) for one in made.handle(ev.Ticked())] == [ef.StoreEnd], "the end is written when it can be"


def test_the_lists_show_what_the_job_shows_and_its_end_is_told_once() -> None:
    made = running(P1)
    effects = made.handle(broke(7))
    (listed,) = made.shown.newest_first()
    assert listed == made.summary(JOB)
    assert {status: count for status, count in made.shown.counts().items() if count} == {JobStatus.FAILING: 1}
    assert effects.count(ef.PublishSummary(JOB)) == 1


def test_a_refusal_for_now_ends_nothing() -> None:
    made = running(P1)
    refused = made.handle(assignment_refused(P1, JOB, 7, "full", is_permanent=False))
    assert not [one for one in refused if isinstance(one, ef.StoreEnd)]
    assert "refused: full" in reason(made)


def test_without_any_process_the_job_waits() -> None:
    made = running(P1, P2)
    made.handle(broke(7))
    made.handle(ev.OwnerStored(JOB, 8))
    made.handle(ev.ProcessLost(P1))
    made.handle(ev.ProcessLost(P2))
    assert made.handle(ev.Ticked()) == []


@pytest.mark.parametrize("is_wish_stored", [True, False])
def test_a_wish_makes_it_canceled(is_wish_stored: bool) -> None:
    made = running(P1)
    made.handle(ev.CancelRequested(5, JOB))
    if is_wish_stored:
        made.handle(ev.WantedStored(JOB, is_stored=True))
    effects = made.handle(broke(7))
    (end,) = [one for one in effects if isinstance(one, ef.StoreEnd)]
    assert (end.status, end.reason, end.can_run) == (JobStatus.CANCELED, "", True)
    assert ef.PublishSummary(JOB) in effects
    shown = made.summary(JOB)
    assert shown is not None
    assert shown.status is JobStatus.CANCELLING


def test_who_waits_for_a_job_that_is_gone_from_the_store_is_woken() -> None:
    made = running(P1)
    made.handle(ev.CancelRequested(5, JOB))
    made.handle(ev.WantedStored(JOB, is_stored=False))
    assert ef.PublishSummary(JOB) in made.handle(ev.JobReloaded(JOB, None))
    assert made.summary(JOB) is None


def test_a_job_without_a_process_says_who_starts_one() -> None:
    made = registry()
    made.handle(ev.SubmitStored(JOB, 0, ""))
    assert reason(made) == "no JobMaster process is registered: start one with bin/start-jobmaster.sh start"
    assert made.waiting_count == 1
    assert ef.PublishSummary(JOB) in made.handle(ev.ProcessesAdvised("the driver starts one"))
    assert reason(made) == "no JobMaster process is registered: the driver starts one"
    assert made.handle(ev.ProcessesAdvised("the driver starts one")) == []
    made.handle(process_registered(P1, "1:1", 10, "v"))
    assert made.waiting_count == 0
    assert made.handle(ev.ProcessesAdvised("")) == []


def test_a_refusal_is_not_hidden_by_advice() -> None:
    made = running(P1)
    made.handle(assignment_refused(P1, JOB, 7, "its disk is full", is_permanent=False))
    made.handle(ev.ProcessesAdvised("the driver starts one"))
    assert "its disk is full" in reason(made)
