"""Pid files: one line a process, `pid start-ticks`, so that a recycled pid is never taken for ours.

Every change happens under a lock on the directory, so scripts may run side by side.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_START_TICKS_FIELD = 19  # of /proc/<pid>/stat, counted behind the command's closing parenthesis
_STATE_FIELD = 0


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process, by pid and by the moment at which the kernel started it."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The process that has this pid now; None if there is none, or only a zombie."""
        fields = _stat(pid)
        if fields is None or fields[_STATE_FIELD] == "Z":
            return None
        return cls(pid, int(fields[_START_TICKS_FIELD]))

    @property
    def is_running(self) -> bool:
        """True while this very process runs."""
        return ProcessId.of(self.pid) == self


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


class PidFile:
    """The processes of one kind that were started from this run directory, oldest first."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._path = directory / f"{name}.pid"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclusive use of the directory's pid files, between processes too."""
        self._directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def read(self) -> list[ProcessId]:
        """All recorded processes, dead ones too. Lines that are no record are passed over."""
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        records = [line.split() for line in lines]
        return [
            ProcessId(int(record[0]), int(record[1]))
            for record in records
            if len(record) == 2 and record[0].isdecimal() and record[1].isdecimal()
        ]

    def write(self, processes: list[ProcessId]) -> None:
        """Replace the records; the file goes away with the last one."""
        if not processes:
            self._path.unlink(missing_ok=True)
            return
        text = "".join(f"{process.pid} {process.start_ticks}\n" for process in processes)
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self._path)

    def running(self) -> list[ProcessId]:
        """Those that still run."""
        return [process for process in self.read() if process.is_running]
