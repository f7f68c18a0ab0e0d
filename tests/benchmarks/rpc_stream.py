"""Cost of streams over gRPC: CPU per frame and per message, each side in a process of its own.

Run by hand: `python tests/benchmarks/rpc_stream.py`. The dialer offers messages at fixed rates; what coalesces does so
by itself. Reported per side: CPU us per frame and per message (the fit of CPU = frames * f + messages * m).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

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

KIND = StreamKind.TASK_MANAGER_TO_JOB_MASTER
BATCHES = (1, 10, 100)
FRAMES = 3000
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
    print(service.server.address, flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(time.process_time(), flush=True)
    await service.stop(grace=0)


class _Listener:
    def __init__(self) -> None:
        command = [sys.executable, __file__, "listen"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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


async def _measure(listener: _Listener, rounds: int, step: Callable[[], Awaitable[None]]) -> tuple[float, float, float]:
    own, other, wall = time.process_time(), listener.cpu(), time.perf_counter()
    for _ in range(rounds):
        await step()
    wall = time.perf_counter() - wall
    own, other = time.process_time() - own, listener.cpu() - other
    return own / rounds * 1e6, other / rounds * 1e6, wall / rounds * 1e6


async def dial() -> list[dict[str, float]]:
    """Round trips of n messages out and n back: 2 frames and 2n messages on each side."""
    listener = _Listener()
    service = GrpcRpcService(_settings("2"), LoopClock())
    await service.start()
    stream = await service.open_stream(
        listener.address, StreamHello(KIND, Incarnation("2" * 32), "", 1, None, ""), timeout=5
    )
    results: list[dict[str, float]] = []
    for batch in BATCHES:

        async def step(batch: int = batch) -> None:
            for _ in range(batch):
                stream.send(REPORT)
            left = batch
            while left:
                left -= len(await stream.receive())

        await _measure(listener, 100, step)
        own, other, wall = await _measure(listener, max(FRAMES // batch, 200), step)
        results.append({"messages": batch, "dialer_us": own, "listener_us": other, "wall_us": wall})
    gateway = service.connect(DispatcherGateway, listener.address, target=None, sender=None, timeout=5)

    async def call() -> None:
        await gateway.cancel_job(JobRequest(ATTEMPT.job_id))

    await _measure(listener, 100, call)
    own, other, wall = await _measure(listener, 1000, call)
    results.append({"messages": 0, "dialer_us": own, "listener_us": other, "wall_us": wall})
    await service.stop(grace=0)
    listener.close()
    return results


def main() -> None:
    """Print the table and one JSON line."""
    results = asyncio.run(dial())
    print(f"{'':24}{'dialer CPU':>12}{'listener CPU':>14}{'wall':>10}  (us per round trip, pid {os.getpid()})")
    for row in results:
        name = f"stream, {row['messages']} each way" if row["messages"] else "unary call"
        print(f"{name:24}{row['dialer_us']:12.1f}{row['listener_us']:14.1f}{row['wall_us']:10.1f}")
    for side in ("dialer_us", "listener_us"):
        small, large = results[0], results[len(BATCHES) - 1]
        per_message = (large[side] - small[side]) / (2 * (large["messages"] - small["messages"]))
        per_frame = small[side] / 2 - per_message
        print(f"{side[:-3]}: {per_frame:.1f} us per frame + {per_message:.1f} us per message")
    print(json.dumps(results))


if __name__ == "__main__":
    if sys.argv[1:] == ["listen"]:
        asyncio.run(listen())
    else:
        main()
