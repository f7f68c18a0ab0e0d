"""The judge of workers refuses what breaks R65, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.common.ids import AllocationId, JobId
from runtime.gateways.resource_manager import SlotReport, SlotStatus
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import KeyValue, Txn, TxnResult, WatchEvent
from runtime.resourcemanager.driver import DriverError
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
from tests.kit.simulation.processes import SimulatedLoop, SimulatedProcess
from tests.kit.simulation.seeds import keep, on_virtual_time
from tests.kit.simulation.worker_checkers import WorkersComeAndGo
from tests.kit.simulation.workers import DRAIN_SECONDS, IDLE_SECONDS, SimulatedDriver, left_over
from tests.kit.simulation.world import Shape, World

KEYS = Keys.of_cluster("test")
LEADER = WatchEvent(is_delete=False, kv=KeyValue(f"{KEYS.leaders}1", b"", 1, 1, 1, 1))
BUSY = SlotReport((SlotStatus(0, AllocationId("a"), JobId("j")),), is_warm=True, assigned_tasks=1)
IDLE = SlotReport((SlotStatus(0, None, None),), is_warm=True, assigned_tasks=1)


def found(*happenings: tuple[float, Happening]) -> list[str]:
    return judged([Record(at, "jm-1", what) for at, what in happenings])


def judged(records: list[Record]) -> list[str]:
    return [one.what for one in check(History(records), KEYS, [WorkersComeAndGo])]


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


def test_a_release_after_the_lease_is_found() -> None:
    lapsed = Expired(1, (LEADER,))
    assert found(*GOOD, release("w-1", 59.9), (60.0, lapsed)) == []
    (violation,) = found(*GOOD, (60.0, lapsed), release("w-1", 60.5))
    assert violation == "jm-1 releases worker w-1, and its lease has run out"


def test_a_release_of_who_has_work_is_found() -> None:
    at = 60.0
    assert found(*GOOD, told(BUSY, at - 1.0), release("w-1", at)) == [], "the two have crossed"
    (violation,) = found(*GOOD, told(BUSY, at - 5.0), release("w-1", at))
    assert "5.0 s after it had work" in violation


@pytest.mark.parametrize(("reader", "is_late"), [("jm-1", False), ("jm-2", True)])
def test_what_a_leader_hears_of_work_after_its_term_is_old(reader: str, *, is_late: bool) -> None:
    """It was frozen, and the report has waited for it."""
    records = [
        *(Record(at, "jm-1", what) for at, what in (GOOD[0], start("w-1", 1.0))),
        Record(20.0, "etcd", Expired(1, (LEADER,))),
        Record(55.0, reader, Received("w-1", BUSY)),
        Record(60.0, "jm-2", WorkerReleased("w-1", kills=False)),
    ]
    assert judged(records) == (["worker w-1 is released 5.0 s after it had work"] if is_late else [])


KEEPS_TWO = Shape(task_managers=0, slots=2, has_driver=True, slots_min=2, slots_max=6)
UP, HANGS = True, False


@pytest.mark.parametrize(
    ("workers", "wrong"),
    [
        ({"w-1": UP}, []),
        ({}, ["0 slots are left, and 2 are kept"]),
        ({"w-1": UP, "w-2": UP}, ["workers w-1, w-2 run on without work"]),
        ({"w-1": UP, "w-2": HANGS}, ["workers w-2 never came up, and are left"]),
        ({"w-1": HANGS}, ["workers w-1 never came up, and are left", "0 slots are left, and 2 are kept"]),
    ],
)
def test_at_rest_there_are_the_workers_that_are_kept_and_each_has_slots(
    workers: dict[str, bool], wrong: list[str]
) -> None:
    assert list(left_over(KEEPS_TWO, workers)) == wrong


# --- in the simulation ------------------------------------------------------------------------------------------


@pytest.fixture
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("_quiet")
def test_a_worker_whose_start_has_succeeded_is_seen_and_one_whose_start_failed_may_come_all_the_same(
    tmp_path: Path,
) -> None:
    """As real drivers promise it (`ResourceManagerDriver.start`)."""
    shape = Shape(job_managers=1, job_masters=0, task_managers=0, slots=1, has_driver=True, slots_max=1000)
    seen: dict[bool, list[bool]] = {True: [], False: []}

    async def main(loop: SimulatedLoop) -> None:
        world = keep(World(loop, "workers", tmp_path, shape))
        world.start()
        world.workers.is_troubled = True

        async def starts() -> None:
            driver = SimulatedDriver(world.workers)
            for number in range(40):
                worker_id = f"w-{number:012x}"
                try:
                    await driver.start(worker_id, is_wanted=lambda: True)
                except DriverError:
                    seen[False].append(worker_id in world.workers)
                else:
                    seen[True].append(worker_id in world.workers)

        await SimulatedProcess(loop, "another leader").start("starts", starts())

    on_virtual_time(main)
    assert all(seen[True])
    assert len(seen[True]) > 10
    assert set(seen[False]) == {False, True}
