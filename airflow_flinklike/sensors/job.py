"""FlinklikeJobSensor: waits until a job has finished, wherever it was submitted from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink, BaseSensorOperator, PokeReturnValue, conf
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_flinklike.client import JobExecutionResult
from airflow_flinklike.exceptions import FlinklikeClientError
from airflow_flinklike.hooks.flinklike import DEFAULT_CONN_ID, FlinklikeHook
from airflow_flinklike.links import FlinklikeJobLink
from airflow_flinklike.triggers.job import FlinklikeJobTrigger, JobEventReason, error_of_event
from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId, parse_job_id

if TYPE_CHECKING:
    from airflow.sdk import Context


class FlinklikeJobSensor(BaseSensorOperator):
    """Succeeds with the job's value as XCom when the job is FINISHED, fails without retry when it ended otherwise.

    :param job_id: the job, usually `{{ ti.xcom_pull(task_ids="submit", key="job_id") }}`
    :param flinklike_conn_id: the connection to the cluster
    :param deferrable: wait in the triggerer instead of in a worker slot
    """

    template_fields: Collection[str] = ("job_id", "flinklike_conn_id")
    operator_extra_links: Collection[BaseOperatorLink] = (FlinklikeJobLink(),)
    ui_color = "#e8f0fb"

    def __init__(
        self,
        *,
        job_id: str,
        flinklike_conn_id: str = DEFAULT_CONN_ID,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poke_interval: timedelta | float = 10.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.job_id = job_id
        self.flinklike_conn_id = flinklike_conn_id
        self.deferrable = deferrable

    def execute(self, context: Context) -> Any:
        """Poke until the job has ended; when deferrable, the first poke that finds it running defers."""
        url = FlinklikeHook(self.flinklike_conn_id).access().job_url(self.job_id)
        context["ti"].xcom_push(key=FlinklikeJobLink().xcom_key, value=url)
        return super().execute(context)

    def poke(self, context: Context) -> PokeReturnValue:
        """One look at the job, as a short long poll."""
        del context
        with FlinklikeHook(self.flinklike_conn_id).get_conn() as client:
            result = client.result_within(self._checked_job_id(), wait=0.0 if self.reschedule else 1.0)
        if result is not None:
            return PokeReturnValue(is_done=True, xcom_value=self._value_of(result))
        if self.deferrable:
            trigger = FlinklikeJobTrigger(self.job_id, self.flinklike_conn_id)
            self.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=self.timeout))
        return PokeReturnValue(is_done=False)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """The trigger has fired. Fails, or skips, as a poke does."""
        del context
        try:
            return self._completed(event)
        except FlinklikeClientError as error:
            if self.never_fail:
                message = f"job {self.job_id}: {error}"
                raise AirflowSkipException(message) from error
            raise

    def _completed(self, event: Mapping[str, Any]) -> Any:
        match JobEventReason(event["reason"]):
            case JobEventReason.FINISHED | JobEventReason.FAILED | JobEventReason.CANCELED:
                with FlinklikeHook(self.flinklike_conn_id).get_conn() as client:
                    return self._value_of(client.wait_for_result(JobId(event["job_id"])))
            case _:
                raise error_of_event(event)

    def _checked_job_id(self) -> JobId:
        try:
            return parse_job_id(str(self.job_id))
        except InvalidInputError as error:
            raise AirflowFailException(str(error)) from error

    def _value_of(self, result: JobExecutionResult) -> Any:
        try:
            return result.value_or_raise()
        except FlinklikeClientError as error:
            raise AirflowFailException(str(error)) from error
