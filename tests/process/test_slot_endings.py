"""What tasks may do half way: leave, leave executors open, ask for paths and sessions that are not to be had."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from runtime.aio.watch import Watch
from runtime.common.exchange import ExchangeMode
from runtime.common.states import ExecutionState
from runtime.gateways.task import FailureInfo, ResultPartitionSpec
from runtime.taskexecutor.spark.environment import JvmChange, SparkLoss, SparkLostError
from runtime.taskexecutor.spark_protocol.sessions import SlotSession, SparkProgress
from tests.kit.spark.slot_work import SlotBench, operator, script, slot_bench

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SlotBench]:
    async with slot_bench(tmp_path_factory.mktemp("slots")) as started:
        yield started


async def failure_of(bench: SlotBench, work: Any) -> FailureInfo:
    report = await bench.run(work)
    assert report.state is ExecutionState.FAILED, report
    assert report.failure is not None
    return report.failure


def leave(ctx: Any, *inputs: Any) -> None:
    raise SystemExit(0)


async def test_sys_exit_zero_is_a_none_which_a_consumer_cannot_use(bench: SlotBench) -> None:
    edge = ResultPartitionSpec(0, ExchangeMode.GATHER, (), 1, inline_size_max=0)
    failure = await failure_of(bench, bench.work(operator(leave, "read"), outputs=(edge,)))
    assert failure.message.startswith("'read' returned None, but it has a consumer")
    chain = bench.work(operator(leave, "read"), operator(lambda ctx, rows: "not reached", "write"))
    assert (await failure_of(bench, chain)).message.startswith("'read' returned None, but it has a consumer")


async def test_sys_exit_of_a_module_is_no_result(bench: SlotBench, tmp_path: Path) -> None:
    (tmp_path / "leaves_early.py").write_text("import sys; sys.exit(0)")
    failure = await failure_of(bench, bench.work("leaves_early:run", python_path=(tmp_path,)))
    assert failure.message == "sys.exit() was called while the code was loaded"


@pytest.mark.timeout(30)
async def test_a_script_may_leave_executors_open(bench: SlotBench) -> None:
    text = """
import atexit
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
pool, processes = ThreadPoolExecutor(2), ProcessPoolExecutor(1)
def note(word):
    print(word, file=open("out.txt", "a"))
atexit.register(note, "at exit")
processes.submit(abs, -1).result()
for _ in range(5):
    pool.submit(note, "queued")
"""
    work = bench.work(script(text))
    assert (await bench.run(work)).state is ExecutionState.FINISHED
    assert (work.job_directory / "out.txt").read_text().split("\n") == [*["queued"] * 5, "at exit", ""]


@pytest.mark.parametrize(
    ("base", "words"), [("foo://bucket", "Protocol not known: foo"), ("s3://bucket/x", "Install s3fs")]
)
async def test_an_output_path_that_cannot_be_committed_is_refused_at_once(
    bench: SlotBench, base: str, words: str
) -> None:
    report = await bench.run(bench.work(lambda ctx: ctx.output_path(ctx.params["base"]), params={"base": base}))
    assert report.failure is not None
    assert f"ctx.output_path('{base}')" in report.failure.message
    assert words in report.failure.message
    assert report.outputs == ()


async def test_an_output_directory_that_is_not_there_at_the_end_is_named(bench: SlotBench, tmp_path: Path) -> None:
    def remove(ctx: Any) -> None:
        import shutil
        from pathlib import Path

        for number in range(3):
            directory = Path(ctx.output_path(f"{ctx.params['base']}/{number}"))
            if number < 2:
                directory.mkdir(parents=True)
            if number == 1:
                shutil.rmtree(directory)

    report = await bench.run(bench.work(remove, params={"base": str(tmp_path)}))
    assert report.state is ExecutionState.FINISHED
    assert [output.base for output in report.outputs] == [f"{tmp_path}/0"]
    lines = bench.log(report, "stderr").splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        f"nothing of this task is committed to {tmp_path}/{number}" for number in (1, 2)
    ]


async def test_secrets_reach_the_function_and_the_script_and_nothing_else(bench: SlotBench) -> None:
    def look(ctx: Any) -> Any:
        import os

        print(ctx.secrets)
        return [ctx.secrets["KEY"], any("hush" in value for value in os.environ.values())]

    work = bench.work(look, secrets={"KEY": "hush"})
    assert "hush" not in repr(work)
    report = await bench.run(work)
    assert report.value == b'["hush",false]'
    assert bench.log(report) == "TaskSecrets(KEY)\n"
    text = "from airflow_flinklike import task_secrets; print(len(task_secrets()['KEY']), task_secrets())"
    report = await bench.run(bench.work(script(text), secrets={"KEY": "hush"}))
    assert bench.log(report) == "4 TaskSecrets(KEY)\n"
    assert await bench.value(lambda ctx: len(ctx.secrets)) == 0


async def test_logs_that_cannot_be_opened_are_no_failure_of_the_user(bench: SlotBench, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    failure = await failure_of(bench, replace(bench.work(lambda ctx: 1), log_directory=tmp_path / "file"))
    assert failure.message.startswith("the logs of the attempt cannot be opened: [Errno 20] Not a directory")
    assert (failure.kind, failure.is_recoverable) == ("SYSTEM", True)
    assert await bench.value(lambda ctx: 2) == 2


class _NoSessions:
    """A SparkEnvironment that is up and has no session to give, each time for another reason."""

    is_ready = is_warm = True

    def __init__(self) -> None:
        self.asked = 0
        self.put_back: Watch[JvmChange | None] = Watch(None)

    async def open_session(self, slot_index: int, shares: int = 1) -> SlotSession:
        self.asked += 1
        raise SparkLostError(f"reason {self.asked}")

    async def wait_lost(self) -> SparkLoss:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def progress(self) -> Mapping[str, SparkProgress]:
        return {}


def asks(ctx: Any) -> Any:
    import os

    try:
        ctx.spark.range(1)
    except Exception as error:  # noqa: BLE001 - the slot's own class, which the test's function cannot name
        return os.getpid(), str(error)


async def test_a_refused_session_is_asked_for_again_by_the_next_task(tmp_path: Path) -> None:
    environment: Any = _NoSessions()
    async with slot_bench(tmp_path, environment, attach_idle_delay=3600.0, start_timeout=120.0) as bench:
        asked = environment.asked
        (first, why), (second, why_again) = [await bench.value(asks) for _ in range(2)]
    assert first == second, "one process"
    assert [why, why_again] == [
        f"Spark is not available on this TaskManager: reason {asked + number}" for number in (1, 2)
    ]
