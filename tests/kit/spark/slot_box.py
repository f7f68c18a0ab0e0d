"""Slots with Spark for plain test functions: a pool on the loop of a SparkBox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from runtime.aio.clock import LoopClock
from runtime.common.exchange import ExchangeMode
from runtime.common.spark_environments import EnvironmentSpec, SparkOffer
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.graph import INLINE_SIZE_MAX
from runtime.gateways.task import (
    FailureInfo,
    InputGate,
    PartitionDescriptor,
    ResultPartitionSpec,
    TaskExecutionReport,
)
from runtime.jobgraph.graph import Operator
from runtime.taskexecutor.slots.pool import SlotProcessPool
from runtime.taskexecutor.slots.slot_handle import Attachment
from runtime.taskexecutor.slots.work import SlotSettings, SlotWork
from runtime.taskexecutor.spark.environment_process import ProcessSparkEnvironment
from runtime.taskexecutor.spark.environments import SparkEnvironments
from runtime.taskexecutor.spark_protocol.settings import effective_conf
from tests.kit.spark.slot_work import RecordingListener, SlotBench
from tests.kit.spark.spark_box import SparkBox, wait_until

T = TypeVar("T")
Code = SlotWork | Callable[..., Any] | Operator | str


class SlotBox:
    """Runs work in slots that are attached to the box's Spark."""

    def __init__(self, box: SparkBox, directory: Path, *, environment_bytes: int = 0, **settings: Any) -> None:
        self.box = box
        self.directory = directory
        self.made: list[ProcessSparkEnvironment] = []
        """Environments that were started on demand."""
        options: dict[str, Any] = {
            "slots": 2,
            "task_manager_id": "tm-spark",
            "checkpoint_directory": str(directory / "checkpoints"),
            **settings,
        }
        self.environments = None if not environment_bytes else self.do(self._open_environments(environment_bytes))
        self.pool = SlotProcessPool(
            SlotSettings(**options), box.environment, LoopClock(), environments=self.environments
        )
        self.bench = SlotBench(self.pool, directory)
        self.do(self.pool.start())
        self.do(self.pool.readiness.wait_until(bool))

    async def _open_environments(self, environment_bytes: int) -> SparkEnvironments:
        offer = SparkOffer(effective_conf(self.box.settings), environment_bytes)
        made = SparkEnvironments(self.box.environment, self._make, offer, LoopClock(), idle_timeout=900.0)
        await made.open()
        return made

    def _make(self, spec: EnvironmentSpec) -> ProcessSparkEnvironment:
        made = ProcessSparkEnvironment(self.box.settings.of_environment(spec))
        self.made.append(made)
        return made

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run on the box's loop."""
        return self.box.run(coroutine)

    def wait_attached(self, slot: int = 0) -> None:
        """Until the slot's idle process has its session: the next task attaches no more."""

        def is_attached() -> bool:
            fresh = self.pool._slots[slot].fresh
            return fresh is not None and fresh.attachment.value is Attachment.ATTACHED

        wait_until(is_attached)

    def stop(self) -> None:
        """End the pool, and Spark environments of jobs; the default one lives on."""
        self.do(self.pool.stop())
        if self.environments is not None:
            self.do(self.environments.stop_started())

    def work(self, *operators: Any, **options: Any) -> SlotWork:
        """See SlotBench."""
        return self.bench.work(*operators, **options)

    def report(self, work: Code, *, slot: int = 0) -> TaskExecutionReport:
        """Run to the end; the terminal report."""
        return self.do(self.bench.run(work, slot=slot))

    def value(self, work: Code, *, slot: int = 0) -> Any:
        """Run to the end; the result of a task that must finish."""
        report = self.report(work, slot=slot)
        assert report.state is ExecutionState.FINISHED, (report.failure and report.failure.stack_trace, report)
        return json.loads(report.value) if report.value else None

    def failure(self, work: Code, *, slot: int = 0) -> FailureInfo:
        """Run to the end; why a task that must fail has failed."""
        report = self.report(work, slot=slot)
        assert report.failure is not None, report
        return report.failure

    def begin(self, work: SlotWork, *, slot: int = 0) -> tuple[RecordingListener, asyncio.Task[None]]:
        """Hand over and return."""
        return self.do(self.bench.started(work, slot=slot))

    def end(self, running: asyncio.Task[None]) -> None:
        """Wait for what was begun."""

        async def wait() -> None:
            await running

        self.do(wait())

    def produce(
        self, function: Callable[..., Any], *specs: ResultPartitionSpec, parallelism: int = 1, **options: Any
    ) -> list[tuple[PartitionDescriptor, ...]]:
        """Run all subtasks of a producer; their partitions by subtask."""
        reports = [
            self.report(self.work(function, subtask=i, parallelism=parallelism, outputs=specs, **options))
            for i in range(parallelism)
        ]
        for report in reports:
            assert report.state is ExecutionState.FINISHED, report.failure
        return [report.partitions for report in reports]


def out(mode: ExchangeMode, consumers: int, *keys: str, output: int = 0) -> ResultPartitionSpec:
    """An out-edge."""
    return ResultPartitionSpec(output, mode, keys, consumers, inline_size_max=INLINE_SIZE_MAX)


def gate(
    mode: ExchangeMode, produced: list[tuple[PartitionDescriptor, ...]], *keys: str, output: int = 0, name: str = "up"
) -> InputGate:
    """An in-edge."""
    return InputGate(name, mode, keys, tuple(partitions[output] for partitions in produced))
