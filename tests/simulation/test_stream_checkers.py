"""Each checker of streaming queries refuses a history that breaks its rule, and streams happen in the simulation."""

from __future__ import annotations

import pytest

from runtime.aio.entropy import SeededEntropy
from runtime.common.ids import JobId
from runtime.gateways.checkpoints import QueryPosition
from runtime.highavailability.kv.conditions import absent
from runtime.highavailability.kv.key_value_store import Put
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import CheckpointRecord
from tests.kit.simulation.history import BatchCommitted, QueryStarted
from tests.kit.simulation.past import JOB, KEYS, VERTEX, Past, attempt
from tests.kit.simulation.queries import planned_streams
from tests.kit.simulation.seeds import planned_jobs

DIRECTORY = "named/team-a/orders/orders/0"


@pytest.fixture
def past() -> Past:
    made = Past()
    made.submit()
    return made


def begin(past: Past, number: int, directory: str = DIRECTORY, *, batches: int = 0, first: int = 0) -> None:
    past.start(attempt(number), slot=number)
    past.add("tm-1", QueryStarted(attempt(number), directory))
    for batch in range(first, first + batches):
        past.add("tm-1", BatchCommitted(attempt(number), directory, batch))


def record(past: Past, number: int, batch: int, *, called: int = 0) -> None:
    position = QueryPosition(VERTEX, 0, "orders", "query", batch)
    key = KEYS.checkpoint(JOB, number)
    value = encode_record(CheckpointRecord(called or number, 1, 2, (position,)))
    past.write("master-1", Put(key, value), conditions=(*past.owned, absent(key)))


def test_two_queries_on_one_directory(past: Past) -> None:
    begin(past, 0)
    begin(past, 1, f"{JOB}/another/0")
    assert "R59" not in past.violations()
    begin(past, 2)
    assert past.violations()["R59"] == [f"{attempt(2)} works on {DIRECTORY}, where {attempt(0)} still works"]


def test_one_query_after_the_other(past: Past) -> None:
    begin(past, 0)
    past.end(attempt(0), None)
    begin(past, 1)
    assert "R59" not in past.violations()


def test_a_batch_that_is_not_committed(past: Past) -> None:
    begin(past, 0, batches=2)
    record(past, 1, 1)
    assert "checkpoints" not in past.violations()
    record(past, 2, 2)
    (found,) = past.violations()["checkpoints"]
    assert found.endswith("tells batch 2 of orders 0, whose last committed one is 1")


def test_a_batch_that_an_earlier_job_of_the_same_name_committed(past: Past) -> None:
    past.add("tm-1", BatchCommitted(attempt(7), DIRECTORY, 4))
    begin(past, 0)
    record(past, 1, 4)
    assert "checkpoints" not in past.violations()
    record(past, 2, 5)
    (found,) = past.violations()["checkpoints"]
    assert found.endswith("tells batch 5 of orders 0, whose last committed one is 4")


def test_a_number_that_is_used_again(past: Past) -> None:
    begin(past, 0, batches=9)
    for number in (1, 3):
        record(past, number, number)
    assert "checkpoints" not in past.violations()
    record(past, 2, 4)
    record(past, 4, 4, called=5)
    assert past.violations()["checkpoints"] == [
        f"checkpoint 2 of job {JOB} is recorded as 2, after number 3",
        f"checkpoint 5 of job {JOB} is recorded as 4, after number 3",
    ]


def test_some_seeds_have_streams_and_no_other_job_is_drawn_in_another_way() -> None:
    entropies = [SeededEntropy(f"simulation/{seed}").child("jobs") for seed in range(1, 201)]
    planned = [list(planned_streams(one.child("streams"))) for one in entropies]
    having = [jobs for jobs in planned if jobs]
    assert 0.2 < len(having) / len(planned) < 0.4
    for jobs in having:
        assert [job.graph.checkpoint_name for job in jobs] == ["", "orders", "orders"]
        assert {job.job_id[0] for job in jobs[1:]} == {"a"}, "of one namespace"
        assert all(job.cancel_after is not None or job.programs[job.graph.vertices[0].id].batches for job in jobs)
    drawn = [planned_jobs(one) for one in entropies[:20]]
    for all_jobs, jobs in zip(drawn, planned, strict=False):
        streams: set[JobId] = {job.job_id for job in jobs}
        assert [job.job_id for job in all_jobs[len(all_jobs) - len(jobs) :]] == [job.job_id for job in jobs]
        assert not any(job.job_id in streams for job in all_jobs[: len(all_jobs) - len(jobs)])
