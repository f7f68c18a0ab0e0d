"""`flinklike queues` shows how the slots are shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from airflow_flinklike.cli import render
from airflow_flinklike.cli.arguments import Address, AsJson, TokenFile, show
from airflow_flinklike.cli.connection import connect


def queues(address: Address = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Show the queues with jobs or options: the slots that each holds and has a claim to, and who waits."""
    with connect(address, token_file) as client:
        found = client.get("/queues")
    show(found, queues_table(found["queues"]) if found["queues"] else "No queue has a job.", as_json=as_json)
    if found["problem"] and not as_json:
        render.console(stderr=True).print(found["problem"])


def queues_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """One line for each queue."""
    rows = [
        (
            str(one["name"]),
            f"{one['slots-held']}",
            f"{one['share']:.4g}",
            _running(one),
            str(one["jobs-waiting"]),
            f"{one['weight']:g}",
            str(one["min-slots"] or ""),
            str(one["max-slots"] or ""),
        )
        for one in found
    ]
    return render.table(("queue", "slots", "share", "jobs", "waiting", "weight", "min", "max"), rows)


def _running(queue: Mapping[str, Any]) -> str:
    limit = queue["max-running-jobs"]
    return f"{queue['jobs-running']}" + (f"/{limit}" if limit else "")
