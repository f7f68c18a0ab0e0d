"""`flinklike savepoint JOB [DIRECTORY]` and `flinklike stop JOB`: Flink's words, over REST.

The group `savepoint` has further commands for savepoints that lie on this host; what is none of them is a job.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from airflow_flinklike.cli.arguments import Address, AsJson, Job, TokenFile, job_id_of, show
from airflow_flinklike.cli.connection import connect
from airflow_flinklike.cli.savepoint_files import dispose, inspect, list_savepoints
from airflow_flinklike.client import new_job_id
from airflow_flinklike.client.savepoints import make_savepoint, stop_with_savepoint
from runtime.common.ids import is_hex_id

_DIRECTORY = "directory that all TaskManagers reach; without it execution.checkpointing.savepoint-dir"
_TRIGGER = "id of the request, 32 hex digits: the same one again asks for the same savepoint"
TriggerId = Annotated[str | None, typer.Option("--trigger-id", help=_TRIGGER)]


class SavepointGroup(TyperGroup):
    """A job in the place of a command is a savepoint of that job."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Flink's `savepoint <job id> [directory]`."""
        first = next((arg for arg in args if not arg.startswith("-")), "")
        if is_hex_id(first) and first not in self.commands:
            args = ["trigger", *args]
        return super().parse_args(ctx, args)


savepoints = typer.Typer(
    name="savepoint",
    cls=SavepointGroup,
    help="Make a savepoint of a streaming job (savepoint JOB), or look at savepoints and delete them.",
    no_args_is_help=True,
)
savepoints.command()(inspect)
savepoints.command("list")(list_savepoints)
savepoints.command()(dispose)


@savepoints.command()
def trigger(
    job: Job,
    directory: Annotated[str, typer.Argument(help=_DIRECTORY)] = "",
    trigger_id: TriggerId = None,
    address: Address = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a savepoint of a job that goes on, and print where it lies. Exit code 1 when there is none."""
    job_id, chosen = job_id_of(job), _trigger_id_of(trigger_id)
    with connect(address, token_file) as client:
        location = client.run(make_savepoint(job_id, chosen, target=directory))
    _tell(job_id, chosen, location, f"Savepoint completed. Path: {location}", as_json=as_json)


def stop(
    job: Job,
    directory: Annotated[str, typer.Option("-p", "--savepoint", "--savepointPath", help=_DIRECTORY)] = "",
    drain: Annotated[bool, typer.Option("-d", "--drain", help="read what is there before each query ends")] = False,
    trigger_id: TriggerId = None,
    address: Address = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Finish a streaming job with a savepoint, and print where it lies. Exit code 1 when there is none: it goes on.

    Each query ends between two batches; the job is FINISHED when all of the savepoint is durable.
    """
    job_id, chosen = job_id_of(job), _trigger_id_of(trigger_id)
    with connect(address, token_file) as client:
        location = client.run(stop_with_savepoint(job_id, chosen, target=directory, drain=drain))
    _tell(job_id, chosen, location, f"Savepoint completed, the job is stopped. Path: {location}", as_json=as_json)


def _trigger_id_of(given: str | None) -> str:
    return str(job_id_of(given)) if given else str(new_job_id())


def _tell(job_id: str, trigger_id: str, location: str, sentence: str, *, as_json: bool) -> None:
    show({"job_id": job_id, "trigger_id": trigger_id, "location": location}, sentence, as_json=as_json)
