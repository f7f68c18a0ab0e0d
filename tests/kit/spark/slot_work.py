"""Short ways to run functions and scripts in slots: work from callables, a listener that keeps what it hears."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import cloudpickle

from runtime.aio.clock import LoopClock
from runtime.aio.watch import Watch
from runtime.common.ids import AllocationId, ExecutionAttemptId, JobId, VertexId
from runtime.common.states import ExecutionState
from runtime.gateways.task import (
    InputGate,
    JobInformation,
    ResultPartitionSpec,
    TaskDeploymentDescriptor,
    TaskExecutionReport,
    TaskInformation,
    TaskProgress,
)
from runtime.jobgraph.graph import (
    Artifact,
    CodeReference,
    FunctionReference,
    Operator,
    OperatorKind,
    PickledCode,
    ScriptCode,
    dump_operators,
    vertex_id_of,
)
from runtime.jobgraph.streams import StreamSinkSpec
from runtime.taskexecutor.slots.pool import SlotProcessPool
from runtime.taskexecutor.slots.work import OrphanReaper, ProcessGuard, SlotSettings, SlotWork
from runtime.taskexecutor.spark.environment import SparkEnvironment

JOB = JobId("1" * 32)

_numbers = count()


def pickled(function: Callable[..., Any]) -> PickledCode:
    """By value, also for functions of test modules."""
    module = inspect.getmodule(function)
    assert module is not None, function
    cloudpickle.register_pickle_by_value(module)
    try:
        return PickledCode.of_bytes(cloudpickle.dumps(function))
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def operator(
    code: CodeReference | Callable[..., Any] | str, name: str = "work", kind: OperatorKind = OperatorKind.FUNCTION
) -> Operator:
    if isinstance(code, str):
        code = FunctionReference(target=code)
    elif callable(code):
        code = pickled(code)
    is_script = isinstance(code, ScriptCode)
    return Operator(name=name, kind=OperatorKind.SCRIPT if is_script else kind, code=code)


def script(text: str, *args: str, name: str = "etl.py") -> Operator:
    return operator(ScriptCode(script=Artifact.of_bytes(name, text.encode()), args=args), name=name)


def query(*functions: Callable[..., Any], uid: str = "sink", **spec: Any) -> tuple[Operator, ...]:
    """A streaming query: a source, what changes it, and the sink, which has `spec`."""
    inner = [OperatorKind.STREAM_SOURCE, *[OperatorKind.MAP] * (len(functions) - 2)]
    made = [
        Operator(name=f"{kind.value} {place}", kind=kind, code=pickled(one), inputs=(place - 1,) if place else ())
        for place, (kind, one) in enumerate(zip(inner, functions, strict=False))
    ]
    sink = Operator(
        name=uid,
        kind=OperatorKind.STREAM_SINK,
        code=pickled(functions[-1]),
        inputs=(len(made) - 1,),
        stream_sink=StreamSinkSpec(uid=uid, **spec),
    )
    return (*made, sink)


def slot_work(
    directory: Path,
    *operators: Operator | Callable[..., Any] | str,
    job_id: JobId = JOB,
    reuse_key: str = "",
    subtask: int = 0,
    parallelism: int = 1,
    splits: Sequence[Any] = (),
    inputs: tuple[InputGate, ...] = (),
    outputs: tuple[ResultPartitionSpec, ...] = (),
    params: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    spark_conf: Mapping[str, str] | None = None,
    vertex: str = "vertex",
    python_path: tuple[Path, ...] = (),
    secrets: Mapping[str, str] | None = None,
    savepoint: bytes = b"",
    checkpoint_name: str = "",
) -> SlotWork:
    """One attempt of a chain, with a fresh attempt id."""
    work = directory / "jobs" / job_id / "work"
    work.mkdir(parents=True, exist_ok=True)
    chain = tuple(item if isinstance(item, Operator) else operator(item) for item in operators)
    job = JobInformation(
        job_id=job_id,
        job_name="test job",
        epoch=1,
        params=json.dumps(params or {}).encode(),
        spark_conf=json.dumps(spark_conf or {}).encode(),
        environment=json.dumps(environment or {}).encode(),
        py_files=(),
        files=(),
        archives=(),
        wheels=(),
        reuse_key=reuse_key,
        savepoint=savepoint,
        checkpoint_name=checkpoint_name,
    )
    vertex_id: VertexId = vertex_id_of(vertex)
    task = TaskDeploymentDescriptor(
        attempt_id=ExecutionAttemptId(job_id, vertex_id, subtask, 1, next(_numbers)),
        allocation_id=AllocationId(hashlib.sha256(vertex.encode()).hexdigest()[:32]),
        ordinal=0,
        task=TaskInformation(
            vertex_id,
            vertex,
            dump_operators(chain),
            (),
            parallelism,
            is_exclusive=not outputs,
            stream_uid=sink.uid if chain and (sink := chain[-1].stream_sink) is not None else "",
        ),
        splits=json.dumps(list(splits)).encode(),
        inputs=inputs,
        outputs=outputs,
    )
    return SlotWork(
        job=job,
        task=task,
        job_directory=work,
        exchange_directory=str(directory / "exchange"),
        log_directory=directory / "logs",
        python_path=python_path,
        secrets=secrets or {},
    )


class RecordingListener:
    """Keeps reports and progress, and lets a test wait for them."""

    def __init__(self) -> None:
        self.reports: list[TaskExecutionReport] = []
        self.progresses: Watch[tuple[TaskProgress, ...]] = Watch(())
        self.states: Watch[tuple[ExecutionState, ...]] = Watch(())
        self.splits_wanted: Watch[tuple[int, ...]] = Watch(())

    def task_state_changed(self, report: TaskExecutionReport) -> None:
        self.reports.append(report)
        self.states.set((*self.states.value, report.state))

    def task_progressed(self, progress: TaskProgress) -> None:
        self.progresses.set((*self.progresses.value, progress))

    def split_wanted(self, attempt_id: ExecutionAttemptId, sequence: int) -> None:
        self.splits_wanted.set((*self.splits_wanted.value, sequence))

    @property
    def terminal(self) -> TaskExecutionReport:
        assert self.reports[-1].state.is_terminal, self.reports
        return self.reports[-1]


class SlotBench:
    """A pool and the directory it works in."""

    def __init__(self, pool: SlotProcessPool, directory: Path) -> None:
        self.pool = pool
        self.directory = directory

    def work(self, *operators: Operator | Callable[..., Any] | str, **options: Any) -> SlotWork:
        return slot_work(self.directory, *operators, **options)

    async def run(self, work: SlotWork | Callable[..., Any] | Operator | str, *, slot: int = 0) -> TaskExecutionReport:
        """Run to the end; the terminal report."""
        if not isinstance(work, SlotWork):
            work = self.work(work)
        listener = RecordingListener()
        await self.pool.run(slot, work, listener)
        assert [report.state for report in listener.reports[:-1]] == [ExecutionState.RUNNING], listener.reports
        return listener.terminal

    async def value(self, work: SlotWork | Callable[..., Any] | Operator | str, *, slot: int = 0) -> Any:
        """Run to the end; the JSON result of a task that must finish."""
        report = await self.run(work, slot=slot)
        assert report.state is ExecutionState.FINISHED, report.failure
        return json.loads(report.value) if report.value else None

    async def started(self, work: SlotWork, *, slot: int = 0) -> tuple[RecordingListener, asyncio.Task[None]]:
        """Begin to run; returns when the work is handed over."""
        listener = RecordingListener()
        task = asyncio.get_running_loop().create_task(self.pool.run(slot, work, listener))
        while not listener.states.value and not task.done():
            await asyncio.sleep(0)
        if task.done():
            task.result()
        return listener, task

    def log(self, report: TaskExecutionReport, stream: str = "stdout") -> str:
        """A stream never written to is empty."""
        directory = self.directory / "logs" / str(report.attempt_id)
        assert directory.is_dir(), directory
        return (directory / stream).read_text() if (directory / stream).exists() else ""


@asynccontextmanager
async def slot_bench(
    directory: Path,
    spark: SparkEnvironment | None = None,
    guard: ProcessGuard | None = None,
    reaper: OrphanReaper | None = None,
    **changes: Any,
) -> AsyncIterator[SlotBench]:
    """A started pool."""
    settings = replace(SlotSettings(slots=1, task_manager_id="tm-test"), **changes)
    pool = SlotProcessPool(settings, spark, LoopClock(), guard, reaper)
    await pool.start()
    try:
        yield SlotBench(pool, directory)
    finally:
        await pool.stop()
