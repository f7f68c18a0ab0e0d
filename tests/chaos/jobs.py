"""The mixed jobs of chaos: what each is, and how it must end. The seed decides which ones, in which order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from airflow_flinklike import FixedDelayRestartStrategy, Pipeline
from airflow_flinklike.pipeline import Stream
from airflow_flinklike.program import JobProgram

_STEP = "tests.chaos.programs:step"
_ROWS = 1000
_CANCELLED_AFTER = (0.5, 4.0)


@dataclass(frozen=True, slots=True)
class Expected:
    """How a job must end. `state` may be several, separated by `|`; `files` are visible when it has FINISHED."""

    state: str = "FINISHED"
    value: Any = None
    files: int = -1


@dataclass(slots=True)
class ChaosJob:
    """One job. `cancel_after` seconds a client cancels it; -1: never."""

    kind: str
    pipeline: Pipeline
    expected: Expected
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    cancel_after: float = -1.0
    output: Path | None = None

    def build(self, ledger: Path) -> JobProgram:
        """What is submitted."""
        return self.pipeline.build({"ledger": str(ledger), "steps": self.steps})

    @property
    def promise(self) -> str:
        """The value as JSON."""
        return as_text(self.expected.value)

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
    parallelism = random.randint(2, 3)
    numbers = [index + 1 for index in range(parallelism)]
    job = ChaosJob("files", Pipeline("files"), Expected(value={"write": numbers}, files=parallelism))
    job.output = directory / f"{random.getrandbits(64):016x}"
    job.source("write", parallelism, exclusive=False, seconds=random.uniform(0.0, 4.0), files=str(job.output))
    return job


def _spark(random: Random, _directory: Path) -> ChaosJob:
    job = ChaosJob("spark", Pipeline("spark"), Expected(value=2 * _ROWS))
    more: dict[str, Any] = {"spark": True, "seconds": random.uniform(0.0, 2.0)}
    module = "tests.chaos.programs"
    rows = job.pipeline.source("rows", f"{module}:rows", **job.step("rows", 2, exclusive=False, rows=_ROWS, **more))
    counts = rows.hash("key").apply("by key", f"{module}:by_key", **job.step("by key", 2, exclusive=False, **more))
    counts.gather().sink("total", f"{module}:total", **job.step("total", exclusive=True, **more))
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
    "spark": (_spark, 3),
}
"""How each kind is made, and its share."""


def jobs(seed: int, client: int, directory: Path, kinds: Sequence[str]) -> Iterator[tuple[ChaosJob, float]]:
    """What one client submits, one after another, with the pause before each; without end."""
    random = Random(f"{seed}-client-{client}")
    makers = [KINDS[kind][0] for kind in kinds]
    weights = [KINDS[kind][1] for kind in kinds]
    while True:
        (maker,) = random.choices(makers, weights)
        yield maker(random, directory), random.uniform(0.0, 1.5)


def visible_files(job: ChaosJob) -> int:
    """Output files that a reader would see; -1 for a job that has none."""
    if job.output is None:
        return -1
    return sum(1 for path in job.output.iterdir() if path.name.startswith("part-")) if job.output.exists() else 0
