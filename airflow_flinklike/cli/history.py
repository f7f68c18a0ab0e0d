"""`flinklike history`: jobs that have ended, as a history server shows them."""

from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from airflow_flinklike.cli import render
from airflow_flinklike.cli.arguments import AsJson, TokenFile, show
from airflow_flinklike.cli.connection import connect, local_history
from airflow_flinklike.exceptions import (
    ClusterUnavailableError,
    FlinklikeClientError,
    ForeignAnswerError,
    HandshakeRefusedError,
    PipelineError,
)

_ENDED = ("FINISHED", "FAILED", "CANCELED")
_UNITS = {"m": 60, "h": 3600, "d": 86_400}
_SECONDS_MAX = 100 * 366 * 86_400


def parse_time(text: str, now_millis: int) -> int:
    """Milliseconds since 1970 of `2026-11-01`, `2026-11-01T12:00` (local time, or with a zone) or `36h` ago.

    0 for "". Raises PipelineError.
    """
    if not text:
        return 0
    unit = _UNITS.get(text[-1:])
    if unit is not None and text[:-1].isdecimal() and int(text[:-1]) * unit <= _SECONDS_MAX:
        return now_millis - int(text[:-1]) * unit * 1000
    try:
        found = int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        message = f"{text[:40]!r} is no time: expected 2026-11-01, 2026-11-01T12:00, or so long ago as 36h or 7d"
        raise PipelineError(message) from error
    return max(0, found)


def history(
    state: Annotated[str, typer.Option(help=f"only jobs that are {', '.join(_ENDED)}")] = "",
    name: Annotated[str, typer.Option(help="only jobs with this in their name, or whose id begins so")] = "",
    since: Annotated[str, typer.Option(help="submitted from then on: 2026-11-01, 2026-11-01T12:00, 36h, 7d")] = "",
    until: Annotated[str, typer.Option(help="submitted before then")] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="at most so many, the newest ones")] = 100,
    address: Annotated[
        str | None, typer.Option("--address", "-a", help="http(s)://host:port of the history server")
    ] = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """List jobs that have ended, newest first, from a history server: of all clusters whose histories it reads.

    It is that of --address, of FLINKLIKE_HISTORY_ADDRESS, or the one that bin/historyserver.sh has started here.
    `flinklike info JOB --address ...` asks it for one job.
    """
    if state and state.upper() not in _ENDED:
        message = f"--state {state[:40]!r}: a history has jobs that are {', '.join(_ENDED)}"
        raise PipelineError(message)
    now = round(time.time() * 1000)  # noqa: TID251 - told to a person
    asked: dict[str, Any] = {
        "state": state.upper(),
        "name": name,
        "since": parse_time(since, now),
        "until": parse_time(until, now),
        "limit": limit,
    }
    body = _ask(address, token_file, {key: str(value) for key, value in asked.items() if value})
    jobs, total = body["jobs"], body.get("total", 0)
    shown: Any = render.history_table(jobs) if jobs else "No jobs."
    show({"jobs": jobs, "total": total}, shown, as_json=as_json)
    if total > len(jobs) and not as_json:
        render.console().print(f"{len(jobs)} of {total} jobs: --limit shows more, --until older ones.")


def _ask(address: str | None, token_file: Path | None, query: dict[str, str]) -> Any:
    place = address or os.environ.get("FLINKLIKE_HISTORY_ADDRESS") or local_history()
    try:
        with connect(place, token_file, retry_for=0.0) as client:
            return client.get("/jobs/overview", **query)
    except (HandshakeRefusedError, ForeignAnswerError):
        raise
    except ClusterUnavailableError as error:
        message = f"no history server answers at {place} ({error}): bin/historyserver.sh start starts one on this host"
        raise FlinklikeClientError(message) from error
