"""FlinklikeApplicationOperator runs one job as its own cluster on the worker's host."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperatorLink

from airflow_flinklike.airflow_options import given_or_configured
from airflow_flinklike.api.application_cluster import ApplicationCluster, ApplicationJob
from airflow_flinklike.client import FlinklikeClient, JobExecutionResult
from airflow_flinklike.exceptions import (
    ClusterUnavailableError,
    FlinklikeClientError,
    JobConflictError,
    PipelineError,
    WorkerStoppedError,
)
from airflow_flinklike.hooks.connection import ClusterAccess
from airflow_flinklike.links.job import FlinklikeJobLink
from airflow_flinklike.operators.calls import CallInterruptedError, InterruptibleCalls
from airflow_flinklike.operators.fields import arguments_of, check_poll_interval, environment_of, mapping_of
from airflow_flinklike.operators.final_errors import final_form, is_ruled
from airflow_flinklike.operators.reporting import ReportingOperator
from airflow_flinklike.task_instance.observation import JobObserver
from runtime.common.ids import JobId, parse_job_id

if TYPE_CHECKING:
    from airflow.sdk import Context

_RETRY_SECONDS = 20.0
_CANCEL_SECONDS = 1.5
_KILL_SECONDS = 2.5
"""Airflow follows a SIGTERM with a SIGKILL after five seconds."""
_END_SECONDS = 90.0


class FlinklikeApplicationOperator(ReportingOperator):
    """Run a job as its own cluster: a process on the worker's host, which starts its own TaskManagers there, as
    processes, or with `configuration={'resourcemanager.driver': 'docker', ...}` as containers.

    For jobs that must not share a Spark, memory or a configuration with others; a job on a warm session cluster
    (`FlinklikeSubmitOperator`) begins some ten seconds earlier. The value of the job is the XCom. Whatever ends the
    task (its end, a mark, a clear, a timeout, the death of the worker) ends the cluster; each try has a new one.

    The worker needs the extra `cluster` of this package, or `python` names an interpreter that has it.

    :param job: what `flinklike run` takes: 'package.module:name', 'file.py:name', a script, a jar or a JobGraph
    :param application_args: arguments of a script
    :param conf: Spark conf of the job
    :param pipeline_params: params of a pipeline
    :param run_options: further options of `flinklike run`, as a list: ['--py-files', 'dep.py']
    :param configuration: options of the cluster: {'taskmanager.numberOfTaskSlots': '2'}
    :param conf_dir: a directory with a config.yaml for the cluster; without it the cluster has defaults for one host,
        no store, and ports that are free
    :param env_vars: environment variables of the cluster and its tasks
    :param directory: the working directory, from which relative paths count; default that of the DAG file
    :param python: the interpreter of the cluster; default that of the worker
    :param poll_interval: seconds of one long poll
    """

    template_fields: Collection[str] = (
        "job",
        "application_args",
        "conf",
        "pipeline_params",
        "run_options",
        "configuration",
        "env_vars",
        "directory",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "application_args": "json",
        "conf": "json",
        "pipeline_params": "json",
        "configuration": "json",
        "env_vars": "json",
    }
    operator_extra_links: Collection[BaseOperatorLink] = (FlinklikeJobLink(),)
    ui_color = "#e8f0fb"

    def __init__(
        self,
        *,
        job: str,
        application_args: Sequence[Any] | str | None = None,
        conf: Mapping[str, Any] | str | None = None,
        pipeline_params: Mapping[str, Any] | str | None = None,
        run_options: Sequence[str] = (),
        configuration: Mapping[str, Any] | str | None = None,
        conf_dir: str = "",
        env_vars: Mapping[str, Any] | str | None = None,
        directory: str = "",
        python: str = "",
        poll_interval: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.application_args = application_args
        self.conf = conf
        self.pipeline_params = pipeline_params
        self.run_options = run_options
        self.configuration = configuration
        self.conf_dir = conf_dir
        self.env_vars = env_vars
        self.directory = directory
        self.python = python
        self.poll_interval: float = given_or_configured("poll_interval", poll_interval)
        check_poll_interval(self.poll_interval)
        if isinstance(run_options, str):
            message = f"task {self.task_id!r}: run_options is a text, expected a list: ['--py-files', 'dep.py']"
            raise PipelineError(message)
        self._calls: InterruptibleCalls | None = None
        self._is_killed_early = False

    def execute(self, context: Context) -> Any:
        """Start the cluster, wait for the end of its job, end the cluster, and return the job's value."""
        calls = self._calls = InterruptibleCalls()
        if self._is_killed_early:
            calls.interrupt()
        directory = Path(tempfile.mkdtemp(prefix="flinklike-application-"))
        cluster = ApplicationCluster(self._application(context), directory)
        patience = _END_SECONDS
        try:
            return self._run(context, cluster, calls)
        except CallInterruptedError:
            patience = _KILL_SECONDS
            message = "the task was killed: the cluster of its job ends"
            raise WorkerStoppedError(message) from None
        except FlinklikeClientError as error:
            final = final_form(error)
            if final is None or is_ruled(error, getattr(self, "retry_policy", None), context):
                raise
            raise final from error
        finally:
            if self._end(cluster, patience):
                shutil.rmtree(directory, ignore_errors=True)

    def on_kill(self) -> None:
        """Airflow kills the task. In a signal handler, it only interrupts the wait."""
        if self._calls is None:
            self._is_killed_early = True
        else:
            self._calls.interrupt()

    def _run(self, context: Context, cluster: ApplicationCluster, calls: InterruptibleCalls) -> Any:
        calls.check()
        cluster.start()
        calls.run(cluster.wait_ready)
        token = cluster.token
        access = ClusterAccess((cluster.address,), token, cluster.tls, cluster.address, credential=token)
        with FlinklikeClient(access.addresses, token, retry_for=_RETRY_SECONDS, tls=access.tls) as client:
            job_id = calls.run(lambda: _job_of(client))
            self.log.info("Job %s runs as its own cluster: %s", job_id, access.job_url(job_id))
            self.tell_job(context, access, job_id)
            try:
                result = self._wait(cluster, client, job_id, calls, self.make_observer(access))
            except CallInterruptedError:
                self._cancel(access, job_id)
                raise
            return self.value_of(context, client, access, result)

    def _wait(
        self,
        cluster: ApplicationCluster,
        client: FlinklikeClient,
        job_id: JobId,
        calls: InterruptibleCalls,
        observer: JobObserver,
    ) -> JobExecutionResult:
        since = 0

        def look() -> int | None:
            """When the job has changed last; None when it has ended."""
            longest = min(self.poll_interval, observer.interval if math.isfinite(observer.interval) else math.inf)
            state = client.status(job_id, wait=longest, since=since)
            observer.observe(client, state)
            return None if state.status.is_globally_terminal else state.last_modification

        try:
            while (changed := calls.run(look)) is not None:
                since = changed
            return calls.run(lambda: client.wait_for_result(job_id))
        except ClusterUnavailableError:
            cluster.check()
            raise

    def _cancel(self, access: ClusterAccess, job_id: JobId) -> None:
        """So that the job ends too where a store of its own would keep it for another start."""
        client = FlinklikeClient(access.addresses, access.token, retry_for=_CANCEL_SECONDS, tls=access.tls)
        with client:
            try:
                InterruptibleCalls().run(lambda: client.cancel(job_id), timeout=_CANCEL_SECONDS)
            except JobConflictError:
                self.log.info("Job %s has ended", job_id)
            except (FlinklikeClientError, TimeoutError) as error:
                self.log.warning("Job %s could not be cancelled: %s", job_id, error)

    def _end(self, cluster: ApplicationCluster, patience: float) -> bool:
        """True when nothing of the cluster is left. Else it is about to end by itself."""
        cluster.begin_end()
        if cluster.has_ended(patience):
            return True
        if patience < _END_SECONDS:
            self.log.warning("The cluster of the job has not ended yet: it goes on with that")
            return False
        self.log.warning("The cluster of the job did not end within %.0f s: killing it", patience)
        cluster.kill()
        return True

    def _application(self, context: Context) -> ApplicationJob:
        conf = [word for key, value in mapping_of("conf", self.conf).items() for word in ("--conf", f"{key}={value}")]
        params = mapping_of("pipeline_params", self.pipeline_params)
        given = [word for key, value in params.items() for word in ("--param", f"{key}={json.dumps(value)}")]
        return ApplicationJob(
            target=self.job,
            directory=self._directory(context),
            options=[*conf, *given, *map(str, self.run_options)],
            arguments=[str(one) for one in arguments_of(self.application_args)],
            configuration={key: str(value) for key, value in mapping_of("configuration", self.configuration).items()},
            environment=environment_of(self.env_vars),
            conf_directory=self.conf_dir,
            python=self.python,
        )

    def _directory(self, context: Context) -> Path:
        if self.directory:
            return Path(self.directory)
        file = Path(getattr(context.get("dag"), "fileloc", "") or "")
        return file.parent if file.is_file() else Path.cwd()


def _job_of(client: FlinklikeClient) -> JobId:
    """The one job of the cluster."""
    (job,) = client.get("/jobs/overview")["jobs"]
    return parse_job_id(job["jid"])
