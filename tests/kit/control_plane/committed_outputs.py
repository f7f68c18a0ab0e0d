"""Attempts that have written, and the commit of what they wrote, without a TaskManager."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from runtime.aio.clock import LoopClock
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import APPEND, OutputDirectory
from runtime.taskexecutor.outputs.commit_records import commit_names
from runtime.taskexecutor.outputs.move_permit import Permit
from runtime.taskexecutor.outputs.output_move import OutputMove
from tests.kit.control_plane.task_messages import VERTEX, job_id

JOB = job_id(1)
COMMIT = commit_names(JOB).directory
DONE = commit_names(JOB).done


def attempt(base: Path, number: int, *, mode: str = APPEND, **files: str) -> OutputDirectory:
    directory = base / f".attempt-{JOB}_{number}"
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return OutputDirectory(str(base), str(directory), mode)


def tree(base: Path) -> set[str]:
    """All files but the tombstone of the commit."""
    return {name for path in base.rglob("*") if path.is_file() and (name := str(path.relative_to(base))) != DONE}


def everything(base: Path) -> set[str]:
    return {str(path.relative_to(base)) for path in base.rglob("*") if path.is_file()}


def order(outputs: Sequence[OutputDirectory], number: int = 1, epoch: int = 1) -> CommitOutputs:
    return CommitOutputs(JOB, epoch, VERTEX, tuple(outputs), number)


def commit(outputs: Sequence[OutputDirectory], number: int = 1, permit: Permit | None = None) -> list[tuple[int, int]]:
    """Move. How far it was said to be, from time to time."""
    told: list[tuple[int, int]] = []

    async def run() -> None:
        def report(moved: int, total: int, _problem: str) -> None:
            told.append((moved, total))

        await OutputMove(order(outputs, number), permit or Permit(), None, report, LoopClock(), patience=0.0).run()

    asyncio.run(run())
    return told


def attempt_path(output: OutputDirectory) -> Path:
    return Path(output.directory)


def visible(base: Path) -> dict[str, str]:
    return {
        name: path.read_text()
        for path in base.rglob("*")
        if path.is_file() and not (name := str(path.relative_to(base))).startswith((".", "_"))
    }
