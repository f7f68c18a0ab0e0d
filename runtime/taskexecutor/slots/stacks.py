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
_LOOKS = 80
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
        """What process `pid` writes after `send_signal`, within two seconds; or why it writes nothing."""
        async with self._reading:
            if not takes_signal(pid):
                # Its default is to end a process: one that has replaced itself by another program would end.
                return "it takes no signal to write its stacks: it has just begun, or runs another program"
            if not self._is_open:
                return "it has ended"
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)  # the process writes where this is
            elsewhere = _threads_blocking(pid)
            send_signal()
            return await self._written(pid, elsewhere) or f"it has written nothing in {_LOOKS * _LOOK_SECONDS:g} s"

    async def _written(self, pid: int, elsewhere: frozenset[str]) -> str:
        """`elsewhere`: threads that block the signal in any case. A thread blocks it while it writes."""
        size = 0
        for _ in range(_LOOKS):
            await asyncio.sleep(_LOOK_SECONDS)
            size = os.fstat(self._descriptor).st_size if self._is_open else -1
            if size < 0 or (size and _threads_blocking(pid) <= elsewhere):
                break
        return "it has ended" if size < 0 else os.pread(self._descriptor, _BYTES_MAX, 0).decode(errors="replace")


def takes_signal(pid: int) -> bool:
    """True if the process has a handler of STACKS_SIGNAL. A program that it has become since has none (R48)."""
    return _is_in_mask(f"/proc/{pid}/status", "SigCgt:")


def _threads_blocking(pid: int) -> frozenset[str]:
    """The threads of a process that do not take STACKS_SIGNAL now."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - names are enough
    except OSError:
        return frozenset()
    return frozenset(one for one in threads if _is_in_mask(f"/proc/{pid}/task/{one}/status", "SigBlk:"))


def _is_in_mask(path: str, name: str) -> bool:
    try:
        with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - a few lines
            mask = next((line for line in file if line.startswith(name)), f"{name} 0")
    except OSError:
        return False
    return bool(int(mask.split()[1], 16) >> (STACKS_SIGNAL - 1) & 1)


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
