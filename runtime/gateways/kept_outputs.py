"""Messages about outputs that a job has left hidden, and the command that commits them (R28)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from runtime.common.errors import InvalidInputError
from runtime.gateways.task import OutputDirectory

NAMED_MAX = 20
"""Above this number of directories the command names runs of subtasks, which match exactly the same directories."""

DIRECTORIES_MAX = 1_000_000
"""Largest length of one argument of the command."""

_ATTEMPT = re.compile(r"(.*/\.attempt-[0-9a-f]+_[0-9a-f]+_)([0-9]+)(_[0-9]+_[0-9]+)", re.ASCII | re.DOTALL)
_RUNS = re.compile(r"(.*/\.attempt-[0-9a-f]+_[0-9a-f]+_)\{([^{}/]*)\}(_[0-9]+_[0-9]+)", re.ASCII | re.DOTALL)
_RUN = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)


def how_to_commit(outputs: Sequence[OutputDirectory]) -> str:
    """The hidden directories, and the command that makes them visible."""
    return f"what its tasks wrote is kept in hidden directories; to commit them: {commit_command(outputs)}"


def commit_command(outputs: Sequence[OutputDirectory]) -> str:
    """`bin/commit-outputs.sh MODE=DIRECTORY ...`, of many MODE=BASE/.attempt-JOB_VERTEX_{0-6,8-29}_EPOCH_COUNTER."""
    named = [f"{output.mode}={output.directory}" for output in outputs]
    return shlex.join(["bin/commit-outputs.sh", *(named if len(named) <= NAMED_MAX else _with_runs(named))])


def named_directories(text: str) -> list[str]:
    """The directories that an argument names, alone or by runs of subtasks. Raises InvalidInputError."""
    found = _RUNS.fullmatch(text)
    if found is None:
        return [text]
    before, runs, behind = found.groups()
    indices: list[int] = []
    for run in runs.split(","):
        ends = _RUN.fullmatch(run)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends is not None else (1, 0)
        if first > last or len(indices) + last - first >= DIRECTORIES_MAX:
            message = f"{text[:400]}: {run[:40]!r} is no run of subtasks (0-6,8), or makes too many of them"
            raise InvalidInputError(message)
        indices.extend(range(first, last + 1))
    return [f"{before}{index}{behind}" for index in indices]


def _with_runs(named: Iterable[str]) -> list[str]:
    subtasks: dict[tuple[str, str], list[int]] = {}
    for name in named:
        found = _ATTEMPT.fullmatch(name)
        before, behind = (found[1], found[3]) if found is not None else (name, "")
        subtasks.setdefault((before, behind), []).extend([int(found[2])] if found is not None else [])
    return [f"{before}{_runs(sorted(indices))}{behind}" for (before, behind), indices in subtasks.items()]


def _runs(indices: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1][1:] = [index]
        else:
            runs.append([index])
    text = ",".join("-".join(map(str, run)) for run in runs)
    return f"{{{text}}}" if len(indices) > 1 else text
