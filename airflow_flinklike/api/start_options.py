"""What a built job is started with: options of the cluster for itself, and a savepoint. For all who submit jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.exceptions import PipelineError
from runtime.common.errors import InvalidInputError
from runtime.jobgraph.savepoints import (
    PATH_LENGTH_MAX,
    ClaimMode,
    SavepointRestoreSettings,
    claim_mode_of,
    savepoint_problems,
    state_partitions_of,
)


def configured_job(program: JobProgram, changes: Mapping[str, str]) -> JobProgram:
    """The job with options of the cluster for itself, over those that it has. The cluster checks them."""
    if not changes:
        return program
    configuration = {**program.graph.configuration, **changes}
    return replace(program, graph=program.graph.model_copy(update={"configuration": configuration}).without_caches())


def restore_settings(
    path: str, claim_mode_text: str, *, allow_non_restored_state: bool, state_partitions: Iterable[str] = ()
) -> SavepointRestoreSettings:
    """What a job is started from. A path of this host is made absolute. Raises PipelineError."""
    try:
        return SavepointRestoreSettings(
            path=path if path.startswith("file:") else str(Path(path).absolute()),
            allow_non_restored_state=allow_non_restored_state,
            claim_mode=claim_mode_of(claim_mode_text or ClaimMode.NO_CLAIM.value),
            state_partitions=state_partitions_of(state_partitions),
        )
    except InvalidInputError as error:
        raise PipelineError(str(error), error.problems) from error
    except ValueError as error:
        message = f"savepoint: a path has up to {PATH_LENGTH_MAX} characters"
        raise PipelineError(message) from error


def restored_job(program: JobProgram, settings: SavepointRestoreSettings) -> JobProgram:
    """The job, started from a savepoint. Raises PipelineError for a job that cannot be."""
    is_of_script = any(vertex.is_streaming_script for vertex in program.graph.vertices)
    if problems := tuple(savepoint_problems(settings, program.graph.queries, is_of_script=is_of_script)):
        raise PipelineError("; ".join(problems), problems)
    return replace(program, graph=program.graph.model_copy(update={"savepoint": settings}).without_caches())
