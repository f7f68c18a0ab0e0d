"""`flinklike process-log` and `thread-dump` look into a process of the cluster. For operators of all namespaces."""

from __future__ import annotations

import json
import sys
from enum import Enum
from typing import Annotated, Any

import typer

from airflow_flinklike.cli import render
from airflow_flinklike.cli.arguments import Address, AsJson, TokenFile, show
from airflow_flinklike.cli.connection import connect
from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.client.process_logs import ProcessPath, pause, pieces
from runtime.common.printable import printable, printable_output

_PAUSE_SECONDS = 1.0
_FOLLOWED_BYTES = 64 * 1024


class ProcessKind(Enum):
    """The kinds of processes of a cluster."""

    JOBMANAGER = "jobmanager"
    JOBMASTER = "jobmaster"
    TASKMANAGER = "taskmanager"


Kind = Annotated[ProcessKind, typer.Argument(help="kind of the process", case_sensitive=False)]
ProcessId = Annotated[
    str, typer.Argument(metavar="[ID]", help="its id, as `flinklike jobmasters` and `flinklike taskmanagers` show it")
]


def process_log(
    kind: Kind,
    process_id: ProcessId = "",
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="begin with the last 64 KiB, and go on until interrupted")
    ] = False,
    file: Annotated[str, typer.Option(help="name of another of its log files, as --list shows them")] = "",
    list_: Annotated[bool, typer.Option("--list", help="show the names of its log files")] = False,
    address: Address = None,
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document, with --list")] = False,
) -> None:
    """Show the log of a process, or another of its log files. Takes the role operator of all namespaces."""
    path = _path(kind, process_id)
    if list_ and (follow or file):
        message = "--list: it shows names only, leave out --follow and --file"
        raise typer.BadParameter(message)
    if as_json and not list_:
        message = "--json: it goes with --list; a log is text"
        raise typer.BadParameter(message)
    with connect(address, token_file) as client:
        if list_:
            body = client.get(f"{path.text}/logs")
            show(body, render.log_files_table(body["logs"]) if body["logs"] else "No log files.", as_json=as_json)
            return
        _write_log(client, path.file(file), follow=follow)


def thread_dump(
    kind: Kind,
    process_id: ProcessId = "",
    address: Address = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the stacks of a process: of a TaskManager also those of its slots and of its Spark. Nothing is stopped.

    Takes the role operator of all namespaces.
    """
    path = _path(kind, process_id)
    with connect(address, token_file) as client:
        body: dict[str, Any] = client.get(f"{path.text}/thread-dump")
    if as_json:
        sys.stdout.write(json.dumps(body) + "\n")
        return
    for one in body["threadInfos"]:
        sys.stdout.write(printable(f"=== {one['threadName']}\n{one['stringifiedThreadInfo'].rstrip()}\n\n"))
    sys.stdout.flush()


def log_level(
    logger: Annotated[str, typer.Argument(help="runtime, jobmaster_process, or a module below: runtime.taskexecutor")],
    level: Annotated[str, typer.Argument(metavar="LEVEL", help="DEBUG, INFO, WARNING, ERROR; DEFAULT: as configured")],
    address: Address = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Change the level of a logger in all processes, until each of them ends. Exit code 1 when one was not reached.

    For admins. A process that starts later logs by env.log.level, and a stand-by JobManager is not asked.
    """
    with connect(address, token_file) as client:
        body = client.post("/log-level", {"logger": logger, "level": level.upper()})
    lines = [f"{one['process']}: {one['error'] or 'was ' + one['former']}" for one in body["processes"]]
    said = f"{logger} logs from {body['level']} on, until a process is started again:"
    show(body, printable("\n".join([said, *lines])), as_json=as_json)
    if any(one["error"] for one in body["processes"]):
        raise typer.Exit(1)


def _path(kind: ProcessKind, process_id: str) -> ProcessPath:
    if kind is ProcessKind.JOBMANAGER and process_id:
        message = "jobmanager: it takes no id; the JobManager that leads answers"
        raise typer.BadParameter(message)
    if kind is not ProcessKind.JOBMANAGER and not process_id:
        message = f"{kind.value}: name its id, as `flinklike {kind.value}s` shows it"
        raise typer.BadParameter(message)
    return ProcessPath.of(kind.value, process_id)


def _write_log(client: FlinklikeClient, path: str, *, follow: bool) -> None:
    offset = -_FOLLOWED_BYTES if follow else 0
    while True:
        for piece in pieces(client, path, offset):
            if piece.is_restarted:
                sys.stderr.write(
                    "[the file was moved aside: what it had more is in the file of the same name with .1]\n"
                )
            _write(piece.data)
            offset = piece.next_offset
        if not follow:
            return
        client.run(pause(_PAUSE_SECONDS))


def _write(data: bytes) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(printable_output(data.decode("utf-8", "replace")))
        sys.stdout.flush()
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
