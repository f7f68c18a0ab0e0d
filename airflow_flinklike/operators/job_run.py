"""JobRun: one execution of a task in a worker, and its job.

All requests are InterruptibleCalls. A cancel and a promise of a heartbeat use a client of their own and a time limit,
since a SIGKILL may follow, and the other client may be waiting for a cluster.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_flinklike.airflow_version import timezone
from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.client import FlinklikeClient, JobExecutionResult, JobState, QueuePlace, new_job_id
from airflow_flinklike.exceptions import (
    AuthenticationError,
    ClusterUnavailableError,
    FlinklikeClientError,
    JobConflictError,
    JobNotFoundError,
    JobRefusedError,
)
from airflow_flinklike.hooks.connection import ClusterAccess
from airflow_flinklike.operators.adoption import (
    Adopt,
    EndThenSubmit,
    SharedTask,
    Submit,
    TakeResult,
    TaskLife,
    decide,
    number_after,
)
from airflow_flinklike.operators.calls import InterruptibleCalls
from airflow_flinklike.operators.upgrade import (
    UpgradeSettings,
    is_outdated,
    keeps_state,
    label_with_code,
    misfit,
    origin_of,
    stop_for_upgrade,
    upgraded,
)
from airflow_flinklike.task_instance.job_store import job_store
from airflow_flinklike.task_instance.observation import JobObserver, Log
from airflow_flinklike.task_instance.stored_job import STORE_KEY, StoredJob, parse_stored
from airflow_flinklike.task_instance.task_states import TaskKey
from airflow_flinklike.task_instance.tracing import current_traceparent
from airflow_flinklike.triggers.conditions import START_LOOK_SECONDS, have_all_started
from runtime.common.ids import JobId
from runtime.common.states import JobStatus

if TYPE_CHECKING:
    from airflow.sdk import Context

_NUMBER_DIGITS = 15
_INSIST_SECONDS_MAX = 60.0
"""The interval of heartbeats for an adopted job; a third of a shorter `orphan_timeout` (D-035)."""
_FIRST_LOOK_SECONDS = 1.0
"""The first look asks for the result, so that a short job costs one request after its submit."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of the operator for waiting and ending."""

    is_durable: bool
    may_cancel: bool
    poll_interval: float
    orphan_timeout: timedelta | None
    conn_id: str
    namespace: str = ""
    is_repeated: bool = False
    """Each execution may run several jobs, one after the other, and none of them is adopted."""
    is_shared: bool = False
    """All runs of the task have one job: it is found by the ids of SharedTask, and nothing that ends a run ends it."""
    upgrade: UpgradeSettings = field(default_factory=UpgradeSettings)
    """How the one job of all runs is replaced when its code has changed."""
    place: QueuePlace = field(default_factory=QueuePlace)

    @property
    def insist_seconds(self) -> float:
        """The interval of heartbeats for an adopted job."""
        if self.orphan_timeout is None:
            return _INSIST_SECONDS_MAX
        return min(_INSIST_SECONDS_MAX, max(1.0, self.orphan_timeout.total_seconds() / 3))


