"""Script jobs: a whole spark-submit application, run unchanged on a warm slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow_flinklike.api.artifacts import ArtifactCollector, FilePath
from airflow_flinklike.api.program import JobOptions, JobProgram, Program, assemble
from runtime.jobgraph.graph import (
    DEFAULT_RESOURCES,
    JobVertex,
    Operator,
    OperatorKind,
    ResourceSpec,
    ScriptCode,
    vertex_id_of,
)
from runtime.jobgraph.restart_strategy import RestartStrategy


class ScriptJob(Program):
    """One exclusive task that runs a file as `__main__`."""

    def __init__(
        self,
        application: FilePath,
        *,
        name: str,
        args: Iterable[Any],
        options: JobOptions,
        resources: ResourceSpec,
    ) -> None:
        self.name = name
        self.application = application
        self.args = tuple(str(argument) for argument in args)
        self._options = options
        self._resources = resources

    def _build(self, params: Mapping[str, Any] | None) -> JobProgram:
        collector = ArtifactCollector()
        script = collector.of_file("script", self.application)
        operator = Operator(name=script.name, kind=OperatorKind.SCRIPT, code=ScriptCode(script=script, args=self.args))
        vertex = JobVertex(
            id=vertex_id_of(script.name),
            name=script.name,
            operators=(operator,),
            max_parallelism=1,
            resources=self._resources,
        )
        return assemble(self.name, [vertex], [], self._options, collector, params)


def script_job(
    application: FilePath,
    *,
    args: Iterable[Any] = (),
    name: str | None = None,
    conf: Mapping[str, Any] | None = None,
    py_files: Iterable[FilePath] = (),
    files: Iterable[FilePath] = (),
    archives: Iterable[FilePath] = (),
    wheels: Iterable[FilePath] = (),
    environment: Mapping[str, str] | None = None,
    params: Mapping[str, Any] | None = None,
    resources: ResourceSpec = DEFAULT_RESOURCES,
    execution_timeout: float | timedelta | None = None,
    secrets: Iterable[str] = (),
    restart_strategy: RestartStrategy | str | None = None,
    user_failures: str | None = None,
) -> ScriptJob:
    """What `spark-submit application args...` would run, as a job.

    `py_files`, `files`, `archives` and `conf` mean what they mean there; a text is split at commas. `name` defaults
    to the name of the file.
    """
    options = JobOptions(
        params or {},
        conf or {},
        environment or {},
        py_files,
        files,
        archives,
        wheels,
        execution_timeout,
        secrets,
        restart_strategy,
        user_failures,
    )
    chosen = name or Path(application).name
    return ScriptJob(application, name=chosen, args=args, options=options, resources=resources)
