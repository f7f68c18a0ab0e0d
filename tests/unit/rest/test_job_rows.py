"""Lists of many jobs: the bytes of each row, how often it is made, and how long a list keeps the loop."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.gateways.dispatcher import JobSummary, TaskCounts
from runtime.rest.answers import encoded
from runtime.rest.bodies.job_bodies import job_overview
from runtime.rest.bodies.job_rows import SLICE_ROWS, JobRows, changed_jobs, ids_and_states


def summary(number: int, status: JobStatus = JobStatus.RUNNING, **changes: Any) -> JobSummary:
    end = 1500 if status.is_globally_terminal else -1
    made = JobSummary(JobId(f"{number:032x}"), f"job {number}", status, 7, 1, 900, end, 1000, TaskCounts(running=1), "")
    return replace(made, **changes)


pytestmark = pytest.mark.asyncio

TELLING = [
    summary(1),
    summary(2, JobStatus.FINISHED),
    summary(3, start_millis=-1),
    summary(4, start_millis=5000),
    summary(5, name='","duration":0,"x":"', pending_reason='"duration":0,'),
    summary(6, name="ä \ud800 \\"),
    summary(7, JobStatus.FAILED, start_millis=-1),
    summary(8, JobStatus.FAILED, failure='KeyError: "a"', failure_labels=("team=shop=1", "type=USER")),
]


@pytest.mark.parametrize("now", [900, 901, 4000])
async def test_rows_are_the_bytes_of_the_body(now: int) -> None:
    jobs = [job_overview(one, now) for one in TELLING]
    rows = JobRows()
    await rows.overview(TELLING, now + 100)
    assert await rows.overview(TELLING, now) == encoded({"jobs": jobs})
    unknown = [JobId("f" * 32)]
    assert await changed_jobs(TELLING, unknown, now) == encoded({"jobs": jobs, "unknown": unknown})
    pairs = [{"id": one.job_id, "status": one.status.value} for one in TELLING]
    assert await ids_and_states(TELLING) == encoded({"jobs": pairs})


async def test_a_failed_job_has_its_cause_in_its_row() -> None:
    row = job_overview(TELLING[-1], 4000)
    assert row["failure"] == 'KeyError: "a"'
    assert row["failure-labels"] == {"team": "shop=1", "type": "USER"}
    assert "failure" not in job_overview(TELLING[1], 4000)


async def test_no_jobs() -> None:
    assert await JobRows().overview([], 0) == await ids_and_states([]) == b'{"jobs":[]}'
    assert await changed_jobs([], [], 0) == b'{"jobs":[],"unknown":[]}'


async def test_a_row_is_made_once_for_each_change() -> None:
    rows, jobs = JobRows(), [summary(number) for number in range(1000)]
    await rows.overview(jobs, 1000)
    assert rows.made == 1000
    await rows.overview(jobs, 2000)
    assert rows.made == 1000
    jobs[7] = replace(jobs[7], status=JobStatus.FINISHED, end_millis=1999)
    listed = json.loads(await rows.overview(jobs, 3000))["jobs"]
    assert rows.made == 1001
    assert (listed[7]["state"], listed[7]["duration"], listed[8]["duration"]) == ("FINISHED", 1099, 2100)


async def test_rows_of_jobs_that_are_not_shown_any_more_go() -> None:
    rows = JobRows()
    for round_ in range(20):
        await rows.overview([summary(100 * round_ + number) for number in range(100)], 1000)
    assert len(rows._rows) <= 2 * 100 + SLICE_ROWS + 100


async def test_others_have_their_turn_after_each_slice() -> None:
    """Counted, not timed: how often somebody else ran while the list was made."""
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(count_turns())
    await asyncio.sleep(0)
    await JobRows().overview([summary(number) for number in range(10 * SLICE_ROWS)], 1000)
    other.cancel()
    assert turns >= 9
