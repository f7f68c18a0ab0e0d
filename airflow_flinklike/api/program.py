"""What can be run on a cluster: the common face of pipelines, script jobs and lone functions.

A program is built into a JobGraph plus the content that must be uploaded before it is submitted. Building opens no
connection; `submit` and `run_local` are the only things that do.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from airflow_flinklike.api.artifacts import (
    ARCHIVE_SUFFIXES,
    PY_FILE_SUFFIXES,
    WHEEL_SUFFIXES,
    ArtifactCollector,
    BlobSource,
    FilePath,
)
from airflow_flinklike.api.explain import Explanation, explain_graph
from airflow_flinklike.exceptions import PipelineError
from runtime.common.errors import InvalidInputError
from runtime.common.spark_conf import conf_text
from runtime.common.version import VERSION
from runtime.jobgraph.graph import JobEdge, JobGraph, JobVertex, validation_problems
from runtime.jobgraph.parsing import check_job_graph
from runtime.jobgraph.restart_strategy import RestartStrategy, restart_strategy_of, user_failures_of
from runtime.jobgraph.validate import json_problems

if TYPE_CHECKING:
    from airflow_flinklike.api.handle import JobHandle


@dataclass(frozen=True, slots=True)
class JobProgram:
    """A built job. `uploads` holds, by sha256, the content of the graph's pending artifacts."""

    graph: JobGraph
    uploads: Mapping[str, BlobSource] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What a whole job has besides its code."""

    params: Mapping[str, Any] = field(default_factory=dict)
    spark_conf: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    py_files: Iterable[FilePath] = ()
    files: Iterable[FilePath] = ()
    archives: Iterable[FilePath] = ()
    wheels: Iterable[FilePath] = ()
    execution_timeout: float | timedelta | None = None
    secrets: Iterable[str] = ()
    restart_strategy: RestartStrategy | str | None = None
    user_failures: str | None = None

    def __post_init__(self) -> None:
        """Keep what a generator gives, for every build."""
        for name in ("py_files", "files", "archives", "wheels", "secrets"):
            object.__setattr__(self, name, _kept(getattr(self, name)))


def _kept(given: Iterable[FilePath] | FilePath) -> str | tuple[FilePath, ...]:
    if isinstance(given, str):
        return given
    return (given,) if isinstance(given, os.PathLike) else tuple(given)


class Program(ABC):
    """A job that can be built, shown, submitted and run here."""

    name: str

    def build(self, params: Mapping[str, Any] | None = None) -> JobProgram:
        """The JobGraph and what must be uploaded for it. `params` are added to the program's own.

        Raises PipelineError with all problems.
        """
        try:
            return self._build(params)
        except ValidationError as error:
            found = validation_problems(error)
            raise PipelineError(f"job {self.name!r} is not valid: {'; '.join(found)}", found) from error
        except PipelineError:
            raise
        except InvalidInputError as error:
            raise PipelineError(str(error), error.problems) from error

    @abstractmethod
    def _build(self, params: Mapping[str, Any] | None) -> JobProgram:
        """`build` without the translation of errors."""

    def job_graph(self, params: Mapping[str, Any] | None = None) -> JobGraph:
        """The JobGraph. Artifacts above 64 KiB have no key in it until `submit` has uploaded them."""
        return self.build(params).graph

    def explain(self, params: Mapping[str, Any] | None = None) -> Explanation:
        """Chains, exchanges, regions and slots: what would happen, without a cluster."""
        return explain_graph(self.job_graph(params))

    def submit(
        self,
        address: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        job_id: str | None = None,
        token: str | None = None,
        token_file: str | None = None,
        detached: bool = False,
    ) -> JobHandle:
        """Submit to a cluster. Attached: return when the job is FINISHED, raise when it is not.

        `address` is `host:port` or a URL, several separated by commas; default $FLINKLIKE_ADDRESS, then
        127.0.0.1:8081. The token is found as `airflow_flinklike.client.token` says.
        """
        from airflow_flinklike.api.handle import submit_program  # noqa: PLC0415 - building loads no HTTP client

        program = self.build(params)
        handle = submit_program(program, address, job_id=job_id, token=token, token_file=token_file)
        if not detached:
            handle.result()
        return handle

    def run_local(
        self, params: Mapping[str, Any] | None = None, *, slots: int = 2, conf: Mapping[str, str] | None = None
    ) -> Any:
        """Run in a little cluster of this process's own and return the job's value.

        Starting it takes about as long as Spark's JVM does; `conf={"taskmanager.spark.enabled": "false"}` starts none.
        Raises JobFailedError; LocalClusterError when the cluster does not start.
        """
        from airflow_flinklike.api.local import run_local  # noqa: PLC0415 - building loads no HTTP client

        return run_local(self.build(params), slots=slots, conf=conf or {})


def assemble(
    name: str,
    vertices: Iterable[JobVertex],
    edges: Iterable[JobEdge],
    options: JobOptions,
    collector: ArtifactCollector,
    params: Mapping[str, Any] | None,
) -> JobProgram:
    """Put the parts of a job together and check all of it. Raises InvalidInputError, ValidationError."""
    graph = JobGraph(
        name=name,
        vertices=tuple(vertices),
        edges=tuple(edges),
        params=plain_json(f"job {name!r}: params", {**options.params, **(params or {})}),
        spark_conf={key: conf_text(value) for key, value in options.spark_conf.items()},
        environment=dict(options.environment),
        py_files=collector.of_files("py-file", options.py_files, suffixes=PY_FILE_SUFFIXES),
        files=collector.of_files("file", options.files),
        archives=collector.of_files("archive", options.archives, suffixes=ARCHIVE_SUFFIXES),
        wheels=collector.of_files("wheel", options.wheels, suffixes=WHEEL_SUFFIXES),
        secrets=tuple(options.secrets.split(",") if isinstance(options.secrets, str) else options.secrets),
        execution_timeout_seconds=_seconds(options.execution_timeout),
        restart_strategy=restart_strategy_of(options.restart_strategy),
        user_failures=user_failures_of(options.user_failures),
        client_version=VERSION,
    )
    _check(graph)
    return JobProgram(graph, dict(collector.sources))


def plain_json(label: str, value: Any) -> Any:
    """The value as JSON has it: tuples are lists there, and subclasses their bases. Raises PipelineError."""
    if problems := tuple(json_problems(label, value)):
        raise PipelineError("; ".join(problems), problems)
    return json.loads(json.dumps(value, default=dict))


def _check(graph: JobGraph) -> None:
    """All checks of the server, as if the pending artifacts were uploaded already."""
    uploaded = graph.map_artifacts(
        lambda one: one.model_copy(update={"key": f"{one.sha256}-pending"}) if one.is_pending else one
    )
    check_job_graph(uploaded)


def _seconds(timeout: float | timedelta | None) -> float | None:
    if isinstance(timeout, timedelta):
        return timeout.total_seconds()
    return None if timeout is None else float(timeout)
