"""FlinklikeJobOperator: submits one job and waits for it, over worker losses, retries, clears, kills and deferral.

The job id is chosen here and stored in `task_state_store` before the submit, together with `max_tries`. A retry finds
it and adopts the job; a human's clear raises `max_tries`, so the old job is ended and a new one submitted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from airflow.sdk import BaseOperator, BaseOperatorLink, conf, timezone
from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_flinklike.client import FlinklikeClient, JobExecutionResult, JobState, new_job_id
from airflow_flinklike.exceptions import (
    FlinklikeClientError,
    JobCanceledError,
    JobConflictError,
    JobFailedError,
    JobNotFoundError,
)
from airflow_flinklike.hooks.flinklike import DEFAULT_CONN_ID, FlinklikeHook
from airflow_flinklike.links import FlinklikeJobLink
from airflow_flinklike.program import JobProgram
from airflow_flinklike.triggers.job import FlinklikeJobTrigger, JobEventReason, error_of_event
from runtime.common.ids import JobId
from runtime.common.states import JobStatus

if TYPE_CHECKING:
    from airflow.sdk import Context

STORE_KEY = "flinklike_job"
_DEFERRED_TIMEOUT_MARGIN = timedelta(minutes=5)
# Airflow follows a SIGTERM with a SIGKILL after five seconds.
_KILL_SECONDS = 3.0


class _Store(Protocol):
    def get(self, key: str) -> Any: ...

    def set(self, key: str, value: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class StoredJob:
    """What `task_state_store` holds: the job of this task, and which life of the task submitted it."""

    job_id: JobId
    max_tries: int

    @classmethod
    def read(cls, store: _Store) -> StoredJob | None:
        """The stored job, None when there is none or it is not readable."""
        value = store.get(STORE_KEY)
        if not isinstance(value, Mapping) or "job_id" not in value:
            return None
        return cls(JobId(str(value["job_id"])), int(value.get("max_tries", -1)))

    def write(self, store: _Store) -> None:
        """Store it, before the job is submitted."""
        store.set(STORE_KEY, {"job_id": self.job_id, "max_tries": self.max_tries})


class FlinklikeJobOperator(BaseOperator):
    """Base of all operators that run a job. Subclasses say what the job is.

    :param flinklike_conn_id: the connection to the cluster
    :param deferrable: wait in the triggerer instead of in a worker slot
    :param inline_seconds: how long to wait in the worker before deferring: small jobs never pay the hand-over
    :param durable: a retry adopts the job that an earlier try submitted
    :param cancel_on_kill: cancel the job when the task is killed, cleared or marked
    :param poll_interval: seconds of one long poll
    :param wait_for_completion: False: submit, return the job's id and leave the waiting to a FlinklikeJobSensor
    """

    operator_extra_links: Collection[BaseOperatorLink] = (FlinklikeJobLink(),)
    ui_color = "#e8f0fb"

    def __init__(
        self,
        *,
        flinklike_conn_id: str = DEFAULT_CONN_ID,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        inline_seconds: float = 5.0,
        durable: bool = True,
        cancel_on_kill: bool = True,
        poll_interval: float = 10.0,
        wait_for_completion: bool = True,
        **kwargs: Any,
    ) -> None:
        if poll_interval <= 0:
            message = f"poll_interval is {poll_interval:g}: it must be above 0"
            raise ValueError(message)
        super().__init__(**kwargs)
        self.flinklike_conn_id = flinklike_conn_id
        self.deferrable = deferrable
        self.inline_seconds = inline_seconds
        self.durable_job = durable
        self.cancel_on_kill = cancel_on_kill
        self.poll_interval = poll_interval
        self.wait_for_completion = wait_for_completion
        self._job_id: JobId | None = None
        self._is_killed = False

    def build_program(self, context: Context) -> JobProgram:
        """The job, built in the worker from rendered fields. Raises PipelineError."""
        raise NotImplementedError

    @property
    def hook(self) -> FlinklikeHook:
        """A hook on the task's connection."""
        return FlinklikeHook(self.flinklike_conn_id)

    def execute(self, context: Context) -> Any:
        """Adopt or submit, then wait or defer. Returns the job's value, or its id when nobody waits."""
        with self.hook.get_conn() as client:
            job_id = self._adopt_or_submit(context, client)
            if not self.wait_for_completion:
                return job_id
            if self.deferrable:
                result = client.result_within(job_id, wait=self.inline_seconds)
                if result is None:
                    self._defer(context, job_id)
            else:
                result = self._wait(client, job_id)
        assert result is not None
        return self._finish(result)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """The trigger has fired. Returns the job's value or raises what happened."""
        del context
        reason, job_id = JobEventReason(event["reason"]), JobId(event["job_id"])
        self._job_id = job_id
        match reason:
            case JobEventReason.FINISHED | JobEventReason.FAILED | JobEventReason.CANCELED:
                with self.hook.get_conn() as client:
                    return self._finish(client.wait_for_result(job_id))
            case JobEventReason.TIMEOUT:
                self.on_kill()
                message = f"job {job_id} was not over within execution_timeout {self.execution_timeout}"
                raise AirflowTaskTimeout(message)
            case _:
                raise error_of_event(event)

    def on_kill(self) -> None:
        """The task is being killed: cancel its job. Quick, idempotent, and with a client of its own."""
        self._is_killed = True
        if not self.cancel_on_kill or self._job_id is None:
            return
        try:
            with FlinklikeHook(self.flinklike_conn_id, retry_for=_KILL_SECONDS).get_conn() as client:
                client.cancel(self._job_id, timeout=_KILL_SECONDS / len(client.addresses))
            self.log.info("Job %s: cancellation requested, the task is being killed", self._job_id)
        except FlinklikeClientError as error:
            self.log.warning("Job %s could not be cancelled: %s", self._job_id, error)

    # --- which job ----------------------------------------------------------------------------------------

    def _adopt_or_submit(self, context: Context, client: FlinklikeClient) -> JobId:
        """The job of an earlier try of the same life of this task, when it runs or has finished; else a new one."""
        stored = StoredJob.read(context["task_state_store"]) if self.durable_job else None
        if stored is None:
            return self._submit(context, client, new_job_id())
        self._job_id = stored.job_id
        if stored.max_tries != _max_tries(context):
            self.log.info("The task was cleared: ending its job %s and submitting afresh", stored.job_id)
            self._end(client, stored.job_id)
            return self._submit(context, client, new_job_id())
        try:
            state = client.status(stored.job_id)
        except JobNotFoundError:
            # The try before died before its submit, or its request is still on the way: the same id settles it.
            self.log.info("The cluster does not know job %s: submitting it", stored.job_id)
            return self._submit(context, client, stored.job_id)
        if state.status in {JobStatus.FAILING, JobStatus.CANCELLING}:
            state = self._wait_for_end(client, stored.job_id)
        if state.status in {JobStatus.FAILED, JobStatus.CANCELED}:
            self.log.info("Job %s of an earlier try is %s: submitting afresh", stored.job_id, state.status.value)
            return self._submit(context, client, new_job_id())
        self.log.info("Adopting job %s of an earlier try: %s", stored.job_id, state.status.value)
        self._push_link(context, stored.job_id)
        return stored.job_id

    def _end(self, client: FlinklikeClient, job_id: JobId) -> None:
        """Wait for its end, so that the old and the new job never run at once; cancel it if that is wanted."""
        try:
            if self.cancel_on_kill:
                client.cancel(job_id)
            self._wait_for_end(client, job_id)
        except (JobNotFoundError, JobConflictError):
            return

    def _submit(self, context: Context, client: FlinklikeClient, job_id: JobId) -> JobId:
        program = self.build_program(context)
        self._job_id = job_id
        StoredJob(job_id, _max_tries(context)).write(context["task_state_store"])
        if self._is_killed:
            raise JobCanceledError(job_id)
        label = f"airflow {self.dag_id}.{self.task_id} {context['run_id']}"[:256]
        try:
            client.submit(program.graph, job_id=job_id, contents=program.uploads, client=label)
            self.log.info("Submitted job %s (%s) to %s", job_id, program.graph.name, client.addresses[0])
        except JobConflictError:
            # Nobody else knows this id: an earlier try's request arrived after all, with code pickled then.
            self.log.info("Adopting job %s, which an earlier try submitted", job_id)
        self._push_link(context, job_id)
        if self._must_cancel():
            self.on_kill()  # again: the first request may have overtaken the job
            raise JobCanceledError(job_id)
        return job_id

    def _must_cancel(self) -> bool:
        return self._is_killed and self.cancel_on_kill

    def _push_link(self, context: Context, job_id: JobId) -> None:
        """At once: Airflow itself stores links only at the end of a task."""
        url = self.hook.access().job_url(job_id)
        context["ti"].xcom_push(key=FlinklikeJobLink().xcom_key, value=url)
        context["ti"].xcom_push(key="job_id", value=job_id)

    # --- waiting ------------------------------------------------------------------------------------------

    def _wait(self, client: FlinklikeClient, job_id: JobId) -> JobExecutionResult:
        self._wait_for_end(client, job_id)
        return client.wait_for_result(job_id)

    def _wait_for_end(self, client: FlinklikeClient, job_id: JobId) -> JobState:
        seen: JobState | None = None
        while True:
            state = client.status(job_id, wait=self.poll_interval, since=seen.last_modification if seen else 0)
            if seen is None or (state.status, state.pending_reason) != (seen.status, seen.pending_reason):
                self.log.info("Job %s: %s %s", job_id, state.status.value, state.pending_reason)
            if state.status.is_globally_terminal:
                return state
            seen = state

    def _defer(self, context: Context, job_id: JobId) -> None:
        deadline, timeout = None, None
        if self.execution_timeout is not None:
            now = timezone.utcnow()
            deadline = (getattr(context["ti"], "start_date", None) or now) + self.execution_timeout
            timeout = max(deadline - now, timedelta(0)) + _DEFERRED_TIMEOUT_MARGIN
        self.defer(
            trigger=FlinklikeJobTrigger(
                job_id,
                self.flinklike_conn_id,
                cancel_on_kill=self.cancel_on_kill,
                deadline_millis=None if deadline is None else int(deadline.timestamp() * 1000),
                poll_interval=self.poll_interval,
            ),
            method_name="execute_complete",
            timeout=timeout,
        )

    def _finish(self, result: JobExecutionResult) -> Any:
        if result.status is JobStatus.FAILED:
            failure = JobFailedError(result.job_id, result.failure)
            self.log.error("Job %s FAILED: %s\n%s", result.job_id, failure.root_cause, failure.stack_trace)
        value = result.value_or_raise()
        self.log.info("Job %s FINISHED in %.3f s", result.job_id, result.net_runtime_millis / 1000)
        return value


def _max_tries(context: Context) -> int:
    """Constant over the retries of a task, raised when a person clears it."""
    return int(getattr(context["ti"], "max_tries", 0) or 0)
