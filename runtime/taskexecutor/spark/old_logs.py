"""Logs of Spark environments that have ended: the newest stay, since each key has files of its own."""

from __future__ import annotations

from pathlib import Path

from runtime.taskexecutor.spark_protocol.settings import SparkSettings

LOGS_MAX = 20
"""Environments whose logs are kept, of one TaskManager."""


def remove_old_logs(settings: SparkSettings) -> None:
    """Make room for the logs of one more environment. Files that are gone already are no matter. Blocking."""
    begin = settings.log_prefix.rpartition("-")[0]
    found: dict[str, list[Path]] = {}
    for file in settings.log_directory.glob(f"{begin}-????????-*.log*"):
        found.setdefault(file.name[len(begin) + 1 :][:8], []).append(file)
    newest = sorted(found, key=lambda key: max(map(_changed_at, found[key])), reverse=True)
    for key in newest[LOGS_MAX - 1 :]:
        for file in found[key]:
            file.unlink(missing_ok=True)


def _changed_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0
