"""Arguments and output that several commands share."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from airflow_flinklike.cli import render
from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId, is_hex_id
from runtime.common.printable import printable

Address = Annotated[
    str | None, typer.Option("--address", "-a", help="http(s)://host:port of REST; several with commas")
]
TokenFile = Annotated[Path | None, typer.Option(help="file with the cluster's token")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document")]
Job = Annotated[str, typer.Argument(help="job id, 32 hex digits: list --name finds it")]


def job_id_of(text: str) -> JobId:
    """The id of a job that is there. Raises InvalidInputError, which says how to find the id of a name."""
    if not is_hex_id(text):
        found = f"`flinklike list --name {shlex.quote(printable(text[:80]))}`"
        message = f"{text[:80]!r} is not a job id: expected 32 lower-case hex digits, which {found} finds"
        raise InvalidInputError(message)
    return JobId(text)


def show(body: Any, shown: Any, *, as_json: bool) -> None:
    """Print the body as JSON, or `shown`."""
    if as_json:
        sys.stdout.write(json.dumps(body) + "\n")
    else:
        render.console().print(shown)
