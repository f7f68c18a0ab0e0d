"""Arguments and output that several commands share."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from airflow_flinklike.cli import render

Address = Annotated[
    str | None, typer.Option("--address", "-a", help="http(s)://host:port of REST; several with commas")
]
TokenFile = Annotated[Path | None, typer.Option(help="file with the cluster's token")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document")]
Job = Annotated[str, typer.Argument(help="job id, 32 hex digits")]


def show(body: Any, shown: Any, *, as_json: bool) -> None:
    """Print the body as JSON, or `shown`."""
    if as_json:
        sys.stdout.write(json.dumps(body) + "\n")
    else:
        render.console().print(shown)
