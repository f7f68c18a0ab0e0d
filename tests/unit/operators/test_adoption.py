"""Which job a try goes on with: every combination of what is stored and what the cluster says."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinklike.operators.adoption import (
    Adopt,
    Decision,
    EndThenSubmit,
    Submit,
    TakeResult,
    TaskLife,
    decide,
)
from airflow_flinklike.task_instance.stored_job import StoredJob, parse_stored
from runtime.common.ids import JobId, parse_job_id
from runtime.common.states import JobStatus

JOB = JobId("a" * 32)
OBSERVED = [*JobStatus, None]

SAME_LIFE: dict[JobStatus | None, Decision] = {
    None: Submit(JOB),
    JobStatus.INITIALIZING: Adopt(JOB),
    JobStatus.CREATED: Adopt(JOB),
    JobStatus.RUNNING: Adopt(JOB),
    JobStatus.RESTARTING: Adopt(JOB),
    JobStatus.SUSPENDED: Adopt(JOB),
    JobStatus.RECONCILING: Adopt(JOB),
    JobStatus.FAILING: EndThenSubmit(JOB, is_cleared=False),
    JobStatus.CANCELLING: EndThenSubmit(JOB, is_cleared=False),
    JobStatus.FAILED: Submit(),
    JobStatus.CANCELED: Submit(),
    JobStatus.FINISHED: TakeResult(JOB),
}
NEW_LIFE: dict[JobStatus | None, Decision] = {
    state: Submit() if state is None or state.is_globally_terminal else EndThenSubmit(JOB, is_cleared=True)
    for state in OBSERVED
}


@pytest.mark.parametrize("observed", OBSERVED)
def test_a_retry(observed: JobStatus | None) -> None:
    assert decide(StoredJob(JOB, 2), observed, 2) == SAME_LIFE[observed]


@pytest.mark.parametrize("observed", OBSERVED)
@pytest.mark.parametrize("stored_tries", [1, 3, 0, -1, None])
def test_a_try_after_a_clear(observed: JobStatus | None, stored_tries: int | None) -> None:
    assert decide(StoredJob(JOB, stored_tries), observed, 2) == NEW_LIFE[observed]


@pytest.mark.parametrize("observed", OBSERVED)
def test_a_run_that_was_started_again_is_another_life(observed: JobStatus | None) -> None:
    """A clear whose author has lowered `retries` may leave `max_tries` as it was."""
    assert decide(StoredJob(JOB, 2, "1.5"), observed, 2, "1.6") == NEW_LIFE[observed]
    for stored, now in (("1.5", "1.5"), ("", "1.5"), ("1.5", "")):
        assert decide(StoredJob(JOB, 2, stored), observed, 2, now) == SAME_LIFE[observed]


@pytest.mark.parametrize("observed", OBSERVED)
def test_nothing_stored(observed: JobStatus | None) -> None:
    assert decide(None, observed, 2) == Submit()


@given(st.sampled_from(OBSERVED), st.integers(-1, 9) | st.none(), st.integers(0, 9))
def test_no_two_jobs_at_once(observed: JobStatus | None, stored_tries: int | None, max_tries: int) -> None:
    """A new id is chosen only when the stored job has ended, or the cluster never got that job."""
    if decide(StoredJob(JOB, stored_tries), observed, max_tries) == Submit():
        assert observed is None or observed.is_globally_terminal


@given(st.sampled_from(OBSERVED), st.integers(-1, 9), st.integers(0, 9))
def test_a_cleared_task_never_takes_the_old_id(observed: JobStatus | None, before: int, now: int) -> None:
    """The old trigger's cancellation may still be under way."""
    decision = decide(StoredJob(JOB, before), observed, now)
    if before != now:
        assert isinstance(decision, Submit | EndThenSubmit)
        assert decision != Submit(JOB)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ({"job_id": JOB, "max_tries": 2}, StoredJob(JOB, 2)),
        ({"job_id": JOB, "max_tries": 2, "of a later version": 1}, StoredJob(JOB, 2)),
        (json.dumps({"job_id": JOB, "max_tries": 2}), StoredJob(JOB, 2)),
        ({"job_id": JOB, "max_tries": 2, "run_started": "1.5"}, StoredJob(JOB, 2, "1.5")),
        ({"job_id": JOB, "max_tries": 2, "run_started": 1.5}, StoredJob(JOB, 2)),
        ({"job_id": JOB}, StoredJob(JOB, None)),
        (
            {"job_id": JOB, "conn_id": "c", "cancel_on_kill": False},
            StoredJob(JOB, None, conn_id="c", cancel_on_kill=False),
        ),
        ({"job_id": JOB, "conn_id": 5, "cancel_on_kill": "no"}, StoredJob(JOB, None)),
        ({"job_id": JOB, "outlives_task": True}, StoredJob(JOB, None, outlives_task=True)),
        ({"job_id": JOB, "outlives_task": 1}, StoredJob(JOB, None)),
        ({"job_id": JOB, "max_tries": "2"}, StoredJob(JOB, None)),
        ({"job_id": JOB, "max_tries": True}, StoredJob(JOB, None)),
        ({"job_id": JOB, "max_tries": 2.0}, StoredJob(JOB, None)),
        ({"job_id": JOB, "max_tries": [2]}, StoredJob(JOB, None)),
    ],
)
def test_what_is_read(value: Any, stored: StoredJob) -> None:
    assert parse_stored(value) == stored


