"""`flinklike top`: the cluster at a glance, live on a terminal; anywhere else it is printed once.

One thread asks the cluster, by a long poll that ends with each change; the terminal's own thread draws and reads keys.
"""

from __future__ import annotations

import json
import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.text import Text

from airflow_flinklike.cli import render
from airflow_flinklike.cli.arguments import Address, TokenFile
from airflow_flinklike.cli.connection import connect
from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.client.process_logs import pause
from airflow_flinklike.exceptions import ClusterUnavailableError, FlinklikeClientError
from runtime.common.printable import printable

_WAIT_SECONDS = "5"
"""Figures that change by themselves, such as durations, are as old as this at most."""
_PAUSE_SECONDS = 1.0
_TROUBLE_SECONDS = 3.0
"""After so long without an answer the screen says so."""
_JOBS_MAX = 200
_NARROW = 100
"""Columns below which ids are cut and columns are left out."""
_BAR = 20


def top(
    once: Annotated[bool, typer.Option("--once", help="print it once, as where stdout is not a terminal")] = False,
    address: Address = None,
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document, once")] = False,
) -> None:
    """Show unfinished jobs, slots, JobMasters and TaskManagers; live until q or Ctrl-C."""
    console = render.console()
    with connect(address, token_file, is_quiet=not once and console.is_terminal) as client:
        if as_json:
            sys.stdout.write(json.dumps(look(client)) + "\n")
        elif once or not (console.is_terminal and sys.stdin.isatty()):
            console.print(Screen(look(client), is_whole=True))
        else:
            client.retry_for = _TROUBLE_SECONDS
            _show_live(client, console)


def look(client: FlinklikeClient) -> dict[str, Any]:
    """What is shown, by four requests."""
    return {
        "overview": client.get("/overview"),
        "jobs": client.get("/jobs/overview", state="unfinished", sort="oldest", limit=str(_JOBS_MAX))["jobs"],
        **client.get("/jobmasters"),
        **client.get("/taskmanagers"),
    }


class Screen:
    """What was found, as large as the console allows. `is_whole`: nothing is cut."""

    def __init__(self, found: Mapping[str, Any], *, is_whole: bool = False, trouble: str = "") -> None:
        self._found = found
        self._is_whole = is_whole
        self._trouble = trouble

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        found, is_narrow = self._found, options.max_width < _NARROW
        masters = render.short_job_masters_table(found["jobmasters"], is_narrow=is_narrow)
        managers = render.short_task_managers_table(found["taskmanagers"], is_narrow=is_narrow)
        taken = len(found["jobmasters"]) + len(found["taskmanagers"]) + 13
        rows = len(found["jobs"]) if self._is_whole else max(3, (options.height or console.height) - taken)
        jobs = found["jobs"][:rows]
        more = found["overview"].get("jobs-running", 0) - len(jobs)
        shown = render.short_jobs_table(jobs, is_narrow=is_narrow) if jobs else Text("No job runs.")
        yield Group(
            *map(_as_one_line, _head(found["overview"])),
            *([Text(printable(self._trouble), style="yellow")] if self._trouble else []),
            render.section("Jobs", shown),
            *([Text(f"and {more} more", style="dim")] if more > 0 else []),
            render.section("JobMasters", masters),
            render.section("TaskManagers", managers),
        )


def _as_one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _head(overview: Mapping[str, Any]) -> Iterator[Text]:
    total = overview.get("slots-total", 0)
    used = total - overview.get("slots-available", 0)
    filled = round(_BAR * used / total) if total else 0
    yield Text.assemble(
        ("flinklike", "bold"),
        printable(f"  {overview.get('leader', '')}"),
        printable(f"  stand-bys: {', '.join(overview.get('stand-bys', ())) or 'none'}"),
    )
    yield Text.assemble(
        "slots ",
        ("#" * filled, "blue"),
        ("-" * (_BAR - filled), "dim"),
        f" {used}/{total}",
        f"   jobs: {overview.get('jobs-running', 0)} unfinished, {overview.get('jobs-finished', 0)} finished, ",
        (f"{overview.get('jobs-failed', 0)} failed", "red" if overview.get("jobs-failed") else ""),
        f", {overview.get('jobs-cancelled', 0)} canceled",
    )


class _Looker(threading.Thread):
    """Asks the cluster until the process ends. Writes a byte to `told` after each answer."""

    def __init__(self, client: FlinklikeClient, told: int) -> None:
        super().__init__(name="looker", daemon=True)
        self._client = client
        self._told = told
        self.found: Mapping[str, Any] | None = None
        self.trouble = ""
        self.error: Exception | None = None

    def run(self) -> None:
        """Look again at each change."""
        revision = ""
        try:
            while True:
                try:
                    self.found, self.trouble = look(self._client), ""
                    self._tell()
                    self._client.run(pause(_PAUSE_SECONDS))
                    revision = self._client.get("/changes", since=revision, wait=_WAIT_SECONDS)["revision"]
                except ClusterUnavailableError as error:
                    self.trouble = f"{error}. What is below is old; trying again"
                    self._tell()
        except Exception as error:  # noqa: BLE001 - the other thread raises it
            self.error = error
            self._tell()

    def _tell(self) -> None:
        with suppress(OSError):  # nobody looks any more
            os.write(self._told, b"x")


def _show_live(client: FlinklikeClient, console: Console) -> None:
    heard, told = os.pipe()
    looker = _Looker(client, told)
    with suppress(KeyboardInterrupt), _single_keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        live.update(Text("Asking the cluster ..."), refresh=True)
        looker.start()
        while looker.error is None:
            ready, _, _ = select.select([sys.stdin, heard], [], [], 1.0)
            if sys.stdin in ready and _is_end(sys.stdin.fileno()):
                break
            if heard in ready:
                os.read(heard, 64)
            if looker.found is not None:  # also when nothing is new: the terminal may have another size
                live.update(Screen(looker.found, trouble=looker.trouble), refresh=True)
            elif looker.trouble:
                live.update(Text(printable(looker.trouble), style="yellow"), refresh=True)
    if isinstance(looker.error, FlinklikeClientError):
        raise looker.error
    if looker.error is not None:
        message = f"flinklike top ends by a mistake of its own ({type(looker.error).__name__}): {looker.error}"
        raise FlinklikeClientError(message) from looker.error


def _is_end(descriptor: int) -> bool:
    """Whether a key that ends was pressed, or the terminal is gone."""
    try:
        keys = os.read(descriptor, 64)
    except OSError:
        return True
    return keys[:1].lower() in {b"q", b"\x03", b""}


@contextmanager
def _single_keys() -> Iterator[None]:
    """Keys are read one by one, and not shown."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
