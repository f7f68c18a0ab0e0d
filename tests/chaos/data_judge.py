"""What the ledger proves of files: outputs are visible once, whole or not at all (R26), and inputs are new (R22)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.chaos.ledger import ENDLESS, STREAM, InputLine, JobLine, Line, OutputLine, RunLine, StreamLine


def doubled_rows(lines: Sequence[Line]) -> list[str]:
    """Rows that a reader sees more than once, whoever wrote them."""
    return [
        f"job {line.job} is {line.state} ({line.step}): {line.doubled} rows are visible more than once"
        for line in lines
        if isinstance(line, OutputLine) and line.doubled
    ]


def wrong_outputs(lines: Sequence[Line]) -> Iterator[str]:
    """A job that FINISHED shows all of its rows and nothing older; any other one shows none and takes none away."""
    promised: dict[str, OutputLine] = {}
    looked: set[str] = set()
    for line in lines:
        if not isinstance(line, OutputLine):
            continue
        if line.step == "promised":
            promised[line.job] = line
            continue
        looked.add(line.job)
        for problem in _differences(promised[line.job], line):
            yield f"job {line.job} is {line.state} ({line.step}) and shows {problem}"
    for line in lines:
        if isinstance(line, JobLine) and line.step == "ended" and line.job in promised and line.job not in looked:
            yield f"job {line.job} is {line.state}, and nobody looked at what it shows"


def _differences(promise: OutputLine, seen: OutputLine) -> Iterator[str]:
    is_finished = seen.state == "FINISHED"
    rows, old = (promise.rows, 0) if is_finished else (0, promise.old)
    if seen.rows != rows:
        yield f"{seen.rows} of its {promise.rows} rows"
    if seen.old != old:
        yield f"{seen.old} of the {promise.old} rows that lay there before"
    if seen.strange:
        yield f"{seen.strange} rows that nobody wrote"
    if seen.is_marked != (is_finished or promise.is_marked):
        yield "_SUCCESS" if seen.is_marked else "no _SUCCESS"


def wrong_streams(lines: Sequence[Line]) -> Iterator[str]:
    """Each row that came in is in each sink of a streaming job that FINISHED, once."""
    looked: set[str] = set()
    for line in lines:
        if isinstance(line, StreamLine):
            looked.add(line.job)
            if line.missing or line.more:
                yield f"job {line.job} has {line.missing} rows too few and {line.more} too many in {line.sink}"
    for line in lines:
        if not isinstance(line, JobLine) or (line.step, line.state) != ("ended", "FINISHED"):
            continue
        if line.kind in {STREAM, ENDLESS} and line.job not in looked:
            yield f"job {line.job} is FINISHED, and nobody counted what its queries have written"


def changed_runs(lines: Sequence[Line]) -> Iterator[str]:
    """Within an attempt a query is one run of Spark's, until somebody begins to stop its job: a stop that fails may let
    it go on as another one. That no attempt begins without a cause is judged as with all tasks.
    """
    runs: dict[tuple[str, str, int, int], str] = {}
    stopping: set[str] = set()
    for line in lines:
        if not isinstance(line, RunLine):
            continue
        if line.step == "stopping":
            stopping.add(line.job)
            continue
        first = runs.setdefault((line.job, line.uid, line.subtask, line.attempt), line.run)
        if first != line.run and line.job not in stopping:
            yield f"job {line.job}: query {line.uid} {line.subtask} was started anew in attempt {line.attempt}"


@dataclass(slots=True)
class _Input:
    """One path: the rows there, what jobs are bringing, and who is counting: between which bounds."""

    rows: int = 0
    coming: dict[str, int] = field(default_factory=dict)
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def bounds(self) -> tuple[int, int]:
        """While files are replaced, a reader may see rows of both."""
        return min(self.rows, *self.coming.values(), self.rows), self.rows + sum(self.coming.values())


def wrong_counts(lines: Sequence[Line]) -> Iterator[str]:
    """Who begins to count behind the end of a replacement counts the new rows, whatever others have cached."""
    inputs: dict[str, _Input] = {}
    for line in lines:
        if not isinstance(line, InputLine):
            continue
        one = inputs.setdefault(line.path, _Input())
        if line.step == "replacing":
            one.coming[line.job] = line.rows
            low, high = one.bounds
            one.counts = {who: (min(low, a), max(high, b)) for who, (a, b) in one.counts.items()}
        elif line.step == "replaced":
            one.rows = one.coming.pop(line.job)
        elif line.step == "counting":
            one.counts[line.attempt] = one.bounds
        else:
            low, high = one.counts.pop(line.attempt)
            if not low <= line.rows <= high:
                lay = f"{low}" if low == high else f"{low} to {high}"
                yield f"job {line.job} counted {line.rows} rows in {line.attempt} where {lay} lay"