class JobRun:
    """The job of one execution: it finds or submits the job, waits for it, and ends it. For the main thread only."""

    def __init__(
        self,
        context: Context,
        client: FlinklikeClient,
        access: ClusterAccess,
        calls: InterruptibleCalls,
        settings: RunSettings,
        *,
        observer: JobObserver,
        log: Log,
    ) -> None:
        self.job_id: JobId | None = None
        self._number = 0
        """The stored or chosen job, set before the job may have to be ended."""
        self.is_own = False
        """This try has stored the job's id and submits the job. A kill may come before the cluster's answer."""
        self.is_begun = False
        """The cluster has the job, and this task waits for it."""
        self.is_over = False
        """This execution has seen the end of the job."""
        self.observer = observer
        self._store, self._outlives_tries = job_store(context)
        self._max_tries = max_tries_of(context)
        self._try_number = int(getattr(context["ti"], "try_number", 1) or 1)
        self._life = life_of(context)
        self._context_carrier = getattr(context["ti"], "context_carrier", None)
        self._shared = shared_task_of(context)
        self._run_started = "" if self._life is None else self._life.run_started
        self.client = client
        self.access = access
        self._calls = calls
        self.settings = settings
        self._log = log
        self._said_here_at: datetime | None = None
        self._is_sent = threading.Event()
        self._is_sent.set()

    # --- which job ----------------------------------------------------------------------------------------

    def begin(self, build: Callable[[], JobProgram], *, label: str) -> JobId:
        """Adopt the job of an earlier try of this life of the task, or submit one."""
        if self.settings.is_shared:
            return self._begin_shared(build, label)
        stored, observed = self._found() if self.settings.is_durable else (None, None)
        decision = decide(stored, observed, self._max_tries, self._run_started)
        while True:
            match decision:
                case Adopt(job_id) if self._adopt(job_id):
                    return self._take_over(job_id)
                case TakeResult(job_id):
                    self._log.info("Job %s of an earlier try has FINISHED: taking its result", job_id)
                    return self._take_over(job_id)
                case Submit(job_id):
                    return self.take_up(self._submit(job_id or self._fresh_id(stored), build, label))
                case EndThenSubmit(job_id):
                    self.job_id = job_id
                    observed = self._see_end(decision)
                case Adopt(job_id):
                    observed = self._status(job_id)
            decision = decide(stored, observed, self._max_tries, self._run_started)

    def _begin_shared(self, build: Callable[[], JobProgram], label: str) -> JobId:
        """Take up the job that a run of the task has submitted, if it has not ended; else submit the next one.

        A job of streaming queries, or a streaming script, whose code is another one than that of this run is stopped
        with a savepoint, from which the next one goes on.
        """
        numbers, program = self._shared.numbers(), build()
        label = label_with_code(label, program)
        while True:
            states = self._calls.run(lambda: self.client.states(numbers))
            alive = [job_id for job_id, status in states.items() if not status.is_globally_terminal]
            if not alive:
                break
            job_id = alive[0]
            status = self._status(job_id)
            if status is None or status.is_globally_terminal:
                continue  # it has ended since
            if status in {JobStatus.FAILING, JobStatus.CANCELLING}:
                self._log.info("Job %s of this task is ending: another one follows it", job_id)
                self._wait_for_end(job_id)
            elif not self._is_to_be_replaced(job_id, program, label):
                self._number = numbers[job_id]
                self._keep(job_id)
                self._log.info("Job %s runs already: %s", job_id, self.access.job_url(job_id))
                return self.take_up(job_id)
            else:
                self._refuse_misfit(job_id, program)
                self._log.info("Job %s has another code than this run: it is stopped with a savepoint", job_id)
                location = self._calls.run(lambda: self.client.run(stop_for_upgrade(job_id, self.settings.upgrade)))  # noqa: B023 - it ends before
                self._log.info("Job %s was stopped with savepoint %s", job_id, location)
        number = number_after({numbers[job_id] for job_id in states})
        if number is None:
            message = f"the cluster knows {len(states)} ended jobs of this task, so it has no id left: rename the task"
            raise JobRefusedError(message)
        self._number = number
        program = self._going_on(program, number, states) if keeps_state(program) else program
        return self.take_up(self._submit(self._shared.job_id_of(number), lambda: program, label))

    def _refuse_misfit(self, job_id: JobId, program: JobProgram) -> None:
        """Raises JobRefusedError before the job is stopped for one that could not go on from its savepoint."""
        upgrade = self.settings.upgrade
        if problem := self._calls.run(lambda: self.client.run(misfit(job_id, program, upgrade))):
            message = f"{problem}. Job {job_id} runs on with the code that it has"
            raise JobRefusedError(message)

    def _is_to_be_replaced(self, job_id: JobId, program: JobProgram, label: str) -> bool:
        is_outdated, can_go_on = self._is_outdated(job_id, label), keeps_state(program)
        if is_outdated and not can_go_on:
            self._log.warning(
                "Job %s has another code than this run, and runs on with it: it has no streaming queries that could go "
                "on from a savepoint. Cancel it, and the next run submits the new code",
                job_id,
            )
        return is_outdated and can_go_on

    def _is_outdated(self, job_id: JobId, label: str) -> bool:
        found = self._calls.run(lambda: self.client.run(is_outdated(job_id, label)))
        if found is None:
            self._log.info("Job %s does not say which code it has: it is left as it is", job_id)
        return bool(found)

    def _going_on(self, program: JobProgram, number: int, states: Mapping[JobId, JobStatus]) -> JobProgram:
        """The job, from the savepoint of the one before it, if an upgrade has stopped that."""
        ids = {number: job_id for job_id, number in self._shared.numbers().items()}
        location = self._calls.run(lambda: self.client.run(origin_of(number, ids, states)))
        if location:
            self._log.info("It goes on from savepoint %s, with which an upgrade has stopped a job before", location)
        return upgraded(program, location, self.settings.upgrade)

    @property
    def is_adopted(self) -> bool:
        """True when an earlier try may have promised the cluster a heartbeat, or may still do so (D-035)."""
        return self._said_here_at is not None

    def take_up(self, job_id: JobId) -> JobId:
        """From here on the job belongs to this task, which ends it or leaves it to the next try."""
        self.job_id = job_id
        self.is_begun = True
        self.client.contact.is_made = True
        return job_id

    def _adopt(self, job_id: JobId) -> bool:
        """Withdraw the promise of a heartbeat. False when the job has ended or is being cancelled meanwhile."""
        self.job_id = job_id
        try:
            self._calls.run(lambda: self.client.heartbeat(job_id, 0))
        except (JobConflictError, JobNotFoundError):
            return False
        self._said_here_at = timezone.utcnow()
        self._log.info("Adopting job %s of an earlier try: %s", job_id, self.access.job_url(job_id))
        return True

    @property
    def insist_interval(self) -> float | None:
        """The interval of heartbeats while this task waits; None for a job without a promise."""
        return self.settings.insist_seconds if self.is_adopted else None

    def is_superseded(self) -> bool:
        """True when another try has the task: then Airflow's server gives this try no access to the store."""
        return self.is_begun and parse_stored(self._store.get(STORE_KEY)) is None

    def stored(self) -> StoredJob | None:
        """The job that an earlier try has stored."""
        try:
            value = self._store.get(STORE_KEY)
        except AirflowRuntimeError as error:
            if not is_unreadable(error):
                raise
            value = f"unreadable: {error}"
        stored = parse_stored(value)
        if stored is None and value is not None:
            self._log.warning("The task's stored %s names no job: %.200r. It is not used", STORE_KEY, value)
        return stored

    def _found(self) -> tuple[StoredJob | None, JobStatus | None]:
        """The job of an earlier try, and its state. Without a stored id, the ids that tries choose find the job."""
        stored = self.stored() if self._outlives_tries else None
        if stored is not None:
            self.job_id = stored.job_id
            if not stored.is_unanswered:
                self.client.contact.is_made = True
            return stored, self._status(stored.job_id)
        found = self._found_by_id()
        if found is None:
            return None, None
        self.job_id = found.job_id
        observed = self._status(found.job_id)  # once more: it refuses a job that somebody else has under this id
        self._log.info("Found job %s of an earlier try, which the task's store does not have", found.job_id)
        return found, observed

    def _found_by_id(self) -> StoredJob | None:
        """The newest job of this life that the cluster knows; else one of an earlier life that has not ended."""
        if self._life is None:
            return None
        jobs = self._life.earlier_jobs(self._try_number, has_lives_before=not self._outlives_tries)
        by_id = {one.job_id: one for one in jobs}
        if not by_id:
            return None
        states = self._calls.run(lambda: self.client.states(by_id))
        for job_id, one in by_id.items():
            is_of_life = one.is_of(self._max_tries, self._run_started)
            if job_id in states and (is_of_life or not states[job_id].is_globally_terminal):
                return one
        return None

    def _fresh_id(self, stored: StoredJob | None) -> JobId:
        if self._life is None:
            return new_job_id()
        if self.settings.is_repeated:
            return self._random_id(self._life)
        if not self.settings.is_durable:
            return self._life.job_id_of(self._try_number)
        ended = None
        if stored is not None and stored.is_of(self._max_tries, self._run_started):
            ended = stored.job_id
        return self._life.id_after(ended, self._try_number) or self._random_id(self._life)

    def _random_id(self, life: TaskLife) -> JobId:
        """An id that no other job has, and that says all the same whose it is (D-117)."""
        self._number = int(new_job_id()[:_NUMBER_DIGITS], 16)
        return life.job_id_of(self._number)

    def _take_over(self, job_id: JobId) -> JobId:
        """Take up the job of an earlier try."""
        if not self._outlives_tries:
            self._keep(job_id)
        return self.take_up(job_id)

    def _keep(self, job_id: JobId, *, is_unanswered: bool = False) -> None:
        """Store the job for later tries, and for the listener."""
        stored = StoredJob(
            job_id,
            self._max_tries,
            self._run_started,
            self.settings.conn_id,
            self.settings.may_cancel,
            is_unanswered,
            outlives_task=self.settings.orphan_timeout is None,
            number=self._number_of(job_id),
        )
        self._store.set(STORE_KEY, stored.to_json())

    def _number_of(self, job_id: JobId) -> int | None:
        if not self._number:
            return None
        ids = {one.job_id_of(self._number) for one in (self._shared, self._life) if one is not None}
        return self._number if job_id in ids else None

    def _status(self, job_id: JobId) -> JobStatus | None:
        try:
            found = self._calls.run(lambda: self.client.status(job_id))
        except JobNotFoundError:
            self._log.info("The cluster does not know job %s of an earlier try", job_id)
            return None
        if not found.is_own:
            # Ids can be guessed: another principal's job under this id is not the job of this task.
            message = f"job {job_id}, which an earlier try of this task would have, was submitted by somebody else"
            raise AuthenticationError(message)
        return found.status

    def _see_end(self, decision: EndThenSubmit) -> JobStatus | None:
        job_id = decision.job_id
        try:
            if decision.is_cleared:
                self._log.info("The task was cleared: its job %s ends before a new one is submitted", job_id)
            if decision.is_cleared and self.settings.may_cancel:
                with suppress(JobConflictError):  # it has ended, or its outputs become visible
                    self._calls.run(lambda: self.client.cancel(job_id))
            state = self._wait_for_end(job_id)
        except JobConflictError:
            return self._status(job_id)
        except JobNotFoundError:
            return None
        assert state is not None
        return state.status

    def _submit(self, job_id: JobId, build: Callable[[], JobProgram], label: str) -> JobId:
        program = build()
        self._calls.check()
        self.job_id = job_id
        self._keep(job_id)
        self.is_own = True
        self._is_sent.clear()
        try:
            traceparent = current_traceparent(self._context_carrier)  # of this thread
            self._calls.run(lambda: self._send(job_id, program, label, traceparent))
        except ClusterUnavailableError:
            if not self.client.contact.is_made:  # the next try has no reason to wait for longer
                self._keep(job_id, is_unanswered=True)
            raise
        except JobConflictError:
            if self._status(job_id) is None:
                raise  # it is in the way of another job, not of one with its id
            # An earlier try's request has arrived after all, with the code that it had pickled.
            page = self.access.job_url(job_id)
            self._log.info("Adopting job %s, which an earlier try submitted: %s", job_id, page)
            self._said_here_at = datetime.min.replace(tzinfo=UTC)
        else:
            page = self.access.job_url(job_id)
            self._log.info("Submitted job %s (%s): %s", job_id, program.graph.name, page)
        return job_id

    def _send(self, job_id: JobId, program: JobProgram, label: str, traceparent: str) -> None:
        try:
            namespace = self.settings.namespace or self.access.namespace
            submitted = self.client.submit(
                program.graph,
                job_id=job_id,
                contents=program.uploads,
                client=label,
                namespace=namespace,
                place=self.settings.place,
                traceparent=traceparent,
            )
            for warning in submitted.warnings:
                self._log.warning("%s", warning)
        finally:
            self._is_sent.set()

    # --- waiting ------------------------------------------------------------------------------------------

    def wait(self, job_id: JobId, seconds: float | None = None) -> JobExecutionResult | None:
        """The result of the job; None when it has not ended within `seconds`."""
        until = None if seconds is None else timezone.utcnow() + timedelta(seconds=seconds)
        first = _FIRST_LOOK_SECONDS if seconds is None else min(seconds, _FIRST_LOOK_SECONDS)
        found = self._calls.run(lambda: self._first_look(job_id, first))
        if found is None and self._wait_for_end(job_id, until) is not None:
            return self._calls.run(lambda: self.client.wait_for_result(job_id))
        return found

    def wait_for_start(self, job_id: JobId, seconds: float | None = None) -> JobState | None:
        """The state of the job once all its tasks run or have finished, or it has ended; None after `seconds`."""
        until = None if seconds is None else timezone.utcnow() + timedelta(seconds=seconds)
        since, is_running = 0, False
        while (wait := self._look_seconds(until)) is not None:
            wait = min(wait, START_LOOK_SECONDS) if is_running else wait
            state = self._calls.run(functools.partial(self._look, job_id, wait, since))
            if state.status.is_globally_terminal or self._calls.run(functools.partial(self._has_started, state)):
                return state
            since = state.last_modification
            is_running = state.status is JobStatus.RUNNING
        return None

    def _has_started(self, state: JobState) -> bool:
        return state.status is JobStatus.RUNNING and self.client.run(have_all_started(state.job_id))

    def _first_look(self, job_id: JobId, wait: float) -> JobExecutionResult | None:
        found = self.client.result_within(job_id, wait=wait)
        if found is not None:
            self.is_over = True
            self.observer.observe(self.client, JobState(job_id, found.status, 0, ""))
        return found

    def _wait_for_end(self, job_id: JobId, until: datetime | None = None) -> JobState | None:
        since = 0
        while True:
            wait = self._look_seconds(until)
            if wait is None:
                return None
            state = self._calls.run(functools.partial(self._look, job_id, wait, since))
            if state.status.is_globally_terminal:
                return state
            since = state.last_modification

    def _look_seconds(self, until: datetime | None) -> float | None:
        longest = min(self.settings.poll_interval, self.observer.interval)
        if self.is_adopted:
            longest = min(longest, self._seconds_to_insist())
        if until is None:
            return longest
        remaining = (until - timezone.utcnow()).total_seconds()
        return min(longest, remaining) if remaining > 0 else None

    def _look(self, job_id: JobId, wait: float, since: int) -> JobState:
        self._insist_on_being_here(job_id)
        state = self.client.status(job_id, wait=wait, since=since)
        self.is_over = state.status.is_globally_terminal and self.is_begun
        self.observer.observe(self.client, state)
        return state

    def _insist_on_being_here(self, job_id: JobId) -> None:
        """Withdraw the promise again now and then, since one of the try before may arrive late."""
        if self._seconds_to_insist() > 0:
            return
        self._said_here_at = timezone.utcnow()
        with suppress(JobConflictError, JobNotFoundError):
            self.client.heartbeat(job_id, 0)

    def _seconds_to_insist(self) -> float:
        """Seconds until the next heartbeat."""
        if self._said_here_at is None:
            return math.inf
        return max(0.0, self.settings.insist_seconds - (timezone.utcnow() - self._said_here_at).total_seconds())

    # --- ending -------------------------------------------------------------------------------------------

    def cancel(self, *, seconds: float) -> str:
        """Ask the cluster to cancel the job. Returns the outcome as a phrase for the log."""
        job_id = self.job_id
        if job_id is None:
            return "there is no job"
        try:
            self._apart(lambda client: client.cancel(job_id), seconds)
        except JobNotFoundError:
            self._log.info("The cluster does not know job %s", job_id)
            return f"job {job_id} is not known"
        except JobConflictError:
            self._log.info("Job %s has ended already, or only its outputs are left to become visible", job_id)
            return f"job {job_id} has ended"
        except (FlinklikeClientError, TimeoutError) as error:
            self._log.warning("Job %s could not be cancelled: %s", job_id, error)
            return f"job {job_id} could not be cancelled"
        self._log.info("Job %s: cancellation requested", job_id)
        return f"job {job_id} was cancelled"

    def leave(self, *, seconds: float) -> bool:
        """Leave the job to the next try: the cluster cancels it unless a try adopts it. True when the cluster knows."""
        job_id, timeout = self.job_id, self.settings.orphan_timeout
        if job_id is None or self.is_over or timeout is None or not self.settings.may_cancel:
            return False
        expires = int((timezone.utcnow() + timeout).timestamp() * 1000)
        try:
            self._apart(lambda client: client.heartbeat(job_id, expires), seconds)
        except (JobConflictError, JobNotFoundError):
            return False
        except (FlinklikeClientError, TimeoutError) as error:
            self._log.warning("Job %s goes on, and the cluster could not be told to watch for us: %s", job_id, error)
            return False
        self._log.info("Job %s goes on; it is cancelled unless a try adopts it within %s", job_id, timeout)
        return True

    def _apart(self, request: Callable[[FlinklikeClient], None], seconds: float) -> None:
        access = self.access
        client = FlinklikeClient(access.addresses, access.credential, retry_for=seconds, tls=access.tls)
        with client:
            InterruptibleCalls().run(lambda: self._not_overtaking(request, client), timeout=seconds)

    def _not_overtaking(self, request: Callable[[FlinklikeClient], None], client: FlinklikeClient) -> None:
        """Send a request about a job whose submit may be under way. A request that has overtaken it is repeated."""
        was_sent = self._is_sent.is_set()
        try:
            request(client)
        except JobNotFoundError:
            if was_sent:
                raise
            self._is_sent.wait()
            request(client)


def is_unreadable(error: AirflowRuntimeError) -> bool:
    """True when Airflow's server cannot read the stored value as JSON; False when the server cannot be reached."""
    detail = error.error.detail
    return isinstance(detail, dict) and detail.get("status_code") == HTTPStatus.INTERNAL_SERVER_ERROR


def life_of(context: Context) -> TaskLife | None:
    """The life of the task; None when the context has no run with a start date."""
    started = getattr(context.get("dag_run"), "start_date", None)
    if started is None:
        return None
    key = TaskKey.of(context["ti"])
    run_started = f"{started.timestamp():.6f}"
    return TaskLife(key.dag_id, key.run_id, key.task_id, key.map_index, run_started, max_tries_of(context))


def shared_task_of(context: Context) -> SharedTask:
    """The task without its run."""
    key = TaskKey.of(context["ti"])
    return SharedTask(key.dag_id, key.task_id, key.map_index)


def max_tries_of(context: Context) -> int:
    """The task's `max_tries`: constant over its retries, raised by a clear."""
    return int(getattr(context["ti"], "max_tries", 0) or 0)
