"""Processes of the operating system as tests look at them: trees, CPU, and which carry an environment marker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from tests.kit.host.levels import reached

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[psutil.Process]:
    """A process and all its descendants that live."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def command_of(process: psutil.Process) -> list[str]:
    """Its command line; empty when it has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # a zombie is one, too
        return []


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of process trees, with what reaped children used."""
    total = 0.0
    for process in {one.pid: one for pid in pids for one in tree(pid)}.values():
        try:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(fields[index]) for index in range(11, 15)) / TICKS_PER_SECOND
    return total


def carrying(name: str, value: str) -> dict[int, str]:
    """Living processes, by pid with their command line, whose environment has `name=value`, wherever they hang."""
    marker = f"{name}={value}".encode()
    found: dict[int, str] = {}
    for directory in Path("/proc").iterdir():
        if not directory.name.isdecimal():
            continue
        try:
            if marker in (directory / "environ").read_bytes().split(b"\0"):
                command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(directory.name)] = command
        except OSError:
            continue
    return found


def freeze(pid: int) -> None:
    """SIGSTOP, and wait until no thread runs any more: the kernel tells one after the other."""
    os.kill(pid, signal.SIGSTOP)
    reached(lambda: _thread_states(pid) == {"T"}, f"process {pid} stands still")


def _thread_states(pid: int) -> set[str]:
    found = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
            found.add((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return found
