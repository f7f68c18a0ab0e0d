"""The judge of workers refuses what breaks R65, and nothing else."""

from __future__ import annotations

import pytest

from runtime.common.ids import AllocationId, JobId
from runtime.gateways.resource_manager import SlotReport, SlotStatus
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import KeyValue, Txn, TxnResult, WatchEvent
from tests.kit.simulation.checkers import check
from tests.kit.simulation.history import (
    Applied,
    Expired,
    Happening,
    History,
    Received,
    Record,
    WorkerReleased,
    WorkerStarted,
)
from tests.kit.simulation.worker_checkers import WorkersComeAndGo
from tests.kit.simulation.workers import DRAIN_SECONDS, IDLE_SECONDS

KEYS = Keys.of_cluster("test")
LEADER = WatchEvent(is_delete=False, kv=KeyValue(f"{KEYS.leaders}1", b"", 1, 1, 1, 1))
BUSY = SlotReport((SlotStatus(0, AllocationId("a"), JobId("j")),), is_warm=True, assigned_tasks=1)
IDLE = SlotReport((SlotStatus(0, None, None),), is_warm=True, assigned_tasks=1)


def found(*happenings: tuple[float, Happening]) -> list[str]:
    history = History([Record(at, "jm-1", what) for at, what in happenings])
    return [one.what for one in check(history, KEYS, [WorkersComeAndGo])]


def start(worker_id: str, at: float, slots: int = 2) -> tuple[float, Happening]:
    return at + 0.1, WorkerStarted(worker_id, at, slots, 4)


def release(worker_id: str, at: float, *, kills: bool = False) -> tuple[float, Happening]:
    return at, WorkerReleased(worker_id, kills)


def told(report: SlotReport, at: float) -> tuple[float, Happening]:
    return at, Received("w-1", report)


GOOD = (
    (0.0, Applied(Txn((), (), ()), TxnResult(True, 1, ()), (LEADER,))),
    start("w-1", 1.0),
    start("w-2", 1.0, 4),
    told(BUSY, 3.0),
    told(IDLE, 4.0),
    release("w-1", 5.0 + IDLE_SECONDS),
    release("w-2", 20.0),
    release("w-2", 21.0 + DRAIN_SECONDS, kills=True),
)


def test_what_is_right_is_let_pass() -> None:
    assert found(*GOOD) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (start("w-1", 70.0), "started twice"),
        (start("w-3", 70.0, 6), "6 slots, above 4"),
        (release("w-3", 70.0, kills=True), "killed before it has had"),
    ],
)
def test_what_is_wrong_is_found(more: tuple[float, Happening], words: str) -> None:
    (violation,) = found(*GOOD, more)
    assert words in violation


def test_a_start_after_the_lease_is_found() -> None:
    lapsed = Expired(1, (LEADER,))
    assert found(*GOOD, (60.0, lapsed), start("w-3", 59.9)) == []
    (violation,) = found(*GOOD, (60.0, lapsed), start("w-3", 60.5))
    assert "its lease has run out" in violation


def test_a_release_of_who_has_work_is_found() -> None:
    at = 60.0
    assert found(*GOOD, told(BUSY, at - 1.0), release("w-1", at)) == [], "the two have crossed"
    (violation,) = found(*GOOD, told(BUSY, at - 5.0), release("w-1", at))
    assert "5.0 s after it had work" in violation
