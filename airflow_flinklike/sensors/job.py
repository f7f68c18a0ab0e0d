"""FlinklikeJobSensor: waits until a job is in one of some states, wherever it was submitted from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink, BaseSensorOperator, PokeReturnValue, conf
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.exceptions import FlinklikeClientError
from airflow_flinklike.hooks.flinklike import DEFAULT_CONN_ID, FlinklikeHook
from airflow_flinklike.links import FlinklikeJobLink
from airflow_flinklike.sensing import JobLook, JobWish, Verdict, job_wish, look_at_job
from airflow_flinklike.triggers.job import FlinklikeJobTrigger, JobEventReason, error_of_event
from airflow_flinklike.triggers.sensing import FlinklikeJobStateTrigger
from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

_ENDS = frozenset({JobEventReason.FINISHED.value, JobEventReason.FAILED.value, JobEventReason.CANCELED.value})


class FlinklikeJobSensor(BaseSensorOperator):
    """Succeeds when the job is in a target state, with the job's value as XCom when it is FINISHED, else the state.

    A state that the job has passed counts. A job that has ended without reaching one fails the sensor without retry.

    :param job_id: the job, usually `{{ ti.xcom_pull(task_ids="submit", key="job_id") }}`
    :param job_name: instead of `job_id`: the newest job of that name; while there is none the sensor waits
    :param started_after: with `job_name`: jobs that started earlier do not count; a datetime, or a text like
        `{{ dag_run.start_date }}`
    :param target_states: names of job states, `FINISHED` by default; a text is split at commas
    :param flinklike_conn_id: the connection to the cluster
    :param deferrable: wait in the triggerer instead of in a worker slot
    """

    template_fields: Collection[str] = ("job_id", "job_name", "started_after", "target_states", "flinklike_conn_id")
    operator_extra_links: Collection[BaseOperatorLink] = (FlinklikeJobLink(),)
    ui_color = "#e8f0fb"

    def __init__(
        self,
        *,
        job_id: str | None = None,
        job_name: str | None = None,
        started_after: datetime | str | None = None,
        target_states: str | Sequence[str] = (JobStatus.FINISHED.value,),
        flinklike_conn_id: str = DEFAULT_CONN_ID,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poke_interval: timedelta | float = 10.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.job_id = job_id
        self.job_name = job_name
        self.started_after = started_after
        self.target_states = target_states
        self.flinklike_conn_id = flinklike_conn_id
        self.deferrable = deferrable
        self._linked = ""
        self._said = ""

    def poke(self, context: Context) -> PokeReturnValue:
        """One look at the job, as a short long poll; when deferrable, one that finds it on its way defers."""
        wish = self._wish()
        with FlinklikeHook(self.flinklike_conn_id).get_conn() as client:
            look = client.run(look_at_job(wish))
            if look.verdict is Verdict.WAITING and look.job_id and not self.reschedule and not self.deferrable:
                look = client.run(look_at_job(wish, wait=1.0, seen=look))
            self._tell(context, look)
            if look.verdict is not Verdict.WAITING:
                value = self._value_of(client, look.job_id, is_reached=look.verdict is Verdict.REACHED)
                return PokeReturnValue(is_done=True, xcom_value=value)
        if self.deferrable:
            timeout = timedelta(seconds=self.timeout)
            self.defer(trigger=self._trigger(wish), method_name="execute_complete", timeout=timeout)
        return PokeReturnValue(is_done=False)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """The trigger has fired. Fails, or skips, as a poke does."""
        try:
            return self._completed(context, event)
        except FlinklikeClientError as error:
            if self.never_fail:
                message = f"{self._wish()}: {error}"
                raise AirflowSkipException(message) from error
            raise

    def _completed(self, context: Context, event: Mapping[str, Any]) -> Any:
        reason = event.get("reason", "")
        if "verdict" not in event and reason not in _ENDS:
            raise error_of_event(event)
        job_id = JobId(event["job_id"])
        with FlinklikeHook(self.flinklike_conn_id).get_conn() as client:
            if "verdict" in event:
                is_reached = Verdict(event["verdict"]) is Verdict.REACHED
                self._tell(context, JobLook(Verdict(event["verdict"]), job_id))
            else:
                is_reached = JobStatus(reason.upper()) in self._wish().states
            return self._value_of(client, job_id, is_reached=is_reached)

    def _trigger(self, wish: JobWish) -> BaseTrigger:
        """All who wait for an end share one question to the cluster."""
        if wish.job_id is not None and wish.is_about_an_end:
            return FlinklikeJobTrigger(wish.job_id, self.flinklike_conn_id)
        return FlinklikeJobStateTrigger(
            self.flinklike_conn_id,
            target_states=sorted(status.value for status in wish.states),
            job_id=wish.job_id,
            job_name=wish.name,
            started_after_millis=wish.started_after_millis,
            poll_interval=max(1.0, float(self.poke_interval)),
        )

    def _wish(self) -> JobWish:
        try:
            return job_wish(
                self.target_states, job_id=self.job_id, name=self.job_name, started_after=self.started_after
            )
        except (InvalidInputError, ValueError) as error:
            message = f"task {self.task_id!r}: {error}"
            raise AirflowFailException(message) from error

    def _tell(self, context: Context, look: JobLook) -> None:
        """The link as soon as the job is known, and one line when something has changed."""
        if look.job_id and look.job_id != self._linked:
            self._linked = look.job_id
            url = FlinklikeHook(self.flinklike_conn_id).access().job_url(look.job_id)
            context["ti"].xcom_push(key=FlinklikeJobLink().xcom_key, value=url)
            context["ti"].xcom_push(key="job_id", value=look.job_id)
        if look.status is not None and str(look) != self._said:
            self._said = str(look)
            self.log.info("%s", look)

    def _value_of(self, client: FlinklikeClient, job_id: JobId | None, *, is_reached: bool) -> Any:
        """What becomes the XCom. Raises AirflowFailException when the wish cannot come true."""
        assert job_id is not None
        result = client.result_within(job_id, wait=0.0)
        if result is None:
            return client.status(job_id).status.value
        if is_reached:
            return result.value if result.status is JobStatus.FINISHED else result.status.value
        try:
            result.value_or_raise()
        except FlinklikeClientError as error:
            raise AirflowFailException(str(error)) from error
        wanted = ", ".join(sorted(status.value for status in self._wish().states))
        message = f"job {job_id} is FINISHED and never was {wanted}"
        raise AirflowFailException(message)
