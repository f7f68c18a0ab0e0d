"""SshCalls: a verb of a script on another host, and its answer. Each call blocks, within a timeout."""

from __future__ import annotations

import select
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from runtime.aio.clock import SystemClock
from runtime.common.clock import Deadline
from runtime.common.errors import FlinklikeError
from runtime.common.json_text import parse_json
from runtime.common.printable import printable
from runtime.entrypoint.control.daemon import DaemonKind
from runtime.entrypoint.control.remote import RemoteHosts
from runtime.entrypoint.control.worker_verbs import GO

_CLOCK = SystemClock()
_SSH_FAILED = 255
"""The exit code by which ssh says that it is about the connection."""
_LINE_MAX = 65_536


class HostUnreachableError(FlinklikeError):
    """Nothing is known of what runs on the host. `is_unknown`: the call may have been executed."""

    def __init__(self, message: str, *, is_unknown: bool) -> None:
        super().__init__(message)
        self.is_unknown = is_unknown


class HostRefusedError(FlinklikeError):
    """The host has answered that it cannot, and why."""


class SshCalls:
    """Calls for one kind of process. No call takes longer than `timeout` seconds."""

    def __init__(self, remote: RemoteHosts, kind: DaemonKind, timeout: float) -> None:
        self._remote = remote
        self._kind = kind
        self._timeout = timeout

    def remember(self, host: str) -> None:
        """Record that such processes may run there: a stop asks it, though conf/ names it no more."""
        self._remote.remember([(host, self._kind)])

    def ask(
        self, host: str, arguments: Sequence[str], *, is_wanted: Callable[[], bool] | None = None
    ) -> Mapping[str, Any]:
        """The answer of a host. It may ask back, once, whether what it was asked for `is_wanted`.

        Raises HostUnreachableError and HostRefusedError.
        """
        call = _Call(host, Deadline.after(_CLOCK, self._timeout), is_wanted)
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    self._remote.ssh(host), bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
                )
            except OSError as error:
                message = f"there is no ssh on the JobManager's host: {error.strerror}"
                raise HostRefusedError(message) from error
            with process:
                try:
                    call.run(process, self._remote.script(self._kind, arguments, reads=is_wanted is not None))
                finally:
                    process.kill()
            errors.seek(0)
            return call.answer(process.returncode, _last_line(errors.read()))


class _Call:
    """One call, until its answer."""

    def __init__(self, host: str, deadline: Deadline, is_wanted: Callable[[], bool] | None) -> None:
        self._host = host
        self._deadline = deadline
        self._is_wanted = is_wanted
        self._is_told = is_wanted is None
        self._is_late = False
        self._found: Mapping[str, Any] | None = None

    def run(self, process: subprocess.Popen[bytes], script: bytes) -> None:
        """Talk to the host until it has nothing more to say."""
        assert process.stdin is not None, process
        assert process.stdout is not None, process
        with suppress(BrokenPipeError):
            process.stdin.write(script)
            if self._is_wanted is None:
                process.stdin.close()
        for answer in self._answers(process.stdout):
            if "asks" not in answer:
                self._found = answer
            elif self._is_wanted is not None and not process.stdin.closed:
                self._is_told = is_wanted = self._is_wanted()
                with suppress(BrokenPipeError):
                    process.stdin.write(GO.encode() if is_wanted else b"no\n")
                    process.stdin.close()
        if not self._is_late:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, self._deadline.remaining(_CLOCK)))

    def answer(self, code: int, complaint: str) -> Mapping[str, Any]:
        """What the host has said. Raises HostUnreachableError and HostRefusedError."""
        if self._found is not None:
            return self._found
        if code in {0, _SSH_FAILED} or code < 0:
            late = "it has not answered in time" if self._is_late else complaint or "ssh ended without a word"
            message = f"{self._host} cannot be reached: {late}"
            raise HostUnreachableError(message, is_unknown=self._is_told)
        message = f"{self._host}: {complaint or f'exit code {code}'}"
        raise HostRefusedError(message)

    def _answers(self, out: IO[bytes]) -> Iterator[Mapping[str, Any]]:
        """Lines of JSON, until the end of the output or of the time."""
        buffered = b""
        while True:
            ready, _, _ = select.select([out], [], [], max(0.0, self._deadline.remaining(_CLOCK)))
            if not ready:
                self._is_late = True
                return
            chunk = out.read(4096)
            if not chunk:
                return
            *lines, buffered = (buffered + chunk).split(b"\n")
            buffered = buffered[-_LINE_MAX:]
            for line in lines:
                if (answer := parsed(line)) is not None:
                    yield answer


def parsed(line: bytes) -> Mapping[str, Any] | None:
    """A line of an answer; None for what a login shell says."""
    if not line.startswith(b"{"):
        return None
    try:
        found = parse_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _last_line(text: bytes) -> str:
    lines = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
    return printable(lines[-1])[:500] if lines else ""
