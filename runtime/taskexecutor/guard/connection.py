"""The main process's end of the guard's socket while it serves: the deadline, and the processes that run exclusive
tasks (R14).
"""

from __future__ import annotations

import asyncio
import logging
import socket

from runtime.common.errors import UnavailableError
from runtime.taskexecutor.guard.channel import (
    EXCLUSIVE,
    HELD,
    HOLD,
    LINE_BYTES_MAX,
    SHARED,
    SPARK,
    STATE_END,
    STATING,
    SWEEP,
    SWEPT,
)

logger = logging.getLogger(__name__)

_SWEEP_PAUSE = 0.1


class GuardConnection:
    """Implements `DeadlineHolder` and `ProcessGuard`. Belongs to one event loop; `open` before, `close` after."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._received = b""
        self._waiting: dict[tuple[str, str], asyncio.Future[str]] = {}
        self._sweeps = 0

    def open(self) -> None:
        """Begin to hear answers."""
        self._control.settimeout(0)
        asyncio.get_running_loop().add_reader(self._control, self._on_readable)

    def close(self) -> None:
        """Hear no more. The socket stays: its end is this process's end."""
        asyncio.get_running_loop().remove_reader(self._control)

    async def hold(self, deadline: float, /) -> None:
        """Hand the guard a deadline. Returns when the guard will act then, unless it gets a later one. Waits for a
        frozen guard.
        """
        await self._ask(HOLD, repr(deadline), HELD)

    async def state_end(self, seconds: float) -> None:
        """Have the end of this life stated for so long where the guard answers; 0: no process will ask (R30)."""
        await self._ask(STATE_END, repr(seconds), STATING)

    async def sweep(self) -> str:
        """Have the guard kill all that dead processes have left (R29). Returns "" when nothing is left, else what does
        not die.

        Waits for a frozen guard. When the guard has ended, this process ends too.
        """
        self._sweeps += 1
        number = str(self._sweeps)
        while True:
            try:
                return await self._ask(SWEEP, number, SWEPT)
            except UnavailableError as error:
                logger.warning("what dead processes have left cannot be ended yet: %s", error)
                await asyncio.sleep(_SWEEP_PAUSE)

    async def _ask(self, request: str, argument: str, answer: str) -> str:
        answered: asyncio.Future[str]
        answered = self._waiting[answer, argument] = asyncio.get_running_loop().create_future()
        try:
            self._send(f"{request} {argument}")
            return await answered
        finally:
            self._waiting.pop((answer, argument), None)

    def mark_exclusive(self, pid: int) -> None:
        """Name a process before exclusive work begins in it. Raises UnavailableError: then the work must not begin."""
        self._send(f"{EXCLUSIVE} {pid}")

    def unmark(self, pid: int) -> None:
        """Take the name back when nothing of the task is left, in the process and in Spark."""
        self._send(f"{SHARED} {pid}")

    def note_spark(self, pid: int) -> None:
        """Tell the guard a host process of Spark, before that serves a session."""
        self._send(f"{SPARK} {pid}")

    def _send(self, line: str) -> None:
        data = f"{line}\n".encode()
        try:
            sent = self._control.send(data)
        except OSError as error:
            message = f"the guard takes no orders: {error}"
            raise UnavailableError(message) from error
        assert sent == len(data), "a line is smaller than the room that the socket has when it has any"

    def _on_readable(self) -> None:
        try:
            data = self._control.recv(LINE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()  # the guard has ended, and its parent-death signal is on its way
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            word, argument, *rest = [*line.decode(errors="replace").split(" ", 2), "", ""]
            answered = self._waiting.get((word, argument))
            if answered is not None and not answered.done():
                answered.set_result(rest[0])
