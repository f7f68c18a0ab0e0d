"""What becomes an event: processes that come and go, drains, jobs that move; and leaders that find it (D-114)."""

from __future__ import annotations

import asyncio

import pytest

from runtime.common.ids import Incarnation
from runtime.gateways.cluster_events import ClusterEvent, EventKind
from tests.kit.control_plane.led_jobs import ready
from tests.kit.control_plane.plane import ControlPlane, Leader, eventually

pytestmark = pytest.mark.asyncio


def told(leader: Leader, sees: str = "") -> list[ClusterEvent]:
    """What somebody of that namespace sees; "": of all."""
    page = leader.dispatcher.events.page(lambda one: not sees or one in {"", sees}, after="", limit=1000)
    return list(page.events)


def kinds(leader: Leader) -> list[EventKind]:
    return [one.kind for one in told(leader)]


async def test_a_job_that_loses_its_owner(split: ControlPlane) -> None:
    leader = await split.lead()
    first = await split.start_job_master()
    await ready(leader, 1)
    job = split.new_job()
    await leader.dispatcher.submit_job(job)
    await eventually(lambda: job.job_id in split.runners.by_job)
    second = await split.start_job_master()
    await ready(leader, 2)
    split.lose_process(first.incarnation)
    await eventually(lambda: EventKind.JOB_TAKEN_OVER in kinds(leader))
    registered, lost = EventKind.JOBMASTER_REGISTERED, EventKind.JOBMASTER_LOST
    assert kinds(leader) == [EventKind.LEADER_ELECTED, registered, registered, lost, EventKind.JOB_TAKEN_OVER]
    taken_over = told(leader)[-1]
    assert (taken_over.job_id, taken_over.namespace, taken_over.subject) == (
        job.job_id,
        "default",
        second.incarnation,
    )
    assert "was lost" in taken_over.message
    assert EventKind.JOB_TAKEN_OVER not in [one.kind for one in told(leader, "another")], "R48"


async def test_a_drain_is_told_once_and_so_is_its_end(split: ControlPlane) -> None:
    leader = await split.lead()
    process = await split.start_job_master()
    await ready(leader, 1)
    for is_draining in (True, False):
        await leader.dispatcher.drain_job_master(Incarnation(process.incarnation), is_draining=is_draining)
    drains = [one for one in kinds(leader) if one.axis == "drain"]
    assert drains == [EventKind.JOBMASTER_DRAINING, EventKind.JOBMASTER_UNDRAINED]


async def test_task_managers_come_and_die(split: ControlPlane) -> None:
    leader = await split.lead()
    await split.start_job_master()
    await ready(leader, 1)
    dead, other = await split.start_task_manager(2), await split.start_task_manager(1)
    other.is_draining = True
    await eventually(lambda: kinds(leader).count(EventKind.TASKMANAGER_REGISTERED) == 2)
    await eventually(lambda: leader.resource_manager.slot_counts() == (3, 3))
    await split.kill_task_manager(dead)
    del split.guards[dead.guard_address]
    await eventually(lambda: EventKind.TASKMANAGER_DEAD in kinds(leader))
    (death,) = [one for one in told(leader) if one.kind is EventKind.TASKMANAGER_DEAD]
    assert (death.subject, "its process died" in death.message) == (dead.incarnation, True)


async def test_the_next_leader_knows_the_events_and_repeats_none(split: ControlPlane) -> None:
    leader = await split.lead()
    await split.start_job_master()
    await ready(leader, 1)
    before = told(leader)
    assert [one.kind for one in before] == [EventKind.LEADER_ELECTED, EventKind.JOBMASTER_REGISTERED]
    async with asyncio.timeout(20):
        while (await split.kv.range(split.keys.cluster_events, is_prefix=True, timeout=5)).count < len(before):
            await asyncio.sleep(0.05)
    await split.depose(leader)
    second = await split.lead()
    await ready(second, 1)
    assert told(second)[:-1] == before, "the process that has registered anew was known"
    assert (told(second)[-1].kind, before[0].subject in told(second)[-1].message) == (EventKind.LEADER_ELECTED, True)
