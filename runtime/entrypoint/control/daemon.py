"""One kind of daemon: start (returns when it reports ready), start-foreground, stop, stop-all, drain.

The verbs and their answers: docs/operations.md, Scripts.

A start succeeds when the process has written its ready file; if the process ends before, its last output is shown. The
ready file stays while the process lives: it holds the process's addresses, for tables and for clients on this host.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TextIO

from runtime.common.json_text import parse_json
from runtime.common.printable import printable
from runtime.config import log_files
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.options.jobmanager import JOBMASTER_WORKER_ID
from runtime.config.options.taskmanager import DRAIN_TIMEOUT, WORKER_ID
from runtime.entrypoint.control.pending import DaemonError, wait_all
from runtime.entrypoint.control.pid_file import PidFile, ProcessId, Record, wait_ended
from runtime.system.directory_lock import delete_left
from runtime.taskexecutor.guard.records import who_states
from runtime.taskexecutor.guard.signals import END_AT_ONCE

READY_FILE_VARIABLE = "FLINKLIKE_READY_FILE"
LOG_FILE_VARIABLE = "FLINKLIKE_LOG_FILE"
RESOURCE_ID_FILE_VARIABLE = "FLINKLIKE_RESOURCE_ID_FILE"
LOG_CONSOLE_VARIABLE = "FLINKLIKE_LOG_CONSOLE"
"""Set: the log goes to stderr as well as to its file."""
START_TIMEOUT = 180.0
STOP_TIMEOUT = 10.0
INSIST_AFTER = 0.3
"""Seconds between the SIGTERM that begins a drain and the one that ends it: `stop` does not wait for tasks."""
KILL_TIMEOUT = 10.0
_RELEASE_TIMEOUT = 10.0
_EXEC_LOOKS = 50
_EXEC_PAUSE = 0.01
STATED_FOR = 3.0
"""Seconds for which the end of a killed TaskManager is stated: a leader that loses one dials within a second."""


@dataclass(frozen=True, slots=True)
class DaemonKind:
    """`name` is its name in scripts and files, `module` the Python module that runs.

    `drains`: it lets its tasks finish first. `keeps_id`: the next process with its number gets its name (D-058).
    `is_guarded`: its process is a watcher, which is killed only after a signal to end all its processes (R30).
    `label`: the option by which a driver knows those that it has started (R65), "" for what no driver starts.
    `stop_timeout`: seconds after which a stop kills it.
    """

    name: str
    module: str
    drains: bool = False
    keeps_id: bool = False
    is_guarded: bool = False
    label: str = ""
    stop_timeout: float = STOP_TIMEOUT


_WHEN_TOLD = ("/bin/sh", "-c", 'read -r _ && exec "$@" < /dev/null', "sh")
"""Runs a command when a line comes, and nothing when the one who would send it has ended."""
_GO = b"\n"
_COMPLAINT = re.compile(r'^[^{]* (WARNING|ERROR|CRITICAL) |"level":"(WARNING|ERROR|CRITICAL)"')
_COMPLAINT_BYTES = 64 * 1024
JOBMANAGER = DaemonKind("jobmanager", "runtime.entrypoint.job_manager")
JOBMASTER = DaemonKind("jobmaster", "jobmaster_process", label=JOBMASTER_WORKER_ID.key)
TASKMANAGER = DaemonKind(
    "taskmanager",
    "runtime.entrypoint.task_manager",
    drains=True,
    keeps_id=True,
    is_guarded=True,
    label=WORKER_ID.key,
)
HISTORYSERVER = DaemonKind("historyserver", "runtime.entrypoint.history_server")
"""No process of a cluster: it is started for itself, and shows the jobs of any clusters."""
STANDALONEJOB = DaemonKind("standalonejob", "runtime.entrypoint.standalone_job", stop_timeout=90.0)
"""A JobManager for one job, which it cancels at a stop if no store keeps the job."""
KINDS = {kind.name: kind for kind in (JOBMANAGER, JOBMASTER, TASKMANAGER)}


@dataclass(frozen=True, slots=True)
class Instance:
    """A running process of the cluster, as a row of the table of processes."""

    process: str
    host: str
    pid: int
    address: str
    state: str

    @property
    def port(self) -> int:
        """The port of its address; 0 while it has none."""
        port = self.address.rpartition(":")[2]
        return int(port) if port.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class Starting:
    """A daemon that was started and has yet to report ready (`Pending`)."""

    kind: DaemonKind
    process: subprocess.Popen[bytes]
    record: Record | None
    ready_file: Path
    out_file: Path

    @property
    def name(self) -> str:
        """Kind and pid, the log files, and the last warning or error of the log."""
        log = self.out_file.with_suffix(".log")
        return f"{self.kind.name} (pid {self.process.pid}, see {log} and {self.out_file.name}){_last_complaint(log)}"

    def is_done(self) -> bool:
        """True when it is ready. Raises DaemonError when it has ended instead."""
        if self.ready_file.exists():
            return True
        if self.process.poll() is None:
            return False
        message = f"Error starting {self.kind.name} daemon: {_last_words(self.out_file)}"
        raise DaemonError(message)


class Daemon:
    """The daemons of one kind in one run directory."""

    def __init__(self, kind: DaemonKind, layout: Layout, environment: Mapping[str, str], out: TextIO) -> None:
        self.kind = kind
        self._layout = layout
        self._environment = {**environment, **layout.environment()}
        self._out = out
        self._host = socket.gethostname()
        identity = environment.get("FLINKLIKE_IDENT_STRING") or environment.get("USER") or str(os.getuid())
        self._log_name = f"flinklike-{identity}-{kind.name}"
        self._pids = PidFile(layout.pid, kind.name)

    def instances(self) -> list[Instance]:
        """The processes of this kind that run now, oldest first."""
        return [self._instance(record) for record in self._pids.running()]

    def records(self) -> list[Record]:
        """The records of the same processes."""
        return self._pids.running()

    def options_of(self, record: Record) -> list[str]:
        """The -D options with which a process was started. Raises OSError when it has ended."""
        command = Path(f"/proc/{record.process.pid}/cmdline")
        text = command.read_text(encoding="utf-8", errors="replace")
        for _ in range(_EXEC_LOOKS):
            if text or not record.process.is_running:
                break
            wait_ended([record.process], _EXEC_PAUSE)  # it becomes another program, and has no arguments meanwhile
            text = command.read_text(encoding="utf-8", errors="replace")
        words = text.split("\0")
        return [value for name, value in pairwise(words) if name == "-D"]

    def has_labels(self) -> bool:
        """True if a driver has started one of them (R65). A stop gets other options than the start had."""
        return any(self.label_in(self._options_now(one)) for one in self.records())

    def label_in(self, options: Sequence[str]) -> str:
        """The label that a driver has given to a process with these -D options, "" without one."""
        key = f"{self.kind.label}="
        if not self.kind.label:
            return ""
        return next((text.removeprefix(key) for text in reversed(options) if text.startswith(key)), "")

    def _options_now(self, record: Record) -> list[str]:
        try:
            return self.options_of(record)
        except OSError:
            return []  # it has ended meanwhile

    def end(self, *records: Record, drain_timeout: float = 0.0) -> None:
        """Stop some of them, side by side. Raises DaemonError."""
        with self._pids.locked():
            self._end(records, is_told=False, drain_timeout=drain_timeout)

    def command(self, dynamic: Sequence[str]) -> list[str]:
        """The command line of a process of this kind."""
        options = [argument for text in dynamic for argument in ("-D", text)]
        return [sys.executable, "-P", "-m", self.kind.module, *options]

    def start(self, dynamic: Sequence[str], count: int) -> None:
        """Start `count` processes, and return when they are ready. After a DaemonError none of them runs."""
        starting: list[Starting] = []
        try:
            while len(starting) < count:
                starting.append(self.spawn(dynamic))
            wait_all(starting, START_TIMEOUT)
        except BaseException:
            self.give_up(starting)
            raise
        if self.kind is HISTORYSERVER:
            for one in starting:
                self._say(f"History server: {(_facts(one.ready_file) or {}).get('url', '')}/ui")

    def spawn(self, dynamic: Sequence[str], *, is_wanted: Callable[[], bool] = lambda: True) -> Starting:
        """Start one more process in the background, and record it. `wait_all` waits until it is ready.

        It begins when its record is written: none runs that no script would find. `is_wanted` is asked once the lock
        of all starts is held: a DaemonError if it is not any more.
        """
        with self._pids.locked():
            if not is_wanted():
                message = f"{self.kind.name}: nobody wants it any more"
                raise DaemonError(message)
            running = self._pids.running()
            if running:
                self._say(f"[INFO] {len(running)} {self.kind.name} instance(s) are already running on {self._host}.")
            number = _free_number(running)
            process, out_file = self._launch(dynamic, number)
            record = self._recorded(process, number, running)
        self._say(f"Starting {self.kind.name} daemon on host {self._host}.")
        return Starting(self.kind, process, record, self._layout.ready_file(self.kind.name, number), out_file)

    def _recorded(self, process: subprocess.Popen[bytes], number: int, running: Sequence[Record]) -> Record | None:
        """Record a launched process, and let it begin; None for one that has ended already."""
        assert process.stdin is not None, process
        try:
            with closing(process.stdin) as go:
                identity = ProcessId.of(process.pid)
                record = Record(identity, number) if identity else None
                self._pids.write([*running, *([record] if record else [])])
                with suppress(BrokenPipeError):
                    go.write(_GO)
        except BaseException:
            process.wait(STOP_TIMEOUT)  # nothing was told to it, so it ends
            raise
        return record

    def give_up(self, starting: Sequence[Starting]) -> None:
        """Stop the processes of a start that has failed; others of this kind run on."""
        with self._pids.locked():
            self._end([one.record for one in starting if one.record is not None], is_told=False)

    def run_foreground(self, dynamic: Sequence[str]) -> None:
        """Become the process: signals and exit code are its own. Never returns."""
        with self._pids.locked():
            running = self._pids.running()
            number = _free_number(running)
            me = ProcessId.of(os.getpid())
            assert me is not None
            self._pids.write([*running, Record(me, number)])
            environment = self._environment_of(number)
        command = self.command(dynamic)
        os.chdir(self._layout.run)
        os.execve(command[0], command, {**environment, LOG_CONSOLE_VARIABLE: "true"})  # noqa: S606 (the point of start-foreground)

    def stop_last(self) -> None:
        """Stop the process that was started last. Without one, say so."""
        with self._pids.locked():
            running = self._pids.running()
            if not running:
                self._say(f"No {self.kind.name} daemon to stop on host {self._host}.")
            self._end(running[-1:])

    def stop_all(self) -> None:
        """Stop all processes of this kind side by side, and some seconds later the guards that state an end.

        JobManagers that have not asked until then learn of the deaths from the next start here (docs/operations.md).
        """
        with self._pids.locked():
            self._end(self._pids.running())
        if self.kind.is_guarded:
            self.end_statements(STATED_FOR)  # meanwhile a leader can ask

    def end_statements(self, patience: float) -> None:
        """End the guards here that state the end of a TaskManager, after so many seconds."""
        stating = [ProcessId(*one) for one in who_states(self._layout.guards)]
        wait_ended(stating, patience)
        for process in stating:
            self._signal(process, signal.SIGTERM)
        wait_ended(stating, KILL_TIMEOUT)

    def drain_last(self, timeout: float) -> None:
        """Drain the process that was started last: it stops when its tasks have ended or run elsewhere.

        After `timeout` seconds it is stopped in any case.
        """
        with self._pids.locked():
            running = self._pids.running()
            if not running:
                self._say(f"No {self.kind.name} daemon to drain on host {self._host}.")
            self._end(running[-1:], drain_timeout=timeout)

    def _launch(self, dynamic: Sequence[str], number: int) -> tuple[subprocess.Popen[bytes], Path]:
        environment = self._environment_of(number)
        out_file = self._log_file(number, "out")
        log_files.rotate(out_file)
        with out_file.open("ab") as out:
            process = subprocess.Popen(
                [*_WHEN_TOLD, *self.command(dynamic)],
                stdin=subprocess.PIPE,
                bufsize=0,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                cwd=self._layout.run,
            )
        return process, out_file

    def _environment_of(self, number: int) -> dict[str, str]:
        """Variables that name the files of a process. Deletes the ready file of an earlier one with this number."""
        self._layout.log.mkdir(parents=True, exist_ok=True)
        ready_file = self._layout.ready_file(self.kind.name, number)
        ready_file.unlink(missing_ok=True)
        files = {READY_FILE_VARIABLE: str(ready_file), LOG_FILE_VARIABLE: str(self._log_file(number, "log"))}
        if self.kind.keeps_id:
            id_file = self._layout.attempt_logs / f"{self.kind.name}-{number}-{self._host}.id"
            files[RESOURCE_ID_FILE_VARIABLE] = str(id_file)
        return {**self._environment, **files}

    def _log_file(self, number: int, suffix: str) -> Path:
        return self._layout.log / f"{self._log_name}-{number}-{self._host}.{suffix}"

    def _instance(self, record: Record) -> Instance:
        facts = _facts(self._layout.ready_file(self.kind.name, record.number))
        state = "starting" if facts is None else "running"
        return Instance(self.kind.name, self._host, record.process.pid, (facts or {}).get("address", ""), state)

    def _end(self, records: Sequence[Record], *, is_told: bool = True, drain_timeout: float = 0.0) -> None:
        """End these processes, and delete the records of those that have ended. The caller holds the lock."""
        processes = [record.process for record in records]
        for process in processes:
            if is_told:
                verb = "Draining" if drain_timeout else "Stopping"
                self._say(f"{verb} {self.kind.name} daemon (pid: {process.pid}) on host {self._host}.")
            self._signal(process, signal.SIGTERM)
        if self.kind.drains and not drain_timeout:
            wait_ended(processes, INSIST_AFTER)
            for process in processes:
                self._signal(process, signal.SIGTERM)
        patience = drain_timeout + self.kind.stop_timeout
        wait_ended(processes, patience)
        stubborn = [process for process in processes if process.is_running]
        for process in stubborn:
            self._say(f"Daemon {self.kind.name} didn't stop within {patience:.0f} seconds. Killing it.")
            self._signal(process, END_AT_ONCE if self.kind.is_guarded else signal.SIGKILL)
        wait_ended(stubborn, KILL_TIMEOUT)
        for process in [process for process in stubborn if self.kind.is_guarded and process.is_running]:
            # Its guard goes on. If the guard is killed too, only the next start here proves the death (R30).
            self._say(f"Not everything that {self.kind.name} (pid {process.pid}) has started has ended yet.")
            self._signal(process, signal.SIGKILL)
        wait_ended(stubborn, KILL_TIMEOUT)
        self._forget(records)
        if left := [str(process.pid) for process in stubborn if process.is_running]:
            message = f"{self.kind.name} (pid {', '.join(left)}) does not end on host {self._host}."
            raise DaemonError(message)

    def _forget(self, records: Sequence[Record]) -> None:
        """Delete the records of those that have ended, and what killed JobMaster processes could not delete."""
        for record in records:
            if not record.process.is_running:
                self._layout.ready_file(self.kind.name, record.number).unlink(missing_ok=True)
        self._pids.write(self._pids.running())
        if self.kind is JOBMASTER:
            delete_left(self._layout.work / self.kind.name)

    def _signal(self, process: ProcessId, number: signal.Signals) -> None:
        try:
            process.send(number)
        except PermissionError:
            message = f"{self.kind.name} (pid {process.pid}) belongs to another user: stop it as that user."
            raise DaemonError(message) from None

    def _say(self, text: str) -> None:
        self._out.write(printable(text) + "\n")
        self._out.flush()


def drain_patience(configuration: Configuration) -> float:
    """Seconds in which a TaskManager drains: a little longer than it takes to release what has not ended by then."""
    return configuration.get(DRAIN_TIMEOUT).total_seconds() + _RELEASE_TIMEOUT


def _free_number(running: Sequence[Record]) -> int:
    """The lowest number that no running process has: its log files may be written again."""
    used = {record.number for record in running}
    return next(number for number in range(len(used) + 1) if number not in used)


def _facts(ready_file: Path) -> dict[str, str] | None:
    """The content of a ready file; None when the process is not ready."""
    try:
        facts = parse_json(ready_file.read_bytes())
    except (OSError, ValueError):
        return None
    return {key: str(value) for key, value in facts.items()} if isinstance(facts, dict) else None


def _last_complaint(log: Path) -> str:
    """The last warning or error at the end of a log; "" when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _COMPLAINT_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    found = next((line for line in reversed(lines) if _COMPLAINT.search(line)), "")
    return f": {printable(found)}" if found else ""


def _last_words(out_file: Path) -> str:
    lines = [line for line in out_file.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return "\n".join(lines[-12:]) if lines else f"it ended without a word, see {out_file}"
