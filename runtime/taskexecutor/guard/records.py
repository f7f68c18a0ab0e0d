"""The records of lives in the run directory, for the next start there (R30). Standard library only.

Guard and watcher of a life write one file. It is locked while one of them lives; the lock goes with the last of them,
however they end. A line says that everything is reaped, the next one which process states it. Without that line and
without the lock, both were killed: nothing is known about the processes that they have left.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

_REAPED = b"reaped\n"
_STATED_BY = b"stated-by "
_STATED = re.compile(rb"stated-by ([0-9]{1,9}) ([0-9]{1,18})")
_BYTES_MAX = 65536


@dataclass(frozen=True, slots=True)
class Life:
    """How the processes of one life can be told. `ends_namespace`: the kernel ends them all with the guard."""

    incarnation: str
    host: str
    boot_id: str
    pid_namespace: str
    ends_namespace: bool
    cgroup: str
    mark: int


_KINDS = Life.__annotations__


def boot_id() -> str:
    """The identity of this boot of this host: an answer from after a reboot has another one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def host_identity() -> str:
    """The identity of this host or container, the same over its boots: hosts may share a run directory."""
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except OSError:
        machine = ""
    return f"{socket.gethostname()} {machine}"


def pid_namespace() -> str:
    """The identity of the namespace in which pids have the same meaning as here."""
    return str(Path("/proc/self/ns/pid").readlink())


def records_directory(environment: Mapping[str, str]) -> Path:
    """The directory of records, below the run directory as `runtime.config.layout` has it."""
    home = environment.get("FLINKLIKE_HOME") or Path(__file__).resolve().parents[3]
    run = environment.get("FLINKLIKE_RUN_DIR") or Path(home) / "run"
    return Path(run).absolute() / "guards"


class LifeRecord:
    """One file, open and locked."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def create(cls, directory: Path, life: Life) -> LifeRecord:
        """Make and lock the record, before anything of that life runs. Raises OSError."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / life.incarnation
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, json.dumps(asdict(life)).encode() + b"\n")
        os.fsync(descriptor)
        return cls(path, descriptor)

    @classmethod
    def take_over(cls, path: Path) -> LifeRecord | None:
        """The record of a life whose guard and watcher are dead; None when one of them lives, or there is no file."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return cls(path, descriptor)

    def life(self) -> Life | None:
        """The recorded life; None when the record cannot be read, which proves nothing (R31)."""
        try:
            fields = json.loads(self._read().partition(b"\n")[0])
            life = Life(**{name: fields[name] for name in Life.__slots__})
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return life if all(type(value).__name__ == _KINDS[name] for name, value in asdict(life).items()) else None

    @property
    def age(self) -> float:
        """Seconds since anything was noted in it."""
        return time.time() - os.fstat(self._descriptor).st_mtime  # noqa: TID251 - as files have it

    @property
    def is_reaped(self) -> bool:
        """True once everything of that life is known to be reaped."""
        return b"\n" + _REAPED in self._read()

    def note_reaped(self) -> None:
        """Everything is reaped: durable from here on."""
        os.write(self._descriptor, _REAPED)
        os.fsync(self._descriptor)

    def note_stated_by_this(self) -> None:
        """This process states it from here on."""
        ticks = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19]
        os.write(self._descriptor, _STATED_BY + f"{os.getpid()} {ticks}\n".encode())

    def close(self) -> None:
        """Give the lock back, unless another process has it too."""
        os.close(self._descriptor)

    def _read(self) -> bytes:
        return os.pread(self._descriptor, _BYTES_MAX, 0)


def reaped_lives(directory: Path, *, age: float = 0.0) -> list[str]:
    """The incarnations of which nothing runs any more, as noted `age` seconds ago or earlier."""
    try:
        paths = sorted(directory.iterdir())
    except FileNotFoundError:
        return []
    found = []
    for path in paths:
        try:
            is_old = age == 0.0 or time.time() - path.stat().st_mtime >= age  # noqa: TID251 - as files have it
            if is_old and b"\n" + _REAPED in path.read_bytes():
                found.append(path.name)
        except FileNotFoundError:
            continue
    return found


def who_states(directory: Path) -> list[tuple[int, int]]:
    """The processes that state the end of a life there: process ids, and when they were started.

    They may have ended.
    """
    try:
        contents = [path.read_bytes() for path in directory.iterdir()]
    except FileNotFoundError:
        return []
    lines = [_STATED.fullmatch(line) for content in contents for line in content.splitlines()]
    return [(int(found[1]), int(found[2])) for found in lines if found is not None]


def forget_life(directory: Path, incarnation: str) -> None:
    """Delete the record of a life. A process that still states its end stops doing so."""
    (directory / incarnation).unlink(missing_ok=True)
