"""Pid files: a line `pid start-ticks number` for each process, so that a recycled pid is never taken for the process.

A stop needs only the run directory, so any script can stop processes that another one has started. `number` is part of
the names of the process's log files and of its ready file. Beside the list each process has a file with its line alone:
one that is emptied or damaged hides no process, and the next write mends it.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runtime.aio.clock import SystemClock
from runtime.common.clock import Deadline

_START_TICKS_FIELD = 19  # of /proc/<pid>/stat, counted behind the command's closing parenthesis
_STATE_FIELD = 0
_CLOCK = SystemClock()
_DIGITS_MAX = 18
_PID_MAX = 1 << 22
"""The kernel's limit: a larger number is not a pid."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process, by pid and by the moment at which the kernel started it."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The process that has this pid now; None if there is none, or only a zombie."""
        fields = _stat(pid) if 0 < pid <= _PID_MAX else None
        if fields is None or fields[_STATE_FIELD] == "Z":
            return None
        return cls(pid, int(fields[_START_TICKS_FIELD]))

    @property
    def is_running(self) -> bool:
        """True while this very process runs."""
        return ProcessId.of(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        """Signal this process; does nothing when it has ended. Raises PermissionError."""
        with _descriptor(self) as descriptor:
            if descriptor is not None:
                try:
                    signal.pidfd_send_signal(descriptor, number)
                except ProcessLookupError:
                    return


def wait_ended(processes: Iterable[ProcessId], timeout: float) -> None:
    """Return when all processes have ended, or after `timeout` seconds. They need not be children of this one."""
    deadline = Deadline.after(_CLOCK, timeout)
    for process in processes:
        with _descriptor(process) as descriptor:
            if descriptor is not None:
                select.select([descriptor], [], [], max(0.0, deadline.remaining(_CLOCK)))


@contextmanager
def _descriptor(process: ProcessId) -> Iterator[int | None]:
    """A pidfd of the process, which can never mean another one; None when the process has ended."""
    try:
        descriptor = os.pidfd_open(min(process.pid, _PID_MAX + 1))
    except ProcessLookupError:
        yield None
        return
    try:
        # Checked after the opening: from then on the descriptor means that process, even when its pid is reused.
        yield descriptor if process.is_running else None
    finally:
        os.close(descriptor)


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a pid file."""

    process: ProcessId
    number: int


def _line(record: Record) -> str:
    return f"{record.process.pid} {record.process.start_ticks} {record.number}\n"


def _records(path: Path) -> list[Record]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    fields = [line.split() for line in lines]
    return [
        Record(ProcessId(int(record[0]), int(record[1])), int(record[2]))
        for record in fields
        if len(record) == 3 and all(field.isdecimal() and len(field) <= _DIGITS_MAX for field in record)
    ]


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


class PidFile:
    """Records of the processes of one kind that were started from this run directory, oldest first."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._path = directory / f"{name}.pid"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclusive use of this kind's records, between processes too."""
        self._directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def read(self) -> list[Record]:
        """All records, also of processes that have ended. Lines that are no record are skipped."""
        listed = _records(self._path)
        known = {record.process for record in listed}
        lone = [one for path in self._lone() for one in _records(path) if one.process not in known]
        return sorted([*listed, *lone], key=lambda one: one.process.start_ticks) if lone else listed

    def write(self, records: Sequence[Record]) -> None:
        """Replace the records; without records the files are deleted."""
        kept = {self._path.with_name(f"{self._path.stem}-{one.number}.record"): one for one in records}
        for path, record in kept.items():
            if _records(path) != [record]:
                _replace(path, _line(record))
        if records:
            _replace(self._path, "".join(map(_line, records)))
        else:
            self._path.unlink(missing_ok=True)
        for path in set(self._lone()).difference(kept):
            path.unlink(missing_ok=True)

    def _lone(self) -> list[Path]:
        prefix = f"{self._path.stem}-"
        found = self._directory.glob(f"{prefix}*.record")
        return [one for one in found if one.stem.removeprefix(prefix).isdecimal()]

    def running(self) -> list[Record]:
        """The records of processes that run."""
        return [record for record in self.read() if record.process.is_running]
