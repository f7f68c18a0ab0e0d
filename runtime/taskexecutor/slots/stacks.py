"""The stacks of a slot process, which it writes by itself when it gets a signal, in whatever code it is.

The kernel interrupts it for a moment; a call that waits is made again. The file is the TaskManager's, and has no name:
what user code puts in the place of the descriptor, or writes into the file, is read as text of a bounded length.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from runtime.taskexecutor.slot_protocol.template_config import STACKS_SIGNAL

_BYTES_MAX = 256 * 1024
_LOOKS = 40
_LOOK_SECONDS = 0.025


class StackFile:
    """The file of one slot process. Owns the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_open = True
        self._reading = asyncio.Lock()

    def close(self) -> None:
        """The process is reaped. Idempotent."""
        if self._is_open:
            self._is_open = False
            os.close(self._descriptor)

    async def read(self, pid: int, send_signal: Callable[[], None]) -> str:
        """What process `pid` writes after `send_signal`, within a second; or why it writes nothing."""
        async with self._reading:
            if not takes_signal(pid):
                # Its default is to end a process: one that has replaced itself by another program would end.
                return "it takes no signal to write its stacks: it has just begun, or runs another program"
            if not self._is_open:
                return "it has ended"
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)  # the process writes where this is
            send_signal()
            return await self._written() or f"it has written nothing in {_LOOKS * _LOOK_SECONDS:g} s"

    async def _written(self) -> str:
        size = 0
        for _ in range(_LOOKS):
            await asyncio.sleep(_LOOK_SECONDS)
            before, size = size, self._size()
            if size < 0 or 0 < size == before:
                break
        return "it has ended" if size < 0 else os.pread(self._descriptor, _BYTES_MAX, 0).decode(errors="replace")

    def _size(self) -> int:
        """-1 when the file is closed."""
        return os.fstat(self._descriptor).st_size if self._is_open else -1


def takes_signal(pid: int) -> bool:
    """True if the process has a handler of STACKS_SIGNAL. A program that it has become since has none (R48)."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - a few lines
            caught = next((line for line in file if line.startswith("SigCgt:")), "SigCgt: 0")
    except OSError:
        return False
    return bool(int(caught.split()[1], 16) >> (STACKS_SIGNAL - 1) & 1)


class HasStacks(Protocol):
    """A slot process."""

    pid: int

    async def stacks(self) -> str:
        """The stacks of its Python threads."""


async def stacks_of(processes: Sequence[tuple[str, HasStacks]]) -> AsyncIterator[tuple[str, str]]:
    """(name, stack) of each thread of these processes, which are asked side by side."""
    async with asyncio.TaskGroup() as group:
        asked = [(f"{name} (pid {process.pid})", group.create_task(process.stacks())) for name, process in processes]
    for name, task in asked:
        for block in filter(None, (part.strip() for part in task.result().split("\n\n"))):
            head = block.partition("\n")[0]
            thread = head.removesuffix(" (most recent call first):") if "thread 0x" in head.lower() else ""
            yield f"{name} {thread}".strip(), f"{block}\n"
