"""`flinklike taskmanagers` and `jobmasters` show, drain and undrain processes; `flinklike jobs move` moves a job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from airflow_flinklike.cli import render
from airflow_flinklike.cli.arguments import Address, AsJson, Job, TokenFile, job_id_of, show
from airflow_flinklike.cli.connection import connect

TaskManager = Annotated[str, typer.Argument(help="id of the TaskManager, as `flinklike taskmanagers` shows it")]
JobMaster = Annotated[str, typer.Argument(help="id of the JobMaster process, as `flinklike jobmasters` shows it")]

task_managers = typer.Typer(
    name="taskmanagers", help="Show TaskManagers with their slots; drain and undrain one.", invoke_without_command=True
)
job_masters = typer.Typer(
    name="jobmasters",
    help="Show JobMaster processes with their jobs; drain and undrain one.",
    invoke_without_command=True,
)
jobs = typer.Typer(name="jobs", help="Move jobs between JobMaster processes.", no_args_is_help=True)


@task_managers.callback()
def list_task_managers(
    context: typer.Context, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Show TaskManagers with their slots; drain and undrain one."""
    if context.invoked_subcommand is None:
        _show_list(address, token_file, "taskmanagers", render.task_managers_table, as_json=as_json)


@task_managers.command("drain")
def drain_task_manager(
    manager: TaskManager, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Give a TaskManager no more work. Its tasks finish, or run elsewhere. It stays registered until it is stopped."""
    _set_draining(address, token_file, "taskmanagers", manager, is_draining=True, as_json=as_json)


@task_managers.command("undrain")
def undrain_task_manager(
    manager: TaskManager, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Give a drained TaskManager work again."""
    _set_draining(address, token_file, "taskmanagers", manager, is_draining=False, as_json=as_json)


@job_masters.callback()
def list_job_masters(
    context: typer.Context, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Show JobMaster processes with their jobs; drain and undrain one."""
    if context.invoked_subcommand is None:
        _show_list(address, token_file, "jobmasters", render.job_masters_table, as_json=as_json)


@job_masters.command("drain")
def drain_job_master(
    process: JobMaster, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Move all jobs of a JobMaster process to others, and give it no more. Their tasks run on."""
    _set_draining(address, token_file, "jobmasters", process, is_draining=True, as_json=as_json)


@job_masters.command("undrain")
def undrain_job_master(
    process: JobMaster, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Give a drained JobMaster process jobs again."""
    _set_draining(address, token_file, "jobmasters", process, is_draining=False, as_json=as_json)


@jobs.callback()
def _jobs() -> None:
    """Move jobs between JobMaster processes."""


@jobs.command()
def move(
    job: Job,
    to: Annotated[str, typer.Option("--to", help="id of the JobMaster process that is to run it")],
    address: Address = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Move a job to another JobMaster process. Returns when the request is durable. Its tasks run on."""
    job_id = job_id_of(job)
    with connect(address, token_file) as client:
        client.post(f"/jobs/{job_id}/move", {"to": to})
    show({"job_id": job_id, "to": to}, f"Moving job {job_id} to JobMaster process {to}.", as_json=as_json)


def _show_list(address: str | None, token_file: Path | None, what: str, table: Any, *, as_json: bool) -> None:
    with connect(address, token_file) as client:
        body: Mapping[str, Any] = client.get(f"/{what}")
        made: Mapping[str, Any] = {} if as_json else client.get("/resourcemanager")
    show(body, table(body[what]) if body[what] else f"No {what}.", as_json=as_json)
    if not as_json:
        _show_workers(made, what.removesuffix("s"))


def _show_workers(made: Mapping[str, Any], kind: str) -> None:
    """Those of a driver that come or go, and why none comes."""
    workers = [one for one in made["workers"] if one["kind"] == kind and one["state"] != "registered"]
    if workers:
        rows = [
            (one["id"], one.get("profile") or "-", one["state"], render.time_text(one["since"]), one["reason"])
            for one in workers
        ]
        render.console().print(render.table(("started by the driver", "profile", "state", "since", "why"), rows))
    for problem in [one["problem"] for one in made["kinds"] if one["kind"] == kind and one["problem"]]:
        render.console(stderr=True).print(f"The driver starts none: {problem}")


def _set_draining(
    address: str | None, token_file: Path | None, path: str, process: str, *, is_draining: bool, as_json: bool
) -> None:
    with connect(address, token_file) as client:
        client.post(f"/{path}/{quote(process, safe='')}/{'drain' if is_draining else 'undrain'}")
    kind = {"jobmasters": "JobMaster process", "taskmanagers": "TaskManager"}[path]
    said = f"{kind} {process} is {'draining' if is_draining else 'used again'}."
    show({"id": process, "draining": is_draining}, said, as_json=as_json)
