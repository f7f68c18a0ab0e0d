"""Planned changes of who runs what: `flinklike jobmasters drain`, `flinklike jobs move`."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_flinklike.cli import render
from airflow_flinklike.cli.arguments import Address, AsJson, Job, TokenFile, set_draining, show, show_list
from airflow_flinklike.cli.connection import connect
from runtime.common.ids import parse_job_id

JobMaster = Annotated[str, typer.Argument(help="id of the JobMaster process, as `flinklike jobmasters` shows it")]

job_masters = typer.Typer(
    name="jobmasters",
    help="Show JobMaster processes with their jobs; drain and undrain one.",
    invoke_without_command=True,
)
jobs = typer.Typer(name="jobs", help="Move jobs between JobMaster processes.", no_args_is_help=True)


@job_masters.callback()
def _list(
    context: typer.Context, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Show JobMaster processes with their jobs; drain and undrain one."""
    if context.invoked_subcommand is None:
        show_list(address, token_file, "jobmasters", render.job_masters_table, as_json=as_json)


@job_masters.command()
def drain(process: JobMaster, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Have a JobMaster process give its jobs to others and take no more. Tasks do not notice."""
    set_draining(address, token_file, "jobmasters", process, is_draining=True, as_json=as_json)


@job_masters.command()
def undrain(process: JobMaster, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Have a drained JobMaster process take jobs again."""
    set_draining(address, token_file, "jobmasters", process, is_draining=False, as_json=as_json)


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
    """Have another JobMaster process run a job. Returns when the wish is durable; tasks do not notice."""
    job_id = parse_job_id(job)
    with connect(address, token_file) as client:
        client.post(f"/jobs/{job_id}/move", {"to": to})
    show({"job_id": job_id, "to": to}, f"Moving job {job_id} to JobMaster process {to}.", as_json=as_json)
