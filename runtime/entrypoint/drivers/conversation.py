"""A conversation with a process through its pipes, within a time: no pipe that is full, or never ends, holds it up."""

from __future__ import annotations

import os
import selectors
import subprocess
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Self

from runtime.aio.clock import SystemClock
from runtime.common.clock import Deadline

_CLOCK = SystemClock()
_LINE_MAX = 65_536
_COMPLAINT_MAX = 4096
_CHUNK = 65_536
_PAUSE = 0.05
_END_PATIENCE = 0.5


class Conversation:
    """In `with`, at whose end the process has ended. Its three pipes are unbuffered.

    It may say as much as it likes: of a line and of its complaints a part is kept, and at the deadline it is left.
    """

    def __init__(self, process: subprocess.Popen[bytes], deadline: Deadline) -> None:
        self._process = process
        self._deadline = deadline
        self._selector = selectors.DefaultSelector()
        self._unsent = b""
        self._is_said = False
        self._complaint = b""
        self.is_late = False

    def __enter__(self) -> Self:
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None, self._process
            os.set_blocking(pipe.fileno(), False)
        self._selector.register(self._pipe(self._process.stdout), selectors.EVENT_READ)
        self._selector.register(self._pipe(self._process.stderr), selectors.EVENT_READ)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._selector.close()
        self._process.terminate()  # first, as ssh ends then what it has started itself
        try:
            self._process.wait(_END_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process.__exit__(kind, error, traceback)

    def say(self, text: bytes, *, is_last: bool) -> None:
        """Have the process told, as soon as it reads. Nothing more after the last text."""
        stdin = self._pipe(self._process.stdin)
        if self._is_said or stdin.closed:
            return
        self._unsent += text
        self._is_said = is_last
        if stdin not in self._selector.get_map():
            self._selector.register(stdin, selectors.EVENT_WRITE)

    def lines(self) -> Iterator[bytes]:
        """What it says, until it says no more, or `is_late`."""
        buffered = b""
        out = self._pipe(self._process.stdout)
        while out in self._selector.get_map():
            if self._deadline.remaining(_CLOCK) <= 0:
                self.is_late = True
                return
            *lines, buffered = (buffered + self._turn(self._deadline.remaining(_CLOCK))).split(b"\n")
            buffered = buffered[-_LINE_MAX:]
            yield from lines
        self._wait_ended()

    @property
    def complaint(self) -> str:
        """The last line that it has complained with; "" without one."""
        lines = [line for line in self._complaint.decode(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def _wait_ended(self) -> None:
        """Its exit code says the rest. What holds its complaints open may outlive it."""
        while self._process.poll() is None:
            if self._deadline.remaining(_CLOCK) <= 0:
                self.is_late = True
                return
            self._turn(min(_PAUSE, self._deadline.remaining(_CLOCK)))
        self._turn(0.0)

    def _turn(self, patience: float) -> bytes:
        """Wait for a pipe that is ready, and use all that are. What was said."""
        said = b""
        for key, _ in self._selector.select(max(0.0, patience)):
            pipe = key.fileobj
            if pipe is self._process.stdin:
                self._write()
            elif pipe is self._process.stdout:
                said += self._read(self._pipe(self._process.stdout))
            else:
                self._complaint = (self._complaint + self._read(self._pipe(self._process.stderr)))[-_COMPLAINT_MAX:]
        return said

    def _write(self) -> None:
        stdin = self._pipe(self._process.stdin)
        try:
            self._unsent = self._unsent[stdin.write(self._unsent) or 0 :]
        except BrokenPipeError:  # it reads no more: what it says tells why
            self._unsent, self._is_said = b"", True
        if not self._unsent:
            self._selector.unregister(stdin)
            if self._is_said:
                stdin.close()

    def _read(self, pipe: IO[bytes]) -> bytes:
        chunk = pipe.read(_CHUNK)
        if chunk == b"":
            self._selector.unregister(pipe)
        return chunk or b""

    def _pipe(self, pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None, self._process
        return pipe
