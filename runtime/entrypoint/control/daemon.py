"""One kind of daemon: start (returns when it reports ready), start-foreground, stop, stop-all (flink-shell.md).

A start succeeds only when the process has written its ready file; if it ends before, the reason it gave is shown.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from runtime.common.errors import FlinklikeError
from runtime.config.layout import Layout
from runtime.entrypoint.control.pid_file import PidFile, ProcessId

READY_FILE_VARIABLE = "FLINKLIKE_READY_FILE"
LOG_FILE_VARIABLE = "FLINKLIKE_LOG_FILE"
START_TIMEOUT = 180.0
STOP_TIMEOUT = 10.0
_POLL = 0.05


class DaemonError(FlinklikeError):
    """A daemon did not start or stop; the message is for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class DaemonKind:
    """`name` is what scripts and files call it, `module` what Python runs."""

    name: str
    module: str


JOBMANAGER = DaemonKind("jobmanager", "runtime.entrypoint.job_manager")
JOBMASTER = DaemonKind("jobmaster", "jobmaster_process")
TASKMANAGER = DaemonKind("taskmanager", "runtime.entrypoint.task_manager")
KINDS = {kind.name: kind for kind in (JOBMANAGER, JOBMASTER, TASKMANAGER)}


@dataclass(frozen=True, slots=True)
class Starting:
    """A daemon that was started and has yet to report ready."""

    kind: DaemonKind
    process: subprocess.Popen[bytes]
    ready_file: Path
    out_file: Path


