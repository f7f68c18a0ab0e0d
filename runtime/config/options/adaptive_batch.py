"""Options of the parallelism of batches; names are Flink's, but for those of skew."""

from __future__ import annotations

from runtime.config.option import bool_option, choice_option, float_option, int_option, size_option

SCHEDULER = choice_option(
    "jobmanager.scheduler",
    "AdaptiveBatch",
    "Which scheduler runs jobs. AdaptiveBatch: vertices of batches without a parallelism of their own get one from "
    "what they read. Default: they get parallelism.default. Adaptive: streaming jobs follow the slots that there are, "
    "and batches have AdaptiveBatch; with the others streaming jobs have Default. A streaming job keeps what it began "
    "with.",
    "AdaptiveBatch",
    "Default",
    "Adaptive",
)
AUTO_PARALLELISM_ENABLED = bool_option(
    "execution.batch.adaptive.auto-parallelism.enabled",
    "Choose the parallelism of vertices that have none of their own, by bytes and rows of what they read. Without it "
    "they get parallelism.default. A job may set it for itself, as all of execution.batch.adaptive.",
    default=True,
)
PARALLELISM_MIN = int_option(
    "execution.batch.adaptive.auto-parallelism.min-parallelism",
    1,
    "Least parallelism that is chosen for a vertex with rows enough for that many subtasks; a smaller maximum wins.",
    high=32768,
)
PARALLELISM_MAX = int_option(
    "execution.batch.adaptive.auto-parallelism.max-parallelism",
    128,
    "Greatest parallelism that is chosen by bytes and rows. The max_parallelism of operators bounds it, too.",
    high=32768,
)
BYTES_PER_TASK = size_option(
    "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task",
    "128 mb",
    "How much one subtask should read of a vertex whose parallelism is chosen: bytes of Parquet files. Twice what "
    "Spark gives to one of its tasks behind a shuffle, since a subtask has several of those at once.",
)
PARALLELISM_DEFAULT = int_option(
    "parallelism.default",
    1,
    "Parallelism of vertices that have none of their own, where none is chosen.",
    high=32768,
)
SKEW_FACTOR = float_option(
    "execution.batch.adaptive.skewed-factor",
    4.0,
    "A key whose rows have this many times the bytes of the median, and more than one subtask should read, is divided "
    "between several subtasks, where its edge is splittable or the other inputs are broadcast.",
    low=1.0,
    high=1_000_000.0,
)
