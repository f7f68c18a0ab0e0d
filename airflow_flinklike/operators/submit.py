"""FlinklikeSubmitOperator runs a pipeline or a spark-submit application on the cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.definitions.param import ParamsDict

from airflow_flinklike.api.application import application_job
from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.api.job_source import PipelineSource, build_job
from airflow_flinklike.api.start_options import configured_job, restore_settings, restored_job
from airflow_flinklike.exceptions import PipelineError
from airflow_flinklike.operators.base import FlinklikeJobOperator
from airflow_flinklike.operators.fields import (
    JOB_FIELDS,
    JobFields,
    arguments_of,
    check_directory,
    configuration_of,
    is_shared,
    mapping_of,
    one_of,
)
from airflow_flinklike.operators.plan import PLAN, PlanField
from airflow_flinklike.operators.resources import resources_of
from airflow_flinklike.operators.spark_parameters import Explanation
from airflow_flinklike.operators.tolerant import defaults_of
from airflow_flinklike.operators.upgrade import UpgradeSettings

if TYPE_CHECKING:
    from airflow.sdk import Context

    from runtime.jobgraph.graph import ResourceSpec
    from runtime.jobgraph.restart_strategy import RestartStrategy

_APPLICATION_ONLY = ("application_args", "java_class", "name", *(one for one in JOB_FIELDS if one != "configuration"))


class FlinklikeSubmitOperator(JobFields, FlinklikeJobOperator):
    """Run a job on a warm slot and return its value as XCom. Give either `pipeline` or `application`.

    It replaces SparkSubmitOperator: the parameters of an application have the same names. What Spark reads at its start
    only (`driver_memory`, `packages`, ...) gives the job a Spark environment that was started with it; parameters that
    no Spark of a TaskManager can follow (`proxy_user`, ...) have no effect, and the task's log says what happens
    instead. `on_unsupported="fail"` refuses those that would change the job.

    The operator stores the job's id before it submits the job, so there is exactly one job: a retry adopts a running
    job, takes the value of a FINISHED one, and submits another after FAILED or CANCELED. A mark or a clear of the task
    cancels the job; the try after a clear submits another one when the old job has ended. A worker that stops leaves
    the job to the next try. FlinklikeJobOperator documents the parameters of waiting (`deferrable`, `inline_timeout`,
    `durable`, `cancel_on_kill`, `orphan_timeout`, `poll_interval`, `wait_for_completion`).

    A text that ends with `.json.j2` is the path of a template file; for `conf`, `environment` and `pipeline_params` the
    file holds a JSON object.

    The rendered field `plan` shows the chains, exchanges and slots of a pipeline.

    :param pipeline: 'package.module:name' or '/path/file.py:name', which may be a template; a function that returns a
        Pipeline; or a Pipeline, script_job or JobGraph
    :param params: Airflow's params: arguments of a pipeline function, and `ctx.params` in the job. Values of the run's
        conf win; texts in the DAG file are templates
    :param pipeline_params: further params, templated and mappable; they win over `params`
    :param application: a Python script, or a jar, run unchanged as spark-submit would
    :param java_class: the main class of a jar, which runs in a JVM of its own; without it the jar's manifest names it
    :param application_args: its arguments
    :param conf: Spark conf of the application; it wins over that of the connection. Static conf gives the job a Spark
        environment that was started with it
    :param properties_file: a spark-defaults.conf on the worker, whose settings `conf` overrides
    :param packages: Maven coordinates with commas; with `exclude_packages` and `repositories`, as of spark-submit
    :param driver_memory: heap of the job's Spark, '4g'
    :param driver_class_path: jars for the class path of the job's Spark, on the TaskManager
    :param executor_memory: of executors of a Spark cluster; this and `executor_cores`, `num_executors`,
        `total_executor_cores`, `yarn_queue` have no effect where Spark's tasks run in the TaskManager
    :param py_files: its .py, .zip, .egg or .whl files; a text is split at commas, here and below
    :param files: files that lie in its working directory
    :param archives: archives that are unpacked there; `x.zip#alias`
    :param jars: jars for the class path of the job's Spark; URLs are read on the TaskManager
    :param name: name of the job
    :param env_vars: environment variables of the application, of any scalars (None: not set); `environment` is
        another name of this parameter
    :param job_timeout: seconds after which the cluster ends the job, which then is FAILED
    :param secrets: names of the TaskManagers' secrets that it may read; the values never pass through Airflow
    :param restart_strategy: what the cluster does when the application fails, before Airflow's retries: a strategy of
        `airflow_flinklike`, or a text such as 'none' or 'fixed-delay,attempts=5,delay_seconds=10'
    :param user_failures: what the cluster does when the application's own code fails: 'restart' by the restart
        strategy, 'final', or 'final-when-exclusive'; default 'restart' with a `restart_strategy`, else the cluster's
    :param resources: what the application needs of its slot: {'cpu_cores': 2, 'memory': '4g'}, also as JSON text, or a
        ResourceSpec; default the share of one slot. `job_resources` is another name of this parameter, and that of the
        field, since Airflow has a field of this name
    :param spark_profile: run on a TaskManager with that `taskmanager.spark.profile`
    :param configuration: options of the cluster that the job has for itself, as `flinklike run -D`:
        {'execution.checkpointing.interval': '10s'}
    :param streaming: the script starts streaming queries that do not end, as `flinklike run --streaming`; a task
        waits for such a job with `wait_for="running"`
    :param checkpoint_name: a name for the state of the script's queries: the next job of that name goes on where this
        one was; without it each job begins from its sources. A pipeline has its own
    :param from_savepoint: a savepoint from which the job's queries go on: an absolute path, or a file URL, that all
        TaskManagers reach; with `ensure_running`, when there is no job before that an upgrade has stopped
    :param allow_non_restored_state: leave out state of queries that the job does not have
    :param claim_mode: 'NO_CLAIM', the default: the savepoint stays; 'CLAIM': it is deleted once it is restored
    :param savepoint_directory: where `ensure_running` makes the savepoint when it stops a job whose code has changed;
        default `execution.checkpointing.savepoint-dir` of the cluster
    :param flinklike_conn_id: the connection to the cluster; `conn_id` is another name of this parameter
    """

    template_fields: Collection[str] = (
        "application",
        *_APPLICATION_ONLY,
        "checkpoint_name",
        "configuration",
        "from_savepoint",
        "claim_mode",
        "savepoint_directory",
        "pipeline_params",
        "flinklike_conn_id",
        "plan",  # the last one: it is made from the others
    )
    template_ext: Sequence[str] = (".json.j2",)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "application_args": "json",
        "conf": "json",
        "pipeline_params": "json",
        "environment": "json",
        "job_resources": "json",
        "configuration": "json",
    }

    def __init__(
        self,
        *,
        pipeline: PipelineSource | None = None,
        pipeline_params: Mapping[str, Any] | str | None = None,
        application: str | None = None,
        application_args: Sequence[Any] | str | None = None,
        java_class: str | None = None,
        conf: Mapping[str, Any] | str | None = None,
        properties_file: str | None = None,
        packages: str | None = None,
        exclude_packages: str | None = None,
        repositories: str | None = None,
        driver_memory: str | None = None,
        driver_class_path: str | None = None,
        executor_memory: str | None = None,
        executor_cores: int | str | None = None,
        num_executors: int | str | None = None,
        total_executor_cores: int | str | None = None,
        yarn_queue: str | None = None,
        py_files: str | Sequence[str] | None = None,
        files: str | Sequence[str] | None = None,
        archives: str | Sequence[str] | None = None,
        jars: str | Sequence[str] | None = None,
        name: str | None = None,
        env_vars: Mapping[str, Any] | str | None = None,
        environment: Mapping[str, Any] | str | None = None,
        job_timeout: float | str | timedelta | None = None,
        secrets: str | Sequence[str] | None = None,
        restart_strategy: RestartStrategy | str | None = None,
        user_failures: str | None = None,
        resources: ResourceSpec | Mapping[str, Any] | str | None = None,
        job_resources: ResourceSpec | Mapping[str, Any] | str | None = None,
        spark_profile: str | None = None,
        configuration: Mapping[str, Any] | str | None = None,
        streaming: bool = False,
        checkpoint_name: str | None = None,
        from_savepoint: str | None = None,
        allow_non_restored_state: bool = False,
        claim_mode: str | None = None,
        savepoint_directory: str | None = None,
        **kwargs: Any,
    ) -> None:
        given = locals()
        super().__init__(**kwargs)
        self.keep_fields(given)
        defaults = defaults_of(kwargs)
        self.pipeline = pipeline
        self.pipeline_params = pipeline_params
        self.application = application
        self.application_args = application_args
        self.java_class = java_class
        self.conf = conf
        self.name = name
        self.environment = one_of(self.task_id, defaults, env_vars=env_vars, environment=environment)
        self.job_resources = one_of(self.task_id, defaults, resources=resources, job_resources=job_resources)
        self.streaming = streaming
        self.checkpoint_name = checkpoint_name
        self.from_savepoint = from_savepoint
        self.allow_non_restored_state = allow_non_restored_state
        self.claim_mode = claim_mode
        self.savepoint_directory = savepoint_directory
        self.plan: PlanField | str | None = PLAN
        self._check_given(defaults)
        self._check_savepoints()

    def _check_savepoints(self) -> None:
        """Raises PipelineError, when the DAG is parsed, for parameters of savepoints that have no effect."""
        if self.from_savepoint is None and (self.claim_mode or self._allows_in_vain()):
            message = f"task {self.task_id!r}: allow_non_restored_state and claim_mode are of from_savepoint: give one"
            raise PipelineError(message)
        if self.savepoint_directory and not self.ensure_running:
            message = f"task {self.task_id!r}: savepoint_directory is for the upgrades of ensure_running=True"
            raise PipelineError(message)
        for directory in (self.from_savepoint, self.savepoint_directory):
            check_directory(self.task_id, directory)
        if self.claim_mode and "{" not in self.claim_mode:
            restore_settings("/", self.claim_mode, allow_non_restored_state=False)

    def _allows_in_vain(self) -> bool:
        return self.allow_non_restored_state and not self.ensure_running

    def upgrade_settings(self) -> UpgradeSettings:
        """How `ensure_running` replaces a job whose code has changed. Raises PipelineError."""
        check_directory(self.task_id, self.savepoint_directory)
        return UpgradeSettings(self.savepoint_directory or "", self.allow_non_restored_state)

    def _check_given(self, default_args: Mapping[str, Any]) -> None:
        """Raises PipelineError, when the DAG is parsed, for parameters that exclude each other."""
        if (self.pipeline is None) == (self.application is None):
            message = f"task {self.task_id!r}: give either pipeline= or application="
            raise PipelineError(message)
        if self.application is not None and self.pipeline_params:
            message = f"task {self.task_id!r}: pipeline_params are for pipeline=; an application has application_args"
            raise PipelineError(message)
        if self.pipeline is None:
            return
        if self.streaming:
            message = f"task {self.task_id!r}: streaming is for application=; a pipeline says itself what it streams"
            raise PipelineError(message)
        if self.checkpoint_name:
            message = f"task {self.task_id!r}: checkpoint_name is for application=: give it to the Pipeline"
            raise PipelineError(message)
        for field in _APPLICATION_ONLY:
            if self._is_shared(field, default_args):
                setattr(self, field, None)
                self.tell_when_executed(
                    Explanation(
                        f"{field} of default_args has no effect: a Pipeline has its own, and this task runs one"
                    )
                )
        given = [field for field in _APPLICATION_ONLY if getattr(self, field)]
        if given:
            message = (
                f"task {self.task_id!r}: {', '.join(given)} can be given with application= only; a Pipeline has its own"
            )
            raise PipelineError(message)

    def _is_shared(self, field: str, default_args: Mapping[str, Any]) -> bool:
        """True for a value that the tasks of the DAG have from `default_args`."""
        value = getattr(self, field)
        names = (field, {"environment": "env_vars", "job_resources": "resources"}.get(field, field))
        return bool(value) and any(is_shared(name, value, default_args) for name in names)

    def build_program(self, context: Context) -> JobProgram:
        """The job from the rendered fields. Raises PipelineError."""
        params = {**self._airflow_params(context), **mapping_of("pipeline_params", self.pipeline_params)}
        program = (
            self._job_of_pipeline(context, params) if self.pipeline is not None else self._job_of_application(params)
        )
        if not self.from_savepoint:
            return program
        check_directory(self.task_id, self.from_savepoint)
        allowed = self.allow_non_restored_state
        settings = restore_settings(self.from_savepoint, self.claim_mode or "", allow_non_restored_state=allowed)
        return restored_job(program, settings)

    def _job_of_pipeline(self, context: Context, params: Mapping[str, Any]) -> JobProgram:
        # Not a template field, since Airflow calls a function in a template field.
        is_text = isinstance(self.pipeline, str)
        source: Any = self.render_template(self.pipeline, context) if is_text else self.pipeline
        return configured_job(build_job(source, params), configuration_of(self.configuration))

    def _job_of_application(self, params: Mapping[str, Any]) -> JobProgram:
        options = self.job_options(params)
        options["checkpoint_name"] = self.checkpoint_name or ""
        return application_job(
            str(self.application),
            main_class=self.java_class or "",
            args=arguments_of(self.application_args),
            name=self.name or None,
            conf=self.spark_conf(),
            resources=resources_of(self.job_resources, self.spark_profile),
            streaming=self.streaming,
            **options,
        ).build()

    def _airflow_params(self, context: Context) -> dict[str, Any]:
        """The params of this run. Values of the DAG file are rendered, values of the run's conf never are."""
        authored = self.params.dump() if isinstance(self.params, ParamsDict) else dict(self.params or {})
        return {
            key: self.render_template(value, context) if key in authored and authored[key] == value else value
            for key, value in dict(context.get("params") or {}).items()
        }
