"""Options of speculative execution; names are Flink's."""

from __future__ import annotations

from runtime.config.option import bool_option, duration_option, float_option, int_option

SPECULATIVE_ENABLED = bool_option(
    "execution.batch.speculative.enabled",
    "Give a slow task of a batch a second attempt on another TaskManager; the first one that finishes counts. "
    "Exclusive vertices, as those that nothing reads, never run twice at once and are left out. A job may set it for "
    "itself, as all of execution.batch.speculative and slow-task-detector.",
    default=False,
)
SPECULATIVE_CONCURRENT_MAX = int_option(
    "execution.batch.speculative.max-concurrent-executions",
    2,
    "How many attempts of one slow task may run at the same time, the first one included.",
    low=2,
    high=16,
)
SPECULATIVE_BLOCK = duration_option(
    "execution.batch.speculative.block-slow-node-duration",
    "1 min",
    "For how long a job takes no new slots of a TaskManager on which a task of it was slow, unless it has none "
    "elsewhere.",
    low="0 s",
)
SLOW_CHECK_INTERVAL = duration_option(
    "slow-task-detector.check-interval",
    "1 s",
    "How often the owner of a job looks for slow tasks.",
    low="10 ms",
)
SLOW_BASELINE_RATIO = float_option(
    "slow-task-detector.execution-time.baseline-ratio",
    0.75,
    "Which part of the subtasks of a vertex must have finished before others count as slow; of two, one suffices.",
    low=0.01,
    high=0.99,
)
SLOW_BASELINE_MULTIPLIER = float_option(
    "slow-task-detector.execution-time.baseline-multiplier",
    1.5,
    "A task that takes so many times as long as the finished ones (their median; more where it reads more) is slow.",
    low=1.0,
    high=1_000.0,
)
SLOW_BASELINE_LOWER_BOUND = duration_option(
    "slow-task-detector.execution-time.baseline-lower-bound",
    "1 min",
    "A task that has not run for so long is not slow.",
    low="0 s",
)
