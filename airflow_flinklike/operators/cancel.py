"""FlinklikeCancelOperator cancels jobs, and waits until they have ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_flinklike.airflow_options import configured, given_or_configured
from airflow_flinklike.airflow_version import AirflowFailException
from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.client.protocol import understood
from airflow_flinklike.exceptions import JobConflictError, JobNotFoundError
from airflow_flinklike.hooks.flinklike import DEFAULT_CONN_ID, FlinklikeHook
from airflow_flinklike.operators.fields import check_poll_interval
from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId, parse_job_id
from runtime.common.states import JobStatus

if TYPE_CHECKING:
    from airflow.sdk import Context

_NOTHING = frozenset({"", "None", "[]"})
"""Texts that a template renders when the task before has submitted nothing."""


class FlinklikeCancelOperator(BaseOperator):
    """Cancel jobs. The XCom maps each job id to the final state of the job.

    A job that has ended already stays as it is, so a repetition, or a use as teardown, does no harm.

    :param job_id: the job, or several: a list, a text with commas, the XComs of mapped tasks
    :param job_name: instead of `job_id`: every job of that name that has not ended
    :param missing_ok: False: fail when the cluster does not know a job
    :param wait_for_completion: False: only request the cancellation; `execution_timeout` bounds the wait
    :param flinklike_conn_id: the connection to the cluster
    """

    template_fields: Collection[str] = ("job_id", "job_name", "flinklike_conn_id")
    ui_color = "#fbe8e8"

    def __init__(
        self,
        *,
        job_id: str | Iterable[str] | None = None,
        job_name: str | None = None,
        missing_ok: bool = True,
        wait_for_completion: bool = True,
        poll_interval: float | None = None,
        flinklike_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job_id = job_id
        self.job_name = job_name
        self.missing_ok = missing_ok
        self.wait_for_completion = wait_for_completion
        self.poll_interval: float = given_or_configured("poll_interval", poll_interval)
        check_poll_interval(self.poll_interval)
        self.flinklike_conn_id = flinklike_conn_id

    def execute(self, context: Context) -> dict[str, str]:
        """Request all cancellations, then wait."""
        del context
        if (self.job_id is None) == (self.job_name is None):
            message = f"task {self.task_id!r}: give either job_id= or job_name="
            raise AirflowFailException(message)
        hook = FlinklikeHook(self.flinklike_conn_id, first_contact=configured("first_contact_timeout"))
        with hook.get_conn() as client:
            jobs = list(self._jobs(client))
            if not jobs:
                self.log.info("There is no job to cancel")
            asked = [job_id for job_id in jobs if self._cancel(client, job_id)]
            return {job_id: self._state_of(client, job_id).value for job_id in asked}

    def _jobs(self, client: FlinklikeClient) -> Iterator[JobId]:
        if self.job_name is not None:
            overview = client.get("/jobs/overview")
            with understood("/jobs/overview"):
                named = [one for one in overview["jobs"] if one["name"] == self.job_name]
                found = [parse_job_id(one["jid"]) for one in named if not JobStatus(one["state"]).is_globally_terminal]
            yield from found
            return
        given = self.job_id.split(",") if isinstance(self.job_id, str) else self.job_id or ()
        for text in given:
            if str(text).strip() in _NOTHING:
                continue
            try:
                yield parse_job_id(str(text).strip())
            except InvalidInputError as error:
                raise AirflowFailException(str(error)) from error

    def _cancel(self, client: FlinklikeClient, job_id: JobId) -> bool:
        """False when the cluster does not know the job."""
        try:
            client.cancel(job_id)
        except JobConflictError as error:
            self.log.info("Job %s: %s", job_id, error)
        except JobNotFoundError:
            if not self.missing_ok:
                raise
            self.log.info("The cluster does not know job %s", job_id)
            return False
        else:
            self.log.info("Job %s: cancellation requested", job_id)
        return True

    def _state_of(self, client: FlinklikeClient, job_id: JobId) -> JobStatus:
        state = client.status(job_id)
        while self.wait_for_completion and not state.status.is_globally_terminal:
            state = client.status(job_id, wait=self.poll_interval, since=state.last_modification)
        self.log.info("Job %s: %s", job_id, state.status.value)
        return state.status
