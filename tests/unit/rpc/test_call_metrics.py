"""Calls are counted by method on both sides, errors by kind; streams tell what waits on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.aio.clock import LoopClock
from runtime.common.errors import NotFoundError
from runtime.common.ids import Incarnation, JobId
from runtime.gateways.dispatcher import (
    DispatcherGateway,
    Empty,
    JobDetailsResponse,
    JobRequest,
    SubmitJobRequest,
    SubmitJobResponse,
)
from runtime.gateways.resource_manager import JobsEnded
from runtime.metrics import table
from runtime.metrics.counted import CountedMetrics
from runtime.metrics.metric import Metric
from runtime.rpc.call_metrics import stream_samples
from runtime.rpc.grpc_service import GrpcRpcService
from runtime.rpc.settings import RpcSettings
from runtime.rpc.stream import FrameStream
from tests.kit.control_plane.rpc_wire import LIMITS, LISTENER, hello

JOB = JobId("a" * 32)


class OneJob:
    async def submit_job(self, request: SubmitJobRequest, /) -> SubmitJobResponse:
        raise NotImplementedError

    async def cancel_job(self, request: JobRequest, /) -> Empty:
        if request.job_id != JOB:
            raise NotFoundError(request.job_id)
        return Empty()

    async def request_job(self, request: JobRequest, /) -> JobDetailsResponse:
        raise NotImplementedError


def counted(metrics: CountedMetrics, metric: Metric) -> dict[tuple[str, ...], float]:
    families = {family.metric: family.values for family in metrics.families()}
    return {labels: value for labels, value in families.get(metric, {}).items() if value}


@pytest.mark.asyncio
async def test_a_call_counts_where_it_is_made_and_where_it_is_served() -> None:
    serving, calling = CountedMetrics(100), CountedMetrics(100)
    settings = RpcSettings(LISTENER, None, limits=LIMITS)
    server = GrpcRpcService(settings, LoopClock(), serving)
    client = GrpcRpcService(replace(settings, incarnation=Incarnation("c" * 32)), LoopClock(), calling)
    await server.start()
    try:
        server.server.add_gateway(DispatcherGateway, OneJob(), check=lambda _target, _sender: None)
        gateway = client.connect(DispatcherGateway, server.server.address, target=None, sender=None, timeout=10)
        await gateway.cancel_job(JobRequest(JOB))
        with pytest.raises(NotFoundError):
            await gateway.cancel_job(JobRequest(JobId("b" * 32)))
    finally:
        await client.stop(grace=0)
        await server.stop(grace=0)
    method = "DispatcherGateway.cancel_job"
    assert counted(serving, table.RPC_CALLS) == {("served", method): 2}
    assert counted(calling, table.RPC_CALLS) == {("made", method): 2}
    assert counted(serving, table.RPC_ERRORS) == {("served", method, "not_found"): 1}
    assert counted(calling, table.RPC_ERRORS) == {("made", method, "not_found"): 1}


@pytest.mark.asyncio
async def test_streams_tell_what_waits() -> None:
    stream = FrameStream(hello(), LIMITS, LoopClock())
    stream.send(JobsEnded((JOB,)))
    stream.send(JobsEnded((JOB,)))
    frame = await stream.next_frame()
    assert frame is not None
    stream.send(JobsEnded(()))
    await stream.deliver(frame)
    kind = stream.hello.kind.name
    found = {(sample.metric, sample.labels): sample.value for sample in stream_samples([stream])}
    assert found[table.RPC_STREAMS, (kind,)] == 1
    assert found[table.STREAM_MESSAGES, (kind, "outbox")] == 1
    assert found[table.STREAM_MESSAGES, (kind, "inbox")] == 2
    assert found[table.STREAM_BYTES, (kind, "inbox")] == len(frame)
