"""The stacks of this process: of each thread, and of each task of the running loop. No values, which may be secrets."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from types import FrameType
from typing import Any

_DEPTH_MAX = 200
_TASKS_AT_ONCE = 50
"""After so many tasks the loop does other work."""


def thread_stacks() -> Iterator[tuple[str, str]]:
    """(name, stack) of each thread, the innermost call first."""
    threads = {one.ident: one for one in threading.enumerate()}
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - the only way to other threads' stacks
        thread = threads.get(ident)
        name = f"thread {ident}" if thread is None else thread.name
        native = f" nid={thread.native_id}" if thread is not None else ""
        daemon = " daemon" if thread is not None and thread.daemon else ""
        yield name, f'"{name}" Id={ident}{native}{daemon}\n{_lines(_called(frame))}'


async def task_stacks() -> AsyncIterator[tuple[str, str]]:
    """(name, stack) of each other task of the running loop, by name: what it awaits, innermost first."""
    asking = asyncio.current_task()
    tasks = sorted((task for task in asyncio.all_tasks() if task is not asking), key=lambda task: task.get_name())
    for number, task in enumerate(tasks):
        if number % _TASKS_AT_ONCE == _TASKS_AT_ONCE - 1:
            await asyncio.sleep(0)
        if task.done():
            continue
        frames, awaited = _awaited(task.get_coro())
        name = f"task {task.get_name()}"
        yield name, f'"{name}" {f"waits for a {awaited}" if awaited else "is due"}\n{_lines(frames)}'


def _called(frame: FrameType | None) -> list[FrameType]:
    found: list[FrameType] = []
    while frame is not None and len(found) < _DEPTH_MAX:
        found.append(frame)
        frame = frame.f_back
    return found


def _awaited(awaiting: Any) -> tuple[list[FrameType], str]:
    """The frames of a coroutine that waits, innermost first; and the kind of what it waits for in the end."""
    found: list[FrameType] = []
    while len(found) < _DEPTH_MAX:
        for prefix in ("cr", "gi", "ag"):
            if hasattr(awaiting, f"{prefix}_frame"):
                break
        else:
            break
        if (frame := getattr(awaiting, f"{prefix}_frame")) is not None:
            found.append(frame)
        awaiting = getattr(awaiting, "gi_yieldfrom" if prefix == "gi" else f"{prefix}_await")
    return found[::-1], "" if awaiting is None else type(awaiting).__name__


def _lines(frames: list[FrameType]) -> str:
    return "".join(f"\tat {_place(frame)}\n" for frame in frames)


def _place(frame: FrameType) -> str:
    code = frame.f_code
    module = frame.f_globals.get("__name__", "?")
    return f"{module}.{code.co_qualname}({code.co_filename.rpartition('/')[2]}:{frame.f_lineno})"