class Daemon:
    """The daemons of one kind in one run directory."""

    def __init__(self, kind: DaemonKind, layout: Layout, environment: Mapping[str, str], out: TextIO) -> None:
        self._kind = kind
        self._layout = layout
        self._environment = dict(environment)
        self._out = out
        identity = environment.get("FLINKLIKE_IDENT_STRING") or environment.get("USER") or str(os.getuid())
        self._name = f"flinklike-{identity}-{kind.name}"
        self._pids = PidFile(layout.pid, self._name)

    def running(self) -> list[ProcessId]:
        """The processes of this kind that run now."""
        return self._pids.running()

    def command(self, dynamic: Sequence[str]) -> list[str]:
        """What runs a process of this kind."""
        options = [argument for text in dynamic for argument in ("-D", text)]
        return [sys.executable, "-m", self._kind.module, *options]

    def spawn(self, dynamic: Sequence[str]) -> Starting:
        """Start one more in the background and record it; `wait_ready` tells how it went."""
        with self._pids.locked():
            running = self._pids.running()
            if running:
                count = f"{len(running)} {self._kind.name} instance(s)"
                self._say(f"[INFO] {count} are already running on {socket.gethostname()}.")
            process, ready_file, out_file = self._launch(dynamic, number=self._free_number(running))
            record = ProcessId.of(process.pid)
            self._pids.write([*running, *([record] if record else [])])
        self._say(f"Starting {self._kind.name} daemon on host {socket.gethostname()}.")
        return Starting(self._kind, process, ready_file, out_file)

    def wait_ready(self, starting: Starting) -> dict[str, str]:
        """What the process says of itself (addresses). Raises DaemonError if it ends or stays silent."""
        deadline = time.monotonic() + START_TIMEOUT  # noqa: TID251 (a script's own wait, no component)
        while not starting.ready_file.exists():
            if starting.process.poll() is not None:
                self._forget(starting.process.pid)
                message = f"Error starting {self._kind.name} daemon: {_last_words(starting.out_file)}"
                raise DaemonError(message)
            if time.monotonic() > deadline:  # noqa: TID251
                message = f"{self._kind.name} daemon is not ready after {START_TIMEOUT:.0f} s: see {starting.out_file}"
                raise DaemonError(message)
            _pause(starting.process)
        text = starting.ready_file.read_text(encoding="utf-8")
        starting.ready_file.unlink()
        return {key: str(value) for key, value in json.loads(text or "{}").items()}

    def run_foreground(self, dynamic: Sequence[str]) -> None:
        """Become the process: signals and exit code are its own. Never returns."""
        with self._pids.locked():
            me = ProcessId.of(os.getpid())
            self._pids.write([*self._pids.running(), *([me] if me else [])])
        command = self.command(dynamic)
        os.execve(command[0], command, self._environment)  # noqa: S606 (the point of start-foreground)

    def stop_last(self) -> None:
        """Stop the one that was started last; nothing running is no error."""
        with self._pids.locked():
            running = self._pids.running()
            self._pids.write(running[:-1])
        if not running:
            self._say(f"No {self._kind.name} daemon to stop on host {socket.gethostname()}.")
            return
        self._terminate(running[-1:])

    def stop_all(self) -> None:
        """Stop all of them, side by side."""
        with self._pids.locked():
            running = self._pids.running()
            self._pids.write([])
        self._terminate(running)

    def _launch(self, dynamic: Sequence[str], *, number: int) -> tuple[subprocess.Popen[bytes], Path, Path]:
        self._layout.log.mkdir(parents=True, exist_ok=True)
        base = self._layout.log / f"{self._name}-{number}-{socket.gethostname()}"
        out_file = base.with_name(base.name + ".out")
        ready_file = self._layout.pid / f".{self._name}-{number}.ready"
        ready_file.unlink(missing_ok=True)
        environment = {
            **self._environment,
            READY_FILE_VARIABLE: str(ready_file),
            LOG_FILE_VARIABLE: str(base.with_name(base.name + ".log")),
        }
        with out_file.open("wb") as out:
            process = subprocess.Popen(
                self.command(dynamic),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                cwd=self._layout.run,
            )
        return process, ready_file, out_file

    def _free_number(self, running: Sequence[ProcessId]) -> int:
        """The number in the log file's name: the lowest one whose log no running instance writes."""
        used = set()
        for process in running:
            try:
                environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            marker = f"{LOG_FILE_VARIABLE}=".encode()
            used |= {entry[len(marker) :].decode() for entry in environment if entry.startswith(marker)}
        number = 0
        while str(self._layout.log / f"{self._name}-{number}-{socket.gethostname()}.log") in used:
            number += 1
        return number

    def _forget(self, pid: int) -> None:
        with self._pids.locked():
            self._pids.write([process for process in self._pids.running() if process.pid != pid])

    def _terminate(self, processes: Sequence[ProcessId]) -> None:
        for process in processes:
            self._say(f"Stopping {self._kind.name} daemon (pid: {process.pid}) on host {socket.gethostname()}.")
            _signal(process, signal.SIGTERM)
        _wait_ended(processes, STOP_TIMEOUT)
        for process in processes:
            if process.is_running:
                seconds = f"{STOP_TIMEOUT:.0f} seconds"
                self._say(f"Daemon {self._kind.name} didn't stop within {seconds}. Killing it.")
                _signal(process, signal.SIGKILL)

    def _say(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


def _signal(process: ProcessId, number: signal.Signals) -> None:
    if process.is_running:
        os.kill(process.pid, number)


def _pause(process: subprocess.Popen[bytes]) -> None:
    """Wait a moment, less if the process ends."""
    try:
        process.wait(_POLL)
    except subprocess.TimeoutExpired:
        return


def _wait_ended(processes: Sequence[ProcessId], timeout: float) -> None:
    """Return when all of them have ended, or after `timeout` seconds. They need not be our children."""
    deadline = time.monotonic() + timeout  # noqa: TID251
    for process in processes:
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        try:
            if process.is_running:
                remaining = max(0.0, deadline - time.monotonic())  # noqa: TID251
                select.select([descriptor], [], [], remaining)
        finally:
            os.close(descriptor)


def _last_words(out_file: Path) -> str:
    lines = [line for line in out_file.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return "\n".join(lines[-12:]) if lines else f"it ended without a word, see {out_file}"
