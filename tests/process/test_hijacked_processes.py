"""R52: a slot process is kept because it says that its task has ended, and that may be a lie."""

from __future__ import annotations

import asyncio
import platform
from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.system.linux import is_alive
from tests.kit.host.levels import reached
from tests.kit.spark.slot_work import slot_bench
from tests.process.test_slot_isolation import in_a_process_beside

pytestmark = [pytest.mark.process, pytest.mark.asyncio]

ONE, TWO, THREE = (JobId(digit * 32) for digit in "123")
MB = 1024 * 1024
TOLD = '''
import gc
from pathlib import Path

from runtime.common.states import ExecutionState
from runtime.gateways.task import TaskMetrics
from runtime.taskexecutor.slot_process.channel import Channel
from runtime.taskexecutor.slot_protocol.wire import FrameKind, TaskOutcome, decode_order, encode_outcome


def say_done(value: bytes) -> Channel:
    channel = next(one for one in gc.get_objects() if isinstance(one, Channel))
    outcome = TaskOutcome(ExecutionState.FINISHED, None, value, (), (), TaskMetrics(), True, True, False)
    channel.send(FrameKind.DONE, encode_outcome(outcome))
    return channel


def hijack(ctx):
    """Reports its end, and then answers in the place of the next task."""
    channel = say_done(b'"ended"')
    while (frame := channel.receive()) is not None:
        if frame.kind is FrameKind.RUN:
            order = decode_order(frame.payload)
            Path(ctx.params["stolen"]).write_text(repr(dict(order.secrets)))
            say_done(b'"hijacked"')


def grow(ctx):
    """Says that it has ended, and takes more than it may."""
    import time

    say_done(b"%d" % __import__("os").getpid())
    held = bytearray(b"x") * (200 * 1024 * 1024)
    time.sleep(600)
    return len(held)


def pid(ctx):
    return __import__("os").getpid()
'''


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "same_code.py").write_text(TOLD)
    return tmp_path / "code"


async def test_no_secret_is_handed_to_a_process_that_another_job_has_used(tmp_path: Path, code: Path) -> None:
    stolen = tmp_path / "stolen"
    shared: dict[str, Any] = {"reuse_key": "same", "python_path": (code,)}
    async with slot_bench(tmp_path) as bench:
        first = bench.work("same_code:hijack", job_id=ONE, params={"stolen": str(stolen)}, **shared)
        assert await bench.value(first) == "ended"
        second = await bench.run(bench.work("same_code:pid", job_id=TWO, secrets={"password": "of two"}, **shared))
        assert second.state is ExecutionState.FINISHED
        assert second.value != b'"hijacked"'
        assert not stolen.exists()


async def test_processes_with_secrets_run_one_job_only(tmp_path: Path, code: Path) -> None:
    shared: dict[str, Any] = {"reuse_key": "same", "python_path": (code,)}
    async with slot_bench(tmp_path) as bench:

        async def pid(job_id: JobId, **options: Any) -> int:
            return int(await bench.value(bench.work("same_code:pid", job_id=job_id, **shared, **options)))

        plain = await pid(ONE)
        assert await pid(TWO) == plain, "jobs without secrets share one"
        with_secret = await pid(THREE, secrets={"password": "of three"})
        assert with_secret != plain
        assert await pid(THREE, secrets={"password": "of three"}) == with_secret
        assert await pid(ONE) != with_secret, "it may still be in its memory"


async def test_a_job_that_has_left_keeps_no_process_to_itself(tmp_path: Path, code: Path) -> None:
    """R50."""
    shared: dict[str, Any] = {"reuse_key": "same", "python_path": (code,)}
    async with slot_bench(tmp_path, keep_idle=3600.0) as bench:
        plain = await bench.value(bench.work("same_code:pid", job_id=ONE, **shared))
        await bench.pool.end_job(ONE)
        assert await bench.value(bench.work("same_code:pid", job_id=TWO, **shared)) == plain
        own = await bench.value(bench.work("same_code:pid", job_id=THREE, secrets={"password": "x"}, **shared))
        await bench.pool.end_job(TWO)
        assert is_alive(own)
        await bench.pool.end_job(THREE)
        await asyncio.to_thread(reached, lambda: not is_alive(own), "it has ended")


async def test_a_process_that_is_kept_is_held_to_its_memory(tmp_path: Path, code: Path) -> None:
    async with slot_bench(tmp_path, memory_bytes_max=100 * MB, keep_idle=3600.0) as bench:
        pid = int(await bench.value(bench.work("same_code:grow", python_path=(code,))))
        await asyncio.to_thread(reached, lambda: not is_alive(pid), "it is killed")
        assert await bench.value(bench.work("same_code:pid", python_path=(code,))) != pid


async def test_who_leaves_its_slot_counts_after_a_renewal(tmp_path: Path) -> None:
    """R43: the template that adopts it is another one then."""
    params = {"machine": platform.machine()}
    async with slot_bench(tmp_path, memory_bytes_max=100 * MB, sample_interval=0.05) as bench:
        await bench.pool.renew()
        report = await bench.run(bench.work(in_a_process_beside, params=params))
        assert report.failure is not None, report
        assert report.failure.class_name == "MemoryLimitExceededError", report.failure
