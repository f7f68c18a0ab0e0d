"""DispatcherRunner: which term may answer clients, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.aio.scope import Scope
from runtime.common.ids import ClusterUuid, Incarnation
from runtime.dispatcher.leader_process import DispatcherLeaderProcess, TermComponents
from runtime.dispatcher.runner import DispatcherRunner
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.lease import LeaseSettings
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.leadership.election import LeaderElection, LeadershipEpoch
from runtime.highavailability.records import LeaderRecord
from tests.kit.control_plane.virtual_time import freeze, run_virtual


class Term:
    """A DispatcherLeaderProcess that has recovered at once."""

    async def run(self, started: Callable[[TermComponents], None]) -> None:
        started(TermComponents(cast("Any", object()), cast("Any", object())))
        await asyncio.get_running_loop().create_future()


def create(_epoch: LeadershipEpoch) -> DispatcherLeaderProcess:
    return cast("DispatcherLeaderProcess", Term())


async def prepare() -> None:
    """Nothing."""


def election_of(clock: LoopClock) -> LeaderElection:
    return LeaderElection(
        MemoryKeyValueStore(clock),
        Keys.of_cluster("test"),
        ClusterUuid("c" * 32),
        LeaderRecord(Incarnation("1" * 32), "host:1", "rest:1"),
        LeaseSettings(ttl=5, timeout=3.0),
        clock,
        SeededEntropy(1),
    )


def test_a_frozen_leader_answers_nobody_from_its_first_instant_on() -> None:  # R4
    async def scenario() -> None:
        election = election_of(LoopClock())
        runner = DispatcherRunner(election, create, prepare)
        async with Scope("test") as scope:
            scope.spawn("runner", runner.run())
            first = await runner.leading.wait_until(lambda term: term is not None)
            assert runner.serving is first
            freeze(6.0)
            assert runner.leading.value is first, "no callback has run since the freeze"
            assert runner.serving is None
            second = await runner.leading.wait_until(lambda term: term not in {None, first})
            assert runner.serving is second
            scope.cancel_all()

    run_virtual(scenario())


def test_a_term_begins_when_what_the_one_before_has_promised_is_known() -> None:  # R48
    async def scenario() -> None:
        clock, may_begin = LoopClock(), asyncio.Event()

        async def catches_up() -> None:
            await may_begin.wait()

        runner = DispatcherRunner(election_of(clock), create, catches_up)
        async with Scope("test") as scope:
            scope.spawn("runner", runner.run())
            await asyncio.sleep(60.0)
            assert runner.leading.value is None
            may_begin.set()
            assert await runner.leading.wait_until(lambda term: term is not None) is not None
            scope.cancel_all()

    run_virtual(scenario())
