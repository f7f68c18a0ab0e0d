"""SlotSessions: an attempt is a user of its Spark environment once, however it and its environment end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runtime.aio.scope import ServiceScope
from runtime.aio.watch import Watch
from runtime.common.errors import UnavailableError
from runtime.common.spark_environments import EnvironmentSpec
from runtime.taskexecutor.slots.sessions import SlotSessions
from runtime.taskexecutor.slots.slot_handle import Attachment, SlotProcessState
from runtime.taskexecutor.slots.work import ONE_SLOT, SlotSettings
from runtime.taskexecutor.spark.environment import SparkLostError
from runtime.taskexecutor.spark.environment_room import Lease

SPEC = EnvironmentSpec("a" * 16, {"spark.x": "y"}, 1, 1)


class World:
    """Environments that are lost, or away, before they have opened the session that is asked for."""

    def __init__(self, problem: Exception, ended: SlotProcessState) -> None:
        self.problem = problem
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.users = self.claims = 0
        self.is_ready = True
        self.process = SimpleNamespace(
            attachment=Watch(Attachment.NONE), environment_key="", environment=None, lease=None, is_user=False,
            acquiring=None, exit=Watch(None), state=ended, room=ONE_SLOT, refuse_spark=lambda *_, **__: None,
        )  # fmt: skip

    async def acquire(self, *_: Any) -> Any:
        self.claims += 1
        self.users += 1
        return self, Lease("a" * 16, self.claims)

    def is_living(self, _: Lease) -> bool:
        return True

    def release(self, _: Lease) -> None:
        self.users -= 1
        assert self.users >= 0

    async def open_session(self, _: int, _shares: int = 1) -> Any:
        self.is_asked.set()
        await self.may_answer.wait()
        raise self.problem


@pytest.mark.asyncio
@pytest.mark.parametrize("problem", [SparkLostError("the JVM ended"), UnavailableError("away")], ids=["lost", "away"])
@pytest.mark.parametrize("state", [SlotProcessState.RUNNING, SlotProcessState.IDLE], ids=["runs", "has ended"])
async def test_it_is_given_back_once(problem: Exception, state: SlotProcessState) -> None:
    world, scope = World(problem, state), ServiceScope("slots")
    await scope.open()
    sessions = SlotSessions(SlotSettings(1, "tm"), None, cast("Any", world), scope)
    sessions.give(0, cast("Any", world.process), SPEC)
    await world.is_asked.wait()
    sessions.release(cast("Any", world.process))  # its attempt ends
    assert world.users == 0
    world.may_answer.set()
    async with asyncio.timeout(60):
        while world.users or world.claims < (3 if isinstance(problem, SparkLostError) else 1):
            await asyncio.sleep(0)
    await scope.close()
    assert world.users == 0
