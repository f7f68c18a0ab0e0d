"""FlinklikeJobSensor: waits until a job has finished, wherever it was submitted from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink, BaseSensorOperator, PokeReturnValue, conf
from airflow.sdk.exceptions import AirflowFailException

from airflow_flinklike.client import JobExecutionResult
from airflow_flinklike.exceptions import ClusterUnavailableError, FlinklikeClientError
from airflow_flinklike.hooks.flinklike import DEFAULT_CONN_ID, FlinklikeHook
from airflow_flinklike.links import FlinklikeJobLink
from airflow_flinklike.triggers.job import FlinklikeJobTrigger, JobEventReason
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
        """Poke, or look once and defer."""
        hook = FlinklikeHook(self.flinklike_conn_id)
        context["ti"].xcom_push(key=FlinklikeJobLink().xcom_key, value=hook.access().job_url(self.job_id))
        if not self.deferrable:
            return super().execute(context)
        found = self.poke(context)
        if found.is_done:
            return found.xcom_value
        trigger = FlinklikeJobTrigger(self.job_id, self.flinklike_conn_id)
        return self.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=self.timeout))

    def poke(self, context: Context) -> PokeReturnValue:
        """One look at the job, as a short long poll."""
        del context
        with FlinklikeHook(self.flinklike_conn_id).get_conn() as client:
            result = client.result_within(self._checked_job_id(), wait=0.0 if self.reschedule else 1.0)
        if result is None:
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=self._value_of(result))

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """The trigger has fired."""
        del context
        match JobEventReason(event["reason"]):
            case JobEventReason.ERROR | JobEventReason.TIMEOUT:
                raise ClusterUnavailableError(str(event.get("message", "")))
            case JobEventReason.NOT_FOUND:
                raise AirflowFailException(str(event.get("message", self.job_id)))
            case _:
                with FlinklikeHook(self.flinklike_conn_id).get_conn() as client:
                    return self._value_of(client.wait_for_result(JobId(event["job_id"])))

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
