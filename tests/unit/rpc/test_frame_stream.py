"""FrameStream with a slow receiver."""

from __future__ import annotations

import asyncio

import pytest

from runtime.aio.clock import LoopClock
from runtime.common.ids import Incarnation, JobId
from runtime.gateways.resource_manager import JobsEnded
from runtime.rpc import codec
from runtime.rpc.frames import encode_frame
from runtime.rpc.service import StreamHello, StreamKind
from runtime.rpc.settings import RpcLimits
from runtime.rpc.stream import FrameStream
from tests.kit.control_plane.virtual_time import run_virtual

HELLO = StreamHello(StreamKind.TASK_MANAGER_TO_RESOURCE_MANAGER, Incarnation("1" * 32), "h:1", 1, None, "")
MESSAGE = JobsEnded((JobId("x" * 1000),))


def frame(count: int) -> bytes:
    tag, body = codec.encode_tagged(MESSAGE)
    return encode_frame([tag] * count, [body] * count)


@pytest.mark.parametrize(
    "limits",
    [RpcLimits(inbox_messages_max=10), RpcLimits(inbox_size_max=10_000)],
    ids=["messages", "bytes"],
)
def test_a_peer_that_waits_for_our_receiver_is_not_silent(limits: RpcLimits) -> None:
    async def main() -> None:
        stream, loop = FrameStream(HELLO, limits, LoopClock()), asyncio.get_running_loop()
        await stream.deliver(frame(10))
        async with asyncio.TaskGroup() as tasks:
            delivering = tasks.create_task(stream.deliver(frame(1)))
            await asyncio.sleep(60)
            assert not delivering.done()
            assert stream.last_heard == loop.time()
            assert len(await stream.receive()) == 10
        taken_at = loop.time()
        await asyncio.sleep(60)
        assert stream.last_heard == taken_at
        assert len(await stream.receive()) == 1

    run_virtual(main())


def test_the_end_of_a_stream_frees_who_waits_for_room() -> None:
    async def main() -> None:
        stream = FrameStream(HELLO, RpcLimits(inbox_size_max=10), LoopClock())
        await stream.deliver(frame(1))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(stream.deliver(frame(1)))
            await asyncio.sleep(1)
            stream.abort("enough")

    run_virtual(main())
