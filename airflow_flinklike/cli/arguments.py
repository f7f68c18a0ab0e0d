"""What several commands take, and how their answers are shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from airflow_flinklike.cli import render
from airflow_flinklike.cli.connection import connect

Address = Annotated[
    str | None, typer.Option("--address", "-a", help="http(s)://host:port of REST; several with commas")
]
TokenFile = Annotated[Path | None, typer.Option(help="file with the cluster's token")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document")]
Job = Annotated[str, typer.Argument(help="job id, 32 hex digits")]


def show(body: Any, shown: Any, *, as_json: bool) -> None:
    """The body for programs, or what people see of it."""
    if as_json:
        sys.stdout.write(json.dumps(body) + "\n")
    else:
        render.console().print(shown)


def show_list(address: str | None, token_file: Path | None, what: str, table: Any, *, as_json: bool) -> None:
    """All of `/<what>`."""
    with connect(address, token_file) as client:
        body: Mapping[str, Any] = client.get(f"/{what}")
    show(body, table(body[what]) if body[what] else f"No {what}.", as_json=as_json)


def set_draining(
    address: str | None, token_file: Path | None, path: str, process: str, *, is_draining: bool, as_json: bool
) -> None:
    """Have one of `/<path>` drain, or be used again."""
    with connect(address, token_file) as client:
        client.post(f"/{path}/{quote(process, safe='')}/{'drain' if is_draining else 'undrain'}")
    kind = {"jobmasters": "JobMaster process", "taskmanagers": "TaskManager"}[path]
    said = f"{kind} {process} is {'draining' if is_draining else 'used again'}."
    show({"id": process, "draining": is_draining}, said, as_json=as_json)
