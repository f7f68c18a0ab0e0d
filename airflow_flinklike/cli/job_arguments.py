"""Options of `flinklike run` about the job as a whole: what follows from failures, and what it is started from."""

from __future__ import annotations

from typing import Annotated

import typer

from runtime.common.restart_strategies import USER_FAILURES
from runtime.jobgraph.savepoints import ClaimMode


def _named_queue(name: str | None) -> str | None:
    if name == "":
        message = "the name is empty: give one, or leave it out for the queue of the submitter"
        raise typer.BadParameter(message)
    return name


Queue = Annotated[
    str | None,
    typer.Option(callback=_named_queue, help="where it waits for slots; without it that of its submitter"),
]
RestartStrategyText = Annotated[
    str, typer.Option(help="none, fixed-delay, failure-rate, exponential-delay; with fields: fixed-delay,attempts=5")
]
UserFailuresText = Annotated[
    str, typer.Option(help=f"what follows from a failure of user code: {', '.join(USER_FAILURES)}")
]
Streaming = Annotated[
    bool, typer.Option("--streaming", help="the script starts streaming queries, which keep their state")
]
CheckpointName = Annotated[
    str,
    typer.Option(help="name for the state of a script's queries: the next job of that name goes on where this one was"),
]
FromSavepoint = Annotated[
    str,
    typer.Option(
        "--from-savepoint",
        "-s",
        help="savepoint that streaming queries go on from, as TaskManagers reach it",
    ),
]
AllowNonRestoredState = Annotated[
    bool,
    typer.Option("--allow-non-restored-state", "-n", help="leave out state of queries that the job does not have"),
]
ClaimModeText = Annotated[
    str,
    typer.Option(
        help=f"{', '.join(mode.value for mode in ClaimMode)}: the savepoint stays, or is deleted once it is restored"
    ),
]
StatePartitions = Annotated[
    list[str] | None,
    typer.Option(
        help="partitions of the state that is restored, from now on: a number for all queries, UID=NUMBER for one"
    ),
]
Params = Annotated[list[str] | None, typer.Option("--param", help="k=v for the callable and ctx.params; v may be JSON")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="show the end only: neither the tasks' output nor progress")]
PyFiles = Annotated[
    list[str] | None, typer.Option(help="comma-separated .py, .zip, .whl for PYTHONPATH; all that are given count")
]
Jars = Annotated[list[str] | None, typer.Option(help="comma-separated jars for the class path of the job's Spark")]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", help="key=value that the TaskManagers have on which the tasks of the job run"),
]
Secrets = Annotated[list[str] | None, typer.Option(help="name of a secret of the TaskManagers that the script gets")]
Resources = Annotated[
    list[str] | None,
    typer.Option(help="what the script needs of its slot: memory=4g, cpu_cores=2, spark_profile=big; with commas"),
]
