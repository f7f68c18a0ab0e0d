"""Where a job of chaos writes: what lay there before, and what a reader sees now, row by row."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.ledger import OutputLine, now

_OLD = "old"


@dataclass(frozen=True, slots=True)
class Output:
    """A base of one job: `subtasks` write `files` each, a row in a file; `old` files lay there before."""

    base: Path
    subtasks: int
    files: int
    old: int

    def prepare(self, job: str) -> OutputLine:
        """The old files, some of which have names that the job gives as well; what is promised."""
        if self.old:
            self.base.mkdir(parents=True)
            for number in range(self.old):
                (self.base / f"part-0-{number}").write_text(f"{_OLD} {number}\n")
            (self.base / "_SUCCESS").touch()
        rows = self.subtasks * self.files
        return OutputLine(now(), "promised", job, "", rows, old=self.old, is_marked=bool(self.old))

    def look(self, step: str, job: str, state: str) -> OutputLine:
        """As a reader does: what is hidden is not there."""
        found: Counter[str] = Counter()
        shown = list(self.base.iterdir()) if self.base.exists() else []
        for path in shown:
            if not path.name.startswith(("_", ".")):
                found.update(path.read_text().splitlines())
        own = {f"{subtask} {number}" for subtask in range(self.subtasks) for number in range(self.files)}
        old = {f"{_OLD} {number}" for number in range(self.old)}
        return OutputLine(
            now(),
            step,
            job,
            state,
            rows=len(own & found.keys()),
            doubled=sum(1 for count in found.values() if count > 1),
            old=len(old & found.keys()),
            strange=len(found.keys() - own - old),
            is_marked=any(path.name == "_SUCCESS" for path in shown),
        )


def write(ctx: Any, base: str, files: int, attempt: str) -> None:
    """One subtask's rows. Every other file has a name of its attempt, so that two attempts would both be seen."""
    directory = Path(ctx.output_path(base))
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        suffix = f"-{attempt}" if number % 2 else ""
        (directory / f"part-{ctx.subtask_index}-{number}{suffix}").write_text(f"{ctx.subtask_index} {number}\n")
