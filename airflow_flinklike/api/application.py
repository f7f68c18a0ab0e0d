"""Applications of spark-submit: Python scripts, and Java or Scala applications in jars."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from airflow_flinklike.api.artifacts import JAR_SUFFIXES, ArtifactCollector, FilePath, file_name
from airflow_flinklike.api.job_program import JobOptions
from airflow_flinklike.api.program import Program
from airflow_flinklike.api.script import ApplicationJob, name_in, script_job
from airflow_flinklike.exceptions import PipelineError
from runtime.jobgraph.graph import (
    DEFAULT_RESOURCES,
    JarCode,
    Operator,
    OperatorKind,
    ResourceSpec,
)


class JarJob(ApplicationJob):
    """A main class that runs in a JVM of its own."""

    def __init__(self, application: FilePath, *, main_class: str, **fields: Any) -> None:
        super().__init__(application, **fields)
        self.main_class = main_class

    def _operator(self, collector: ArtifactCollector) -> Operator:
        jar = collector.of_file("jar", self.application, suffixes=JAR_SUFFIXES)
        code = JarCode(jar=jar, main_class=self.main_class, args=self.args)
        return Operator(name=jar.name, kind=OperatorKind.JAR, code=code)


def jar_job(
    application: FilePath,
    *,
    main_class: str = "",
    args: Iterable[Any] = (),
    name: str | None = None,
    conf: Mapping[str, Any] | None = None,
    resources: ResourceSpec = DEFAULT_RESOURCES,
    **options: Unpack[JobOptions],
) -> JarJob:
    """A job that runs a jar as `spark-submit --class main_class application args...` does, in a JVM of its own.

    Without `main_class` the jar's manifest names it. `conf`, `files`, `archives` and `jars` have the meaning that they
    have there: `spark.driver.memory` is the heap. The exit code is the end of the job.
    """
    chosen = name or name_in(conf) or main_class.rpartition(".")[2] or file_name(application)
    return JarJob(
        application,
        main_class=main_class,
        name=chosen,
        args=args,
        resources=resources,
        spark_conf=conf,
        options=options,
    )


def application_job(
    application: FilePath,
    *,
    main_class: str = "",
    args: Iterable[Any] = (),
    name: str | None = None,
    conf: Mapping[str, Any] | None = None,
    resources: ResourceSpec = DEFAULT_RESOURCES,
    streaming: bool = False,
    **options: Unpack[JobOptions],
) -> Program:
    """The job of a script or of a jar, by the name of the file, as spark-submit tells them apart.

    Raises PipelineError for a main class of a script, and for a jar with streaming queries.
    """
    if os.fspath(application).lower().endswith(JAR_SUFFIXES):
        if streaming:
            message = (
                f"streaming: {os.fspath(application)!r} is a jar, and the queries of a Java application are its own: "
                "leave it out"
            )
            raise PipelineError(message)
        return jar_job(
            application, main_class=main_class, args=args, name=name, conf=conf, resources=resources, **options
        )
    if main_class:
        message = f"main class {main_class}: {os.fspath(application)!r} is no jar, and only a jar has one"
        raise PipelineError(message)
    return script_job(application, args=args, name=name, conf=conf, resources=resources, streaming=streaming, **options)
