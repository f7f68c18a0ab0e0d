"""FlinklikeJobOperator submits one job and waits for it, over lost workers, retries, clears, kills and deferrals.

This module holds the methods that Airflow calls. adoption.py decides which job a try continues, job_run.py sends the
requests and waits, task_states.py finds why a task is killed, final_errors.py names the errors that are not retried.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from airflow.sdk import BaseOperatorLink

from airflow_flinklike.airflow_options import CONFIGURED, Configured, configured, given_or_configured
from airflow_flinklike.airflow_version import AirflowTaskTimeout, TaskDeferralError, TaskDeferralTimeout, conf, timezone
from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.exceptions import (
    FlinklikeClientError,
    JobCanceledError,
    PipelineError,
    WorkerStoppedError,
)
from airflow_flinklike.hooks.connection import ClusterAccess
from airflow_flinklike.hooks.flinklike import DEFAULT_CONN_ID, FlinklikeHook
from airflow_flinklike.links.job import FlinklikeJobLink
from airflow_flinklike.operators.calls import CallInterruptedError, InterruptibleCalls
from airflow_flinklike.operators.fields import check_not_negative, check_poll_interval, one_of
from airflow_flinklike.operators.final_errors import final_form, is_ruled
from airflow_flinklike.operators.job_run import JobRun, RunSettings
from airflow_flinklike.operators.reporting import ReportingOperator
from airflow_flinklike.operators.spark_parameters import Explanation
from airflow_flinklike.operators.tolerant import SparkSubmitTolerance, defaults_of
from airflow_flinklike.operators.upgrade import UpgradeSettings
from airflow_flinklike.task_instance.queue_place import place_of
from airflow_flinklike.task_instance.task_states import KillCause, TaskKey, worker_kill_cause
from airflow_flinklike.triggers.job import FlinklikeJobTrigger, JobEventReason, error_of_event
from runtime.common.ids import JobId
from runtime.common.states import JobStatus

if TYPE_CHECKING:
    from airflow.sdk import Context

T = TypeVar("T")

_DEFERRED_TIMEOUT_MARGIN = timedelta(minutes=5)
_SILENCE_SECONDS = 20.0
# Airflow follows a SIGTERM with a SIGKILL after five seconds. A kill has to be handled within them.
_ASK_SECONDS = 2.0
_KILL_SECONDS = 2.5
_TIMEOUT_SECONDS = 5.0


class FlinklikeJobOperator(SparkSubmitTolerance, ReportingOperator):
    """Base of all operators that run a job. A subclass builds the job.

    :param flinklike_conn_id: the connection to the cluster; conn_id is another name of this parameter. When
        `default_args` have both, flinklike_conn_id wins
    :param deferrable: wait in the triggerer instead of in a worker slot
    :param inline_timeout: seconds to wait in the worker before deferring, so that short jobs are not deferred
    :param durable: a retry adopts the job that an earlier try submitted; reconnect_on_retry is another name of this
        parameter
    :param cancel_on_kill: cancel the job when a user marks or clears the task
    :param orphan_timeout: when the worker stops, the cluster cancels the job after so many seconds, unless the next
        try has adopted it; None: never
    :param poll_interval: seconds of one long poll; its default, and those of the parameters above, are those of section
        `[flinklike]` in airflow.cfg
    :param namespace: the namespace of the job; default that of the connection, else that of its token
    :param slot_queue: the queue in which the job waits for slots; default that of the DAG's team, else of the token.
        The task's effective `priority_weight` is the job's priority there
    :param wait_for_completion: False: submit, return the job's id and leave the waiting to a FlinklikeJobSensor
    :param wait_for: 'end', the default, or 'running': return the job's id when all its tasks run, for jobs that do not
        end; streaming queries run from the end of their first trigger on. A job that fails before that fails the task
    :param ensure_running: all runs of the task have one job: a run that finds it running leaves it as it is, any other
        submits it; it waits for 'running'. Streaming queries whose code has changed are stopped with a savepoint, from
        which a new job goes on. Marks, clears and timeouts of the task leave the job alone
    """

    operator_extra_links: Collection[BaseOperatorLink] = (FlinklikeJobLink(),)
    ui_color = "#e8f0fb"
    is_repeated = False
    """True: each call runs a job of its own, which no later call adopts."""

    def __init__(
        self,
        *,
        flinklike_conn_id: str | None = None,
        conn_id: str | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        inline_timeout: float | timedelta | None = None,
        durable: bool | None = None,
        reconnect_on_retry: bool | None = None,
        cancel_on_kill: bool | None = None,
        orphan_timeout: float | timedelta | Configured | None = CONFIGURED,
        poll_interval: float | None = None,
        wait_for_completion: bool = True,
        wait_for: str | None = None,
        ensure_running: bool = False,
        namespace: str = "",
        slot_queue: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        task_id, defaults = self.task_id, defaults_of(kwargs)
        given = one_of(task_id, defaults, flinklike_conn_id=flinklike_conn_id, conn_id=conn_id)
        self.flinklike_conn_id = given or DEFAULT_CONN_ID
        if None not in {flinklike_conn_id, conn_id}:
            text = f"flinklike_conn_id is {flinklike_conn_id!r} and conn_id is {conn_id!r}: the task uses {given!r}"
            self.tell_when_executed(Explanation(text))
        self.deferrable = deferrable
        self.inline_timeout: float | timedelta = given_or_configured("inline_timeout", inline_timeout)
        adopts = one_of(task_id, defaults, durable=durable, reconnect_on_retry=reconnect_on_retry)
        self.durable_job: bool = given_or_configured("durable", adopts)
        self.cancel_on_kill: bool = given_or_configured("cancel_on_kill", cancel_on_kill)
        self.orphan_timeout: float | timedelta | None = given_or_configured("orphan_timeout", orphan_timeout)
        self.poll_interval: float = given_or_configured("poll_interval", poll_interval)
        check_poll_interval(self.poll_interval)
        check_not_negative(inline_timeout=self.inline_timeout, orphan_timeout=self.orphan_timeout)
        self.wait_for_completion = wait_for_completion
        self.wait_for = wait_for or ("running" if ensure_running else "end")
        self.ensure_running = ensure_running
        self._check_waiting()
        self.namespace = namespace
        self.slot_queue = slot_queue
        self._calls: InterruptibleCalls | None = None
        self._is_killed_early = False
        self._has_contact = False
        self.default_conf: Mapping[str, str] = {}
        """The default Spark conf of the connection, known while the task is executed."""

    def _check_waiting(self) -> None:
        """Raises PipelineError, when the DAG is parsed, for parameters of waiting that contradict each other."""
        if self.wait_for not in {"end", "running"}:
            message = f"task {self.task_id!r}: wait_for is {self.wait_for!r}, expected 'end' or 'running'"
        elif self.wait_for == "running" and not self.wait_for_completion:
            message = f"task {self.task_id!r}: wait_for='running' waits, and wait_for_completion=False does not"
        elif self.ensure_running and (self.wait_for != "running" or self.is_repeated):
            message = f"task {self.task_id!r}: ensure_running waits until the job runs, not for its end"
        else:
            return
        raise PipelineError(message)

    @abstractmethod
    def build_program(self, context: Context) -> JobProgram:
        """Build the job in the worker, from rendered fields. Raises PipelineError."""

    def upgrade_settings(self) -> UpgradeSettings:
        """How `ensure_running` replaces a job whose code has changed. A subclass has parameters for it."""
        return UpgradeSettings()

    @property
    def waits_for_value(self) -> bool:
        """False if the task returns the id of a job that goes on."""
        return self.wait_for_completion and self.wait_for == "end"

    @property
    def hook(self) -> FlinklikeHook:
        """A hook on the task's connection. It retries a cluster that does not answer until the task's own timeout.

        Until the cluster has answered once, or a job of the task is known, it does so for `first_contact_timeout` only.
        """
        timeout = self.execution_timeout
        return FlinklikeHook(
            self.flinklike_conn_id,
            retry_for=configured("retry_for") if timeout is None else timeout.total_seconds(),
            first_contact=configured("first_contact_timeout"),
        )

    # --- what Airflow calls -------------------------------------------------------------------------------

    def execute(self, context: Context) -> Any:
        """Adopt or submit, then wait or defer. Returns the job's value, or its id if it does not wait for the end."""
        self.explain()
        return self.run_job(context)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Go on after the trigger has fired. Returns the job's value, or raises the job's or the trigger's error."""
        reason = JobEventReason(event["reason"])

        def complete(run: JobRun) -> Any:
            run.take_up(JobId(event["job_id"]))
            if reason is JobEventReason.TIMEOUT:
                raise AirflowTaskTimeout
            if reason not in _ENDS:
                raise error_of_event(event)
            assert run.job_id is not None
            if self.wait_for == "running":
                return self._start_of(context, run, run.job_id, has_failed=reason in _FAILURES)
            result = run.wait(run.job_id)
            assert result is not None
            return self.value_of(context, run.client, run.access, result)

        return self._guarded(context, complete, bookmark=event.get("bookmark"))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """A deferral that timed out, as no triggerer took the trigger, cancels the job; a failed one leaves it."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except (TaskDeferralTimeout, TaskDeferralError) as error:
            failure = error

        def failed(run: JobRun) -> NoReturn:
            if (stored := run.stored()) is not None:
                run.take_up(stored.job_id)
            if isinstance(failure, TaskDeferralTimeout):
                raise AirflowTaskTimeout
            raise failure

        return self._guarded(context, failed)

    def on_kill(self) -> None:
        """Airflow kills the task. In a signal handler, it only interrupts the wait, which then finds the cause."""
        if self._calls is None:
            self._is_killed_early = True
        else:
            self._calls.interrupt()

    def run_job(self, context: Context) -> Any:
        """Run the job, or adopt it, in this execution."""
        return self._guarded(context, lambda run: self._execute(context, run))

    # --- one execution ------------------------------------------------------------------------------------

    def _guarded(
        self, context: Context, work: Callable[[JobRun], T], *, bookmark: Mapping[str, Any] | None = None
    ) -> T:
        """Do the work. When the task is killed or its time is over, cancel the job or leave it to the next try."""
        calls = InterruptibleCalls(silence=self.poll_interval + _SILENCE_SECONDS, on_silence=self._tell_silence)
        self._calls = calls
        if self._is_killed_early:
            calls.interrupt()
        try:
            hook = self.hook
            access = hook.access()
            with hook.connect(access) as client:
                client.contact.is_made |= self._has_contact
                try:
                    return self._worked(context, self._run(context, access, client, calls, bookmark), work)
                finally:
                    self._has_contact = client.contact.is_made
        except FlinklikeClientError as error:
            final = final_form(error)
            if final is None or is_ruled(error, getattr(self, "retry_policy", None), context):
                raise
            raise final from error

    def _tell_silence(self, seconds: float) -> None:
        self.log.warning("No answer of the cluster for %.0f s: it is asked again", seconds)

    def _run(
        self,
        context: Context,
        access: ClusterAccess,
        client: FlinklikeClient,
        calls: InterruptibleCalls,
        bookmark: Mapping[str, Any] | None,
    ) -> JobRun:
        orphan = None if self.orphan_timeout is None else timedelta(seconds=_seconds(self.orphan_timeout))
        settings = RunSettings(
            self.durable_job and not self.is_repeated,
            self.cancel_on_kill and not self.ensure_running,
            self.poll_interval,
            None if self.ensure_running else orphan,
            self.flinklike_conn_id,
            self.namespace,
            self.is_repeated,
            self.ensure_running,
            self.upgrade_settings(),
            place_of(self, context, self.slot_queue),
        )
        self.default_conf = access.conf
        observer = self.make_observer(access, bookmark)
        return JobRun(context, client, access, calls, settings, observer=observer, log=self.log)

    def _worked(self, context: Context, run: JobRun, work: Callable[[JobRun], T]) -> T:
        try:
            try:
                return work(run)
            except CallInterruptedError:
                self._killed(context, run)
        except AirflowTaskTimeout as error:
            raise AirflowTaskTimeout(self._timed_out(run)) from error
        except (WorkerStoppedError, JobCanceledError):
            raise
        except (Exception, KeyboardInterrupt, SystemExit):
            if run.is_begun:
                run.leave(seconds=_KILL_SECONDS)
            raise

    def _execute(self, context: Context, run: JobRun) -> Any:
        key = TaskKey.of(context["ti"])
        label = f"airflow {key.dag_id}.{key.label} {key.run_id}"[:256]
        job_id = run.begin(lambda: self.with_lineage(self.build_program(context), context), label=label)
        self.tell_job(context, run.access, job_id)
        if not self.wait_for_completion:
            return job_id
        seconds = _seconds(self.inline_timeout) if self.deferrable else None
        if self.wait_for == "running":
            state = run.wait_for_start(job_id, seconds)
            if state is None:
                self._defer(context, run)
            return self._start_of(context, run, job_id, has_failed=state.status in _FAILED)
        result = run.wait(job_id, seconds)
        if result is None:
            self._defer(context, run)
        return self.value_of(context, run.client, run.access, result)

    def _start_of(self, context: Context, run: JobRun, job_id: JobId, *, has_failed: bool) -> JobId:
        """The id of a job that runs, or has FINISHED. Raises JobFailedError, JobCanceledError."""
        if has_failed:
            result = run.wait(job_id)
            assert result is not None
            self.value_of(context, run.client, run.access, result)
        self.log.info("All tasks of job %s run: the job goes on, and the task is done", job_id)
        return job_id

    def _defer(self, context: Context, run: JobRun, *, must_insist: bool = False) -> NoReturn:
        assert run.job_id is not None
        deadline, timeout = None, None
        if self.execution_timeout is not None:
            now = timezone.utcnow()
            deadline = (getattr(context["ti"], "start_date", None) or now) + self.execution_timeout
            timeout = max(deadline - now, timedelta(0)) + _DEFERRED_TIMEOUT_MARGIN
        self.defer(
            trigger=FlinklikeJobTrigger(
                run.job_id,
                self.flinklike_conn_id,
                cancel_on_kill=run.settings.may_cancel,
                deadline_millis=None if deadline is None else int(deadline.timestamp() * 1000),
                poll_interval=self.poll_interval,
                insist_interval=run.settings.insist_seconds if must_insist else run.insist_interval,
                bookmark=run.observer.bookmark(),
                until_running=self.wait_for == "running",
            ),
            method_name="execute_complete",
            timeout=timeout,
        )

    # --- kills and timeouts -------------------------------------------------------------------------------

    def _killed(self, context: Context, run: JobRun) -> NoReturn:
        """Cancel the job when a user wants that; leave it to the next try when only this process stops."""
        if run.job_id is None:
            message = "the task was killed before it had a job"
            raise WorkerStoppedError(message)
        cause = self._kill_cause(context, run)
        if cause is KillCause.USER:
            if run.settings.may_cancel:
                self.log.info("The task was marked or cleared: job %s ends", run.job_id)
                run.cancel(seconds=_KILL_SECONDS)
            raise JobCanceledError(run.job_id)
        is_watched = cause is not KillCause.SUPERSEDED and run.leave(seconds=_KILL_SECONDS)
        has_arrived = run.is_begun or (run.is_own and is_watched)
        if cause is KillCause.PROCESS and self.deferrable and has_arrived and self.wait_for_completion:
            self.log.info("The worker of the task goes away: deferring now")
            if not run.is_begun:
                self.tell_job(context, run.access, run.take_up(run.job_id))
            self._defer(context, run, must_insist=is_watched)
        message = f"the worker of the task goes away while job {run.job_id} goes on: the next try adopts it"
        raise WorkerStoppedError(message)

    def _kill_cause(self, context: Context, run: JobRun) -> KillCause:
        task = TaskKey.of(context["ti"])

        def ask() -> KillCause:
            cause = worker_kill_cause(task, task.ask())
            return KillCause.SUPERSEDED if cause is KillCause.PROCESS and run.is_superseded() else cause

        try:
            return InterruptibleCalls().run(ask, timeout=_ASK_SECONDS)
        except Exception as error:  # noqa: BLE001 - any error means that there is no answer
            self.log.warning("Airflow does not say why the task is killed (%s): its job is left alone", error)
            return KillCause.UNKNOWN

    def _timed_out(self, run: JobRun) -> str:
        """Cancel the job, unless other runs share it. Returns the message of the timeout."""
        if self.ensure_running:
            return f"execution_timeout {self.execution_timeout} is over: job {run.job_id} does not run yet, and is kept"
        return f"execution_timeout {self.execution_timeout} is over: {run.cancel(seconds=_TIMEOUT_SECONDS)}"


_FAILURES = frozenset({JobEventReason.FAILED, JobEventReason.CANCELED})
_ENDS = _FAILURES | {JobEventReason.FINISHED, JobEventReason.RUNNING}
_FAILED = frozenset({JobStatus.FAILED, JobStatus.CANCELED})


def _seconds(value: float | timedelta) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else float(value)
