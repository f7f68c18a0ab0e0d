"""The life of a driver JVM.

It dies with the process that starts it: by its stdin's end and by the parent-death signal.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runtime.common.clock import Clock, Deadline
from runtime.common.errors import FlinklikeError
from runtime.security.file_mask import append_private
from runtime.system.linux import die_with_parent
from runtime.taskexecutor.driver_jvm.last_exception import in_words, last_exception

_POLL_INTERVAL = 0.02
_EXCEPTION_READ_MAX = 64 << 10
_OBEYED_SIGNALS = frozenset(128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))


class JvmStartError(FlinklikeError):
    """The JVM ended, with exit code `code`, or did not answer in time (None), before Spark was there.

    `thrown`: the exception of Java that has ended it, as Java writes it; "" where none is known.
    """

    def __init__(self, message: str, code: int | None = None, thrown: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.thrown = thrown

    @property
    def is_thrown(self) -> bool:
        """True if an exception of Spark's own start has ended it, as for a package that does not exist."""
        return self.thrown.partition(":")[0].endswith("Exception")

    def is_of_itself(self) -> bool:
        """True if the JVM has ended by itself: not by a signal, nor with Java's exit code for an obeyed signal."""
        return self.code is not None and not self.is_killed

    @property
    def is_killed(self) -> bool:
        """True if somebody else has ended it."""
        return self.code == -signal.SIGKILL or self.code in _OBEYED_SIGNALS


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Where the JVM's own py4j gateway listens."""

    port: int
    secret: str


class JvmProcess:
    """One running JVM: a child of this process, in a session of its own (no Ctrl-C), ended with this process."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, log_file: Path, cwd: Path) -> None:
        with append_private(log_file) as log:
            self._log_begin = log.tell()
            self._process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=cwd,
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - started while this process is single-threaded
            )
        self._log_file = log_file

    @property
    def pid(self) -> int:
        """The process id; valid until `wait` has seen the end."""
        return self._process.pid

    def wait_gateway(self, connection_file: Path, clock: Clock, deadline: Deadline) -> GatewayAddress:
        """Wait for the gateway. Raises JvmStartError with the log's end when the JVM dies or the time is over."""
        while not connection_file.exists():
            if deadline.has_passed(clock):
                message = f"the JVM has no gateway yet, its time is over; log: {self._log_file}{self.log_tail()}"
                raise JvmStartError(message)
            try:
                code = self._process.wait(_POLL_INTERVAL)
            except subprocess.TimeoutExpired:
                continue
            thrown = last_exception(self.last_output(_EXCEPTION_READ_MAX))
            why = f": {in_words(thrown)}" if thrown else f"; log: {self._log_file}{self.log_tail()}"
            raise JvmStartError(f"the JVM ended with code {code} before it had a gateway{why}", code, thrown)
        return read_gateway_address(connection_file)

    def log_tail(self, size: int = 2000) -> str:
        """The last lines that the JVM wrote, for error messages."""
        text = self.last_output(size)
        return f"\n{text}" if text else ""

    def last_output(self, size: int) -> str:
        """The end of what this JVM wrote, in whole lines; others have written to the same file before it."""
        try:
            with self._log_file.open("rb") as log:
                begin = log.seek(max(self._log_begin, log.seek(0, os.SEEK_END) - size))
                text = log.read(size).decode(errors="replace")
        except FileNotFoundError:
            return ""
        return text if begin == self._log_begin else text.partition("\n")[2] or text

    def close_stdin(self) -> None:
        """Let the JVM end by itself: pyspark's gateway server exits at the end of its input."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def wait(self, timeout: float | None) -> int | None:
        """The exit code, or None when it has not ended in time. None waits for ever."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End it now and reap it. Idempotent."""
        self._process.kill()
        self._process.wait()
        self.close_stdin()


def read_gateway_address(connection_file: Path) -> GatewayAddress:
    """pyspark's form: port, then length and secret. The JVM renames the finished file into place."""
    content = connection_file.read_bytes()
    port, length = struct.unpack_from("!ii", content)
    return GatewayAddress(port, content[8 : 8 + length].decode())
