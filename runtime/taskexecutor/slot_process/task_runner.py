"""Runs one attempt in the slot process: loads the chain, hands each operator its inputs, and says how it ended."""

from __future__ import annotations

import logging
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.common.states import ExecutionState
from runtime.gateways.task import FailureInfo, OutputDirectory, PartitionDescriptor, TaskMetrics
from runtime.jobgraph.graph import JarCode, Operator, OperatorKind, ScriptCode, parse_operators
from runtime.taskexecutor.containment.leftovers import Leftovers
from runtime.taskexecutor.credentials.storage_credentials import StorageCredentials
from runtime.taskexecutor.slot_process import own_failures
from runtime.taskexecutor.slot_process.attempt_scope import AttemptLogging, JobScope, StreamRedirection
from runtime.taskexecutor.slot_process.causes import TaskError
from runtime.taskexecutor.slot_process.channel import Channel
from runtime.taskexecutor.slot_process.code import CodeLoader
from runtime.taskexecutor.slot_process.exchange import Exchange
from runtime.taskexecutor.slot_process.json_values import encode_value
from runtime.taskexecutor.slot_process.lost_partitions import with_lost_partitions
from runtime.taskexecutor.slot_process.on_demand import OnDemandSource
from runtime.taskexecutor.slot_process.script import returned_by, run_script, script_file
from runtime.taskexecutor.slot_process.spark_attachment import SparkAttachment, is_data_frame
from runtime.taskexecutor.slot_process.static_conf import OtherSparkNeededError
from runtime.taskexecutor.slot_process.task_context import AttemptState, SlotTaskContext
from runtime.taskexecutor.slot_process.vanishing_files import vanishing_files, vanishing_tables
from runtime.taskexecutor.slot_process.written_outputs import made_outputs, written_outputs
from runtime.taskexecutor.slot_protocol.failures import of_system
from runtime.taskexecutor.slot_protocol.sizes import format_bytes
from runtime.taskexecutor.slot_protocol.wire import (
    OUTCOME_BYTES_MAX,
    RemoteFile,
    TaskOutcome,
    WorkOrder,
    decode_outcome,
)

if TYPE_CHECKING:
    from runtime.taskexecutor.slot_process.connect_attachment import ConnectAttachment

_BEGINS_AGAIN = "the script asks for {}: it begins again, in a Spark environment that has it where that can be\n"
_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Result:
    script: Path | None = None
    value: bytes = b""
    partitions: tuple[PartitionDescriptor, ...] = ()
    failure: FailureInfo | None = None
    is_spark_lost: bool = False
    needed_conf: dict[str, str] = field(default_factory=dict)


