"""The mixed jobs of chaos: what each is, and how it must end. The seed decides which ones, in which order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from airflow_flinklike import FixedDelayRestartStrategy, Pipeline
from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.api.pipeline import Stream
from airflow_flinklike.api.start_options import restore_settings, restored_job
from tests.chaos.endless import Endless, Feed
from tests.chaos.ledger import ANY, ENDLESS, STREAM
from tests.chaos.outputs import Output
from tests.chaos.streams import SINKS, Rows

_PROGRAMS = "tests.chaos.programs"
_STEP = f"{_PROGRAMS}:step"
_ROWS = 1000
_FILES = 2000
_OLD_FILES = 100
_CANCELLED_AFTER = (0.5, 4.0)


@dataclass(frozen=True, slots=True)
class Expected:
    """How a job must end. `state` may be several, separated by `|`."""

    state: str = "FINISHED"
    value: Any = None


@dataclass(slots=True)
class ChaosJob:
    """One job. `cancel_after` seconds a client cancels it; -1: never.

    `after` it has FINISHED, its client submits others, each behind the one before. `replaces` is the path whose files
    it replaces, with so many rows. With `told` its client goes on while it still runs: when the job has made this file.
    `stream`: what comes in for a streaming job, and what it writes; `endless`: for one that is stopped.
    """

    kind: str
    pipeline: Pipeline
    expected: Expected
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    cancel_after: float = -1.0
    output: Output | None = None
    replaces: tuple[Path, int] | None = None
    told: Path | None = None
    stream: Rows | None = None
    endless: Endless | None = None
    after: tuple[ChaosJob, ...] = ()

    def build(self, ledger: Path) -> JobProgram:
        """What is submitted."""
        built = self.pipeline.build({"ledger": str(ledger), "steps": self.steps})
        if self.endless is None or not self.endless.feed.savepoint:
            return built
        settings = restore_settings(self.endless.feed.savepoint, "", allow_non_restored_state=False)
        return restored_job(built, settings)

    @property
    def is_exclusive(self) -> bool:
        """True when one of its tasks is."""
        return any(step["exclusive"] for step in self.steps.values())

    @property
    def promise(self) -> str:
        """The value as JSON."""
        return ANY if self.stream is not None or self.endless is not None else as_text(self.expected.value)

    def step(self, name: str, parallelism: int = 1, *, exclusive: bool, **plan: Any) -> dict[str, Any]:
        """Note what a vertex does; its options in the pipeline."""
        self.steps[name] = {"exclusive": exclusive, **plan}
        self.tasks[name] = parallelism
        return {"parallelism": parallelism, "exclusive": exclusive}

    def source(self, name: str, parallelism: int = 1, *, exclusive: bool, **plan: Any) -> Stream:
        """A source that follows the plan."""
        return self.pipeline.source(name, _STEP, **self.step(name, parallelism, exclusive=exclusive, **plan))


def as_text(value: Any) -> str:
    """A value as the ledger has it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _no_op(random: Random, _directory: Path) -> ChaosJob:
    job = ChaosJob("no-op", Pipeline("no-op"), Expected(value=1))
    job.source("no-op", exclusive=random.random() < 0.5)
    return job


def _nap(random: Random, _directory: Path) -> ChaosJob:
    parallelism = random.randint(1, 4)
    numbers = [index + 1 for index in range(parallelism)]
    value = 1 if parallelism == 1 else {"nap": numbers}
    job = ChaosJob("nap", Pipeline("nap"), Expected(value=value))
    exclusive, daemon = random.random() < 0.5, random.random() < 0.5
    job.source("nap", parallelism, exclusive=exclusive, seconds=random.uniform(1.0, 12.0), daemon=daemon)
    return job


def _stages(random: Random, _directory: Path) -> ChaosJob:
    """A fan, a sum, and two sinks that both get it."""
    job = ChaosJob("stages", Pipeline("stages"), Expected(value={"twice": [8, 9]}))
    return _stages_of(job, random)


def _stages_of(job: ChaosJob, random: Random, **middle: Any) -> ChaosJob:
    def seconds() -> float:
        return random.uniform(0.0, 3.0)

    parts = job.source("parts", 3, exclusive=False, seconds=seconds())
    total = parts.gather().apply("sum", _STEP, **job.step("sum", exclusive=False, seconds=seconds(), **middle))
    total.broadcast().sink("twice", _STEP, **job.step("twice", 2, exclusive=True, seconds=seconds()))
    return job


