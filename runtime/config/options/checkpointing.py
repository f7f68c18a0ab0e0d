"""Options of checkpoints of streaming jobs; names are Flink's (execution.checkpointing.*)."""

from __future__ import annotations

from runtime.config.option import choice_option, duration_option, int_option, string_option

CHECKPOINTS_DIR = string_option(
    "execution.checkpointing.dir",
    "",
    "Directory URL below which streaming queries keep offsets, commits and state, which Spark's JVMs read and write. "
    "With TaskManagers on more than one host it must be shared, under one name for all of them.",
    default_text="<run>/checkpoints",
)
SAVEPOINTS_DIR = string_option(
    "execution.checkpointing.savepoint-dir",
    "",
    "Directory below which savepoints are made whose request names none: a path, or a file: URL, that all TaskManagers "
    "reach under one name. Without it a request has to name one.",
)
CHECKPOINT_INTERVAL = duration_option(
    "execution.checkpointing.interval",
    "0 ms",
    "How often a checkpoint of each streaming job is recorded: the last committed batch of all its queries. 0 records "
    "none; queries go on behind their last batches all the same.",
    low="0 ms",
)
CHECKPOINT_TIMEOUT = duration_option(
    "execution.checkpointing.timeout", "10 min", "How long the queries of a job may take to answer for a checkpoint."
)
CHECKPOINT_MIN_PAUSE = duration_option(
    "execution.checkpointing.min-pause", "0 ms", "Least time between two checkpoints of a job.", low="0 ms"
)
CHECKPOINT_TOLERABLE_FAILURES = int_option(
    "execution.checkpointing.tolerable-failed-checkpoints",
    0,
    "More checkpoints in a row that were declined or have expired fail the job.",
    low=0,
)
CHECKPOINTS_RETAINED = int_option(
    "execution.checkpointing.num-retained", 1, "Records of completed checkpoints that are kept for a job.", high=1000
)
CHECKPOINT_RETENTION = choice_option(
    "execution.checkpointing.externalized-checkpoint-retention",
    "RETAIN_ON_CANCELLATION",
    "What becomes of the directories of a streaming job's queries when it has ended. Those of a job that has FINISHED "
    "are always deleted; NO_EXTERNALIZED_CHECKPOINTS deletes those of one that was CANCELED or has FAILED too, "
    "DELETE_ON_CANCELLATION those of one that was CANCELED.",
    "NO_EXTERNALIZED_CHECKPOINTS",
    "DELETE_ON_CANCELLATION",
    "RETAIN_ON_CANCELLATION",
)
STREAM_STOP_TIMEOUT = duration_option(
    "execution.streaming.stop-timeout",
    "30 s",
    "How long the script of a streaming job has to end when the savepoint of its stop is complete. It is interrupted "
    "after 5 s; when it has not ended by then, its process is killed, and the job is FINISHED.",
    low="10 s",
)
STREAM_STALL_TIMEOUT = duration_option(
    "execution.streaming.stall-timeout",
    "10 min",
    "A streaming query that is in one trigger for longer is shown as stalled. Nothing else follows from it.",
)
