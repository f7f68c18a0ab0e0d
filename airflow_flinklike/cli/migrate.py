"""`flinklike migrate` reads DAG files, says which Spark tasks can move to the cluster, and moves them."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runtime.common.errors import InvalidInputError
from runtime.common.printable import printable

if TYPE_CHECKING:
    from airflow_flinklike.migrate.analysis import FileReport


class Form(StrEnum):
    """The forms of the report."""

    TEXT = "text"
    MARKDOWN = "md"
    JSON = "json"


def migrate(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="DAG files, and directories with them")],
    write: Annotated[bool, typer.Option("--write", help="replace the files in which a task moves")] = False,
    report: Annotated[Form, typer.Option(help="the form of the report")] = Form.TEXT,
    patch: Annotated[
        str, typer.Option(metavar="FILE", help="write the changes as a unified diff; - is stdout, without a report")
    ] = "",
    load: Annotated[
        bool, typer.Option("--load", help="import the files through Airflow, and count the tasks that are really there")
    ] = False,
    conn_id: Annotated[
        str, typer.Option(help="the Airflow connection to the cluster that the tasks get")
    ] = "flinklike_default",
    start_seconds: Annotated[float, typer.Option(min=0, help="seconds that one start of spark-submit takes")] = 13.0,
) -> None:
    """Say of each Spark task of DAG files what becomes of it on the cluster; with --write, move those that can move.

    Files are read and never executed, unless --load is given. Without --write no DAG file is changed. Exit code 1 if a
    file could not be read, imported or written; all others are in the report.
    """
    from airflow_flinklike.migrate.analysis import analyse_all  # noqa: PLC0415 - no other command needs it
    from airflow_flinklike.migrate.files import python_files  # noqa: PLC0415
    from airflow_flinklike.migrate.patching import patch_of  # noqa: PLC0415

    if not conn_id.strip():
        message = "--conn-id is empty: name an Airflow connection, such as flinklike_default"
        raise InvalidInputError(message)
    reports = analyse_all(python_files(paths), conn_id)
    if load:
        from airflow_flinklike.migrate.dag_bag import load_tasks  # noqa: PLC0415 - it imports Airflow

        load_tasks(reports, paths)
    for one in reports:
        one.settle()
    changes = patch_of(reports)
    for one in reports if write else ():
        one.write()
    if patch == "-":
        sys.stdout.buffer.write(changes)
        _tell_problems(reports)
    else:
        if patch:
            _write_patch(Path(patch), changes)
        sys.stdout.write(_rendered(reports, report, start_seconds))
    if any(one.problem for one in reports):
        raise typer.Exit(1)


def _tell_problems(reports: list[FileReport]) -> None:
    """Where no report does."""
    for one in reports:
        if one.problem:
            sys.stderr.write(f"flinklike: {printable(f'{one.path}: {one.problem}')}\n")


def _rendered(reports: list[FileReport], form: Form, start_seconds: float) -> str:
    from airflow_flinklike.migrate.reporting import as_json, as_markdown, as_text  # noqa: PLC0415
    from airflow_flinklike.migrate.summary import summarize  # noqa: PLC0415

    summary = summarize(reports, start_seconds)
    if form is Form.JSON:
        return json.dumps(as_json(reports, summary), indent=2) + "\n"
    return as_markdown(reports, summary) if form is Form.MARKDOWN else as_text(reports, summary)


def _write_patch(path: Path, changes: bytes) -> None:
    try:
        path.write_bytes(changes)
    except OSError as error:
        message = f"--patch {path} cannot be written: {error.strerror}"
        raise InvalidInputError(message) from error