def _flaky(random: Random, _directory: Path) -> ChaosJob:
    """Its middle fails twice; the strategy lets it."""
    strategy = FixedDelayRestartStrategy(attempts=1000, delay_seconds=0.3)
    job = ChaosJob("flaky", Pipeline("flaky", restart_strategy=strategy), Expected(value={"twice": [8, 9]}))
    return _stages_of(job, random, failures=2)


def _doomed(random: Random, _directory: Path) -> ChaosJob:
    """It fails more often than its strategy allows."""
    strategy = FixedDelayRestartStrategy(attempts=2, delay_seconds=0.3)
    job = ChaosJob("doomed", Pipeline("doomed", restart_strategy=strategy), Expected("FAILED"))
    job.source("doomed", exclusive=random.random() < 0.5, seconds=random.uniform(0.0, 2.0), failures=1_000_000)
    return job


def _cancelled(random: Random, _directory: Path) -> ChaosJob:
    job = ChaosJob("cancelled", Pipeline("cancelled"), Expected("CANCELED"))
    job.cancel_after = random.uniform(*_CANCELLED_AFTER)
    job.source("long", random.randint(1, 2), exclusive=random.random() < 0.5, seconds=3600.0)
    return job


def _files(random: Random, directory: Path) -> ChaosJob:
    """A sink whose outputs are moved into place once."""
    job = ChaosJob("files", Pipeline("files"), Expected())
    return _writing(job, random, directory, parallelism=random.randint(2, 3), exclusive=False)


def _writing(
    job: ChaosJob, random: Random, directory: Path, *, parallelism: int, exclusive: bool, **plan: int
) -> ChaosJob:
    plan = {"files": 1, "old": 0, **plan}
    output = Output(_somewhere(random, directory), parallelism, plan["files"], plan.pop("old"))
    numbers = [index + 1 for index in range(parallelism)]
    job.output = output
    job.expected = Expected(job.expected.state, {"write": numbers})
    seconds = random.uniform(0.0, 4.0)
    job.source("write", parallelism, exclusive=exclusive, seconds=seconds, output=str(output.base), **plan)
    return job


def _somewhere(random: Random, directory: Path) -> Path:
    return directory / f"{random.getrandbits(64):016x}"


def _sinks(random: Random, directory: Path) -> ChaosJob:
    """Many files in place of old ones. Some jobs fail for another task when all may be written; some are cancelled."""
    fate = random.choices(["FINISHED", "FAILED", "CANCELED|FINISHED"], [3, 1, 2])[0]
    strategy = FixedDelayRestartStrategy(attempts=1, delay_seconds=0.3) if fate == "FAILED" else None
    job = ChaosJob("sinks", Pipeline("sinks", restart_strategy=strategy), Expected(fate))
    exclusive = random.random() < 0.5
    _writing(job, random, directory, parallelism=2, exclusive=exclusive, files=_FILES, old=_OLD_FILES)
    if fate == "FAILED":
        job.source("beside", exclusive=False, seconds=random.uniform(2.0, 5.0), failures=1_000_000)
    elif fate != "FINISHED":
        job.cancel_after = random.uniform(*_CANCELLED_AFTER)
    return job


def _inputs(random: Random, directory: Path) -> ChaosJob:
    """Files are written; a job caches and holds them; another one replaces them meanwhile; a later one counts."""
    path = _somewhere(random, directory)
    told = path.with_suffix(".told")
    first, second = random.sample(range(100, 2000), 2)
    hold = ChaosJob("inputs", Pipeline("hold"), Expected(value=1), told=told)
    seconds = random.uniform(0.0, 10.0)
    _input_step(hold, "hold_cached", random, path=str(path), told=str(told), seconds=seconds)
    count = ChaosJob("inputs", Pipeline("count"), Expected(value=second))
    _input_step(count, "count_cached", random, path=str(path))
    begin = _replacing(random, path, first)
    begin.after = (hold, _replacing(random, path, second), count)
    return begin


def _replacing(random: Random, path: Path, rows: int) -> ChaosJob:
    job = ChaosJob("inputs", Pipeline("replace"), Expected(value=rows), replaces=(path, rows))
    _input_step(job, "replace_rows", random, path=str(path), rows=rows)
    return job


