"""FlinklikeSubmitOperator: runs a pipeline or a spark-submit application on the cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.definitions.param import ParamsDict

from airflow_flinklike.exceptions import PipelineError
from airflow_flinklike.loading import PipelineSource, build_job
from airflow_flinklike.operators.base import FlinklikeJobOperator
from airflow_flinklike.program import JobProgram
from airflow_flinklike.script import script_job

if TYPE_CHECKING:
    from airflow.sdk import Context

    from runtime.jobgraph.restart_strategy import RestartStrategy

_SCRIPT_ONLY = (
    "application_args",
    "conf",
    "py_files",
    "files",
    "archives",
    "name",
    "environment",
    "job_timeout",
    "secrets",
    "restart_strategy",
)


class FlinklikeSubmitOperator(FlinklikeJobOperator):
    """Run a job and return its value as XCom. Give either `pipeline` or `application`.

    :param pipeline: 'package.module:name', a function that returns a Pipeline, or a Pipeline, script_job or JobGraph
    :param params: Airflow's params; they fill the arguments of a pipeline function and are `ctx.params` in the job.
        Values set by the run's conf win; texts of the DAG's author are templates
    :param pipeline_params: more of the same, templated and mappable; they win over `params`
    :param application: a Python script, run unchanged as spark-submit would
    :param application_args: its arguments
    :param conf: Spark configuration of the application
    :param py_files: its .py, .zip, .egg or .whl files; a text is split at commas, here and below
    :param files: files that lie in its working directory
    :param archives: archives that are unpacked there; `x.zip#alias`
    :param name: name of the job
    :param environment: environment variables of the application
    :param job_timeout: seconds after which the cluster ends the application by itself
    :param secrets: names of the TaskManagers' secrets that it gets; their values never pass through Airflow
    :param restart_strategy: what the cluster does when the application fails, before Airflow's retries: a strategy of
        `airflow_flinklike`, or a text such as 'none' or 'fixed-delay,attempts=5,delay_seconds=10'
    """

    template_fields: Collection[str] = (
        "application",
        "application_args",
        "conf",
        "py_files",
        "files",
        "archives",
        "name",
        "environment",
        "pipeline_params",
        "flinklike_conn_id",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "conf": "json",
        "pipeline_params": "json",
        "environment": "json",
    }

    def __init__(
        self,
        *,
        pipeline: PipelineSource | None = None,
        pipeline_params: Mapping[str, Any] | None = None,
        application: str | None = None,
        application_args: Sequence[Any] | None = None,
        conf: Mapping[str, Any] | None = None,
        py_files: str | Sequence[str] | None = None,
        files: str | Sequence[str] | None = None,
        archives: str | Sequence[str] | None = None,
        name: str | None = None,
        environment: Mapping[str, str] | None = None,
        job_timeout: float | timedelta | None = None,
        secrets: str | Sequence[str] | None = None,
        restart_strategy: RestartStrategy | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.pipeline_params = pipeline_params
        self.application = application
        self.application_args = application_args
        self.conf = conf
        self.py_files = py_files
        self.files = files
        self.archives = archives
        self.name = name
        self.environment = environment
        self.job_timeout = job_timeout
        self.secrets = secrets
        self.restart_strategy = restart_strategy

    def build_program(self, context: Context) -> JobProgram:
        """The job from the rendered fields. Raises PipelineError."""
        if (self.pipeline is None) == (self.application is None):
            message = f"task {self.task_id!r}: give either pipeline= or application="
            raise PipelineError(message)
        params = {**self._airflow_params(context), **(self.pipeline_params or {})}
        if self.pipeline is not None:
            return self._pipeline_program(params)
        return script_job(
            str(self.application),
            args=self.application_args or (),
            name=self.name or None,
            conf=self.conf,
            py_files=self.py_files or (),
            files=self.files or (),
            archives=self.archives or (),
            environment=self.environment,
            params=params,
            execution_timeout=self.job_timeout,
            secrets=self.secrets or (),
            restart_strategy=self.restart_strategy,
        ).build()

    def _pipeline_program(self, params: Mapping[str, Any]) -> JobProgram:
        given = [field for field in _SCRIPT_ONLY if getattr(self, field)]
        if given:
            message = f"task {self.task_id!r}: {', '.join(given)} belong to application=; a Pipeline has its own"
            raise PipelineError(message)
        assert self.pipeline is not None
        return build_job(self.pipeline, params)

    def _airflow_params(self, context: Context) -> dict[str, Any]:
        """Params of this run. What the DAG's author wrote is rendered; what the run's conf brought never is."""
        authored = self.params.dump() if isinstance(self.params, ParamsDict) else dict(self.params or {})
        return {
            key: self.render_template(value, context) if key in authored and authored[key] == value else value
            for key, value in dict(context.get("params") or {}).items()
        }
