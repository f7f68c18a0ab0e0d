"""`flinklike savepoint inspect|list|dispose`: savepoints in directories that this host reaches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_flinklike.cli import render
from airflow_flinklike.cli.arguments import AsJson, show
from airflow_flinklike.exceptions import FlinklikeClientError
from runtime.common.errors import FlinklikeError
from runtime.common.size_text import size_text
from runtime.common.stream_progress import NO_BATCH

if TYPE_CHECKING:
    from runtime.checkpoint.savepoint.savepoint_form import Savepoint, SavepointQuery

_HEAD = ("uid", "subtask", "splits", "batch", "watermark", "state rows", "files", "size", "offsets")
_LIST_HEAD = ("savepoint", "job", "name", "made", "queries", "size")
_SHOWN = 60
Place = Annotated[str, typer.Argument(help="directory of a savepoint: a path, or the URL that its making has printed")]


def inspect(place: Place, as_json: AsJson = False) -> None:
    """Show what a savepoint holds: for each query the batch it ends with, its watermark, its state and its offsets."""
    path = _path(place)
    savepoint = _read(path)
    if as_json:
        show(savepoint.model_dump(mode="json"), "", as_json=True)
        return
    console = render.console()
    for line in _lines(path, savepoint):
        console.print(line)
    console.print(render.table(_HEAD, [_row(query) for query in savepoint.queries]))
    for query in savepoint.queries:
        if query.subtask_index == 0 and query.sources:
            console.print(render.one_line(f"{query.uid} reads {'; '.join(query.sources)}"))
        if query.subtask_index == 0 and query.state_schema:
            console.print(render.one_line(f"state of {query.uid}: {'; '.join(query.state_schema.splitlines())}"))


def list_savepoints(
    place: Annotated[str, typer.Argument(help="directory of savepoints")], as_json: AsJson = False
) -> None:
    """List the savepoints in a directory. One that cannot be read is told on stderr, and makes the exit code 1."""
    from runtime.checkpoint.savepoint.savepoint_files import read_savepoint, savepoints_in  # noqa: PLC0415

    directory = _path(place)
    found: list[tuple[Path, Savepoint]] = []
    problems = []
    try:
        for path in savepoints_in(directory):
            try:
                found.append((path, read_savepoint(path)))
            except FlinklikeError as error:
                problems.append(str(error))
    except OSError as error:
        message = f"{directory} cannot be listed: {error.strerror}"
        raise FlinklikeClientError(message) from error
    found.sort(key=lambda pair: pair[1].trigger_millis)
    rows = [_listed(path, savepoint) for path, savepoint in found]
    body = {"savepoints": [{"path": str(path), **_summary(savepoint)} for path, savepoint in found]}
    show(body, render.table(_LIST_HEAD, rows) if rows else f"No savepoints in {directory}.", as_json=as_json)
    for problem in problems:
        sys.stderr.write(f"flinklike: {problem}\n")
    if problems:
        raise typer.Exit(1)


def dispose(place: Place) -> None:
    """Delete a savepoint, and nothing else: a directory that holds more is left as it is."""
    from runtime.checkpoint.savepoint import savepoint_files  # noqa: PLC0415 - other commands start without it

    path = _path(place)
    try:
        savepoint_files.dispose(path)
    except OSError as error:
        message = f"{path} cannot be deleted: {error}"
        raise FlinklikeClientError(message) from error
    render.console().print(f"Savepoint {path} is deleted.")


def _path(place: str) -> Path:
    from runtime.checkpoint.savepoint import savepoint_files  # noqa: PLC0415 - other commands start without it

    return savepoint_files.local_path(place) if place.startswith("file:") else Path(place)


def _read(path: Path) -> Savepoint:
    from runtime.checkpoint.savepoint import savepoint_files  # noqa: PLC0415 - other commands start without it

    try:
        return savepoint_files.read_savepoint(path)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise FlinklikeClientError(message) from error


def _lines(path: Path, savepoint: Savepoint) -> Iterator[str]:
    yield f"savepoint {path}"
    yield render.one_line(f"of job {savepoint.job_id} ({savepoint.job_name}), number {savepoint.checkpoint_id}")
    spark = f"with Spark {savepoint.spark_version}" if savepoint.spark_version else ""
    made = render.time_text(savepoint.trigger_millis)
    yield render.one_line(f"made {made} by version {savepoint.software_version} {spark}".rstrip())


def _row(query: SavepointQuery) -> tuple[str, ...]:
    snapshot = query.snapshot
    offsets = "; ".join(snapshot.offsets)
    return (
        query.uid,
        f"{query.subtask_index} of {query.parallelism}",
        _short(", ".join(query.splits)),
        "none" if snapshot.batch_id == NO_BATCH else str(snapshot.batch_id),
        render.time_text(snapshot.watermark_millis) if snapshot.watermark_millis else "",
        str(query.state_rows) if snapshot.operators else "",
        str(len(snapshot.files)),
        size_text(sum(file.size for file in snapshot.files)),
        _short(offsets),
    )


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _listed(path: Path, savepoint: Savepoint) -> tuple[str, ...]:
    return (
        str(path),
        savepoint.job_id,
        savepoint.job_name,
        render.time_text(savepoint.trigger_millis),
        str(len(savepoint.queries)),
        size_text(savepoint.size),
    )


def _summary(savepoint: Savepoint) -> dict[str, Any]:
    return {
        **savepoint.model_dump(mode="json", exclude={"queries"}),
        "queries": len(savepoint.queries),
        "size": savepoint.size,
    }
