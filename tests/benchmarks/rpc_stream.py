"""Cost of streams over gRPC: CPU per frame and per message, each side in a process of its own.

The dialer sends batches and waits for their echo; what coalesces does so by itself. CPU per frame and per message is
the fit of CPU = frames * f + messages * m.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from runtime.aio.clock import LoopClock
from runtime.common.errors import UnavailableError
from runtime.common.fencing import FencingToken
from runtime.common.ids import ExecutionAttemptId, Incarnation, JobId, VertexId
from runtime.common.states import ExecutionState
from runtime.gateways.dispatcher import (
    DispatcherGateway,
    Empty,
    JobDetailsResponse,
    JobRequest,
    SubmitJobRequest,
    SubmitJobResponse,
)
from runtime.gateways.job_master import TaskReports
from runtime.gateways.task import TaskExecutionReport, TaskMetrics
from runtime.rpc.grpc_service import GrpcRpcService
from runtime.rpc.service import MessageStream, StreamHello, StreamKind
from runtime.rpc.settings import RpcSettings
from tests.benchmarks.measure import Report

ROOT = Path(__file__).resolve().parents[2]
KIND = StreamKind.TASK_MANAGER_TO_JOB_MASTER
BATCHES = (1, 10, 100)
ATTEMPT = ExecutionAttemptId(JobId("a" * 32), VertexId("b" * 32), 3, 1234567, 0)
REPORT = TaskReports(
    ATTEMPT.job_id,
    ATTEMPT.epoch,
    (
        TaskExecutionReport(
            ATTEMPT, ExecutionState.FINISHED, 1732187000000, None, b"", (), (), TaskMetrics(1, 2, 3, 4, 5, 6)
        ),
    ),
)


def _settings(name: str) -> RpcSettings:
    return RpcSettings(Incarnation(name * 32), None)


class _Dispatcher:
    async def submit_job(self, request: SubmitJobRequest, /) -> SubmitJobResponse:
        raise NotImplementedError

    async def cancel_job(self, _request: JobRequest, /) -> Empty:
        return Empty()

    async def request_job(self, request: JobRequest, /) -> JobDetailsResponse:
        raise NotImplementedError


async def listen() -> None:
    """Echo every frame; on demand print the CPU time used so far."""
    service = GrpcRpcService(_settings("1"), LoopClock())
    await service.start()

    async def echo(stream: MessageStream) -> None:
        try:
            while True:
                for message in await stream.receive():
                    stream.send(message)
        except UnavailableError:
            return

    def accept(_target: FencingToken | None, _sender: FencingToken | None) -> None:
        return

    service.server.add_stream_handler(KIND, echo, check=accept)
    service.server.add_gateway(DispatcherGateway, _Dispatcher(), check=accept)
    sys.stdout.write(f"{service.server.address}\n")
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        sys.stdout.write(f"{time.process_time()}\n")
        sys.stdout.flush()
    await service.stop(grace=0)


class _Listener:
    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.benchmarks.rpc_stream"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        self.address = self._stdout.readline().strip()

    def cpu(self) -> float:
        self._stdin.write("\n")
        self._stdin.flush()
        return float(self._stdout.readline())

    def close(self) -> None:
        self._stdin.close()
        self.process.wait()
        self._stdout.close()


async def _measure(
    report: Report, name: str, listener: _Listener, rounds: int, step: Callable[[], Awaitable[None]]
) -> dict[str, float]:
    """CPU milliseconds per round trip of both sides."""
    times: list[float] = []
    for _ in range(rounds // 10):
        await step()
    before = {"dialer": time.process_time(), "listener": listener.cpu()}
    for _ in range(rounds):
        begin = time.perf_counter()
        await step()
        times.append(1000 * (time.perf_counter() - begin))
    after = {"dialer": time.process_time(), "listener": listener.cpu()}
    report.add_distribution(f"{name}, round trip", times)
    report.add_cpu(name, before, after, rounds)
    return {side: 1000 * (after[side] - before[side]) / rounds for side in before}


async def _streams(report: Report, listener: _Listener, service: GrpcRpcService, frames: int) -> None:
    """Round trips of n messages out and n back: 2 frames and 2n messages on each side."""
    hello = StreamHello(KIND, Incarnation("2" * 32), "", 1, None, "")
    stream = await service.open_stream(listener.address, hello, timeout=5)
    cpu: dict[int, dict[str, float]] = {}
    for batch in BATCHES:

        async def step(batch: int = batch) -> None:
            for _ in range(batch):
                stream.send(REPORT)
            left = batch
            while left:
                left -= len(await stream.receive())

        name = f"stream, {batch} messages each way"
        cpu[batch] = await _measure(report, name, listener, max(frames // batch, frames // 15), step)
    few, many = BATCHES[0], BATCHES[-1]
    for side in ("dialer", "listener"):
        per_message = (cpu[many][side] - cpu[few][side]) / (2 * (many - few))
        report.add(f"CPU of {side} per message", per_message, "ms")
        report.add(f"CPU of {side} per frame", cpu[few][side] / 2 - few * per_message, "ms")


async def _dial(report: Report, frames: int) -> None:
    listener = _Listener()
    service = GrpcRpcService(_settings("2"), LoopClock())
    await service.start()
    await _streams(report, listener, service, frames)
    gateway = service.connect(DispatcherGateway, listener.address, target=None, sender=None, timeout=5)

    async def call() -> None:
        await gateway.cancel_job(JobRequest(ATTEMPT.job_id))

    await _measure(report, "unary call", listener, frames // 3, call)
    await service.stop(grace=0)
    listener.close()


def rpc_stream(*, small: bool) -> Report:
    """Streams of several batch sizes, and the unary call beside them."""
    report = Report("RPC streams")
    asyncio.run(_dial(report, 300 if small else 3000))
    return report


if __name__ == "__main__":
    asyncio.run(listen())