class TaskRunner:
    """One per slot process; runs one attempt after the other."""

    def __init__(
        self,
        channel: Channel,
        attachment: SparkAttachment | ConnectAttachment,
        *,
        task_manager_id: str,
        inline_bytes_max: int,
    ) -> None:
        self._channel = channel
        self._pid = os.getpid()
        self._attachment = attachment
        self._inline_bytes_max = inline_bytes_max
        self._streams = StreamRedirection()
        self._job_scope = JobScope()
        self._task_manager_id = task_manager_id
        self._loader = CodeLoader(task_manager_id)
        self._storage = StorageCredentials.of_environment(os.environ)

    def run(self, order: WorkOrder) -> TaskOutcome:
        """Run an attempt to its end. Never raises: any act of user code becomes the outcome, or ends the process."""
        usage = _Usage()
        leftovers = Leftovers()
        result = _Result()
        state: AttemptState | None = None
        try:
            os.makedirs(order.log_directory, exist_ok=True)  # noqa: PTH103 - three times as fast, in every hand-over
            self._streams.to_files(order.log_directory)
        except OSError as error:
            self._streams.leave_files()
            message = f"the logs of the attempt cannot be opened: {error}"
            result.failure = of_system(message, timestamp_millis=time.time_ns() // 1_000_000)
            return self._outcome(order, None, result, usage, is_clean=True)
        try:
            with AttemptLogging(order.log_directory):
                try:
                    self._job_scope.enter(order)
                    self._storage.install()
                    self._attachment.start_attempt(order)
                    state = AttemptState(order, self._channel, self._attachment.session)
                    self._run_operators(order, state, result)
                except BaseException as error:  # noqa: BLE001 - the boundary of user code: its failure is the result
                    self._note_failure(error, order, result)
        finally:
            self._leave_if_forked()
            if result.script is not None:
                _warn_of_vanishing_files(order, result.script, self._attachment.warehouse)
            is_clean = self._end_attempt(order, state, leftovers)
            self._blame_lost_spark(result)
            self._streams.leave_files()
        return self._outcome(order, state, result, usage, is_clean=is_clean)

    def _run_operators(self, order: WorkOrder, state: AttemptState, result: _Result) -> None:
        operators = parse_operators(order.operators)
        self._fetch(order, operators[0])
        if isinstance(operators[0].code, ScriptCode):
            result.script = script_file(operators[0].code, order.code_files, order.job_directory)
            self._run_script(result.script, operators[0].code, order)
            return
        if isinstance(code := operators[0].code, JarCode):
            self._run_application(code, order, result)
            return
        functions = [self._loader.load(operator, order.code_files) for operator in operators]
        is_source = operators[0].kind is OperatorKind.SOURCE
        exchange = Exchange(order, self._attachment.session, self._inline_bytes_max, is_source=is_source)
        arguments: Sequence[Any] = exchange.read_inputs()
        if (splits := exchange.read_splits()) is not None:
            state.splits = tuple(splits)
        if operators[-1].stream_sink is not None:
            self._run_query(operators, functions, exchange, order, state, result)
            return
        if order.splits_on_demand:
            self._run_on_demand(operators, functions, exchange, state, result)
            return
        value: Any = None
        for position, (operator, function) in enumerate(zip(operators, functions, strict=True)):
            value = returned_by(function, SlotTaskContext(state, operator.name), *arguments)
            if position + 1 < len(operators):
                arguments = [_hand_over(operator, value, self._inline_bytes_max)]
        if operators[0].kind is OperatorKind.SPLITS:
            result.partitions = exchange.write_splits(operators[0].name, value)
        else:
            self._deliver(operators[-1], exchange, value, result)

    def _deliver(self, last: Operator, exchange: Exchange, value: Any, result: _Result) -> None:
        """To the consumers of the task; as the job's value where there are none."""
        if exchange.has_outputs:
            result.partitions = exchange.write_outputs(last.name, value)
        else:
            result.value = self._terminal_value(last, value)

    def _run_on_demand(
        self,
        operators: Sequence[Operator],
        functions: Sequence[Callable[..., Any]],
        exchange: Exchange,
        state: AttemptState,
        result: _Result,
    ) -> None:
        def hand_over(operator: Operator, value: Any) -> Any:
            return _hand_over(operator, value, self._inline_bytes_max)

        value, written = OnDemandSource(operators, functions, exchange, state, hand_over).run()
        if written is not None:
            result.partitions = written
        else:
            self._deliver(operators[-1], exchange, value, result)

    def _run_script(self, path: Path, code: ScriptCode, order: WorkOrder) -> None:
        if not code.starts_queries:
            returned_by(run_script, path, code.args)
            return
        # As for applications in jars.
        from runtime.taskexecutor.slot_process.script_streams import ScriptStreams

        streams = ScriptStreams(order, self._attachment.ensure, self._channel)
        streams.run(lambda: returned_by(run_script, path, code.args))

    def _run_query(
        self,
        operators: Sequence[Operator],
        functions: Sequence[Callable[..., Any]],
        exchange: Exchange,
        order: WorkOrder,
        state: AttemptState,
        result: _Result,
    ) -> None:
        # As for applications in jars.
        from runtime.taskexecutor.slot_process.split_queries import SplitQueries
        from runtime.taskexecutor.slot_process.streaming import run_query

        attached = self._attachment.ensure()
        if order.queries:
            ended = SplitQueries(operators, functions, state, order, attached, self._channel).run()
        else:
            contexts = [SlotTaskContext(state, operator.name) for operator in operators]
            ended = run_query(operators, functions, contexts, exchange.read_inputs(), order, attached, self._channel)
        self._deliver(operators[-1], exchange, ended, result)

    def _fetch(self, order: WorkOrder, first: Operator) -> None:
        application = first.code.artifact
        if not order.remote and (application is None or application.url is None):
            return
        # As for applications in jars.
        from runtime.taskexecutor.slot_process.fetching import fetch_all, is_of_hadoop, no_session

        is_jar = isinstance(first.code, JarCode)
        files = [*order.remote]
        if application is not None and application.url is not None and not (is_jar and is_of_hadoop(application.url)):
            files.append(RemoteFile(application.url, f"{order.job_directory}/{application.name}"))
        fetch_all(files, no_session if is_jar else self._attachment.session)

    def _run_application(self, code: JarCode, order: WorkOrder, result: _Result) -> None:
        # Nothing else needs it, and the template would load it for all.
        from runtime.taskexecutor.slot_process.application import application_file, run_application

        result.script = application_file(code, order)
        run_application(code, result.script, order, self._attachment.launch(), self._channel)

    def _terminal_value(self, operator: Operator, value: Any) -> bytes:
        if value is None:
            return b""
        if is_data_frame(value):
            message = (
                f"{operator.name!r} has no consumer and returned a DataFrame: write it or return a value "
                "(a DataFrame has no place to go at the end of a job)"
            )
            raise TaskError(message)
        return encode_value(value, bytes_max=self._inline_bytes_max, what=f"the return value of {operator.name!r}")

    def _note_failure(self, error: BaseException, order: WorkOrder, result: _Result) -> None:
        if isinstance(error, ImportError) and (hint := own_failures.import_hint(error, self._task_manager_id)):
            error.add_note(hint)
        if isinstance(error, SystemExit):
            error = TaskError("sys.exit() was called while the code was loaded").with_traceback(error.__traceback__)
        if isinstance(error, OtherSparkNeededError):
            result.needed_conf = error.conf
        error = self._attachment.named(error)
        failure = own_failures.of_exception(error, timestamp_millis=time.time_ns() // 1_000_000)
        result.failure = with_lost_partitions(failure, order)
        result.is_spark_lost = self._attachment.is_connection_error(error)
        sys.stderr.write(_BEGINS_AGAIN.format(error) if result.needed_conf else failure.stack_trace)

    def _blame_lost_spark(self, result: _Result) -> None:
        """R36: an exception of any class that user code met because Spark was lost is not its fault."""
        if result.failure is not None and self._attachment.is_unreachable:
            result.is_spark_lost = True
            result.failure = own_failures.of_lost_spark(result.failure)

    def _leave_if_forked(self) -> None:
        """User code has forked this process, and the copy came back from it: it must not go on as a slot process."""
        if os.getpid() != self._pid:
            sys.stdout.flush()
            os._exit(0)

    def _end_attempt(self, order: WorkOrder, state: AttemptState | None, leftovers: Leftovers) -> bool:
        """True if nothing of the attempt is left in this process, below it, or in Spark (R15, R29)."""
        if state is not None:
            state.progress.close()
            state.live.close()
        # A cancelled attempt's process and session are ended whatever is in them: no need to tidy up first.
        if self._channel.is_cancelled:
            return False
        is_spark_clean = self._attachment.end_attempt()
        called_by = self._attachment.callback_threads()
        left = leftovers.found((*self._attachment.threads, *called_by))
        hides_threads = self._attachment.hides_threads
        if told := [one.words for one in left if not one.is_kept and not (one.is_thread and hides_threads)]:
            _warn(order, f"left when the task had returned, and ended with its process: {', '.join(told)}")
        return is_spark_clean and not left and not called_by

    def _outcome(
        self, order: WorkOrder, state: AttemptState | None, result: _Result, usage: _Usage, *, is_clean: bool
    ) -> TaskOutcome:
        is_finished = result.failure is None
        written = [file for partition in result.partitions for file in partition.files]
        index = order.attempt_id.subtask_index
        gates = [(gate, one.files) for gate in order.inputs for one in gate.partitions]
        read = [(file, gate.part_read(file, index)) for gate, files in gates for file in files]
        outputs = tuple(state.outputs.values()) if state is not None else ()
        if is_finished:
            asked, outputs = outputs, made_outputs(outputs)
            _warn_of_missing_outputs(order, [output for output in asked if output not in outputs])
        visible = written_outputs(outputs if is_finished else ())
        metrics = TaskMetrics(
            read_bytes=round(sum(file.size_bytes * part for file, part in read)),
            write_bytes=sum(file.size_bytes for file in written) + visible.size_bytes,
            read_records=round(sum(file.rows * part for file, part in read)),
            write_records=sum(file.rows for file in written) + visible.rows,
            cpu_millis=usage.cpu_millis(),
            memory_bytes_peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )
        return TaskOutcome(
            state=ExecutionState.FINISHED if is_finished else ExecutionState.FAILED,
            failure=result.failure,
            value=result.value if is_finished else b"",
            partitions=result.partitions if is_finished else (),
            outputs=outputs,
            metrics=metrics,
            is_clean=is_clean,
            is_reusable=is_finished and is_clean and result.script is None and not order.queries,
            is_spark_lost=result.is_spark_lost,
            needed_conf=result.needed_conf,
            accumulators=state.accumulators.snapshot() if state is not None else (),
        )


def too_large(outcome: bytes) -> TaskOutcome:
    """The failure of an attempt whose partitions and outputs have too long a description for one message (R52)."""
    ended = decode_outcome(outcome)
    files = sum(len(partition.files) for partition in ended.partitions)
    message = (
        f"the task has ended {ended.state.name}, but what it says of its {files} files and {len(ended.outputs)} "
        f"outputs takes {format_bytes(len(outcome))}, more than {format_bytes(OUTCOME_BYTES_MAX)}: write fewer files "
        "(a lower parallelism of the consumer, or fewer columns), or with ctx.output_path()"
    )
    failure = own_failures.of_exception(TaskError(message), timestamp_millis=time.time_ns() // 1_000_000)
    return replace(
        ended, state=ExecutionState.FAILED, failure=failure, value=b"", partitions=(), is_reusable=False, is_clean=False
    )


class _Usage:
    """CPU time of this process and its ended children since the beginning of an attempt."""

    def __init__(self) -> None:
        self._start = self._seconds()

    def cpu_millis(self) -> int:
        return int((self._seconds() - self._start) * 1000)

    @staticmethod
    def _seconds() -> float:
        both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(usage.ru_utime + usage.ru_stime for usage in both)


def _hand_over(operator: Operator, value: Any, inline_bytes_max: int) -> Any:
    """The input of the next operator in the chain: the lazy DataFrame, or the list that an exchange would bring."""
    if is_data_frame(value):
        return value
    if value is None:
        message = f"{operator.name!r} returned None, but it has a consumer: return a DataFrame or a JSON value"
        raise TaskError(message)
    encode_value(value, bytes_max=inline_bytes_max, what=f"the return value of {operator.name!r}")
    return [value]


def _warn_of_missing_outputs(order: WorkOrder, missing: Iterable[OutputDirectory]) -> None:
    for output in missing:
        _warn(
            order,
            f"nothing of this task is committed to {output.base}: it has asked for ctx.output_path({output.base!r}),"
            f" and there was no {output.directory} when it returned: it made none, or has deleted it",
        )


def _warn_of_vanishing_files(order: WorkOrder, script: Path, warehouse: str) -> None:
    """Warn of files that go with the job's directory, or its Spark. A failure of the look fails no job."""
    try:
        if warning := vanishing_files(order.job_directory, {script.name, *order.brought}):
            _warn(order, warning)
        if warning := vanishing_tables(warehouse, order.job_directory):
            _warn(order, warning)
    except OSError as error:
        _logger.warning("what the script has left in its working directory cannot be told: %s", error)


def _warn(order: WorkOrder, warning: str) -> None:
    """Write into the attempt's file of stderr: user code may have closed the descriptor. A failure fails no job."""
    try:
        path = Path(order.log_directory) / "stderr"
        with path.open("a", encoding="utf-8", errors="backslashreplace") as stderr:
            stderr.write(f"{warning}\n")
    except OSError as error:
        _logger.warning("the attempt's stderr cannot be written, which would say: %s (%s)", warning, error)
