"""ReportingOperator reports a job to Airflow: log lines, XComs, the link, asset events, lineage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_flinklike.airflow_options import CONFIGURED, Configured, given_or_configured
from airflow_flinklike.airflow_version import conf
from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.client.protocol import understood
from airflow_flinklike.exceptions import FlinklikeClientError, JobFailedError
from airflow_flinklike.operators.fields import check_not_negative
from airflow_flinklike.task_instance.observation import JobObserver, LogSettings, now_seconds
from airflow_flinklike.task_instance.openlineage import LineageJob, OpenLineageMethods, with_lineage
from airflow_flinklike.task_instance.outlets import stated, tell_outlets, written
from airflow_flinklike.task_instance.xcoms import JOB_ID_KEY, JOB_URL_KEY, check_size, push_job
from runtime.common.ids import JobId
from runtime.common.printable import printable
from runtime.common.states import JobStatus

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_flinklike.client import FlinklikeClient, JobExecutionResult
    from airflow_flinklike.hooks.connection import ClusterAccess

_ASK_SECONDS = 30.0
"""A cluster that does not answer is retried for so long for facts beside the value."""


class ReportingOperator(OpenLineageMethods, BaseOperator):
    """An operator that reports what becomes of its job.

    :param log_limit: about how many bytes of the attempts' output the task's log shows; 0: none
    :param xcom_limit: the largest size of the job's value as XCom, in bytes; None: unbounded
    :param openlineage_inject_parent_job_info: put the task, as parent, into the Spark conf of the job
    :param openlineage_inject_transport_info: put the transport of lineage events into the Spark conf of the job
    """

    def __init__(
        self,
        *,
        log_limit: int | None = None,
        xcom_limit: int | Configured | None = CONFIGURED,
        openlineage_inject_parent_job_info: bool = conf.getboolean(
            "openlineage", "spark_inject_parent_job_info", fallback=False
        ),
        openlineage_inject_transport_info: bool = conf.getboolean(
            "openlineage", "spark_inject_transport_info", fallback=False
        ),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.log_limit: int = given_or_configured("log_limit", log_limit)
        self.xcom_limit: int | None = given_or_configured("xcom_limit", xcom_limit)
        check_not_negative(log_limit=self.log_limit, xcom_limit=self.xcom_limit)
        self.openlineage_inject_parent_job_info = openlineage_inject_parent_job_info
        self.openlineage_inject_transport_info = openlineage_inject_transport_info
        self._lineage_job: LineageJob | None = None

    def lineage_job(self) -> LineageJob | None:
        """The job of this execution, None before there is one."""
        return self._lineage_job

    def with_lineage(self, program: JobProgram, context: Context) -> JobProgram:
        """The program with the wanted OpenLineage properties in its Spark conf."""
        return with_lineage(
            program,
            context,
            inject_parent=self.openlineage_inject_parent_job_info,
            inject_transport=self.openlineage_inject_transport_info,
        )

    def make_observer(self, access: ClusterAccess, bookmark: Mapping[str, Any] | None = None) -> JobObserver:
        """The observer of this execution. `bookmark` is that of the phase of this try before the deferral."""
        settings = LogSettings(self.log_limit, access.job_url(""))
        return JobObserver(self.log, bookmark, settings=settings, clock=now_seconds)

    def tell_job(self, context: Context, access: ClusterAccess, job_id: JobId) -> None:
        """Make the job known to the task's XComs, its link and its lineage, while the job runs."""
        self._lineage_job = LineageJob(job_id, access.ui_url)
        push_job(context["ti"], job_id, access.job_url(job_id))

    def value_of(
        self, context: Context, client: FlinklikeClient, access: ClusterAccess, result: JobExecutionResult
    ) -> Any:
        """Report the job's end, and return its value. Raises JobFailedError, JobCanceledError, ResultTooLargeError."""
        self._lineage_job = LineageJob(result.job_id, access.ui_url)
        if result.status is JobStatus.FAILED:
            failure = JobFailedError(result.job_id, result.failure)
            said = printable(f"{failure.root_cause}\n{failure.stack_trace}")
            page = access.job_url(result.job_id)
            self.log.error("Job %s FAILED: %s\nAttempts and logs: %s", result.job_id, said, page)
        value = result.value_or_raise()
        self.log.info("Job %s FINISHED in %.3f s", result.job_id, result.net_runtime_millis / 1000)
        if self.do_xcom_push:
            check_size(result.job_id, value, self.xcom_limit)
        if self.outlets:
            facts = {JOB_ID_KEY: result.job_id, JOB_URL_KEY: access.job_url(result.job_id)}
            facts |= self._written(client, result.job_id) | stated(value)
            tell_outlets(self.outlets, context["outlet_events"], facts)
        return value

    def _written(self, client: FlinklikeClient, job_id: JobId) -> dict[str, Any]:
        client.retry_for = min(client.retry_for, _ASK_SECONDS)
        try:
            details = client.get(f"/jobs/{job_id}")
            with understood(f"/jobs/{job_id}"):
                return dict(written(details))
        except FlinklikeClientError as error:
            self.log.warning("What job %s wrote is not known for its outlets: %s", job_id, error)
            return {}
