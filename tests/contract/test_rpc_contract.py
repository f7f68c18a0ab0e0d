"""What every transport promises: one suite, run against the local one and against gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from runtime.aio.watch import Watch
from runtime.common import errors
from runtime.common.errors import (
    BackpressureError,
    BugError,
    FlinklikeError,
    InvalidInputError,
    MessageTooLargeError,
    NotFoundError,
    OutcomeUnknownError,
    StaleTokenError,
    UnauthenticatedError,
    UnavailableError,
)
from runtime.common.fencing import FencingToken, HighestToken
from runtime.common.ids import ClusterUuid, ExecutionAttemptId, Incarnation, JobId, VertexId
from runtime.common.states import JobStatus
from runtime.gateways.dispatcher import (
    DispatcherGateway,
    Empty,
    JobDetailsResponse,
    JobRequest,
    SubmitJobRequest,
    SubmitJobResponse,
    SubmitOutcome,
)
from runtime.gateways.task_executor import AttemptLogRequest, LogStream, TaskExecutorGateway
from runtime.rpc.service import NobodyListensError, RpcService
from runtime.rpc.status import STATUS_OF_ERROR, RemoteFailureError
from runtime.security.tokens import new_cluster_token
from tests.kit.control_plane.rpc_wire import (
    DIALER,
    KIND,
    LIMITS,
    LISTENER,
    WIRES,
    Wire,
    accept_all,
    drain,
    hello,
    no_chunks,
)

CLUSTER = ClusterUuid("c" * 32)
JOB = JobId("a" * 32)


@pytest_asyncio.fixture(params=list(WIRES))
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    made: Wire = WIRES[request.param]()
    yield made
    await made.close()


class FakeDispatcher:
    """A gateway whose every answer a test can replace."""

    def __init__(self) -> None:
        self.submitted: list[SubmitJobRequest] = []
        self.calls = 0
        self.answer: Callable[[JobRequest], Awaitable[JobDetailsResponse]] | None = None

    async def submit_job(self, request: SubmitJobRequest, /) -> SubmitJobResponse:
        self.calls += 1
        self.submitted.append(request)
        return SubmitJobResponse(SubmitOutcome.ACCEPTED, JobStatus.CREATED)

    async def cancel_job(self, request: JobRequest, /) -> Empty:
        self.calls += 1
        raise NotFoundError(f"job {request.job_id} is unknown")

    async def request_job(self, request: JobRequest, /) -> JobDetailsResponse:
        self.calls += 1
        assert self.answer is not None
        return await self.answer(request)


def connect(
    wire: Wire,
    client: RpcService,
    server: RpcService,
    *,
    target: FencingToken | None = None,
    sender: FencingToken | None = None,
    timeout: float = 5.0,
) -> DispatcherGateway:
    return client.connect(DispatcherGateway, wire.address(server), target=target, sender=sender, timeout=timeout)


async def serve(wire: Wire, endpoint: FakeDispatcher, check: Any = accept_all) -> tuple[RpcService, RpcService]:
    """(server, client)."""
    server, client = await wire.service(LISTENER), await wire.service(DIALER)
    server.server.add_gateway(DispatcherGateway, endpoint, check=check)
    return server, client


# --- calls ------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_typed_call(wire: Wire) -> None:
    endpoint = FakeDispatcher()
    server, client = await serve(wire, endpoint)
    request = SubmitJobRequest(JOB, b"{}", "digest", "test")
    answer = await connect(wire, client, server).submit_job(request)
    assert answer == SubmitJobResponse(SubmitOutcome.ACCEPTED, JobStatus.CREATED)
    assert endpoint.submitted == [request]
    assert endpoint.submitted[0] is not request


def _errors() -> list[FlinklikeError]:
    made: list[FlinklikeError] = [
        BackpressureError("full", retry_after=2.5),
        InvalidInputError("two problems", ("one", "zwei ✓")),
    ]
    made += [error_class("why ✓") for error_class in STATUS_OF_ERROR if error_class not in {type(e) for e in made}]
    return made


@pytest.mark.asyncio
@pytest.mark.parametrize("error", _errors(), ids=lambda error: type(error).__name__)
async def test_every_error_crosses_by_class(wire: Wire, error: FlinklikeError) -> None:
    endpoint = FakeDispatcher()

    async def fail(_: JobRequest) -> JobDetailsResponse:
        raise error

    endpoint.answer = fail
    server, client = await serve(wire, endpoint)
    with pytest.raises(type(error)) as caught:
        await connect(wire, client, server).request_job(JobRequest(JOB))
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    for name in ("retry_after", "problems"):
        assert getattr(caught.value, name, None) == getattr(error, name, None)


def test_every_error_class_is_in_the_table() -> None:
    ours = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, FlinklikeError)}
    # REST alone forbids: processes order each other around or know each other not, and no status is left.
    assert ours - {FlinklikeError, BugError, errors.ForbiddenError} == set(STATUS_OF_ERROR) - {RemoteFailureError}
    assert len(set(STATUS_OF_ERROR.values())) == len(STATUS_OF_ERROR)


@pytest.mark.asyncio
@pytest.mark.parametrize("error", [BugError("mistake"), ZeroDivisionError("division by zero")])
async def test_a_bug_over_there_is_no_bug_here(wire: Wire, error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    endpoint = FakeDispatcher()

    async def fail(_: JobRequest) -> JobDetailsResponse:
        raise error

    endpoint.answer = fail
    server, client = await serve(wire, endpoint)
    with pytest.raises(RemoteFailureError, match=type(error).__name__):
        await connect(wire, client, server).request_job(JobRequest(JOB))
    assert any(record.exc_info for record in caplog.records), "logged where it happened"


@pytest.mark.asyncio
async def test_huge_error_text_is_cut(wire: Wire) -> None:
    endpoint = FakeDispatcher()

    async def fail(_: JobRequest) -> JobDetailsResponse:
        raise InvalidInputError("ä" * 100_000, tuple(f"problem {n} \udcff" for n in range(10_000)))

    endpoint.answer = fail
    server, client = await serve(wire, endpoint)
    with pytest.raises(InvalidInputError) as caught:
        await connect(wire, client, server).request_job(JobRequest(JOB))
    assert "more problems" in caught.value.problems[-1]


@pytest.mark.asyncio
async def test_r1_runs_before_anything_else(wire: Wire) -> None:
    endpoint, own, highest = FakeDispatcher(), FencingToken(CLUSTER, 7), HighestToken("leader", CLUSTER)

    def check(target: FencingToken | None, sender: FencingToken | None) -> None:
        if target != own:
            raise StaleTokenError(f"meant for {target}, this is {own}")
        assert sender is not None
        highest.check(sender)

    server, client = await serve(wire, endpoint, check)
    request = SubmitJobRequest(JOB, b"", "", "")
    good = connect(wire, client, server, target=own, sender=FencingToken(CLUSTER, 5))
    await good.submit_job(request)
    other = FencingToken(ClusterUuid("d" * 32), 9)
    for target, sender in ((replace(own, revision=6), own), (None, own), (own, replace(own, revision=4)), (own, other)):
        with pytest.raises(StaleTokenError):
            await connect(wire, client, server, target=target, sender=sender).submit_job(request)
    assert endpoint.calls == 1


@pytest.mark.asyncio
async def test_deadline_leaves_the_outcome_unknown_and_cancels_the_call(wire: Wire) -> None:
    endpoint, state = FakeDispatcher(), Watch("idle")

    async def hang(_: JobRequest) -> JobDetailsResponse:
        state.set("running")
        try:
            await asyncio.Event().wait()
        finally:
            state.set("cancelled")
        raise AssertionError

    endpoint.answer = hang
    server, client = await serve(wire, endpoint)
    with pytest.raises(OutcomeUnknownError):
        await connect(wire, client, server, timeout=0.2).request_job(JobRequest(JOB))
    async with asyncio.timeout(60):
        await state.wait_until(lambda value: value == "cancelled")


@pytest.mark.asyncio
async def test_unreachable_peer_has_surely_not_executed(wire: Wire) -> None:
    endpoint = FakeDispatcher()
    server, client = await serve(wire, endpoint)
    gateway = connect(wire, client, server)
    await gateway.submit_job(SubmitJobRequest(JOB, b"", "", ""))
    await wire.kill(server)
    with pytest.raises(UnavailableError):
        await submit_until_certain(gateway)
    assert endpoint.calls == 1


async def submit_until_certain(gateway: DispatcherGateway) -> None:
    """Calls may go into the dead connection until the transport has seen its end."""
    async with asyncio.timeout(60):
        while True:
            with pytest.raises(OutcomeUnknownError):
                await gateway.submit_job(SubmitJobRequest(JOB, b"", "", ""))


@pytest.mark.asyncio
async def test_peer_killed_during_a_call_leaves_the_outcome_unknown(wire: Wire) -> None:
    endpoint, state = FakeDispatcher(), Watch("idle")

    async def hang(_: JobRequest) -> JobDetailsResponse:
        state.set("running")
        await asyncio.Event().wait()
        raise AssertionError

    endpoint.answer = hang
    server, client = await serve(wire, endpoint)
    async with asyncio.TaskGroup() as group:
        call = group.create_task(_outcome(connect(wire, client, server).request_job(JobRequest(JOB))))
        await state.wait_until(lambda value: value == "running")
        await wire.kill(server)
    assert isinstance(call.result(), OutcomeUnknownError)


async def _outcome(call: Awaitable[Any]) -> Exception | None:
    try:
        await call
    except FlinklikeError as error:
        return error
    return None


@pytest.mark.asyncio
async def test_gateway_that_is_not_served_or_no_more(wire: Wire) -> None:
    endpoint = FakeDispatcher()
    server, client = await serve(wire, endpoint)
    server.server.remove_gateway(DispatcherGateway)
    with pytest.raises(UnavailableError, match="DispatcherGateway"):
        await connect(wire, client, server).submit_job(SubmitJobRequest(JOB, b"", "", ""))
    server.server.add_gateway(DispatcherGateway, endpoint, check=accept_all)
    await connect(wire, client, server).submit_job(SubmitJobRequest(JOB, b"", "", ""))
    with pytest.raises(BugError):
        server.server.add_gateway(DispatcherGateway, endpoint, check=accept_all)
    attempt = ExecutionAttemptId(JOB, VertexId("b" * 32), 0, 1, 0)
    executor = client.connect(TaskExecutorGateway, wire.address(server), target=None, sender=None, timeout=5)
    with pytest.raises(UnavailableError, match="TaskExecutorGateway"):
        await executor.request_attempt_log(AttemptLogRequest(attempt, LogStream.LOG, 0, 1))


@pytest.mark.asyncio
async def test_large_messages_are_refused_with_the_figures(wire: Wire) -> None:
    endpoint = FakeDispatcher()

    async def large(_: JobRequest) -> JobDetailsResponse:
        return JobDetailsResponse(b"x" * (LIMITS.message_size_max + 1))

    endpoint.answer = large
    server, client = await serve(wire, endpoint)
    gateway = connect(wire, client, server)
    with pytest.raises(MessageTooLargeError, match=str(LIMITS.message_size_max)):
        await gateway.submit_job(SubmitJobRequest(JOB, b"x" * LIMITS.message_size_max, "", ""))
    assert endpoint.calls == 0
    with pytest.raises(MessageTooLargeError, match="JobDetailsResponse"):
        await gateway.request_job(JobRequest(JOB))
    await gateway.submit_job(SubmitJobRequest(JOB, b"x" * (LIMITS.message_size_max - 100), "", ""))


@pytest.mark.asyncio
async def test_cluster_token_is_required(wire: Wire) -> None:
    token = new_cluster_token()
    server = await wire.service(LISTENER, token=token)
    friend, stranger = await wire.service(DIALER, token=token), await wire.service(Incarnation("3" * 32))
    endpoint = FakeDispatcher()
    checked: list[object] = []

    def check(target: FencingToken | None, sender: FencingToken | None) -> None:
        checked.append((target, sender))

    server.server.add_gateway(DispatcherGateway, endpoint, check=check)
    server.server.add_stream_handler(KIND, drain, check=check)
    server.server.add_chunk_source("blobs", no_chunks)
    await connect(wire, friend, server).submit_job(SubmitJobRequest(JOB, b"", "", ""))
    checked.clear()
    with pytest.raises(UnauthenticatedError):
        await connect(wire, stranger, server).submit_job(SubmitJobRequest(JOB, b"", "", ""))
    with pytest.raises(UnauthenticatedError):
        await stranger.open_stream(wire.address(server), hello(), timeout=5)
    with pytest.raises(UnauthenticatedError):
        _ = [chunk async for chunk in stranger.fetch_chunks(wire.address(server), "blobs", "k", timeout=5)]
    wrong = await wire.service(Incarnation("4" * 32), token=new_cluster_token())
    with pytest.raises(UnauthenticatedError) as caught:
        await connect(wire, wrong, server).submit_job(SubmitJobRequest(JOB, b"", "", ""))
    assert token.reveal() not in str(caught.value)
    assert (checked, endpoint.calls) == ([], 1)


# --- who is there -----------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_process_says_who_it_is(wire: Wire) -> None:
    server, client = await wire.service(LISTENER), await wire.service(DIALER)
    assert await client.identify(wire.address(server), timeout=5.0) == LISTENER


@pytest.mark.asyncio
async def test_a_process_that_is_gone_refuses_and_its_successor_is_another_one(wire: Wire) -> None:
    server, client = await wire.service(LISTENER), await wire.service(DIALER)
    address = wire.address(server)
    assert await client.identify(address, timeout=5.0) == LISTENER
    await wire.kill(server)
    with pytest.raises(NobodyListensError):
        await client.identify(address, timeout=5.0)
    other = await wire.service(Incarnation("3" * 32))
    assert await client.identify(wire.address(other), timeout=5.0) == "3" * 32


@pytest.mark.asyncio
async def test_who_it_is_is_told_to_friends_only(wire: Wire) -> None:
    server = await wire.service(LISTENER, token=new_cluster_token())
    stranger = await wire.service(DIALER)
    with pytest.raises(UnauthenticatedError):
        await stranger.identify(wire.address(server), timeout=5.0)
