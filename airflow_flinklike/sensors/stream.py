"""FlinklikeStreamSensor waits until streaming queries of a job, which any client may have submitted, are far enough."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink, BaseSensorOperator, PokeReturnValue

from airflow_flinklike.airflow_version import AirflowFailException, AirflowSkipException, conf
from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.client.protocol import Operation
from airflow_flinklike.exceptions import FlinklikeClientError, PipelineError
from airflow_flinklike.hooks.flinklike import DEFAULT_CONN_ID, FlinklikeHook
from airflow_flinklike.links.job import FlinklikeJobLink
from airflow_flinklike.task_instance.xcoms import push_job
from airflow_flinklike.triggers.conditions import JobWish, Verdict, job_wish, look_at_job
from airflow_flinklike.triggers.job import error_of_event
from airflow_flinklike.triggers.sensing import FlinklikeStreamTrigger
from airflow_flinklike.triggers.stream_conditions import StreamLook, StreamWish, look_at_streams
from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus

if TYPE_CHECKING:
    from airflow.sdk import Context

_ANY_STATE = [status.value for status in JobStatus]


class FlinklikeStreamSensor(BaseSensorOperator):
    """Succeeds when streaming queries are as far as all given conditions say. The XCom says how far, by uid.

    Without a condition it waits for the first batch. A job that has ended is judged by where its queries were last: if
    that is not far enough, the sensor fails without a retry.

    :param job_id: the job, usually `{{ ti.xcom_pull(task_ids="submit", key="job_id") }}`
    :param job_name: instead of `job_id`: the newest job of that name; while there is none the sensor waits
    :param started_after: with `job_name`: jobs that started earlier do not count
    :param uid: the uid of one query, of a script the name of one; default all queries of the job
    :param batch: the number of a batch that each subtask has completed; numbers begin at 0 and go on over restarts
    :param rows: rows that the attempts of all subtasks have read; an attempt that starts again counts from 0
    :param max_backlog: at most so much is left in the sources, in their unit; most sources do not say it
    :param max_lag: at most so many seconds, or a timedelta, the watermark is behind the clock of the cluster
    :param flinklike_conn_id: the connection to the cluster
    :param deferrable: wait in the triggerer instead of in a worker slot
    """

    template_fields: Collection[str] = (
        "job_id",
        "job_name",
        "started_after",
        "uid",
        "batch",
        "rows",
        "max_backlog",
        "max_lag",
        "flinklike_conn_id",
    )
    operator_extra_links: Collection[BaseOperatorLink] = (FlinklikeJobLink(),)
    ui_color = "#e8f0fb"

    def __init__(
        self,
        *,
        job_id: str | None = None,
        job_name: str | None = None,
        started_after: datetime | str | None = None,
        uid: str = "",
        batch: int | str | None = None,
        rows: int | str | None = None,
        max_backlog: int | str | None = None,
        max_lag: float | str | timedelta | None = None,
        flinklike_conn_id: str = DEFAULT_CONN_ID,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poke_interval: timedelta | float = 10.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.job_id = job_id
        self.job_name = job_name
        self.started_after = started_after
        self.uid = uid
        self.batch = batch
        self.rows = rows
        self.max_backlog = max_backlog
        self.max_lag = max_lag
        self.flinklike_conn_id = flinklike_conn_id
        self.deferrable = deferrable
        self._said = ""
        self._check_given()

    def _check_given(self) -> None:
        """Raises PipelineError, when the DAG is parsed, for numbers that are none; templates are read later."""
        given = {"batch": self.batch, "rows": self.rows, "max_backlog": self.max_backlog}
        try:
            for name, value in given.items():
                if isinstance(value, int | str) and "{" not in str(value):
                    _number(name, value)
            if isinstance(self.max_lag, float | int | str) and "{" not in str(self.max_lag):
                _seconds("max_lag", self.max_lag)
        except ValueError as error:
            message = f"task {self.task_id!r}: {error}"
            raise PipelineError(message) from error

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once. A deferrable sensor defers when the queries are not as far."""
        wish, job = self._wishes()
        with FlinklikeHook(self.flinklike_conn_id).get_conn() as client:
            look = client.run(_look(wish, job))
            self._tell(context, look)
            if look.verdict is not Verdict.WAITING:
                return PokeReturnValue(is_done=True, xcom_value=self._value_of(look))
        if self.deferrable:
            trigger = FlinklikeStreamTrigger(
                self.flinklike_conn_id,
                wish=asdict(wish),
                job_id=job.job_id,
                job_name=job.name,
                started_after_millis=job.started_after_millis,
                poll_interval=max(1.0, float(self.poke_interval)),
            )
            self.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=self.timeout))
        return PokeReturnValue(is_done=False)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Go on after the trigger has fired. Fails, or skips, as a poke does."""
        try:
            if "verdict" not in event:
                raise error_of_event(event)
            if Verdict(event["verdict"]) is Verdict.REACHED:
                self._push_job(context, JobId(event["job_id"]))
                return event["queries"]
            with FlinklikeHook(self.flinklike_conn_id).get_conn() as client:
                return self._judged_again(context, client, JobId(event["job_id"]))
        except FlinklikeClientError as error:
            if self.never_fail:
                raise AirflowSkipException(str(error)) from error
            raise

    def _judged_again(self, context: Context, client: FlinklikeClient, job_id: JobId) -> Any:
        wish, _ = self._wishes()
        look = client.run(look_at_streams(wish, client.status(job_id)))
        self._tell(context, look)
        return self._value_of(look)

    def _tell(self, context: Context, look: StreamLook) -> None:
        if str(look) != self._said:
            self.log.info("%s", look)
        if look.state is not None and not self._said.startswith(f"Job {look.state.job_id}"):
            self._push_job(context, look.state.job_id)
        self._said = str(look)

    def _push_job(self, context: Context, job_id: JobId) -> None:
        push_job(context["ti"], job_id, FlinklikeHook(self.flinklike_conn_id).access().job_url(job_id))

    def _value_of(self, look: StreamLook) -> dict[str, Any]:
        if look.verdict is not Verdict.REACHED:
            raise AirflowFailException(f"the job will not get there. {look}")
        return look.value()

    def _wishes(self) -> tuple[StreamWish, JobWish]:
        """What is waited for, and of which job. Raises AirflowFailException."""
        lag = self.max_lag.total_seconds() if isinstance(self.max_lag, timedelta) else self.max_lag
        try:
            job = job_wish(_ANY_STATE, job_id=self.job_id, name=self.job_name, started_after=self.started_after)
            wish = StreamWish(
                self.uid or "",
                _number("batch", self.batch),
                _number("rows", self.rows),
                _number("max_backlog", self.max_backlog),
                _seconds("max_lag", lag),
            )
        except (InvalidInputError, ValueError) as error:
            message = f"task {self.task_id!r}: {error}"
            raise AirflowFailException(message) from error
        return wish, job


def _look(wish: StreamWish, job: JobWish) -> Operation[StreamLook]:
    found = yield from look_at_job(job)
    if found.state is None:
        return StreamLook(Verdict.WAITING)
    return (yield from look_at_streams(wish, found.state))


def _number(name: str, given: int | str | None) -> int | None:
    text = "" if given is None else str(given).strip()
    if text and not text.isdecimal():
        message = f"{name} is {text!r}, expected a whole number from 0"
        raise ValueError(message)
    return int(text) if text else None


def _seconds(name: str, given: float | str | None) -> float | None:
    if given is None or given == "":
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        message = f"{name} is {given!r}, expected seconds from 0"
        raise ValueError(message)
    return seconds
