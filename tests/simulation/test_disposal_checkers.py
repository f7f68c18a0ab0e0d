"""The checker of deleted savepoints refuses each history that breaks R62."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.gateways.operations import OperationState, SavepointDisposal
from runtime.highavailability.kv.key_value_store import Put
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import DisposalRecord, GraphRecord, Payload
from tests.kit.simulation.checkers import check
from tests.kit.simulation.disposal_checkers import SavepointsGoWhenTheyMay
from tests.kit.simulation.history import (
    DisposalAccepted,
    DisposalShown,
    QueryStarted,
    RestoreRefused,
    Restoring,
    SavepointSeen,
    SavepointTaken,
)
from tests.kit.simulation.past import JOB, KEYS, OTHER_JOB, Past, attempt, owner

PATH = "/savepoints/savepoint-222222-000000000001"
ID = "5" * 32
WISH = SavepointDisposal(ID, PATH, OperationState.IN_PROGRESS, 1)


@pytest.fixture
def past() -> Past:
    """A savepoint that somebody wants deleted."""
    made = Past()
    made.add("witness", SavepointSeen(OTHER_JOB, "6" * 32, PATH, (("views", 0, 1),)))
    write(made, "", OperationState.IN_PROGRESS)
    made.add("janitor", DisposalAccepted(ID))
    return made


def write(past: Past, job_id: str, state: OperationState) -> None:
    stored = encode_record(DisposalRecord(replace(WISH, job_id=job_id, state=state)))
    past.write("jm-1", Put(KEYS.disposal(ID), stored), conditions=())


def restore(past: Past, *, queries: int = 2) -> None:
    past.add("client", Restoring(JOB, PATH, queries))
    graph = GraphRecord(Payload("", b"{}", ""), "j", 0, "", savepoint=PATH)
    put = Put(KEYS.graph(JOB), encode_record(graph))
    past.epoch = past.write("jm-1", put, owner("master-1"), conditions=())


def begin(past: Past, subtask: int) -> None:
    past.add("tm-1", QueryStarted(attempt(subtask=subtask), f"{JOB}/views/{subtask}"))


def take(past: Past, by: JobId | None = None) -> None:
    past.add("tm-1", SavepointTaken(PATH, by))


def found(past: Past) -> list[str]:
    return [one.what for one in check(past.history, KEYS, (SavepointsGoWhenTheyMay,))]


def end(past: Past) -> None:
    write(past, OTHER_JOB, OperationState.COMPLETED)
    past.add("janitor", DisposalShown(ID, OperationState.COMPLETED))


def test_a_disposal_as_it_should_be(past: Past) -> None:
    restore(past)
    begin(past, 0)
    begin(past, 1)
    past.add("janitor", DisposalShown(ID, OperationState.IN_PROGRESS))
    write(past, OTHER_JOB, OperationState.IN_PROGRESS)
    take(past)
    past.add("client", RestoreRefused(JobId("9" * 32), PATH))
    end(past)
    assert not found(past)


def test_a_job_that_has_a_result_reads_nothing(past: Past) -> None:
    restore(past)
    past.finish(JobStatus.CANCELED)
    write(past, OTHER_JOB, OperationState.IN_PROGRESS)
    take(past)
    end(past)
    assert not found(past)


@pytest.mark.parametrize("begun", [0, 1])
def test_a_savepoint_in_use_goes(past: Past, begun: int) -> None:
    restore(past)
    for subtask in range(begun):
        begin(past, subtask)
    write(past, OTHER_JOB, OperationState.IN_PROGRESS)
    take(past)
    end(past)
    assert found(past) == [f"savepoint {PATH} is deleted, and {begun} of 2 queries of job {JOB} have begun"]


def test_a_savepoint_goes_before_it_is_stored_that_it_may(past: Past) -> None:
    take(past)
    write(past, OTHER_JOB, OperationState.IN_PROGRESS)
    end(past)
    assert found(past) == [f"savepoint {PATH} is deleted, and it is not stored that it may be"]


def test_a_claimed_savepoint_is_no_disposal(past: Past) -> None:
    take(past, JOB)
    write(past, "", OperationState.FAILED)
    past.add("janitor", DisposalShown(ID, OperationState.FAILED))
    assert not found(past)


def test_it_is_said_to_be_gone_and_is_there(past: Past) -> None:
    write(past, OTHER_JOB, OperationState.IN_PROGRESS)
    end(past)
    assert found(past) == [f"disposal {ID} of {PATH} is COMPLETED, and the savepoint is there"]


def test_an_outcome_changes(past: Past) -> None:
    write(past, "", OperationState.FAILED)
    past.add("janitor", DisposalShown(ID, OperationState.FAILED))
    write(past, OTHER_JOB, OperationState.IN_PROGRESS)
    write(past, OTHER_JOB, OperationState.FAILED)
    assert found(past) == [f"disposal {ID} of {PATH} was FAILED, and becomes IN_PROGRESS"]


def test_it_never_ends(past: Past) -> None:
    assert found(past) == [f"disposal {ID} of {PATH} has not ended"]


def test_what_clients_are_told(past: Past) -> None:
    past.add("janitor", DisposalShown(ID, None))
    past.add("janitor", DisposalShown(ID, OperationState.COMPLETED))
    past.add("client", RestoreRefused(JOB, PATH))
    write(past, "", OperationState.FAILED)
    past.add("janitor", DisposalAccepted("7" * 32))
    assert found(past)[:4] == [
        f"disposal {ID} was accepted, and is not known any more",
        f"disposal {ID} is shown as COMPLETED, and is IN_PROGRESS",
        f"job {JOB} is refused, and savepoint {PATH} stays",
        f"disposal {'7' * 32} is accepted, and is not durable",
    ]
