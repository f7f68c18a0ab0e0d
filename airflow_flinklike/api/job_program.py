"""A built job: its JobGraph, and the content to upload before it is submitted. Building opens no connection."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, TypedDict

from airflow_flinklike.api.artifacts import (
    ARCHIVE_SUFFIXES,
    PY_FILE_SUFFIXES,
    WHEEL_SUFFIXES,
    ArtifactCollector,
    BlobSource,
    FilePath,
)
from airflow_flinklike.api.files_of_conf import FilesOfConf
from airflow_flinklike.exceptions import PipelineError
from runtime.common.spark_conf import conf_text
from runtime.common.spark_environments import JARS
from runtime.common.version import VERSION
from runtime.jobgraph.graph import JobEdge, JobGraph, JobVertex, OperatorKind
from runtime.jobgraph.parsing import check_job_graph
from runtime.jobgraph.restart_strategy import RestartStrategy, restart_strategy_of, user_failures_of
from runtime.jobgraph.validate import json_problems


@dataclass(frozen=True, slots=True)
class JobProgram:
    """A built job. `uploads` holds, by sha256, the content of the graph's pending artifacts."""

    graph: JobGraph
    uploads: Mapping[str, BlobSource] = field(default_factory=dict)


class JobOptions(TypedDict, total=False):
    """Options of a whole job, the same for pipelines, functions and scripts."""

    params: Mapping[str, Any] | None
    """JSON values, which the job reads as `ctx.params`."""
    environment: Mapping[str, str] | None
    """Environment variables of the tasks."""
    py_files: Iterable[FilePath]
    """.py, .zip, .egg and .whl files on the job's import path. Here and below a text is split at commas."""
    files: Iterable[FilePath]
    """Files for the working directory; `data.csv#alias` gives a file another name."""
    archives: Iterable[FilePath]
    """Archives that are unpacked in the working directory; `x.zip#alias` names the directory of one."""
    wheels: Iterable[FilePath]
    """Wheels on the import path of the tasks."""
    jars: Iterable[FilePath]
    """Jars on the class path of the job's Spark, which is a Spark environment with them. URLs are read there."""
    execution_timeout: float | timedelta | None
    """Seconds after which the cluster fails the job. None: never."""
    secrets: Iterable[str]
    """Names of the TaskManagers' secrets that the job may read as `ctx.secrets`."""
    restart_strategy: RestartStrategy | str | None
    """What the cluster does when a task fails, also as text: 'none', 'fixed-delay,attempts=5'. None: its default."""
    user_failures: str | None
    """What the cluster does when user code fails: 'restart', 'final' or 'final-when-exclusive'. None: its default."""
    configuration: Mapping[str, str] | None
    """Options of the cluster that the job has for itself: `execution.checkpointing.interval` and others."""
    checkpoint_name: str
    """Streaming queries keep their state under this name, not under the job's id: the next job of the name goes on."""


def check_names(what: str, given: Mapping[str, Any], known: type) -> None:
    """Refuse options that the TypedDict `known` does not have, as Python refuses unknown keywords. Raises TypeError."""
    if unknown := sorted(given.keys() - known.__annotations__.keys()):
        close = get_close_matches(unknown[0], known.__annotations__, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        message = f"{what} got an unexpected keyword argument {unknown[0]!r}{hint}"
        raise TypeError(message)


def kept(options: JobOptions) -> JobOptions:
    """The options with their iterables as tuples: a generator gives its elements once, and a job is built often."""
    secrets = options.get("secrets", ())
    return {
        **options,
        "py_files": _kept(options.get("py_files", ())),
        "files": _kept(options.get("files", ())),
        "archives": _kept(options.get("archives", ())),
        "wheels": _kept(options.get("wheels", ())),
        "jars": _kept(options.get("jars", ())),
        "secrets": secrets if isinstance(secrets, str) else tuple(secrets),
    }


def _kept(given: Iterable[FilePath] | FilePath) -> Iterable[FilePath]:
    if isinstance(given, str):
        return given
    return (given,) if isinstance(given, os.PathLike) else tuple(given)


def assemble(
    name: str,
    vertices: Iterable[JobVertex],
    edges: Iterable[JobEdge],
    collector: ArtifactCollector,
    *,
    spark_conf: Mapping[str, Any],
    options: JobOptions,
) -> JobProgram:
    """Put the parts of a job together and check all of it. Raises InvalidInputError, ValidationError."""
    secrets = options.get("secrets", ())
    jars, jars_elsewhere = collector.of_jars(options.get("jars", ()))
    conf = {key: conf_text(value) for key, value in spark_conf.items()}
    if jars_elsewhere:
        conf[JARS] = ",".join([*filter(None, [conf.get(JARS)]), *jars_elsewhere])
    vertices = tuple(vertices)
    is_jar = any(one.kind is OperatorKind.JAR for vertex in vertices for one in vertex.operators)
    own = FilesOfConf(conf, is_jar=is_jar)
    graph = JobGraph(
        name=name,
        vertices=vertices,
        edges=tuple(edges),
        params=plain_json(f"job {name!r}: params", dict(options.get("params") or {})),
        environment=dict(options.get("environment") or {}),
        py_files=collector.of_files("py-file", own.py_files(options.get("py_files", ())), suffixes=PY_FILE_SUFFIXES),
        files=collector.of_files("file", own.files(options.get("files", ()))),
        archives=collector.of_files("archive", own.archives(options.get("archives", ())), suffixes=ARCHIVE_SUFFIXES),
        wheels=collector.of_files("wheel", options.get("wheels", ()), suffixes=WHEEL_SUFFIXES),
        jars=jars,
        spark_conf=own.conf,
        secrets=tuple([one.strip() for one in secrets.split(",")] if isinstance(secrets, str) else secrets),
        execution_timeout_seconds=_seconds(options.get("execution_timeout")),
        restart_strategy=restart_strategy_of(options.get("restart_strategy")),
        user_failures=user_failures_of(options.get("user_failures")),
        configuration=dict(options.get("configuration") or {}),
        checkpoint_name=options.get("checkpoint_name", ""),
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
