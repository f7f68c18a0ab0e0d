"""TaskContext: the first argument of a user's function.

Only a Protocol: the implementation is in the slot process. pyspark is imported for type checkers only, because Airflow
imports this package while it parses DAGs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from runtime.jobgraph.task_accumulators import Counter, Gauge, Histogram
from runtime.jobgraph.task_credentials import Credentials

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


OutputMode = Literal["overwrite", "append", "error", "overwrite_partitions"]


class TaskContext(Protocol):
    """One operator's view of the attempt in which it runs. One object per operator of a chain."""

    @property
    def spark(self) -> SparkSession:
        """The warm session of this slot. Lazy: a task that never touches it causes no Spark work at all."""

    @property
    def job_id(self) -> str:
        """The job's id, 32 hex digits."""

    @property
    def job_name(self) -> str:
        """The job's name."""

    @property
    def vertex_name(self) -> str:
        """Name of the vertex, that is of the whole chain."""

    @property
    def operator_name(self) -> str:
        """Name of this operator, as given to `source`, `map`, `apply` or `sink`."""

    @property
    def subtask_index(self) -> int:
        """Which of the `parallelism` subtasks this is, from 0."""

    @property
    def parallelism(self) -> int:
        """How many subtasks the vertex has."""

    @property
    def attempt_number(self) -> int:
        """0 for the first attempt of this subtask, one more for each restart."""

    @property
    def splits(self) -> Sequence[Any]:
        """This subtask's share of the vertex's `splits`, round robin; empty when the vertex has none."""

    def next_splits(self) -> Iterator[Any]:
        """The splits of a source with `splits_on_demand=True`, until none is left for any subtask.

        Each step waits for the next split, which nobody else gets. A function that reads DataFrames is a generator: it
        yields one for each split, which is written before the function goes on.
        """

    @property
    def params(self) -> Mapping[str, Any]:
        """The job's parameters."""

    @property
    def secrets(self) -> Mapping[str, str]:
        """The secrets that the job names, as the TaskManager has them. Their values are never part of the JobGraph."""

    def credentials(self, name: str) -> Credentials:
        """The newest short-lived credentials of a provider of the cluster. Call it for each use: they are renewed.

        Raises KeyError when there are none.
        """

    @property
    def logger(self) -> logging.Logger:
        """Logs into the attempt's own log file, readable over REST while it runs."""

    @property
    def cancelled(self) -> bool:
        """True from the moment the job is being cancelled. A long loop should look at it and return."""

    def report_progress(self, fraction: float, text: str = "") -> None:
        """Show progress between 0 and 1, with a few words, in REST, CLI and UI. Cheap: may be called often."""

    def counter(self, name: str) -> Counter:
        """A sum that the task counts, `ctx.counter("rows").add(n)`, in REST and UI while it runs.

        The job's result has the sum over the subtasks: of each the attempt that has finished, so that a restart counts
        nothing twice. A task counts under 100 names at most. Raises ValueError. Thread-safe. Code that Spark runs in
        other processes (UDFs) has Spark's own accumulators.
        """

    def gauge(self, name: str) -> Gauge:
        """A value that the task sets, `ctx.gauge("accuracy").set(x)`; as `counter`, with lowest and highest."""

    def histogram(self, name: str) -> Histogram:
        """Values that the task records, `ctx.histogram("seconds").record(x)`: number, sum, lowest, highest."""

    def output_path(self, base: str, mode: OutputMode = "overwrite") -> str:
        """A directory of this attempt below `base`, for a sink to write into.

        When every task of the job has finished, the files of all its sinks become visible in their bases, and
        `_SUCCESS` is written. A job that fails or is cancelled before leaves nothing visible.

        `mode` says what becomes of files that are there already, as in Spark: `overwrite` replaces them, `append` adds
        to them, `error` fails if there are any, `overwrite_partitions` replaces those in the directories (`day=1/`)
        that get new files. All tasks of a job use one mode for one `base`.
        """
