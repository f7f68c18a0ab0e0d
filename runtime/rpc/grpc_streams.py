"""Both ends of a stream over grpc.aio: carry frames between a FrameStream and a bidirectional call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import grpc
import grpc.aio

from runtime.aio.scope import ServiceScope
from runtime.common.errors import InvalidInputError
from runtime.rpc.grpc_channels import END_OF_CALL
from runtime.rpc.stream import FrameStream

logger = logging.getLogger(__name__)

_WRITE_ERRORS = (grpc.RpcError, grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError)
"""Errors of a write after the end of its call; the reader gets the reason."""


_Carrier = Callable[[FrameStream, Any], Coroutine[Any, Any, None]]


def _ends_only_its_stream(carry: _Carrier) -> _Carrier:
    @wraps(carry)
    async def carry_or_abort(stream: FrameStream, call: Any) -> None:
        try:
            await carry(stream, call)
        except Exception as error:
            # The boundary of one stream: all streams share one scope, which must outlive each of them.
            logger.exception("stream %s failed", stream.name)
            stream.abort(f"the transport failed: {type(error).__name__}")

    return carry_or_abort


def _is_task_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


# --- the dialling end -----------------------------------------------------------------------------------------


@_ends_only_its_stream
async def read_dialed(stream: FrameStream, call: Any) -> None:
    """Deliver frames until the call ends."""
    try:
        while (frame := await call.read()) is not END_OF_CALL:
            await stream.deliver(frame)
        stream.end("closed by the peer")
    except grpc.aio.AioRpcError as error:
        stream.end(f"connection lost: {error.code().name} ({error.details()})")
    except InvalidInputError as error:
        stream.abort(str(error))
    except asyncio.CancelledError:
        # `call.cancel()` raises CancelledError in the reader, without a cancellation of this task.
        stream.end("the call was cancelled")
        if _is_task_cancelled():
            raise


@_ends_only_its_stream
async def write_dialed(stream: FrameStream, call: Any) -> None:
    """Write frames one at a time; half-close when the stream is closed, so that the listener ends the call."""
    try:
        while (frame := await stream.next_frame()) is not None:
            await call.write(frame)
        if not stream.is_ended:
            await call.done_writing()
    except _WRITE_ERRORS as error:
        stream.end(f"connection lost: {type(error).__name__}")
    except asyncio.CancelledError:
        if _is_task_cancelled():
            raise


# --- the listening end ------------------------------------------------------------------------------------------


async def hold_accepted(stream: FrameStream, context: Any, scope: ServiceScope) -> None:
    """Run an accepted call until its stream has ended. Called in the call's own task, which dies with the peer."""
    reader = scope.start(f"stream/{stream.name}/read", _read_accepted(stream, context))
    writer = scope.start(f"stream/{stream.name}/write", _write_accepted(stream, context))
    try:
        reason = await stream.wait_ended()
    except asyncio.CancelledError:
        stream.end("connection lost")
        raise
    finally:
        reader.cancel()
        writer.cancel()
    if not stream.is_closed_cleanly:
        await context.abort(grpc.StatusCode.ABORTED, reason[:200])


@_ends_only_its_stream
async def _read_accepted(stream: FrameStream, context: Any) -> None:
    try:
        while (frame := await context.read()) is not END_OF_CALL:
            await stream.deliver(frame)
        stream.end("closed by the peer", is_clean=True)
    except InvalidInputError as error:
        stream.abort(str(error))
    except _WRITE_ERRORS as error:
        stream.end(f"connection lost: {type(error).__name__}")


@_ends_only_its_stream
async def _write_accepted(stream: FrameStream, context: Any) -> None:
    try:
        while (frame := await stream.next_frame()) is not None:
            await context.write(frame)
        stream.end("closed", is_clean=True)
    except _WRITE_ERRORS as error:
        stream.end(f"connection lost: {type(error).__name__}")