def _input_step(job: ChaosJob, program: str, random: Random, **plan: Any) -> None:
    step = job.step("step", exclusive=random.random() < 0.5, spark=True, **plan)
    job.pipeline.source("step", f"{_PROGRAMS}:{program}", **step)


def _spark(random: Random, _directory: Path) -> ChaosJob:
    job = ChaosJob("spark", Pipeline("spark"), Expected(value=2 * _ROWS))
    more: dict[str, Any] = {"spark": True, "seconds": random.uniform(0.0, 2.0)}
    rows = job.pipeline.source("rows", f"{_PROGRAMS}:rows", **job.step("rows", 2, exclusive=False, rows=_ROWS, **more))
    counts = rows.hash("key").apply("by key", f"{_PROGRAMS}:by_key", **job.step("by key", 2, exclusive=False, **more))
    counts.gather().sink("total", f"{_PROGRAMS}:total", **job.step("total", exclusive=True, **more))
    return job


def _stream(random: Random, directory: Path) -> ChaosJob:
    """Two queries, each with a source of its own, that end when all is read: a file sink, and batches by number."""
    rows = Rows(_somewhere(random, directory), random.randint(5, 10))
    job = ChaosJob(STREAM, Pipeline(STREAM), Expected(), stream=rows)
    for sink in SINKS:
        reads = f"read {sink}"
        job.steps[reads] = job.steps[sink] = {"exclusive": True, "spark": True, "base": str(rows.base)}
        source = job.pipeline.stream_source(reads, f"{_PROGRAMS}:stream_rows")
        is_batch = sink == "batches"
        program = f"{_PROGRAMS}:{'stream_batch' if is_batch else 'stream_table'}"
        source.stream_sink(sink, program, trigger="availableNow", foreach_batch=is_batch)
    return job


def _endless(random: Random, directory: Path) -> ChaosJob:
    """A query with state into a table, and one whose batches go by number. Half are stopped and started again."""
    feed = Feed(_somewhere(random, directory), random.randint(12, 30), random.uniform(0.3, 1.2))
    last = _endless_job(Endless(feed, feed.files, is_first=False))
    if random.random() < 0.5:
        return last
    first = _endless_job(Endless(feed, random.randint(3, feed.files - 1), is_first=True))
    first.after = (last,)
    return first


def _endless_job(endless: Endless) -> ChaosJob:
    job = ChaosJob(ENDLESS, Pipeline(ENDLESS), Expected(), endless=endless)
    for sink in SINKS:
        reads = f"read {sink}"
        job.steps[reads] = job.steps[sink] = {"exclusive": True, "spark": True, "base": str(endless.feed.base)}
        source = job.pipeline.stream_source(reads, f"{_PROGRAMS}:endless_rows")
        is_batch = sink == "batches"
        program = f"{_PROGRAMS}:{'stream_batch' if is_batch else 'stream_distinct'}"
        source.stream_sink(sink, program, trigger="1 second", foreach_batch=is_batch)
    return job


Maker = Callable[[Random, Path], ChaosJob]
KINDS: dict[str, tuple[Maker, int]] = {
    "no-op": (_no_op, 5),
    "nap": (_nap, 4),
    "stages": (_stages, 4),
    "flaky": (_flaky, 2),
    "doomed": (_doomed, 1),
    "cancelled": (_cancelled, 2),
    "files": (_files, 2),
    "sinks": (_sinks, 2),
    "spark": (_spark, 3),
    "inputs": (_inputs, 1),
    STREAM: (_stream, 1),
    ENDLESS: (_endless, 1),
}
SPARK_KINDS = frozenset({"spark", "inputs", STREAM, ENDLESS})
"""How each kind is made, and its share."""


def jobs(seed: int, client: int, directory: Path, kinds: Sequence[str]) -> Iterator[tuple[ChaosJob, float]]:
    """What one client submits, one after another, with the pause before each; without end.

    Each client begins with another kind, the last ones first: a short run has something of what takes long, too.
    """
    random = Random(f"{seed}-client-{client}")
    makers = [KINDS[kind][0] for kind in kinds]
    weights = [KINDS[kind][1] for kind in kinds]
    yield makers[-1 - client % len(makers)](random, directory), 0.0
    while True:
        (maker,) = random.choices(makers, weights)
        yield maker(random, directory), random.uniform(0.0, 1.5)
