"""Queues and priorities are stored with the jobs: a later leader serves them by the same ones (R64)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.common.ids import JobId
from tests.kit.control_plane.plane import ControlPlane, Leader, eventually

pytestmark = pytest.mark.asyncio


def order(leader: Leader) -> list[JobId]:
    """The jobs that wait for a slot, queue by queue."""
    return list(leader.resource_manager._slots._queues)


@pytest.mark.parametrize("is_split", [False, True])
async def test_the_next_leader_serves_jobs_by_the_same_queues_and_priorities(is_split: bool) -> None:
    plane = ControlPlane(is_split=is_split)
    try:
        first = await plane.lead()
        if is_split:
            await plane.start_job_master()
        made = [("reports", 0), ("etl", 1), ("etl", 9), ("etl", -5)]
        jobs = [replace(plane.new_job(), queue=queue, priority=priority) for queue, priority in made]
        for one in jobs:
            await first.dispatcher.submit_job(one)
        other, middle, high, low = (one.job_id for one in jobs)

        def are_in_order(leader: Leader) -> bool:
            found = order(leader)
            return len(found) == 4 and [one for one in found if one != other] == [high, middle, low]

        await eventually(lambda: are_in_order(first), "the higher priority is first")
        await plane.depose(first)
        second = await plane.lead()
        await eventually(lambda: are_in_order(second), "under the next leader too")
        there = {one.name: one.waiting_jobs for one in second.resource_manager.queues()}
        assert there == {"etl": 3, "reports": 1}
        summary = second.dispatcher.job_summary(high)
        assert summary is not None
        assert (summary.queue, summary.priority) == ("etl", 9)
    finally:
        await plane.stop()
