"""What triggers ask of Airflow, and do when they are cancelled, so that no cancellation interrupts it.

Below Airflow 3.2 a triggerer takes the answer to an interrupted question for that to the next one, and ends with all
its triggers. Below 3.3 it cancels a trigger again each second until the trigger has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

_ASKED: set[asyncio.Task[Any]] = set()


async def answered(question: Coroutine[Any, Any, T], *, seconds: float | None = None) -> T:
    """The answer to a question to Airflow. A cancelled caller leaves at once, and the question goes on.

    Raises TimeoutError after `seconds`, and what the question raises.
    """
    task = _started(question)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        message = f"no answer within {seconds:g} s"
        raise TimeoutError(message)
    return task.result()


async def despite_cancellations(work: Coroutine[Any, Any, None]) -> None:
    """Do the work to its end, however often the caller is cancelled meanwhile. Raises what the work raises."""
    task = _started(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    task.result()


def _started(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    task = asyncio.create_task(work)  # noqa: TID251 - it outlives a cancellation of its caller
    _ASKED.add(task)
    task.add_done_callback(_forget)
    return task


def _forget(task: asyncio.Task[Any]) -> None:
    _ASKED.discard(task)
    if not task.cancelled():
        task.exception()  # a caller that has left does not hear of it
