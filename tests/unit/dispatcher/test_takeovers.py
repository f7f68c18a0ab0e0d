"""What is noted of each change of a job's owner: both processes, and the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.job_entry import TAKEOVERS_MAX
from runtime.dispatcher.core.jobs import JobRegistry
from runtime.dispatcher.core.retention import Retention
from runtime.dispatcher.core.shown_summary import initial_summary
from runtime.dispatcher.core.submits import JobRegistryLimits
from runtime.gateways.overview import Takeover
from tests.kit.control_plane.process_events import assignment_refused, inventory_received, process_registered

P1, P2 = Incarnation("1" * 32), Incarnation("2" * 32)
JOB = JobId("a" * 32)
SOURCE = ev.JobSource(JOB, "d", "job", b"{}", "", 1000, "tests")
LOST = "its JobMaster process was lost"


def join(made: JobRegistry, *processes: Incarnation) -> list[Any]:
    return [
        one for process in processes for one in made.handle(process_registered(process, f"{process[0]}:1", 10, "v"))
    ]


def running(*processes: Incarnation) -> JobRegistry:
    """The job runs at P1 under epoch 7."""
    made = JobRegistry(JobRegistryLimits(10, 10), Retention(10, 1000))
    join(made, P1)
    made.handle(ev.SubmitRequested(1, SOURCE))
    made.handle(ev.SubmitStored(JOB, 7, ""))
    made.handle(
        ev.SummariesReceived((replace(initial_summary(SOURCE), status=JobStatus.RUNNING, epoch=7, sequence=1),))
    )
    join(made, *processes)
    return made


def noted(effects: list[Any]) -> tuple[Takeover, ...]:
    (order,) = [one for one in effects if isinstance(one, ef.StoreOwner)]
    return order.takeovers


def from_p1_to_p2(reason: str) -> Takeover:
    return Takeover(0, P1, "1:1", P2, "2:1", reason)


def test_the_loss_of_an_owner() -> None:
    assert noted(running(P2).handle(ev.ProcessLost(P1))) == (from_p1_to_p2(LOST),)


def test_the_loss_of_the_only_owner_is_noted_when_there_is_another_one() -> None:
    made = running()
    made.handle(ev.ProcessLost(P1))
    assert noted(join(made, P2)) == (from_p1_to_p2(LOST),)


def test_an_owner_that_breaks_the_job() -> None:
    effects = running(P2).handle(assignment_refused(P1, JOB, 7, "a bug", is_permanent=True))
    assert noted(effects) == (from_p1_to_p2("JobMaster process 1:1 refused: a bug"),)


def test_a_drain() -> None:
    effects = running(P2).handle(inventory_received(P1, (), 10, 0.0, 0, is_draining=True))
    assert noted(effects) == (from_p1_to_p2("its JobMaster process drains"),)


def test_a_wish() -> None:
    made = running(P2)
    made.handle(ev.MoveRequested(2, JOB, P2))
    assert noted(made.handle(ev.MoveWishStored(JOB, is_stored=True))) == (from_p1_to_p2("somebody moved it"),)


def test_an_owner_that_is_cut_off() -> None:
    effects = running(P2).handle(ev.OwnerCutOff(JOB, 7))
    assert noted(effects) == (from_p1_to_p2("its JobMaster process does not reach the TaskManagers that it needs"),)


def test_what_has_begun_nothing_is_not_taken_over() -> None:
    made = running(P2)
    effects = made.handle(assignment_refused(P1, JOB, 7, "full", is_permanent=False))
    assert noted(effects) == ()


def test_another_leader_knows_what_earlier_ones_have_noted_and_only_the_latest_are_kept() -> None:
    known = tuple(Takeover(millis, P2, "2:1", P1, "1:1", "x") for millis in range(1, TAKEOVERS_MAX + 1))
    made = JobRegistry(JobRegistryLimits(10, 10), Retention(10, 1000))
    join(made, P2)
    owner = ev.JobOwner(P1, "1:1", 7)
    effects = made.recover([ev.RecoveredJob(SOURCE, 5, owner, False, None, takeovers=known)], [])
    assert noted(effects) == (*known[1:], from_p1_to_p2(LOST))
    stored = (*known[1:], replace(from_p1_to_p2(LOST), millis=99))
    made.handle(ev.OwnerStored(JOB, 9, stored))
    join(made, P1)
    assert noted(made.handle(ev.ProcessLost(P2))) == (*stored[1:], Takeover(0, P2, "2:1", P1, "1:1", LOST))
