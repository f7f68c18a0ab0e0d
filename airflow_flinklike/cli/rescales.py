"""`flinklike rescale JOB [VERTEX=N ...]`: the bounds of the parallelism of a streaming job, and its last rescales."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from airflow_flinklike.cli import render
from airflow_flinklike.cli.arguments import Address, AsJson, Job, TokenFile, job_id_of
from airflow_flinklike.cli.connection import connect
from airflow_flinklike.client.rescales import set_bounds
from runtime.jobgraph.limits import PARALLELISM_MAX

_VERTICES = (
    "VERTEX=N for at most N subtasks, VERTEX=LOWER-UPPER for both bounds; VERTEX is an id, a name, or the name of a "
    "query. Without any: show what there is"
)
_VERTEX_HEAD = ("vertex", "subtasks", "bounds")
_RESCALE_HEAD = ("no.", "cause", "state", "begun", "pause", "subtasks")
_DIGITS_MAX = 6


def rescale(
    job: Job,
    bounds: Annotated[list[str] | None, typer.Argument(metavar="[VERTEX=N]...", help=_VERTICES)] = None,
    address: Address = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Change how many subtasks queries of a running job may have, or show that and the last rescales.

    The bounds are durable when this returns; the job is rescaled when its slots, and the cooldown, allow it.
    """
    job_id = job_id_of(job)
    with connect(address, token_file) as client:
        details = client.get(f"/jobs/{job_id}")
        if bounds:
            known = client.get(f"/jobs/{job_id}/resource-requirements")
            wanted = [_wanted(text, details["vertices"], known) for text in bounds]
            if len(dict(wanted)) < len(wanted):
                message = "a vertex is named twice"
                raise typer.BadParameter(message)
            client.run(set_bounds(job_id, dict(wanted)))
        now = client.get(f"/jobs/{job_id}/resource-requirements")
        history = client.get(f"/jobs/{job_id}/rescales/history")
    if as_json:
        sys.stdout.write(json.dumps({"resource-requirements": now, "rescales": history}) + "\n")
        return
    console = render.console()
    console.print(_vertices(details["vertices"], now))
    if history:
        console.print(_rescales(history))


def _wanted(text: str, vertices: Sequence[Mapping[str, Any]], known: Mapping[str, Any]) -> tuple[str, tuple[int, int]]:
    name, equals, numbers = text.rpartition("=")
    lower, dash, upper = numbers.partition("-")
    parts = [lower, upper] if dash else [lower]
    if not equals or not all(part.isdecimal() and len(part) < _DIGITS_MAX for part in parts):
        message = f"{text[:200]!r}: expected VERTEX=N or VERTEX=LOWER-UPPER"
        raise typer.BadParameter(message)
    if not all(1 <= int(part) <= PARALLELISM_MAX for part in parts):
        message = f"{text[:200]!r}: a vertex has 1 to {PARALLELISM_MAX} subtasks"
        raise typer.BadParameter(message)
    vertex_id = _vertex_id(name, vertices)
    if dash:
        return vertex_id, (int(lower), int(upper))
    least = known[vertex_id]["parallelism"]["lowerBound"]
    return vertex_id, (min(least, int(lower)), int(lower))


def _vertex_id(name: str, vertices: Sequence[Mapping[str, Any]]) -> str:
    found = [one["id"] for one in vertices if name in {one["id"], one["name"], one["name"].rpartition(" -> ")[2]}]
    if len(found) != 1:
        there = ", ".join(repr(one["name"]) for one in vertices)
        what = "more than one vertex" if found else "no vertex"
        message = f"{name[:200]!r} is {what} of the job, which has {there}"
        raise typer.BadParameter(message)
    return str(found[0])


def _vertices(vertices: Sequence[Mapping[str, Any]], bounds: Mapping[str, Any]) -> Table:
    rows = []
    for one in vertices:
        of = bounds[one["id"]]["parallelism"]
        shown = (
            f"{of['lowerBound']} to {of['upperBound']}"
            if of["lowerBound"] != of["upperBound"]
            else str(of["upperBound"])
        )
        rows.append((one["name"], str(one["parallelism"]), shown))
    return render.table(_VERTEX_HEAD, rows)


def _rescales(history: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        (
            str(one["rescaleAttemptId"]),
            one["triggerCause"],
            _state(one),
            render.time_text(one["startTimestampInMillis"]),
            "-" if one["pauseInMillis"] is None else render.duration_text(one["pauseInMillis"]),
            ", ".join(map(_change, one["vertices"].values())),
        )
        for one in history
    ]
    return render.table(_RESCALE_HEAD, rows)


def _state(one: Mapping[str, Any]) -> Text:
    """How a rescale has ended, and why where it did not do what it was for."""
    state = one["terminalState"] or "IN_PROGRESS"
    shown = render.state_text(state)
    return shown if state in {"IN_PROGRESS", "COMPLETED"} else shown.append(f", {one['terminatedReason']}")


def _change(vertex: Mapping[str, Any]) -> str:
    return f"{vertex['preRescaleParallelism'] or 0} to {vertex['postRescaleParallelism']}"
