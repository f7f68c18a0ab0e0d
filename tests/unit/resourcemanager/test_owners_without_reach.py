"""Owners that cannot reach TaskManagers: those are skipped, and in the end the owner is cut off (R7)."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.common.ids import Incarnation, JobId
from runtime.gateways.resource_manager import (
    RequestSlot,
    SlotReport,
    SlotsFreed,
    SlotStatus,
)
from runtime.resourcemanager.core import events as ev
from tests.kit.control_plane.slot_requests import T1, T2, Cluster, job, kinds, reasons, refusal, requests


def test_task_managers_that_the_owner_cannot_reach_are_skipped() -> None:  # R7
    cluster = Cluster()
    cluster.register(T1, 2)
    assert "cannot reach" in reasons(cluster.declare(1, 1, unreachable=(T1,)))[job(1)]
    effects = cluster.register(T2, 1)
    assert [peer for peer, _ in requests(effects)] == [T2]


def test_slots_that_the_owner_cannot_reach_are_replaced_and_count_again_afterwards() -> None:  # R7
    cluster = Cluster()
    cluster.register(T1, 2)
    cluster.register(T2, 2)
    ((first, _),) = requests(cluster.declare(1, 1))
    other = T2 if first == T1 else T1
    assert [peer for peer, _ in requests(cluster.declare(1, 1, unreachable=(first,)))] == [other]
    assert requests(cluster.declare(1, 2)) == [], "both count again"


class TestOwnersThatAreCutOff:
    """R7: what the owner cannot reach is skipped, and after three rounds somebody else may try."""

    @staticmethod
    def cut_off(cluster: Cluster, seconds: int) -> list[tuple[JobId, int, float]]:
        """Let time pass; the owners that were cut off: job, epoch, and when."""
        found = []
        for _ in range(seconds):
            cluster.at += 1.0
            effects = cluster.handle(ev.Ticked())
            found += [(one.job_id, one.epoch, cluster.at - 100.0) for one in effects if isinstance(one, ev.OwnerCutOff)]
        return found

    def test_an_owner_that_does_not_reach_what_it_needs_is_given_up_after_three_rounds(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 1)
        cluster.declare(1, 1, unreachable=(T1,))
        assert self.cut_off(cluster, 8) == [(job(1), 5, 7.0)], "a first look, and three rounds of two seconds"
        assert self.cut_off(cluster, 6) == [(job(1), 5, 13.0)], "and again, as long as nothing changes"

    def test_its_own_slots_there_are_needed_too(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 1)
        cluster.declare(1, 1)
        cluster.declare(1, 1, unreachable=(T1,))
        assert len(self.cut_off(cluster, 8)) == 1

    @pytest.mark.parametrize("why", ["nothing", "elsewhere", "foreign", "draining", "away", "ended"])
    def test_who_needs_nothing_there_is_left_alone(self, why: str) -> None:
        cluster = Cluster()
        cluster.register(T1, 1)
        if why == "elsewhere":
            cluster.register(T2, 1)
        if why == "foreign":
            cluster.declare(2, 1)
        cluster.declare(1, 0 if why == "nothing" else 1, unreachable=(T1,))
        if why == "draining":
            cluster.handle(ev.SlotsReported(T1, SlotReport((SlotStatus(0, None, None),), True, 0, is_draining=True)))
        if why == "away":
            cluster.handle(ev.TaskManagerDisconnected(T1))
        if why == "ended":
            cluster.handle(ev.JobsFinished((job(1),)))
        assert self.cut_off(cluster, 20) == []

    def test_one_look_without_that_need_begins_the_count_anew(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 1)
        cluster.declare(1, 1, unreachable=(T1,))
        assert self.cut_off(cluster, 6) == []
        cluster.register(T2, 1)
        assert self.cut_off(cluster, 1) == []
        cluster.handle(ev.TaskManagerLost(T2))
        assert self.cut_off(cluster, 6) == []
        assert len(self.cut_off(cluster, 1)) == 1

    def test_another_owner_has_its_own_rounds(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 1)
        cluster.declare(1, 1, unreachable=(T1,))
        assert self.cut_off(cluster, 6) == []
        cluster.declare(1, 1, epoch=6, unreachable=(T1,))
        assert self.cut_off(cluster, 7) == [(job(1), 6, 13.0)]

    @staticmethod
    def give_up(cluster: Cluster, peer: Incarnation, request: RequestSlot) -> list[Any]:
        """The TaskManager does not reach the owner, and frees the slot."""
        refused = refusal(peer, request, is_slot_free=True, is_owner_unreachable=True)
        return [
            *cluster.handle(refused),
            *cluster.handle(ev.AllocationsFreed(peer, SlotsFreed((request.allocation_id,)))),
        ]

    def test_a_task_manager_that_cannot_reach_the_owner_is_skipped_for_a_while(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 1)
        ((_, request),) = requests(cluster.declare(1, 1))
        effects = self.give_up(cluster, T1, request)
        assert requests(effects) == []
        assert "cannot reach" in reasons(effects)[job(1)]
        assert kinds(effects)[job(1)] == "taskmanagers"
        assert [peer for peer, _ in requests(cluster.register(T2, 1))] == [T2]

    def test_other_jobs_have_its_slot_at_once(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 1)
        ((_, request),) = requests(cluster.declare(1, 1))
        cluster.declare(2, 1)
        ((_, second),) = requests(self.give_up(cluster, T1, request))
        assert second.job_id == job(2)

    def test_it_is_tried_again_when_nobody_else_takes_the_job(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 1)
        ((_, request),) = requests(cluster.declare(1, 1))
        self.give_up(cluster, T1, request)
        assert self.cut_off(cluster, 9) == [(job(1), 5, 7.0)]
        cluster.at += 1.0
        assert [peer for peer, _ in requests(cluster.handle(ev.Ticked()))] == [T1]

    def test_another_owner_may_be_reached(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 1)
        ((_, request),) = requests(cluster.declare(1, 1))
        self.give_up(cluster, T1, request)
        assert [peer for peer, _ in requests(cluster.declare(1, 1, epoch=6))] == [T1]
