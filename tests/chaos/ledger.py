"""The ledger: one line for everything that was done, in the order in which it was done, outside of the system.

Tasks, clients and fate append to one file, each line with a single write to a descriptor opened for appending: so the
order of the lines is the order of the events, whatever clocks say. Standard library only, because tasks import it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

STREAM = "stream"
"""The kind of streaming jobs that end by themselves."""
ENDLESS = "endless"
"""The kind of those that somebody stops."""
ANY = "*"
"""The promised value of a job whose value depends on what happens to it."""


@dataclass(frozen=True, slots=True)
class TaskLine:
    """What user code did: `step` is begin, alive, fail (on purpose), cancelled or end."""

    at: float
    step: str
    job: str
    vertex: str
    subtask: int
    attempt: str
    number: int
    task_manager: str
    pid: int
    exclusive: bool
    spark: bool

    @property
    def place(self) -> tuple[str, str, int]:
        """The subtask."""
        return self.job, self.vertex, self.subtask


@dataclass(frozen=True, slots=True)
class JobLine:
    """What a client saw of a job: `step` is acknowledged, cancelled, ended, or checked (after everything has healed).

    `state` and `value` are what was seen; of `acknowledged`, what must be seen in the end: states separated by `|`.
    `tasks` are the subtasks of each vertex. With `refusal` a failure that says so may end it as well: nothing exclusive
    of it runs twice (D-052).
    """

    at: float
    step: str
    job: str
    kind: str
    state: str
    value: str
    tasks: dict[str, int]
    note: str = ""
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class OutputLine:
    """What lies where a job writes: `step` is promised (before it is submitted), ended or checked, in this `state`.

    `rows` are its own ones, each counted once (promised: all that it writes), `doubled` those that are there more than
    once, `old` those that lay there before, `strange` all others. `is_marked`: with `_SUCCESS`.
    """

    at: float
    step: str
    job: str
    state: str
    rows: int
    doubled: int = 0
    old: int = 0
    strange: int = 0
    is_marked: bool = False


@dataclass(frozen=True, slots=True)
class InputLine:
    """Rows of files that jobs replace and others count.

    `step` is replacing (before a client submits the job that does it), replaced (it has FINISHED), or what a task does:
    counting, then counted.
    """

    at: float
    step: str
    path: str
    job: str
    rows: int = -1
    attempt: str = ""


@dataclass(frozen=True, slots=True)
class FaultLine:
    """What fate did to a process: kill, terminate, freeze; then wake, gone, back, or recovered after `seconds`.

    `task_manager` is set where tasks may suffer. `measure` says what has recovered.
    """

    at: float
    step: str
    role: str
    name: str
    pid: int = 0
    task_manager: str = ""
    measure: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StreamLine:
    """What lies where a query of a streaming job has written, behind the end of the job.

    `missing`: rows that came in and are not there; `more`: rows that are there more often than they came in.
    """

    at: float
    job: str
    sink: str
    rows: int
    missing: int
    more: int


@dataclass(frozen=True, slots=True)
class RunLine:
    """Which run of Spark's a query is, in which attempt. `step` is runs, or stopping when a client begins with that."""

    at: float
    step: str
    job: str
    uid: str = ""
    subtask: int = 0
    attempt: int = 0
    run: str = ""


Line = TaskLine | JobLine | FaultLine | OutputLine | InputLine | StreamLine | RunLine
_WHO: dict[str, type[Any]] = {
    "task": TaskLine,
    "job": JobLine,
    "fault": FaultLine,
    "output": OutputLine,
    "input": InputLine,
    "stream": StreamLine,
    "run": RunLine,
}


class Ledger:
    """Appends to the file at `path`."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def add(self, line: Line) -> None:
        """One write: whole or not at all, behind all that others have written."""
        os.write(self._descriptor, to_text(line).encode())

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


def to_text(line: Line) -> str:
    """As it stands in the file."""
    who = next(name for name, kind in _WHO.items() if isinstance(line, kind))
    return json.dumps({"who": who, **asdict(line)}, separators=(",", ":")) + "\n"


def from_text(text: str) -> Line:
    """The line again."""
    fields = json.loads(text)
    found: Line = _WHO[fields.pop("who")](**fields)
    return found


def read(path: Path) -> list[Line]:
    """All lines; what is being written right now is left out."""
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return [from_text(text) for text in whole.splitlines()]


def now() -> float:
    """The clock of the ledger: the host's."""
    return time.time()


def places(lines: Iterable[Line]) -> dict[tuple[str, str, int], list[TaskLine]]:
    """Task lines by subtask, in order."""
    found: dict[tuple[str, str, int], list[TaskLine]] = {}
    for line in lines:
        if isinstance(line, TaskLine):
            found.setdefault(line.place, []).append(line)
    return found