@pytest.mark.parametrize(
    "value",
    [
        *(None, "", "no JSON", "{", "[]", "1", "null", 0, 1.5, True, [], [JOB], JOB, {}, {"max_tries": 2}),
        *({"job_id": None}, {"job_id": ""}, {"job_id": 7}, {"job_id": [JOB]}, {"job_id": {"job_id": JOB}}),
        *({"job_id": "A" * 32}, {"job_id": "a" * 31}, {"job_id": f" {JOB}"}, {"job_id": f"{JOB}/../x"}),
    ],
)
def test_what_names_no_job(value: Any) -> None:
    assert parse_stored(value) is None


LIFE = TaskLife("dag", "run", "task", -1, "1.5", 2)


def test_every_try_of_every_life_of_every_task_has_an_id_of_its_own() -> None:
    lives = [
        LIFE,
        replace(LIFE, dag_id="other"),
        replace(LIFE, run_id="other"),
        replace(LIFE, task_id="other"),
        replace(LIFE, run_started="1.6"),
        *(replace(LIFE, map_index=index) for index in (0, 1)),
        *(replace(LIFE, max_tries=tries) for tries in (3, 4)),
    ]
    ids = [life.job_id_of(number) for life in lives for number in (1, 2, 3)]
    assert len(set(ids)) == len(ids)
    assert all(parse_job_id(one) == one for one in ids)


def test_the_ids_never_change() -> None:
    """Tries under way have chosen their ids with an earlier version."""
    assert LIFE.job_id_of(1) == "19110666cf38764d7cb56829a7875c5d"


def ids(try_number: int, *, has_lives_before: bool = False) -> list[JobId]:
    return [one.job_id for one in LIFE.earlier_jobs(try_number, has_lives_before=has_lives_before)]


def test_earlier_jobs_are_looked_at_from_the_newest_on() -> None:
    assert ids(1) == []
    assert ids(3) == [LIFE.job_id_of(2), LIFE.job_id_of(1)]
    assert len(ids(1000)) == 500


def test_without_a_store_the_jobs_of_lives_that_a_clear_has_ended_are_looked_at_too() -> None:
    found = list(LIFE.earlier_jobs(2, has_lives_before=True))
    before = [replace(LIFE, max_tries=tries) for tries in (1, 0)]
    assert [one.job_id for one in found] == [LIFE.job_id_of(1), *(life.job_id_of(1) for life in before)]
    assert [one.is_of(LIFE.max_tries, LIFE.run_started) for one in found] == [True, False, False]
    assert len(list(replace(LIFE, max_tries=5000).earlier_jobs(5000, has_lives_before=True))) == 1000


def test_each_ended_job_of_a_life_has_one_successor() -> None:
    """A try whose submit is still under way when its worker has died, and the try after it, choose one id."""
    assert LIFE.id_after(None, 3) == LIFE.job_id_of(1)
    assert LIFE.id_after(LIFE.job_id_of(1), 3) == LIFE.job_id_of(2)
    assert LIFE.id_after(LIFE.job_id_of(3), 3) == LIFE.job_id_of(4)
    assert LIFE.id_after(JOB, 3) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["job_id", "max_tries", "run_started"]) | st.text(), inner)
    ),
    max_leaves=8,
)


@given(JSON)
def test_nothing_that_can_be_stored_breaks_it(value: Any) -> None:
    for form in (value, json.dumps(value)):
        stored = parse_stored(form)
        assert stored is None or parse_stored(stored.to_json()) == stored
