"""Options of checkpoints of streaming jobs; names are Flink's (execution.checkpointing.*)."""

from __future__ import annotations

from runtime.config.option import string_option

CHECKPOINTS_DIR = string_option(
    "execution.checkpointing.dir",
    "",
    "Directory URL below which streaming queries keep offsets, commits and state, which Spark's JVMs read and write. "
    "With TaskManagers on more than one host it must be shared, under one name for all of them.",
    default_text="<run>/checkpoints",
)
