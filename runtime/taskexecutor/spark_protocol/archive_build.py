"""How the process that makes a class archive is started: by the host of a default JVM, or in the place of one."""

from __future__ import annotations

import sys

from runtime.taskexecutor.spark_protocol.settings import SparkSettings

_BUILDER = "runtime.taskexecutor.spark_host.archive_builder"


def builder_command(settings: SparkSettings) -> list[str]:
    """The command. Its settings are written into the work directory, for the user of this process only."""
    file = settings.work_directory / "archive-settings.json"
    file.touch(mode=0o600)
    file.write_text(settings.to_json())
    return [sys.executable, "-m", _BUILDER, str(file)]
