"""Looks into attempts when somebody asks: what Spark does for them, and the stacks of their Python (D-116).

Nothing is done for attempts that nobody looks at. One attempt at a time is sampled; whoever asks for the same one
within two seconds gets the same answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

from runtime.aio.asking import ask_all
from runtime.common.clock import Clock
from runtime.common.errors import NotFoundError, UnavailableError
from runtime.common.ids import ExecutionAttemptId
from runtime.gateways.spark_work import STAGES_KEPT_MAX, STAGES_LIVE_MAX, SparkWork
from runtime.gateways.task_executor import (
    ATTEMPTS_LOOKED_AT_MAX,
    SAMPLES_MAX,
    AttemptSpark,
    AttemptSparkResponse,
    AttemptStacksResponse,
)
from runtime.system.linux import is_on_cpu
from runtime.taskexecutor.slots.running_attempt import RunningAttempt
from runtime.taskexecutor.slots.sampled_stacks import counted, stacks_in
from runtime.taskexecutor.slots.slot_handle import SlotProcess
from runtime.taskexecutor.spark.environment import SparkEnvironment
from runtime.taskexecutor.spark.environments import SparkEnvironments
from runtime.taskexecutor.spark.spark_answers import WorkAsked

_ENDED_MAX = 100
_FRESH_SECONDS = 2.0
_SAMPLE_SECONDS = 0.03
_WORK_AT_ONCE = 3
"""So many attempts' work is asked for at once, by all who look: a thread of a Spark host stays free for tasks."""
_WORK_SECONDS = 4.0
"""For all attempts that somebody asks for together. Well below `rpc.timeout`, within which they are answered."""
_MARGIN_MILLIS = 1
"""Clocks of both processes are one; Java rounds down."""
_SILENT = "the JVM does not say what it does"

_Place = tuple[SparkEnvironment, WorkAsked]


class AttemptViews:
    """Those of one pool. `running`: what runs now. `environments`: None without Spark."""

    def __init__(
        self,
        running: Callable[[], Sequence[RunningAttempt]],
        clock: Clock,
        environments: SparkEnvironments | None = None,
    ) -> None:
        self._running = running
        self._environments = environments
        self._clock = clock
        self._ended: OrderedDict[ExecutionAttemptId, _Place] = OrderedDict()
        self._work_turns = asyncio.Semaphore(_WORK_AT_ONCE)
        self._sampling = asyncio.Lock()
        self._looked_at: ExecutionAttemptId | None = None
        self._sampled: tuple[float, ExecutionAttemptId, AttemptStacksResponse] | None = None

    async def work_at_end(self, attempt: RunningAttempt) -> SparkWork | None:
        """What Spark has done for an attempt that has ended, for its report; its queries can be asked for a while."""
        place = self._place(attempt)
        if place is None or attempt.is_cancelled:
            return None
        environment, asked = place
        asked = replace(asked, until_millis=self._clock.epoch_millis())
        told = await environment.work(asked, STAGES_KEPT_MAX, has_plans=False)
        if told is None or not told[0].jobs:
            return None
        self._ended[attempt.attempt_id] = environment, asked
        if len(self._ended) > _ENDED_MAX:
            self._ended.popitem(last=False)
        return told[0]

    async def spark(self, attempts: Sequence[ExecutionAttemptId], *, has_plans: bool) -> AttemptSparkResponse:
        """What Spark does, or has done, for these attempts, as far as their JVMs know and say within four seconds."""
        places: dict[ExecutionAttemptId, _Place] = {}
        for attempt_id in attempts[:ATTEMPTS_LOOKED_AT_MAX]:
            running = self._find(attempt_id)
            place = self._ended.get(attempt_id) if running is None else self._place(running)
            if place is not None:
                places[attempt_id] = place

        async def ask(attempt_id: ExecutionAttemptId) -> AttemptSpark:
            environment, asked = places[attempt_id]
            told = await environment.work(asked, STAGES_LIVE_MAX, has_plans=has_plans)
            if told is None:
                raise UnavailableError(_SILENT)
            key = None if self._environments is None else self._environments.key_of(environment)
            return AttemptSpark(attempt_id, *told, environment=key)

        answers = await ask_all(places, ask, turns=self._work_turns, seconds=_WORK_SECONDS)
        found = tuple(one for one in answers.found.values() if one.work.jobs)
        return AttemptSparkResponse(found, tuple(answers.failures))

    async def page(self, environment: str, target: str, prefix: str) -> tuple[bytes, bytes]:
        """(head, packed body) of one of Spark's own pages. Raises NotFoundError and UnavailableError."""
        if self._environments is None:
            message = "this TaskManager runs no Spark"
            raise NotFoundError(message)
        return await self._environments.page(environment, target, prefix)

    async def stacks(self, attempt_id: ExecutionAttemptId, samples: int) -> AttemptStacksResponse:
        """The stacks of a running attempt. Raises NotFoundError and UnavailableError."""
        loop = asyncio.get_running_loop()
        self._process_of(attempt_id)
        if self._sampling.locked() and self._looked_at != attempt_id:
            message = "the stacks of another attempt are looked at: ask again in a few seconds"
            raise UnavailableError(message)
        async with self._sampling:
            self._looked_at = attempt_id
            if self._sampled is not None and self._sampled[1] == attempt_id:
                at, _, answer = self._sampled
                if loop.time() - at < _FRESH_SECONDS:
                    return answer
            answer = await self._sample(attempt_id, min(max(samples, 1), SAMPLES_MAX))
            self._sampled = loop.time(), attempt_id, answer
            return answer

    async def _sample(self, attempt_id: ExecutionAttemptId, samples: int) -> AttemptStacksResponse:
        seen: Counter[tuple[tuple[str, ...], bool]] = Counter()
        for _ in range(samples):
            try:
                process = self._process_of(attempt_id)
            except NotFoundError:
                break
            is_main_on_cpu = is_on_cpu(process.pid)
            seen.update(stacks_in(await process.stacks(), is_main_on_cpu=is_main_on_cpu))
            await asyncio.sleep(_SAMPLE_SECONDS)
        return AttemptStacksResponse(self._clock.epoch_millis(), counted(seen))

    def _process_of(self, attempt_id: ExecutionAttemptId) -> SlotProcess:
        attempt = self._find(attempt_id)
        if attempt is None or attempt.process is None:
            message = f"attempt {attempt_id} does not run here"
            raise NotFoundError(message)
        return attempt.process

    def _find(self, attempt_id: ExecutionAttemptId) -> RunningAttempt | None:
        return next((one for one in self._running() if one.attempt_id == attempt_id), None)

    @staticmethod
    def _place(attempt: RunningAttempt) -> _Place | None:
        process = attempt.process
        if process is None or not process.uses_spark or process.session is None or process.environment is None:
            return None
        return process.environment, WorkAsked(process.session.session_id, attempt.begun_millis - _MARGIN_MILLIS)
