"""Which jobs a list shows: states, texts, orders and pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.gateways.dispatcher import JobSummary
from runtime.rest.bodies.job_selection import JobSelection, select
from tests.kit.rest.fakes import summary

NOW = 100_000
STATES = (JobStatus.RUNNING, JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CREATED)


def job(
    number: int, status: JobStatus = JobStatus.RUNNING, name: str = "daily", start: int = 0, end: int = -1
) -> JobSummary:
    one = summary(JobId(f"{number:032x}"), status)
    return replace(one, name=name, start_millis=start, end_millis=end)


def names(jobs: Sequence[JobSummary]) -> list[str]:
    return [one.name for one in jobs]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (JobSelection(), ["Load b", "load a", "clean", "late"]),
        (JobSelection(state="unfinished"), ["Load b", "late"]),
        (JobSelection(state="FAILED"), ["clean"]),
        (JobSelection(state="SUSPENDED"), []),
        (JobSelection(name="LOAD"), ["Load b", "load a"]),
        (JobSelection(name=f"{2:032x}"[:31]), ["Load b", "load a", "clean", "late"]),
        (JobSelection(name=f"{2:032x}"), ["load a"]),
        (JobSelection(sort="oldest"), ["late", "clean", "load a", "Load b"]),
        (JobSelection(sort="longest"), ["Load b", "clean", "load a", "late"]),
        (JobSelection(sort="name"), ["clean", "late", "load a", "Load b"]),
        (JobSelection(state="unfinished", name="load"), ["Load b"]),
        (JobSelection(label="type=USER"), ["clean"]),
        (JobSelection(label="USER"), ["clean"]),
        (JobSelection(label="type"), []),
        (JobSelection(label="USER", state="FINISHED"), []),
        (JobSelection(since=2, until=10), ["clean"]),
    ],
    ids=str,
)
def test_states_texts_and_orders(wanted: JobSelection, found: list[str]) -> None:
    jobs = [
        job(1, name="Load b", start=1),
        job(2, JobStatus.FINISHED, "load a", 10, 20),
        replace(job(3, JobStatus.FAILED, "clean", 5, 1000), failure="E", failure_labels=("team=a", "type=USER")),
        job(4, JobStatus.CREATED, "late", -1),
    ]
    assert names(select(jobs, wanted, NOW).jobs) == found


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"state": "running"}, "state=running: one of unfinished, INITIALIZING"),
        ({"sort": "up"}, "sort=up: one of newest, oldest, longest, name"),
        ({"after": "a"}, "give limit= too"),
    ],
)
def test_what_is_not_there_is_refused_by_name(wrong: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        JobSelection(**wrong)  # type: ignore[arg-type]


@given(st.lists(st.sampled_from(STATES), max_size=25), st.integers(1, 7), st.sampled_from(["", "oldest", "name"]))
def test_pages_one_after_the_other_are_the_whole_list(states: list[JobStatus], limit: int, sort: str) -> None:
    jobs = [job(number, status, f"job {number % 3}") for number, status in enumerate(states)]
    whole = select(jobs, JobSelection(sort=sort), NOW).jobs
    found: list[JobSummary] = []
    after = ""
    while True:
        page = select(jobs, JobSelection(sort=sort, limit=limit, after=after), NOW)
        assert page.total == len(jobs)
        found += page.jobs
        after = page.next
        if not after:
            break
    assert found == whole


def test_a_page_stays_where_it_is_while_new_jobs_come() -> None:
    jobs = [job(number) for number in range(6)]
    first = select(jobs, JobSelection(limit=2), NOW)
    second = select([job(9), *jobs], JobSelection(limit=2, after=first.next), NOW)
    assert second.jobs == jobs[2:4]
    gone = select(jobs[2:], JobSelection(limit=2, after=first.next), NOW)
    assert gone.jobs == jobs[2:4], "the job of the page before has left: it begins anew"
