"""`flinklike events`: what has happened to the cluster, and what happens."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from airflow_flinklike.cli import render
from airflow_flinklike.cli.arguments import Address, TokenFile, show
from airflow_flinklike.cli.attached import ATTACHED_RETRY_SECONDS
from airflow_flinklike.cli.connection import connect
from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.client.process_logs import pause

EVENTS_MAX = 1000
"""More are not kept."""
_PAUSE_SECONDS = 1.0
"""At least between two looks: a busy cluster changes all the time."""
_WAIT_SECONDS = "10"


def events(
    follow: Annotated[bool, typer.Option("-f", "--follow", help="go on until interrupted")] = False,
    limit: Annotated[int, typer.Option(min=1, max=EVENTS_MAX, help="begin with so many of the last events")] = 50,
    address: Address = None,
    token_file: TokenFile = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print one JSON document; with --follow one a line for each event")
    ] = False,
) -> None:
    """Show what has happened to the cluster: leaders, processes that came, drained, were lost, jobs that moved."""
    with connect(address, token_file) as client:
        if follow:
            client.retry_for = ATTACHED_RETRY_SECONDS  # a failover is what one wants to see
            try:
                _Follower(client, _line_of(as_json=as_json)).run(limit)
            except KeyboardInterrupt:
                raise typer.Exit(130) from None
        body = client.get("/events", limit=str(limit))
    shown = render.events_table(body["events"]) if body["events"] else "No events."
    show(body, shown, as_json=as_json)


def _line_of(*, as_json: bool) -> Callable[[Mapping[str, Any]], None]:
    console = render.console()

    def write(event: Mapping[str, Any]) -> None:
        if as_json:
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()
        else:
            console.print(f"{render.time_text(event['timestamp'])}  {event['kind']}  {event['message']}")

    return write


class _Follower:
    """Each event once: after a change of leaders a page may begin anew."""

    def __init__(self, client: FlinklikeClient, write: Callable[[Mapping[str, Any]], None]) -> None:
        self._client = client
        self._write = write
        self._seen: deque[str] = deque(maxlen=2 * EVENTS_MAX)

    def run(self, limit: int) -> None:
        """Eternal."""
        after, revision = "", ""
        while True:
            params = {"after": after} if after else {}
            page = self._client.get("/events", limit=str(EVENTS_MAX if after else limit), **params)
            for event in page["events"]:
                if event["id"] not in self._seen:
                    self._seen.append(event["id"])
                    self._write(event)
            after = page["next"]
            self._client.run(pause(_PAUSE_SECONDS))
            revision = self._client.get("/changes", since=revision, wait=_WAIT_SECONDS)["revision"]
