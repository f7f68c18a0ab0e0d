"""The simulated cluster itself: it really works, and what is done to its processes really happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from runtime.common.errors import UnavailableError
from runtime.common.ids import JobId
from runtime.common.states import ExecutionState, JobStatus
from runtime.gateways.dispatcher import JobMasterRegistered
from runtime.highavailability.record_codec import decode_record
from runtime.highavailability.records import OwnerRecord
from tests.kit.control_plane.job_graphs import diamond, lone
from tests.kit.simulation.checkers import ALWAYS, check
from tests.kit.simulation.clients import PlannedJob, Status
from tests.kit.simulation.etcd import HOST
from tests.kit.simulation.history import AttemptEnded, AttemptStarted, Expired, Received, Shown
from tests.kit.simulation.processes import SimulatedLoop
from tests.kit.simulation.reruns import NothingRunsTwice
from tests.kit.simulation.seeds import keep, on_virtual_time
from tests.kit.simulation.slots import GUARD_DELAY
from tests.kit.simulation.user_code import UserCode
from tests.kit.simulation.world import Shape, World, until

Scenario = Callable[[World], Awaitable[None]]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def live(run: Path, scenario: Scenario, shape: Shape | None = None) -> World:
    """A world that is up, in calm weather."""

    async def main(loop: SimulatedLoop) -> World:
        world = keep(World(loop, "test", run, shape or Shape()))
        world.start()
        assert await until(lambda: all(map(world.is_ready, world.names[1:])), within=10.0)
        await scenario(world)
        return world

    return on_virtual_time(main)


def planned(world: World, seconds: float, *, number: int = 1, at: float = 0.0) -> JobId:
    job_id = JobId(f"{number:032x}")
    graph = lone()
    code = UserCode(seconds, seconds)
    world.plan(PlannedJob(job_id, graph, {one.id: code for one in graph.vertices}, at))
    return job_id


def attempts(world: World) -> list[tuple[float, AttemptStarted | AttemptEnded]]:
    records = world.history.records
    return [(one.at, one.what) for one in records if isinstance(one.what, AttemptStarted | AttemptEnded)]


async def running(world: World) -> None:
    assert await until(lambda: bool(attempts(world)), within=10.0)


def test_jobs_run_to_their_end(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        for number in range(4):
            graph = diamond()
            programs = {one.id: UserCode(0.1, 2.0) for one in graph.vertices}
            world.plan(PlannedJob(JobId(f"{number:032x}"), graph, programs, number * 0.5))
        assert await until(lambda: not world.unfinished, within=60.0)

    world = live(tmp_path, scenario)
    assert [client.ended for client in world.clients] == [JobStatus.FINISHED] * 4
    assert not world.failures
    assert not check(world.history, world.keys, (*ALWAYS, NothingRunsTwice))


def test_a_leader_whose_lease_is_ended_by_others_does_not_deny_what_its_successor_has(tmp_path: Path) -> None:
    """It hears of its successor long before its next renewal."""

    async def scenario(world: World) -> None:
        name = world.leader()
        assert name is not None
        asker = world.processes[HOST]
        for kv in world.etcd_state.everything(world.keys.leaders):
            if f'"{name}:'.encode() in kv.value:
                world.etcd_state.end_lease(kv.lease)
        await asyncio.sleep(0.1)
        assert world.leader() != name
        asked = asker.start(
            "ask", world.network.request(asker, f"{name}:8081", Status(JobId("1" * 32), 0.0), timeout=60.0)
        )
        await asyncio.wait({asked})
        assert isinstance(asked.result(), UnavailableError)

    live(tmp_path, scenario)


def test_a_killed_leader_is_replaced_and_the_tasks_go_on(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        planned(world, 20.0)
        await running(world)
        leader = world.leader()
        assert leader is not None
        world.crash(leader)
        assert await until(lambda: world.leader() not in {None, leader}, within=7.0)
        assert await until(lambda: not world.unfinished, within=60.0)

    world = live(tmp_path, scenario)
    assert [client.ended for client in world.clients] == [JobStatus.FINISHED]
    assert len(attempts(world)) == 2


def test_a_frozen_leader_loses_its_lease_and_learns_of_it(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        leader = world.leader()
        assert leader is not None
        world.freeze(leader)
        assert await until(lambda: world.leader() not in {None, leader}, within=7.0)
        world.thaw(leader)
        planned(world, 1.0)
        assert await until(lambda: not world.unfinished, within=60.0)
        world.crash(world.leader() or "")
        assert await until(lambda: world.leader() == leader, within=15.0), "it stood again"

    live(tmp_path, scenario)


def test_a_leader_whose_loop_stands_still_leads_on_for_a_bounded_time(tmp_path: Path) -> None:  # R40
    async def scenario(world: World) -> None:
        leader = world.leader()
        assert leader is not None
        world.freeze(leader, is_stuck=True)
        await asyncio.sleep(12.0)
        assert world.leader() == leader
        world.thaw(leader)
        planned(world, 1.0)
        assert await until(lambda: not world.unfinished, within=20.0)
        assert world.leader() == leader
        world.freeze(leader, is_stuck=True)
        assert await until(lambda: world.leader() not in {None, leader}, within=21.0)
        world.thaw(leader)
        planned(world, 1.0, number=2)
        assert await until(lambda: not world.unfinished, within=60.0)

    live(tmp_path, scenario)


def test_a_job_master_whose_loop_stands_still_loses_its_jobs_to_who_is_heard(tmp_path: Path) -> None:  # R8, R40
    async def scenario(world: World) -> None:
        job_id = planned(world, 40.0)
        await running(world)
        owner = owner_of(world, job_id)
        world.freeze(owner, is_stuck=True)
        assert await until(lambda: owner_of(world, job_id) != owner, within=20.0)
        world.thaw(owner)
        assert await until(lambda: not world.unfinished, within=90.0)

    world = live(tmp_path, scenario)
    assert [client.ended for client in world.clients] == [JobStatus.FINISHED]
    assert len([what for _, what in attempts(world) if isinstance(what, AttemptStarted)]) == 1


def test_a_killed_task_manager_loses_its_slots_to_the_guard(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        planned(world, 1000.0)
        await running(world)
        world.crash("tm-1")
        await asyncio.sleep(0.0005)
        assert len(world.machine("tm-1").alive) == 1, "the guard needs a moment"
        await asyncio.sleep(GUARD_DELAY)
        assert not world.machine("tm-1").alive
        world.start_process("tm-1")
        assert await until(lambda: world.is_ready("tm-1"), within=10.0), "at the same address"

    world = live(tmp_path, scenario, Shape(task_managers=1))
    (ended,) = [what for _, what in attempts(world) if isinstance(what, AttemptEnded)]
    assert ended.state is None


def test_a_task_manager_that_does_not_stop_in_time_keeps_its_key_until_all_is_reaped(tmp_path: Path) -> None:  # R13
    async def scenario(world: World) -> None:
        planned(world, 1000.0)
        await running(world)
        machine = world.machine("tm-1")
        machine.cancel_max = 1000.0
        before = task_manager_keys(world)
        world.stop_at_once("tm-1")
        async with asyncio.timeout(60):
            while machine.alive:
                assert before <= task_manager_keys(world), "its key is gone, and its task runs"
                await asyncio.sleep(0.01)
        said = "its guard has said so, or the next life"
        assert await until(lambda: not before & task_manager_keys(world), within=20.0), said

    live(tmp_path, scenario, Shape(task_managers=1))


def task_manager_keys(world: World) -> set[str]:
    prefix = world.keys.task_managers
    return {kv.key for kv in world.etcd_state.everything(prefix) if "/" not in kv.key.removeprefix(prefix)}


def test_slots_go_on_while_their_task_manager_is_frozen(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        planned(world, 2.0)
        await running(world)
        world.freeze("tm-1")
        await asyncio.sleep(4.0)
        (_, ended) = attempts(world)[-1]
        assert isinstance(ended, AttemptEnded)
        assert ended.state is ExecutionState.FINISHED
        assert world.unfinished, "its report waits"
        world.thaw("tm-1")
        assert await until(lambda: not world.unfinished, within=10.0)

    world = live(tmp_path, scenario, Shape(task_managers=1))
    assert [client.ended for client in world.clients] == [JobStatus.FINISHED]


def test_a_killed_job_master_leaves_its_tasks_running(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        planned(world, 1000.0)
        await running(world)
        world.crash("master-1")
        await asyncio.sleep(5.0)
        assert len(world.machine("tm-1").alive) == 1
        assert not world.network.link("tm-1", "master-1").blocked_since

    live(tmp_path, scenario, Shape(job_masters=1, task_managers=1))


def test_job_masters_that_listen_no_more_for_a_while_cost_no_task(tmp_path: Path) -> None:
    """They live, and their addresses refuse as those of dead processes do: their jobs have other owners meanwhile."""

    async def scenario(world: World) -> None:
        for number in range(4):
            planned(world, 20.0, number=number)
        assert await until(lambda: len(attempts(world)) == 4, within=10.0)
        for name in world.job_masters:
            world.deafen(name, 4.0)
            await asyncio.sleep(6.0)
        assert await until(lambda: not world.unfinished, within=60.0)

    world = live(tmp_path, scenario)
    assert [client.ended for client in world.clients] == [JobStatus.FINISHED] * 4
    assert len(attempts(world)) == 8
    assert not world.failures
    assert not check(world.history, world.keys, (*ALWAYS, NothingRunsTwice))


def test_a_partition_of_one_direction_is_noticed_as_silence(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        leader = world.leader()
        assert leader is not None
        world.partition("tm-1", leader)
        planned(world, 1.0, at=15.0)
        await asyncio.sleep(30.0)
        assert world.unfinished, "no TaskManager can be heard"
        world.heal("tm-1", leader)
        assert await until(lambda: not world.unfinished, within=30.0)

    live(tmp_path, scenario, Shape(task_managers=1))


def cut_off(world: World, one: str, other: str) -> None:
    """In both directions, for good."""
    world.partition(one, other)
    world.partition(other, one)


def owner_of(world: World, job_id: JobId) -> str:
    """Its process, by name."""
    [kv] = world.etcd_state.everything(world.keys.owner(job_id))
    return decode_record(OwnerRecord, kv.value, key=kv.key).address.partition(":")[0]


def test_jobs_of_a_process_that_the_leader_cannot_reach_get_another_owner(tmp_path: Path) -> None:  # R8
    async def scenario(world: World) -> None:
        job_id = planned(world, 60.0)
        await running(world)
        leader, first = world.leader(), owner_of(world, job_id)
        assert leader is not None
        cut_off(world, leader, first)
        assert await until(lambda: owner_of(world, job_id) != first, within=30.0), "its lease lives on"

    live(tmp_path, scenario)


def test_jobs_whose_owner_cannot_reach_the_task_manager_get_another_owner(tmp_path: Path) -> None:  # R7
    """Nothing ran yet: the TaskManager itself says that it cannot offer its slots."""

    async def scenario(world: World) -> None:
        cut_off(world, "tm-1", "master-1")
        for number in (1, 2):
            planned(world, 1.0, number=number)
        assert await until(lambda: not world.unfinished, within=40.0)

    world = live(tmp_path, scenario, Shape(task_managers=1))
    assert [client.ended for client in world.clients] == [JobStatus.FINISHED] * 2
    assert len({what.attempt_id for _, what in attempts(world)}) == 2
    assert not check(world.history, world.keys, ALWAYS)


def test_what_an_owner_lost_sight_of_runs_again_under_another_one(tmp_path: Path) -> None:  # R7
    async def scenario(world: World) -> None:
        for number in (1, 2):
            planned(world, 25.0, number=number)
        assert await until(lambda: len(attempts(world)) == 2, within=10.0)
        cut_off(world, "tm-1", "master-1")
        assert await until(lambda: not world.unfinished, within=90.0)

    world = live(tmp_path, scenario, Shape(task_managers=1))
    assert [client.ended for client in world.clients] == [JobStatus.FINISHED] * 2
    started = [what.attempt_id for _, what in attempts(world) if isinstance(what, AttemptStarted)]
    assert len(started) == 3, "one of them did not notice"
    assert not check(world.history, world.keys, ALWAYS)


def test_without_etcd_nothing_is_acknowledged(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.crash(HOST)
        planned(world, 1.0)
        await asyncio.sleep(2.0)
        assert not world.clients[0].is_acknowledged
        world.start_process(HOST)
        assert await until(lambda: not world.unfinished, within=30.0)

    live(tmp_path, scenario)


def test_user_code_that_fails_fails_its_job(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        graph = lone()
        world.plan(PlannedJob(JobId("1" * 32), graph, {graph.vertices[0].id: UserCode(fails=True)}, 0.0))
        assert await until(lambda: not world.unfinished, within=30.0)

    world = live(tmp_path, scenario)
    assert [record.what.status for record in world.history.records if isinstance(record.what, Shown)][
        -1
    ] is JobStatus.FAILED


def test_a_cancelled_job_stops_its_code(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        graph = lone()
        programs = {graph.vertices[0].id: UserCode(1000.0, 1000.0)}
        world.plan(PlannedJob(JobId("1" * 32), graph, programs, 0.0, cancel_after=3.0))
        assert await until(lambda: not world.unfinished, within=30.0)

    world = live(tmp_path, scenario)
    assert [client.ended for client in world.clients] == [JobStatus.CANCELED]
    assert [what.state for _, what in attempts(world) if isinstance(what, AttemptEnded)] == [ExecutionState.CANCELED]


def received(world: World, kind: type, *, after: float) -> list[tuple[float, str]]:
    """When, and by whom, messages of a kind were received."""
    records = world.history.records
    return [
        (record.at, record.process)
        for record in records
        if isinstance(record.what, Received) and isinstance(record.what.message, kind) and record.at > after
    ]


def test_a_job_master_leaves_a_frozen_leader_as_soon_as_another_one_leads(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        leader = world.leader()
        assert leader is not None
        started = world.loop.time()
        world.network.break_wires("master-1", leader, "a test")
        world.freeze(leader)
        assert await until(lambda: world.leader() not in {None, leader}, within=7.0)
        elected = world.loop.time()
        await asyncio.sleep(2.0)
        registered = received(world, JobMasterRegistered, after=started)
        assert [process for _, process in registered] == ["master-1"], "it was dialling the frozen one"
        assert registered[0][0] - elected < 1.0

    live(tmp_path, scenario, Shape(job_masters=1))


def test_a_job_master_is_not_silent_while_its_storage_is_slow(tmp_path: Path) -> None:  # R8, R20
    async def scenario(world: World) -> None:
        leader, started = world.leader(), world.loop.time()
        assert leader is not None
        world.loop.storage_delay = lambda _: 2.0
        world.crash(leader)
        assert await until(lambda: bool(received(world, JobMasterRegistered, after=started)), within=40.0)
        lost = [
            event.kv.key
            for record in world.history.records
            if isinstance(record.what, Expired)
            for event in record.what.events
            if event.kv.key.startswith(world.keys.job_masters)
        ]
        assert not lost

    live(tmp_path, scenario, Shape(job_masters=1))
