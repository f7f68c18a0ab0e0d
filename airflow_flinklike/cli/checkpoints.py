"""`flinklike checkpoints JOB`: the last checkpoints of a streaming job, and what it went on behind last."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from airflow_flinklike.cli import render
from airflow_flinklike.cli.arguments import Address, AsJson, Job, TokenFile, job_id_of
from airflow_flinklike.cli.connection import connect
from runtime.common.size_text import size_text

_HEAD = ("id", "state", "triggered", "duration", "queries", "state size", "")


def checkpoints(job: Job, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Show the last checkpoints of a streaming job, newest first, and the one that its queries went on behind last."""
    job_id = job_id_of(job)
    with connect(address, token_file) as client:
        body = client.get(f"/jobs/{job_id}/checkpoints")
        config = client.get(f"/jobs/{job_id}/checkpoints/config")
    if as_json:
        sys.stdout.write(json.dumps({**body, "config": config}) + "\n")
        return
    console = render.console()
    for line in _lines(body, config):
        console.print(line)
    if body["history"]:
        console.print(_table(body))


def _lines(body: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    counts = body["counts"]
    told = [f"{counts[name]} {name.replace('_', ' ')}" for name in ("completed", "failed", "in_progress", "restored")]
    often = f"every {render.duration_text(config['interval'])}" if config["interval"] else "none by themselves"
    yield f"{often}: {', '.join(told)}"
    if (restored := body["latest"]["restored"]) is not None:
        when = render.time_text(restored["restore_timestamp"])
        if restored["is_savepoint"]:
            yield f"restored {when}: queries were started from savepoint {restored['external_path']}"
        else:
            yield f"restored {when}: checkpoint {restored['id']} was the latest when queries were started again"


def _table(body: Mapping[str, Any]) -> Table:
    rows = [
        (
            str(one["id"]),
            render.state_text(one["status"]),
            render.time_text(one["trigger_timestamp"]),
            render.duration_text(one["end_to_end_duration"]),
            f"{one['num_acknowledged_subtasks']}/{one['num_subtasks']}",
            _size(one),
            _note(one),
        )
        for one in body["history"]
    ]
    return render.table(_HEAD, rows)


def _size(one: Mapping[str, Any]) -> str:
    """Of a savepoint that is not whole nobody knows it; clusters of earlier releases say 0 of each savepoint."""
    is_unknown = one["state_size"] < int(one["is_savepoint"])
    return "-" if is_unknown else size_text(one["state_size"])


def _note(one: Mapping[str, Any]) -> str:
    """Why it has failed, where its savepoint lies, or which queries it has no batch of."""
    if failure := one.get("failure_message"):
        return str(failure)
    if one["is_savepoint"]:
        return str(one.get("external_path", ""))
    without = one.get("queries_without_batch", 0)  # clusters of earlier releases do not say it
    if not without:
        return ""
    return f"no batch yet of {without} of {one['num_acknowledged_subtasks']} queries"
