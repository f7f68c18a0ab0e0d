"""R67: a job gets no slots of TaskManagers on which it was slow, while it has slots elsewhere."""

from __future__ import annotations

import pytest

from runtime.gateways.resource_manager import SlotsFreed
from runtime.resourcemanager.core import events as ev
from tests.kit.control_plane.slot_requests import T1, T2, Cluster, requests


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.register(T1, 2)
    made.register(T2, 2)
    return made


def test_others_come_first(cluster: Cluster) -> None:
    assert [peer for peer, _ in requests(cluster.declare(1, 2, shunned=(T1,)))] == [T2, T2]


def test_with_slots_elsewhere_it_waits_for_more_of_those(cluster: Cluster) -> None:
    assert [peer for peer, _ in requests(cluster.declare(1, 4, shunned=(T1,)))] == [T2, T2]
    assert [peer for peer, _ in requests(cluster.declare(2, 2))] == [T1, T1]


def test_without_any_elsewhere_it_gets_what_there_is(cluster: Cluster) -> None:
    assert [peer for peer, _ in requests(cluster.declare(2, 2, shunned=(T1,)))] == [T2, T2]
    assert [peer for peer, _ in requests(cluster.declare(1, 1, shunned=(T2,)))] == [T1]
    assert [peer for peer, _ in requests(cluster.declare(3, 1, shunned=(T1,)))] == [T1]


def test_what_must_not_be_there_never_is(cluster: Cluster) -> None:
    requests(cluster.declare(2, 2, shunned=(T1,)))
    assert requests(cluster.declare(1, 1, without=(T1,))) == []
    assert [peer for peer, _ in requests(cluster.declare(1, 1))] == [T1]


def test_a_slot_that_is_free_elsewhere_is_given_at_once(cluster: Cluster) -> None:
    (first, *_) = [request for _, request in requests(cluster.declare(2, 2, shunned=(T1,)))]
    cluster.declare(1, 1, without=(T1,))
    cluster.declare(2, 1)
    given = requests(cluster.handle(ev.AllocationsFreed(T2, SlotsFreed((first.allocation_id,)))))
    assert [(peer, request.job_id[-1]) for peer, request in given] == [(T2, "1")]


def test_when_nothing_is_shunned_any_more_all_slots_are_good(cluster: Cluster) -> None:
    requests(cluster.declare(1, 3, shunned=(T1,)))
    assert [peer for peer, _ in requests(cluster.declare(1, 3))] == [T1]
