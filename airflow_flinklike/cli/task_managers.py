"""`flinklike taskmanagers`: show them, drain and undrain one."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_flinklike.cli import render
from airflow_flinklike.cli.arguments import Address, AsJson, TokenFile, set_draining, show_list

TaskManager = Annotated[str, typer.Argument(help="id of the TaskManager, as `flinklike taskmanagers` shows it")]

task_managers = typer.Typer(
    name="taskmanagers", help="Show TaskManagers with their slots; drain and undrain one.", invoke_without_command=True
)


@task_managers.callback()
def _list(
    context: typer.Context, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Show TaskManagers with their slots; drain and undrain one."""
    if context.invoked_subcommand is None:
        show_list(address, token_file, "taskmanagers", render.task_managers_table, as_json=as_json)


@task_managers.command()
def drain(manager: TaskManager, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Have a TaskManager take no more slots; its tasks finish, or run elsewhere. It stays until it is stopped."""
    set_draining(address, token_file, "taskmanagers", manager, is_draining=True, as_json=as_json)


@task_managers.command()
def undrain(
    manager: TaskManager, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Have a drained TaskManager give away slots again."""
    set_draining(address, token_file, "taskmanagers", manager, is_draining=False, as_json=as_json)
