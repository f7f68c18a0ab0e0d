"""One attempt while it runs in a slot, on the TaskManager's side: its messages, its reports, its failure."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import cached_property

from runtime.common.accumulators import UserAccumulator
from runtime.common.clock import Clock
from runtime.common.ids import ExecutionAttemptId
from runtime.common.namespaces import DEFAULT_NAMESPACE
from runtime.common.spark_environments import DEFAULT_ENVIRONMENT, EnvironmentSpec
from runtime.common.states import ExecutionState
from runtime.gateways.spark_work import SparkWork
from runtime.gateways.task import (
    FailureInfo,
    JobInformation,
    OutputDirectory,
    TaskExecutionReport,
    TaskMetrics,
    TaskProgress,
)
from runtime.jobgraph.splits import NO_SPLIT
from runtime.taskexecutor.attempt_logs.log_files import attempt_directory
from runtime.taskexecutor.containment.shared_memory import HeldFiles
from runtime.taskexecutor.slot_protocol.failures import of_system
from runtime.taskexecutor.slot_protocol.wire import OUTPUTS_LENGTH_MAX, TaskOutcome, WorkOrder, encode_order
from runtime.taskexecutor.slots import own_words, seen_failures
from runtime.taskexecutor.slots import slot_message_checks as said
from runtime.taskexecutor.slots.slot_handle import ReuseKey, SlotProcess
from runtime.taskexecutor.slots.template_handle import ProcessExit
from runtime.taskexecutor.slots.work import SlotListener, SlotWork
from runtime.taskexecutor.spark_protocol.sessions import SparkProgress

NO_METRICS = TaskMetrics()
FIRST_ORDINAL = 0


class RunningAttempt:
    """From `SlotProcessPool.run` to its terminal report."""

    def __init__(
        self,
        work: SlotWork,
        listener: SlotListener,
        clock: Clock,
        spec: EnvironmentSpec = DEFAULT_ENVIRONMENT,
        *,
        checkpoint_directory: str = "",
    ) -> None:
        self.work = work
        self._checkpoint_directory = checkpoint_directory
        self.spec = spec
        """The Spark environment that it gets."""
        self.attempt_id: ExecutionAttemptId = work.task.attempt_id
        self.may_move = False
        """True if a script may begin again in another Spark environment: it has not yet."""
        self.process: SlotProcess | None = None
        self.ending: asyncio.Future[TaskOutcome | ProcessExit] | None = None
        self.is_cancelled = False
        self.kill_failure: FailureInfo | None = None
        self.memory_bytes = 0
        """As it was measured last."""
        self.memory_bytes_peak = 0
        self.held_files: HeldFiles | None = None
        self.begun_millis = 0
        """When its work was handed over, the last time."""
        self.spark_work: SparkWork | None = None
        self._outputs: dict[OutputDirectory, None] = {}
        self._outputs_bytes = 0
        self._listener = listener
        self._clock = clock
        self._fraction, self._text, self._waits = 0.0, "", ""
        self._spark = SparkProgress()
        self._accumulators: tuple[UserAccumulator, ...] = ()
        self._splits, self._waits_for_split = 0, False
        self._is_over = False
        self._stop: asyncio.TimerHandle | None = None
        self._is_ended_by_stop = False
        self._state: ExecutionState | None = None

    def note_memory(self, used: int) -> None:
        """It was measured."""
        self.memory_bytes = used
        self.memory_bytes_peak = max(self.memory_bytes_peak, used)

    @cached_property
    def _order(self) -> WorkOrder:
        return replace(
            work_order(self.work),
            may_move=self.may_move,
            checkpoint_directory=f"{self._checkpoint_directory.rstrip('/')}/{checkpoints_of(self.work.job)}",
            is_checkpoint_named=bool(self.work.job.checkpoint_name),
        )

    def move(self, spec: EnvironmentSpec) -> None:
        """Its script begins again, in another process, with that environment, and not once more."""
        self.spec, self.may_move = spec, False
        self._accumulators = ()  # R57: what was counted before is counted again
        del self._order

    @property
    def reuse_key(self) -> ReuseKey:
        """What the process that runs this may run next."""
        return ReuseKey(self.work.job.job_id, self.work.job.reuse_key, has_secrets=bool(self.work.secrets))

    @property
    def uses_spark(self) -> bool:
        """True once it has touched Spark: it fails with it."""
        return self.process is not None and self.process.uses_spark

    @property
    def is_over_before_it_runs(self) -> bool:
        """True if it is to end as soon as it can."""
        return self.is_cancelled or self.kill_failure is not None

    @property
    def is_exclusive_rerun(self) -> bool:
        """May an earlier attempt of an exclusive subtask have begun?"""
        task = self.work.task
        return task.task.is_exclusive and task.ordinal > FIRST_ORDINAL and not task.is_first_to_begin

    @property
    def query_directory(self) -> str:
        """Where the query of a streaming task keeps its state (R59)."""
        task = self.work.task
        return f"{self.state_directory}/{task.task.stream_uid}/{task.attempt_id.subtask_index}"

    @property
    def state_directory(self) -> str:
        """Where all queries of its job keep their state, each below its uid."""
        return self._order.checkpoint_directory

    def begin(self) -> bytes:
        """The WorkOrder for the slot process, which begins with it."""
        self.begun_millis = self._clock.epoch_millis()
        return encode_order(self._order)

    def stop(self, timeout: float) -> None:
        """All that it did is in the savepoint (R61): it ends by itself, or is killed after so long. Idempotent."""
        if self._stop is None:
            self._stop = asyncio.get_running_loop().call_later(timeout, self._end_stopped, timeout)

    def _end_stopped(self, timeout: float) -> None:
        if not self._is_over and self.process is not None:
            self._is_ended_by_stop = True
            self.process.kill()
            words = f"the task has not ended within {timeout:g} s after its job was stopped with a savepoint"
            own_words.tell(self.work, f"{words}, so its process was killed")

    def kill(self, failure: FailureInfo) -> None:
        """End the attempt by force, for this reason. The first reason stays."""
        self.kill_failure = self.kill_failure or failure
        if self.process is not None:
            self.process.kill()

    def note_left_behind(self, processes: str) -> None:
        """R29: the report says what did not end, and nothing runs again beside it."""
        why = self.kill_failure.message if self.kill_failure is not None else "the task's process was lost"
        message = f"{why}; of what it has started there is still alive: {processes}"
        self.is_cancelled = False
        self.kill_failure = replace(self.system_failure(message), is_recoverable=False)

    def announce(self, output: OutputDirectory) -> str:
        """Its report will name it, however it ends (R52). What is wrong with it, "" when nothing is."""
        if output in self._outputs:
            return ""
        if not said.is_own_output(output, self._order):
            return f"an output directory {output.directory[:200]!r} below {output.base[:200]!r}"
        self._outputs_bytes += len(output.base) + len(output.directory)
        if self._outputs_bytes > OUTPUTS_LENGTH_MAX:
            return f"output directories whose names are longer than {OUTPUTS_LENGTH_MAX} characters in all"
        self._outputs[output] = None
        return ""

    def tell_handed_over(self) -> None:
        """The work is handed over; told once. A streaming query runs from the end of its first trigger on."""
        if self._state is not None:
            return
        is_query = bool(self.work.task.task.stream_uid)
        self._tell_state(ExecutionState.INITIALIZING if is_query else ExecutionState.RUNNING)

    def _tell_state(self, state: ExecutionState) -> None:
        self._state = state
        self._listener.task_state_changed(self._report(state))

    def tell_terminal(self, report: TaskExecutionReport) -> None:
        """The attempt is over: nothing more is told."""
        self._is_over = True
        if self._stop is not None:
            self._stop.cancel()
        self._listener.task_state_changed(report)

    def tell_reported_progress(self, fraction: float, text: str) -> None:
        """User code called report_progress()."""
        self._fraction, self._text = fraction, text
        self._tell_progress()

    def tell_waiting(self, what: str) -> None:
        """What it waits for, in words; "" when it waits no more."""
        if what != self._waits:
            self._waits = what
            self._tell_progress()

    def tell_spark_progress(self, spark: SparkProgress) -> None:
        """What Spark does for this attempt now; said only when it changes."""
        if spark == self._spark or self._is_over:
            return
        self._spark = spark
        triggered = sum(query.has_triggered for query in spark.streams)
        if self._state is ExecutionState.INITIALIZING and triggered >= max(1, len(self.work.task.queries)):
            self._tell_state(ExecutionState.RUNNING)
        self._tell_progress()

    def want_split(self) -> None:
        """User code waits for its next split (R12). Told once, however often it says so."""
        if self._is_over or self._waits_for_split or not self.work.task.task.splits_on_demand:
            return
        self._waits_for_split = True
        self._listener.split_wanted(self.attempt_id, self._splits)

    def give_split(self, split: int) -> None:
        """The owner has answered."""
        if self._waits_for_split and self.process is not None:
            self._waits_for_split = False
            self._splits += split != NO_SPLIT
            self.process.give_split(split)

    def tell_accumulators(self, accumulators: tuple[UserAccumulator, ...]) -> None:
        """What its code has counted so far."""
        self._accumulators = accumulators
        self._tell_progress()

    def _tell_progress(self) -> None:
        if self._is_over:
            return
        spark = self._spark
        self._listener.task_progressed(
            TaskProgress(
                attempt_id=self.attempt_id,
                fraction=self._fraction,
                text=self._waits or self._text,
                spark_jobs_active=spark.jobs_active,
                spark_stages_active=spark.stages_active,
                spark_tasks_completed=spark.tasks_completed,
                spark_tasks_total=spark.tasks_total,
                accumulators=self._accumulators,
                streams=spark.streams,
            )
        )

    def system_failure(self, message: str) -> FailureInfo:
        """A failure of ours, now."""
        return of_system(message, timestamp_millis=self._clock.epoch_millis())

    def rerun_refused(self, master: str) -> FailureInfo:
        """R15: the end of the executors of the attempt before cannot be established."""
        failure = self.system_failure(
            f"an exclusive task runs once only with spark.master {master}, and this is attempt "
            f"{self.work.task.ordinal}: one before it may have begun, and its executors may still run on other hosts. "
            "Submit the job again when they have ended, declare the task not exclusive, or use spark.master local[*]"
        )
        return replace(failure, is_recoverable=False)

    def report_of(self, ending: TaskOutcome | ProcessExit) -> TaskExecutionReport:
        """The terminal report that follows from how it ended, from a cancel, and from a kill."""
        if isinstance(ending, TaskOutcome):
            return self._report_of_outcome(ending)
        metrics = TaskMetrics(
            cpu_millis=ending.cpu_millis, memory_bytes_peak=max(self.memory_bytes_peak, ending.memory_bytes)
        )
        if self.is_cancelled and self.kill_failure is None:
            return self._report(ExecutionState.CANCELED, metrics=metrics)
        if self._is_ended_by_stop and self.kill_failure is None:
            return self._report(ExecutionState.FINISHED, metrics=metrics)
        now = self._clock.epoch_millis()
        process = self.process
        if ending.lost_reason and self.kill_failure is None:
            is_own = process is not None and process.has_signalled_template
            self.kill_failure = seen_failures.of_lost_template(ending.lost_reason, is_own=is_own, timestamp_millis=now)
        if process is not None and process.refusal and self.kill_failure is None:
            self.kill_failure = seen_failures.of_refusal(process.refusal, timestamp_millis=now)
        failure = self.kill_failure or seen_failures.of_exit(
            ending.code,
            memory_bytes=metrics.memory_bytes_peak,
            timestamp_millis=now,
            is_own=process is not None and -ending.code in process.own_signals,
            is_above_its_group=process is not None and process.is_above_its_group,
        )
        return self._report(ExecutionState.FAILED, failure=failure, metrics=metrics)

    def failed(self, failure: FailureInfo | None) -> TaskExecutionReport:
        """The report of an attempt that never ran: it was cancelled before, or failed for this reason."""
        if self.is_cancelled or failure is None:
            return self._report(ExecutionState.CANCELED)
        return self._report(ExecutionState.FAILED, failure=failure)

    def _report_of_outcome(self, outcome: TaskOutcome) -> TaskExecutionReport:
        if self.kill_failure is not None:
            return self._report(ExecutionState.FAILED, failure=self.kill_failure, metrics=outcome.metrics)
        if self.is_cancelled:
            return self._report(ExecutionState.CANCELED, metrics=outcome.metrics)
        if claim := said.foreign_claim(outcome, self._order):
            failure = seen_failures.of_refusal(claim, timestamp_millis=self._clock.epoch_millis())
            return self._report(ExecutionState.FAILED, failure=failure, metrics=outcome.metrics)
        return TaskExecutionReport(
            attempt_id=self.attempt_id,
            state=outcome.state,
            timestamp_millis=self._clock.epoch_millis(),
            failure=outcome.failure,
            value=outcome.value,
            partitions=outcome.partitions,
            outputs=outcome.outputs,
            metrics=outcome.metrics,
            accumulators=outcome.accumulators,
            spark_work=self.spark_work,
        )

    def _report(
        self, state: ExecutionState, *, failure: FailureInfo | None = None, metrics: TaskMetrics = NO_METRICS
    ) -> TaskExecutionReport:
        return TaskExecutionReport(
            attempt_id=self.attempt_id,
            state=state,
            timestamp_millis=self._clock.epoch_millis(),
            failure=failure,
            value=b"",
            partitions=(),
            outputs=tuple(self._outputs),
            metrics=metrics,
            accumulators=self._accumulators if state.is_terminal else (),
            spark_work=self.spark_work,
        )


def checkpoints_of(job: JobInformation) -> str:
    """Where a job's queries keep their state, below the TaskManager's directory for that (R59). No id is `named`."""
    if not job.checkpoint_name:
        return job.job_id
    return f"named/{job.namespace or DEFAULT_NAMESPACE}/{job.checkpoint_name}"


def work_order(work: SlotWork) -> WorkOrder:
    """The order to the slot process for a SlotWork."""
    job, task = work.job, work.task
    return WorkOrder(
        attempt_id=task.attempt_id,
        ordinal=task.ordinal,
        job_name=job.job_name,
        vertex_name=task.task.vertex_name,
        operators=task.task.operators,
        parallelism=task.task.parallelism,
        splits=task.splits or b"[]",
        splits_on_demand=task.task.splits_on_demand,
        params=job.params or b"{}",
        spark_conf=job.spark_conf or b"{}",
        environment=job.environment or b"{}",
        inputs=task.inputs,
        outputs=task.outputs,
        job_directory=str(work.job_directory),
        python_path=tuple(map(str, work.python_path)),
        code_files={sha256: str(path) for sha256, path in work.code_files.items()},
        log_directory=str(attempt_directory(work.log_directory, task.attempt_id)),
        partition_directory=work.partition_directory or f"{work.exchange_directory.rstrip('/')}/{job.job_id}",
        ships_files=bool(job.py_files or job.files or job.archives or job.wheels or _has_fields(job.environment)),
        secrets=dict(work.secrets),
        brought=work.brought,
        user=work.user,
        jars=tuple(map(str, work.jars)),
        remote=work.remote,
        committed_batch=task.committed_batch,
        savepoint=job.savepoint,
        is_stopped=task.is_stopped,
        queries=task.queries,
        queries_total=task.task.queries,
    )


def _has_fields(document: bytes) -> bool:
    return bool(json.loads(document or b"{}"))
