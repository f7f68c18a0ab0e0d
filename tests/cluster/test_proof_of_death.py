"""The leader proves deaths: of JobMaster processes at their address, of TaskManagers by their guard (R13)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.gateways.job_master import Heartbeat
from runtime.highavailability.leadership.registration import GuardedTaskManager, follow_guards
from runtime.highavailability.records import GuardRecord, TaskManagerRecord
from runtime.resourcemanager.deaths import DIAL_PATIENCE
from tests.kit.control_plane.led_jobs import ready, status
from tests.kit.control_plane.plane import ControlPlane, HollowTaskManager, Leader, Process, eventually

pytestmark = pytest.mark.asyncio

NEVER = 3600.0


@pytest_asyncio.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    """A world in which no silent process counts as lost."""
    made = ControlPlane(is_split=True)
    made.heartbeat_timeout = NEVER
    yield made
    await made.stop()


# --- JobMaster processes ----------------------------------------------------------------------------------------


async def running_jobs(plane: ControlPlane, leader: Leader, count: int) -> list[JobId]:
    jobs = [plane.new_job() for _ in range(count)]
    for job in jobs:
        await leader.dispatcher.submit_job(job)
    ids = [job.job_id for job in jobs]
    await eventually(lambda: all(status(leader, one) is JobStatus.RUNNING for one in ids), "all run")
    return ids


def owner_counts(leader: Leader, ids: list[JobId]) -> dict[Incarnation, int]:
    owners = [owner.incarnation for owner in map(leader.dispatcher.job_owner, ids) if owner is not None]
    return {one: owners.count(one) for one in owners}


async def test_the_jobs_of_a_dead_process_are_spread_at_once(plane: ControlPlane) -> None:
    leader = await plane.lead()
    first = await plane.start_job_master()
    await ready(leader, 1)
    await plane.start_task_manager(6)
    ids = await running_jobs(plane, leader, 6)
    others = [await plane.start_job_master() for _ in range(2)]
    await ready(leader, 3)
    await die(plane, first)
    await eventually(lambda: len(owner_counts(leader, ids)) == 2, "they have other owners", timeout=2.0)
    await eventually(lambda: sum(owner_counts(leader, ids).values()) == 6, "all of them")
    assert owner_counts(leader, ids) == {other.incarnation: 3 for other in others}
    assert first.incarnation not in plane.registered, "its lease is revoked"


async def die(plane: ControlPlane, process: Process) -> None:
    """SIGKILL: its lease lives on."""
    await process.rpc.die()
    plane.rpcs.remove(process.rpc)
    await plane.end(process.task)


async def test_a_process_whose_stream_breaks_keeps_its_jobs(plane: ControlPlane) -> None:
    leader = await plane.lead()
    process = await plane.start_job_master()
    await ready(leader, 1)
    await plane.start_task_manager(1)
    ids = await running_jobs(plane, leader, 1)
    stream = process.dispatcher._stream
    assert stream is not None
    stream.abort("broken")
    await eventually(lambda: process.dispatcher._stream not in {stream, None}, "it is back")
    await asyncio.sleep(0.5)
    assert owner_counts(leader, ids) == {process.incarnation: 1}
    assert len(plane.runners.created) == 1


async def test_a_new_leader_finds_a_process_dead_that_it_has_never_heard_of(plane: ControlPlane) -> None:
    leader = await plane.lead()
    process = await plane.start_job_master()
    await ready(leader, 1)
    await plane.depose(leader)
    await die(plane, process)
    leader = await plane.lead()
    await eventually(lambda: process.incarnation not in plane.registered, "it is found dead")
    assert leader.dispatcher.job_masters() == []


async def dialled_again(plane: ControlPlane, guard_address: str) -> None:
    """What an answer at that address has brought about is done: three more dials of it have ended."""
    seen = plane.dials[guard_address]
    await eventually(lambda: plane.dials[guard_address] >= seen + 3, "its guard is dialled", timeout=30.0)


# --- TaskManagers -----------------------------------------------------------------------------------------------


async def stored(plane: ControlPlane) -> dict[Incarnation, GuardedTaskManager]:
    async for found in follow_guards(plane.kv, plane.keys, timeout=5.0, entropy=plane.entropy):
        return dict(found)
    raise AssertionError


async def reached(plane: ControlPlane, task_manager: HollowTaskManager) -> None:
    """A leader has reached its guard, and the store knows."""
    async with asyncio.timeout(100):
        while (await stored(plane))[task_manager.incarnation].guard != GuardRecord(is_reached=True):
            await asyncio.sleep(0.005)


async def test_a_dead_task_manager_is_removed_once_its_guard_is_gone(plane: ControlPlane) -> None:
    leader = await plane.lead()
    dead, other = await plane.start_task_manager(2), await plane.start_task_manager(1)
    await eventually(lambda: leader.resource_manager.slot_counts() == (3, 3))
    await reached(plane, dead)
    await plane.kill_task_manager(dead)
    await dialled_again(plane, dead.guard_address)
    assert plane.dead == [], "its guard still has something to reap"
    del plane.guards[dead.guard_address]
    await eventually(lambda: bool(plane.dead), "it is found dead")
    assert plane.dead == [(dead.incarnation, "TaskManager tm on host 127.0.0.1: its process died")]
    assert set(await stored(plane)) == {other.incarnation}
    assert leader.resource_manager.slot_counts() == (1, 1), "its slots are gone too"


async def test_a_guard_is_dialled_back_as_soon_as_its_task_manager_registers(plane: ControlPlane) -> None:
    """Its key was there before: it is not waited for any more."""
    await plane.lead()
    task_manager = await plane.start_task_manager(1)
    async with asyncio.timeout(DIAL_PATIENCE / 2):
        await reached(plane, task_manager)


@pytest.mark.parametrize("answer", ["", f"{'e' * 32} boot\n", f"{'e' * 32} boot reaped\n"])
async def test_guards_that_were_killed_prove_nothing(plane: ControlPlane, answer: str) -> None:  # R30
    """No process listens at their address, or another one does."""
    await plane.lead()
    dead = await plane.start_task_manager(1)
    await reached(plane, dead)
    await plane.kill_task_manager(dead)
    if answer:
        plane.guards[dead.guard_address] = answer
    else:
        del plane.guards[dead.guard_address]
        plane.killed_guards.add(dead.guard_address)
    await dialled_again(plane, dead.guard_address)
    assert plane.dead == []
    assert set(await stored(plane)) == {dead.incarnation}
    await plane.registry.unregister(dead.incarnation)
    await eventually(lambda: bool(plane.dead), "the next start there has reaped what they left")


async def test_a_guard_that_nobody_has_reached_proves_nothing(plane: ControlPlane) -> None:
    leader = await plane.lead()
    plane.guards = _Deaf()
    dead = await plane.start_task_manager(1)
    await eventually(lambda: leader.resource_manager.slot_counts() == (1, 1))
    await plane.kill_task_manager(dead)
    await dialled_again(plane, dead.guard_address)
    assert plane.dead == []
    assert set(await stored(plane)) == {dead.incarnation}


class _Deaf(dict[str, str]):
    """A firewall before every guard."""

    def get(self, _address: object, _default: object = None) -> str:
        return "220 mail\n"


async def test_nothing_is_given_to_a_task_manager_before_its_guard_was_looked_for(plane: ControlPlane) -> None:
    leader = await plane.lead()
    plane.are_guards_held_up = True
    task_manager = await plane.start_task_manager(2)
    await asyncio.sleep(0.2)
    assert leader.resource_manager.slot_counts() == (0, 0)
    plane.are_guards_held_up = False

    def is_used() -> bool:
        assert task_manager.stream is not None
        task_manager.stream.send(Heartbeat(1))
        return leader.resource_manager.slot_counts() == (2, 2)

    await eventually(is_used)
    await reached(plane, task_manager)


async def test_one_that_dies_before_anything_was_given_to_it_loses_its_key(plane: ControlPlane) -> None:
    """Its guard was never reached, so nothing proves its death; but nothing of it can be running either."""
    plane.heartbeat_timeout = 0.5
    await plane.lead()
    plane.are_guards_held_up = True
    dead = await plane.start_task_manager(1)
    await plane.kill_task_manager(dead)
    del plane.guards[dead.guard_address]
    plane.are_guards_held_up = False
    await eventually(lambda: bool(plane.dead), "its key is removed")
    assert plane.dead == [(dead.incarnation, "TaskManager tm on host 127.0.0.1: it has ended")]
    assert await stored(plane) == {}


async def test_one_that_lives_and_does_not_come_keeps_its_key(plane: ControlPlane) -> None:
    plane.heartbeat_timeout = 0.2
    living = Incarnation("f" * 32)
    guard_address = plane.guard_of(living)
    await plane.registry.register(TaskManagerRecord(living, "tm", "host:1", guard_address, "boot", 1))
    await plane.lead()
    await dialled_again(plane, guard_address)
    assert set(await stored(plane)) == {living}
    plane.guards.clear()
    await eventually(lambda: bool(plane.dead), "its key is removed")


async def test_without_keys_the_leader_finds_the_dead_too(plane: ControlPlane) -> None:
    """high-availability.type: none."""
    leader = await plane.lead()
    plane.have_task_managers_keys = False
    dead = await plane.start_task_manager(1)
    await eventually(lambda: leader.resource_manager.slot_counts() == (1, 1))
    await plane.kill_task_manager(dead)
    del plane.guards[dead.guard_address]
    await eventually(lambda: bool(plane.dead), "it is found dead")
    assert plane.dead[0][0] == dead.incarnation
    assert leader.resource_manager.slot_counts() == (0, 0)


async def test_one_that_never_came_loses_its_key(plane: ControlPlane) -> None:
    plane.heartbeat_timeout = 0.5
    record = TaskManagerRecord(Incarnation("f" * 32), "tm", "host:1", "guard:1", "boot", 1)
    await plane.registry.register(record)
    await plane.lead()
    await eventually(lambda: bool(plane.dead), "its key is removed")
    assert await stored(plane) == {}


async def test_a_task_manager_that_is_only_cut_off_keeps_its_key(plane: ControlPlane) -> None:
    await plane.lead()
    cut_off = await plane.start_task_manager(1)
    await reached(plane, cut_off)
    assert cut_off.stream is not None
    cut_off.stream.abort("cut off")
    await dialled_again(plane, cut_off.guard_address)
    assert plane.dead == []
    assert set(await stored(plane)) == {cut_off.incarnation}


async def test_a_new_leader_believes_the_statement_of_a_guard_that_an_earlier_one_has_reached(
    plane: ControlPlane,
) -> None:
    leader = await plane.lead()
    dead = await plane.start_task_manager(1)
    await reached(plane, dead)
    await plane.depose(leader)
    await plane.kill_task_manager(dead)
    del plane.guards[dead.guard_address]
    await plane.lead()
    await eventually(lambda: bool(plane.dead), "it is found dead")
    assert await stored(plane) == {}


async def test_a_silent_one_with_an_open_stream_is_asked_too(plane: ControlPlane) -> None:
    """Its host has lost its connections without a word."""
    leader = await plane.lead()
    dead = await plane.start_task_manager(1)
    await eventually(lambda: leader.resource_manager.slot_counts() == (1, 1))
    await reached(plane, dead)
    del plane.guards[dead.guard_address]
    await eventually(lambda: bool(plane.dead), "it is found dead")
    assert dead.stream is not None
    await eventually(lambda: leader.resource_manager.slot_counts() == (0, 0))


async def test_one_that_has_ended_by_itself_is_gone_at_once(plane: ControlPlane) -> None:
    leader = await plane.lead()
    ended = await plane.start_task_manager(1)
    await eventually(lambda: leader.resource_manager.slot_counts() == (1, 1))
    await plane.registry.unregister(ended.incarnation)
    await eventually(lambda: plane.dead == [(ended.incarnation, "TaskManager tm on host 127.0.0.1: it has ended")])
    assert leader.resource_manager.slot_counts() == (0, 0)
