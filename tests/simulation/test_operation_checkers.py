"""Each checker of savepoints, stops and restores refuses a history that breaks its rule, and both happen in seeds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.aio.entropy import SeededEntropy
from runtime.common.states import ExecutionState
from runtime.gateways.operations import OperationKind, OperationState, StreamOperation
from runtime.highavailability.kv.key_value_store import Put
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import OperationRecord
from tests.kit.simulation.history import (
    BatchCommitted,
    OperationAccepted,
    OperationShown,
    QueryHeld,
    QueryReleased,
    QueryStarted,
    Restoring,
    SavepointSeen,
)
from tests.kit.simulation.past import JOB, KEYS, OTHER_JOB, Past, attempt
from tests.kit.simulation.queries import planned_upgrades

DIRECTORY = f"{JOB}/views/0"
TARGET = "/savepoints/one"
STOP, ANOTHER = "5" * 32, "6" * 32


@pytest.fixture
def past() -> Past:
    """A query that has committed batches 0 and 1."""
    made = Past()
    made.submit()
    made.start(attempt())
    made.add("tm-1", QueryStarted(attempt(), DIRECTORY))
    commit(made, 0)
    commit(made, 1)
    return made


def commit(past: Past, batch: int) -> None:
    past.add("tm-1", BatchCommitted(attempt(), DIRECTORY, batch))


def write(past: Past, state: OperationState, *, trigger: str = STOP, number: int = 1) -> None:
    operation = StreamOperation(trigger, OperationKind.STOP, state, number, 1, directory=f"/savepoints/{trigger}")
    past.write("master-1", Put(KEYS.operation(JOB, trigger), encode_record(OperationRecord(operation))), conditions=())


def see(past: Past, batch: int, *, uid: str = "views", problem: str = "") -> None:
    past.add("witness", SavepointSeen(JOB, STOP, TARGET, ((uid, 0, batch),), problem))


def test_a_stop_as_it_should_be(past: Past) -> None:
    write(past, OperationState.IN_PROGRESS)
    past.add("client", OperationAccepted(JOB, STOP))
    past.add("tm-1", QueryHeld(attempt(), STOP))
    write(past, OperationState.COMPLETED)
    see(past, 1)
    past.add("tm-1", QueryReleased(attempt(), STOP, finishes=True))
    past.end(attempt())
    past.add("client", OperationShown(JOB, STOP, OperationState.COMPLETED))
    assert not {"R60", "R61", "positions"} & past.violations().keys()


@pytest.mark.parametrize(
    ("batch", "uid", "problem", "said"),
    [
        (2, "views", "", f"savepoint {STOP} has batch 2 of ('views', 0), whose last committed one is 1"),
        (0, "views", "", f"savepoint {STOP} has batch 0 of ('views', 0), whose last committed one is 1"),
        (1, "sales", "", f"savepoint {STOP} has [('sales', 0)], and the job [('views', 0)]"),
        (1, "views", "it is gone", f"savepoint {STOP} of job {JOB} is completed: it is gone"),
    ],
)
def test_a_savepoint_that_is_none(past: Past, batch: int, uid: str, problem: str, said: str) -> None:
    write(past, OperationState.COMPLETED)
    see(past, batch, uid=uid, problem=problem)
    assert past.violations()["R60"] == [said]


def test_an_attempt_that_finishes_before_the_stop_is_durable(past: Past) -> None:
    write(past, OperationState.IN_PROGRESS)
    past.add("tm-1", QueryHeld(attempt(), STOP))
    past.add("tm-1", QueryReleased(attempt(), STOP, finishes=True))
    assert past.violations()["R61"] == [f"{attempt()} finishes by stop {STOP}, which is not completed in the store"]


def test_a_held_query_that_goes_on_by_itself(past: Past) -> None:
    past.add("tm-1", QueryHeld(attempt(), STOP))
    commit(past, 2)
    assert past.violations()["R61"] == [f"{attempt()} is held for {STOP}, and processes a batch"]


def test_a_held_attempt_that_finishes_without_a_word(past: Past) -> None:
    past.add("tm-1", QueryHeld(attempt(), STOP))
    past.end(attempt(), ExecutionState.FINISHED)
    assert past.violations()["R61"] == [f"{attempt()} is held for {STOP}, and finishes without a word"]


def test_a_batch_behind_a_stop(past: Past) -> None:
    write(past, OperationState.COMPLETED)
    commit(past, 2)
    assert past.violations()["R61"] == [f"{attempt()} works on behind stop {STOP}, which is completed"]


def test_an_operation_has_one_outcome_and_a_number_of_its_own(past: Past) -> None:
    for state in (OperationState.IN_PROGRESS, OperationState.FAILED, OperationState.COMPLETED):
        write(past, state)
    write(past, OperationState.IN_PROGRESS, trigger=ANOTHER)
    assert past.violations()["R61"] == [
        f"operation {STOP} was FAILED, and becomes COMPLETED",
        f"operation {ANOTHER} has number 1, as has {STOP}",
    ]


def test_an_operation_that_is_told_and_not_known(past: Past) -> None:
    past.add("client", OperationAccepted(JOB, STOP))
    past.add("client", OperationShown(JOB, STOP, None))
    assert past.violations()["R61"] == [
        f"operation {STOP} of job {JOB} is accepted, and is not durable",
        f"operation {STOP} of job {JOB} was accepted, and is not known any more",
    ]


def test_an_operation_that_is_shown_in_two_ways(past: Past) -> None:
    write(past, OperationState.COMPLETED)
    for state in (OperationState.IN_PROGRESS, OperationState.COMPLETED, OperationState.FAILED):
        past.add("client", OperationShown(JOB, STOP, state))
    assert past.violations()["R61"] == [f"operation {STOP} is shown as COMPLETED, then as FAILED"]


@pytest.mark.parametrize(("behind", "is_right"), [(1, True), (0, False), (-1, False)])
def test_where_a_restored_query_begins(past: Past, behind: int, *, is_right: bool) -> None:
    write(past, OperationState.COMPLETED)
    see(past, 1)
    past.add("client", Restoring(OTHER_JOB, TARGET))
    restored = replace(attempt(), job_id=OTHER_JOB)
    past.add("tm-1", QueryStarted(restored, f"{OTHER_JOB}/views/0", behind))
    said = f"{restored} begins behind batch {behind} of {OTHER_JOB}/views/0, and 1 is the last one"
    assert past.violations().get("positions", []) == ([] if is_right else [said])


def test_some_seeds_have_jobs_that_follow_each_other() -> None:
    entropies = [SeededEntropy(f"simulation/{seed}").child("upgrades") for seed in range(1, 201)]
    planned = [list(planned_upgrades(one, "/savepoints", slots=4)) for one in entropies]
    having = [jobs for jobs in planned if jobs]
    assert 0.25 < len(having) / len(planned) < 0.45
    for first, second, third in having:
        assert first.restored_from is None
        assert (second.restored_from, third.restored_from) == (first.upgrade, second.upgrade)
    kinds = {(job.upgrade.claim_mode, job.upgrade.drains) for jobs in having for job in jobs if job.upgrade is not None}
    assert len(kinds) == 4
    assert not list(planned_upgrades(entropies[0], "/savepoints", slots=1)), "other jobs would wait too long"
