"""Looks into attempts: one look at the stacks for all who ask, and a bound and one deadline for what Spark does."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.aio.clock import SystemClock
from runtime.aio.scope import Scope
from runtime.common.errors import UnavailableError
from runtime.common.ids import ExecutionAttemptId
from runtime.gateways.spark_work import work_of
from runtime.taskexecutor.slots import attempt_views
from runtime.taskexecutor.slots.attempt_views import AttemptViews
from runtime.taskexecutor.spark.spark_answers import WorkAsked

FIRST, OTHER = (ExecutionAttemptId.parse(f"{'a' * 32}_{1:032x}_{subtask}_0_0") for subtask in (0, 1))


class Process:
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.looks = 0

    async def stacks(self) -> str:
        self.looks += 1
        await asyncio.sleep(0.01)
        return ""


@pytest.mark.asyncio
async def test_two_who_ask_at_once_for_one_attempt_get_one_look() -> None:
    processes = {FIRST: Process(), OTHER: Process()}
    running: Any = [SimpleNamespace(attempt_id=one, process=process) for one, process in processes.items()]
    views = AttemptViews(lambda: running, SystemClock())
    async with Scope("test") as scope:
        asked = [scope.start("look", views.stacks(FIRST, 3)) for _ in range(2)]
        await asyncio.sleep(0.01)
        with pytest.raises(UnavailableError, match="of another attempt"):
            await views.stacks(OTHER, 3)
        first, second = [await one for one in asked]
    assert first is second
    assert processes[FIRST].looks == 3
    assert processes[OTHER].looks == 0


class Environment:
    """A JVM that takes `seconds` for each question, and does not answer those of `silent` sessions."""

    def __init__(self, seconds: float, silent: frozenset[str] = frozenset()) -> None:
        self._seconds = seconds
        self._silent = silent
        self.at_once = self.at_once_max = 0

    async def work(self, asked: WorkAsked, stages_max: int, *, has_plans: bool) -> Any:
        del stages_max, has_plans
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        try:
            await asyncio.sleep(self._seconds)
        finally:
            self.at_once -= 1
        return None if asked.session_id in self._silent else (work_of(1, 0, [], 1), ())


def users_of(environment: Environment, count: int) -> dict[ExecutionAttemptId, Any]:
    attempts = [ExecutionAttemptId.parse(f"{'a' * 32}_{1:032x}_{subtask}_0_0") for subtask in range(count)]
    return {
        attempt: SimpleNamespace(
            attempt_id=attempt,
            begun_millis=1,
            process=SimpleNamespace(
                uses_spark=True, session=SimpleNamespace(session_id=f"session-{number}"), environment=environment
            ),
        )
        for number, attempt in enumerate(attempts)
    }


@pytest.mark.asyncio
async def test_attempts_are_asked_a_few_at_once_and_who_is_silent_is_told() -> None:
    environment = Environment(0.01, silent=frozenset({"session-4"}))
    running = users_of(environment, 12)
    views = AttemptViews(lambda: list(running.values()), SystemClock())
    told = await views.spark(list(running), has_plans=False)
    assert [one.attempt_id.subtask_index for one in told.found] == [0, 1, 2, 3, *range(5, 12)]
    assert [one.subtask_index for one in told.unanswered] == [4]
    assert environment.at_once_max == 3


@pytest.mark.asyncio
async def test_a_slow_jvm_does_not_hold_up_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One deadline for all: each attempt had one of its own, and a job with many could not be looked at."""
    monkeypatch.setattr(attempt_views, "_WORK_SECONDS", 0.1)
    environment = Environment(3600.0)
    running = users_of(environment, 12)
    views = AttemptViews(lambda: list(running.values()), SystemClock())
    told = await views.spark(list(running), has_plans=False)
    assert not told.found
    assert list(told.unanswered) == list(running)
    assert environment.at_once == 0
