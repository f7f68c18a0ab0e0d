"""FlinklikeJobSensor waits until a job is in a target state. Any client may have submitted the job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink, BaseSensorOperator, PokeReturnValue

from airflow_flinklike.airflow_options import CONFIGURED, Configured, given_or_configured
from airflow_flinklike.airflow_version import AirflowFailException, AirflowSkipException, conf
from airflow_flinklike.client import FlinklikeClient, JobExecutionResult, JobState
from airflow_flinklike.exceptions import FlinklikeClientError, ResultTooLargeError
from airflow_flinklike.hooks.flinklike import DEFAULT_CONN_ID, FlinklikeHook
from airflow_flinklike.links.job import FlinklikeJobLink
from airflow_flinklike.task_instance.observation import JobObserver, LogSettings, now_seconds
from airflow_flinklike.task_instance.xcoms import check_size, push_job
from airflow_flinklike.triggers.conditions import JobWish, Verdict, job_wish, look_at_job
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
    """Succeeds when the job is in a target state. The XCom is the value of a FINISHED job, else the state.

    A target state that the job has passed counts. A job that ends without reaching one fails the sensor, without retry.

    :param job_id: the job, usually `{{ ti.xcom_pull(task_ids="submit", key="job_id") }}`
    :param job_name: instead of `job_id`: the newest job of that name; while there is none the sensor waits
    :param started_after: with `job_name`: jobs that started earlier do not count; a datetime, or a text such as
        `{{ dag_run.start_date }}`
    :param target_states: names of job states, `FINISHED` by default; a text is split at commas
    :param flinklike_conn_id: the connection to the cluster
    :param deferrable: wait in the triggerer instead of in a worker slot
    :param log_limit: about how many bytes of the job's output the sensor's log shows; 0, the default: none. A sensor
        that waits by id for the end shows output while the job runs, any other at the end of the job
    :param xcom_limit: the largest size of the job's value as XCom, in bytes; None: unbounded
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
        log_limit: int = 0,
        xcom_limit: int | Configured | None = CONFIGURED,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.job_id = job_id
        self.job_name = job_name
        self.started_after = started_after
        self.target_states = target_states
        self.flinklike_conn_id = flinklike_conn_id
        self.deferrable = deferrable
        self.log_limit = log_limit
        self.xcom_limit: int | None = given_or_configured("xcom_limit", xcom_limit)
        self._observer: JobObserver | None = None
        self._observed = ""

    def execute(self, context: Context) -> Any:
        """Start without the observer of an earlier try."""
        self._observer = None
        return super().execute(context)

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once, by a long poll of a second. A deferrable sensor defers when the job is not in a target state."""
        wish = self._wish()
        with FlinklikeHook(self.flinklike_conn_id).get_conn() as client:
            look = client.run(look_at_job(wish))
            if look.verdict is Verdict.WAITING and look.state and not self.reschedule and not self.deferrable:
                look = client.run(look_at_job(wish, wait=1.0, seen=look))
            if look.state is not None:
                self._observe(context, client, look.state)
            if look.verdict is not Verdict.WAITING:
                assert look.state is not None
                value = self._value_of(client, look.state, is_reached=look.verdict is Verdict.REACHED)
                return PokeReturnValue(is_done=True, xcom_value=value)
        if self.deferrable:
            timeout = timedelta(seconds=self.timeout)
            self.defer(trigger=self._trigger(wish), method_name="execute_complete", timeout=timeout)
        return PokeReturnValue(is_done=False)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Go on after the trigger has fired. Fails, or skips, as a poke does."""
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
        with FlinklikeHook(self.flinklike_conn_id).get_conn() as client:
            state = client.status(JobId(event["job_id"]))
            self._observe(context, client, state, event.get("bookmark"))
            if "verdict" in event:
                is_reached = Verdict(event["verdict"]) is Verdict.REACHED
            else:
                is_reached = state.status in self._wish().states
            return self._value_of(client, state, is_reached=is_reached)

    def _trigger(self, wish: JobWish) -> BaseTrigger:
        """FlinklikeJobTrigger for the end of a job, since all of them share one poll; else FlinklikeJobStateTrigger."""
        if wish.job_id is not None and wish.is_about_an_end:
            bookmark = None if self._observer is None else self._observer.bookmark()
            return FlinklikeJobTrigger(wish.job_id, self.flinklike_conn_id, bookmark=bookmark)
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

    def _observe(
        self, context: Context, client: FlinklikeClient, state: JobState, bookmark: Mapping[str, Any] | None = None
    ) -> None:
        """Store the link as soon as the job is known; log changes and, if wanted, the job's output."""
        if self._observer is None or self._observed != state.job_id:
            access = FlinklikeHook(self.flinklike_conn_id).access()
            settings = LogSettings(self.log_limit, access.job_url("")) if self.log_limit else None
            self._observed = state.job_id
            self._observer = JobObserver(self.log, bookmark, settings=settings, clock=now_seconds)
            push_job(context["ti"], state.job_id, access.job_url(state.job_id))
        self._observer.observe(client, state)

    def _value_of(self, client: FlinklikeClient, state: JobState, *, is_reached: bool) -> Any:
        """The XCom. Raises AirflowFailException when the job has ended without reaching a target state."""
        if not state.status.is_globally_terminal:
            return state.status.value
        if is_reached and state.status is not JobStatus.FINISHED:
            return state.status.value
        result = client.wait_for_result(state.job_id)
        if is_reached:
            return self._checked(result)
        try:
            result.value_or_raise()
        except FlinklikeClientError as error:
            raise AirflowFailException(str(error)) from error
        wanted = ", ".join(sorted(status.value for status in self._wish().states))
        message = f"job {state.job_id} is FINISHED and never was {wanted}"
        raise AirflowFailException(message)

    def _checked(self, result: JobExecutionResult) -> Any:
        if self.do_xcom_push:
            try:
                check_size(result.job_id, result.value, self.xcom_limit)
            except ResultTooLargeError as error:
                raise AirflowFailException(str(error)) from error
        return result.value
