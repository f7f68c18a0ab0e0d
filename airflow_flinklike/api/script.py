"""Script jobs: a whole spark-submit application, run unchanged on a warm slot."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

from airflow_flinklike.api.artifacts import ArtifactCollector, FilePath, file_name, is_elsewhere, local_path
from airflow_flinklike.api.builder_conf import Setting, builder_settings
from airflow_flinklike.api.job_program import JobOptions
from airflow_flinklike.api.program import Program
from runtime.common.spark_conf import APP_NAME, conf_text, is_offered
from runtime.common.spark_defaults import SPARK_DEFAULTS
from runtime.common.spark_environments import CATALOG
from runtime.jobgraph.graph import (
    DEFAULT_RESOURCES,
    JobEdge,
    JobVertex,
    Operator,
    OperatorKind,
    ResourceSpec,
    ScriptCode,
    vertex_id_of,
)

logger = logging.getLogger(__name__)

_SCANNED_BYTES_MAX = 4 << 20


class ApplicationJob(Program):
    """One exclusive task that runs a whole application. A subclass makes its operator."""

    def __init__(
        self,
        application: FilePath,
        *,
        name: str,
        args: Iterable[Any],
        resources: ResourceSpec,
        spark_conf: Mapping[str, Any] | None,
        options: JobOptions,
    ) -> None:
        super().__init__(name, spark_conf, options)
        self.application = application
        self.args = tuple(str(argument) for argument in args)
        self._resources = resources

    @abstractmethod
    def _operator(self, collector: ArtifactCollector) -> Operator:
        """The operator, with the name of the file."""

    def _graph(self, collector: ArtifactCollector) -> tuple[list[JobVertex], list[JobEdge]]:
        operator = self._operator(collector)
        vertex = JobVertex(
            id=vertex_id_of(operator.name),
            name=operator.name,
            operators=(operator,),
            max_parallelism=1,
            resources=self._resources,
        )
        return [vertex], []


class ScriptJob(ApplicationJob):
    """A file that runs as `__main__`. `is_streaming`: it starts streaming queries that do not end."""

    def __init__(self, application: FilePath, *, is_streaming: bool = False, **fields: Any) -> None:
        super().__init__(application, **fields)
        self.is_streaming = is_streaming

    def _operator(self, collector: ArtifactCollector) -> Operator:
        script = collector.of_file("script", self.application)
        code = ScriptCode(
            script=script, args=self.args, builder_conf=self._builder_conf(), starts_queries=self.is_streaming
        )
        return Operator(name=script.name, kind=OperatorKind.SCRIPT, code=code)

    def _builder_conf(self) -> dict[str, str]:
        if is_elsewhere(os.fspath(self.application)):
            return {}
        text = (
            local_path("script", os.fspath(self.application)).read_bytes()[:_SCANNED_BYTES_MAX].decode(errors="replace")
        )
        given = {key: conf_text(value) for key, value in self.spark_conf.items()}
        found = builder_settings(text, given)
        name = Path(self.application).name
        for key, setting in sorted(found.items(), key=lambda one: one[1].line):
            if not is_offered(key, setting.value, {}):
                logger.info("%s", _cause(name, key, setting))
        return {key: setting.value for key, setting in found.items()}


def _cause(name: str, key: str, setting: Setting) -> str:
    """Why the job does not run in the warm Spark, and what to do when it could."""
    said = f"{name}, line {setting.line}: {key}={setting.value[:80]} is conf of Spark's start: the job gets a Spark "
    said += "environment with it (some seconds, unless one is there), if one can be started"
    plain = SPARK_DEFAULTS.get(key)
    if plain is None or (setting.is_certain and key != CATALOG):
        return said
    unless = "" if setting.is_certain else " when that line does not run"
    return f"{said}; conf {key}={plain} of the job spares it{unless}"


def name_in(conf: Mapping[str, Any] | None) -> str:
    """The name of an application by its conf, which counts where no other is given; "" where there is none."""
    return conf_text((conf or {}).get(APP_NAME, "")).strip()


def script_job(
    application: FilePath,
    *,
    args: Iterable[Any] = (),
    name: str | None = None,
    conf: Mapping[str, Any] | None = None,
    resources: ResourceSpec = DEFAULT_RESOURCES,
    streaming: bool = False,
    **options: Unpack[JobOptions],
) -> ScriptJob:
    """A job that runs a script as `spark-submit application args...` does.

    `conf`, `py_files`, `files` and `archives` have the meaning that they have there. `name` defaults to that of the
    conf (`spark.app.name`), then to that of the file; `resources` are the script's needs of its slot. `streaming`: it
    starts streaming queries that do not end; they keep their state, and the restart strategy counts.
    """
    chosen = name or name_in(conf) or file_name(application)
    return ScriptJob(
        application,
        is_streaming=streaming,
        name=chosen,
        args=args,
        resources=resources,
        spark_conf=conf,
        options=options,
    )
