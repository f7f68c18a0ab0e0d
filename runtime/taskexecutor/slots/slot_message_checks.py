"""Checks of the messages of a slot process: user code may write anything to its socket (R52).

A checked message can be sent to a JobMaster, and claims no more than an attempt may. Any other message raises
FrameError, which costs only the process that sent it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from runtime.common.accumulators import UserAccumulator, problem_of
from runtime.common.errors import InvalidInputError
from runtime.common.states import ExecutionState
from runtime.gateways.task import OutputDirectory, PartitionDescriptor, PartitionKind, ResultPartitionSpec
from runtime.rpc import codec
from runtime.taskexecutor.containment.users import is_of_other_hosts
from runtime.taskexecutor.slot_protocol.failures import CLASS_LENGTH_MAX, MESSAGE_LENGTH_MAX, STACK_LENGTH_MAX
from runtime.taskexecutor.slot_protocol.wire import (
    TEXT_LENGTH_MAX,
    FrameError,
    TaskOutcome,
    WorkOrder,
    decode_accumulators,
    decode_outcome,
)

T = TypeVar("T")

_CUT = 100
"""What the sentence between both halves of a text that was shortened may take."""


@dataclass(frozen=True, slots=True)
class Progress:
    """report_progress() was called."""

    fraction: Annotated[float, Field(ge=0, le=1)]
    text: Annotated[str, Field(max_length=TEXT_LENGTH_MAX)]


@dataclass(frozen=True, slots=True)
class Output:
    """output_path() was called."""

    base: Annotated[str, Field(min_length=1)]
    directory: Annotated[str, Field(min_length=1)]
    mode: Annotated[str, Field(max_length=32)]


@dataclass(frozen=True, slots=True)
class Signal:
    """A process of the task has signalled its own process, or the template."""

    number: Annotated[int, Field(ge=0, le=64)]
    to_template: bool


@dataclass(frozen=True, slots=True)
class Reason:
    """Why it cannot attach."""

    reason: str


_PROGRESS = TypeAdapter(Progress)
_OUTPUT = TypeAdapter(Output)
_SIGNAL = TypeAdapter(Signal)
_REASON = TypeAdapter(Reason)


def progress(payload: bytes) -> Progress:
    """PROGRESS. Raises FrameError."""
    return _read(_PROGRESS, payload)


def accumulators(payload: bytes) -> tuple[UserAccumulator, ...]:
    """ACCUMULATORS. Raises FrameError."""
    return _counted(decode_accumulators(payload))


def _counted(said: tuple[UserAccumulator, ...]) -> tuple[UserAccumulator, ...]:
    if problem := problem_of(said):
        message = f"accumulators that no attempt has: {problem}"
        raise FrameError(message)
    return said


def output(payload: bytes) -> OutputDirectory:
    """OUTPUT. Raises FrameError."""
    said = _read(_OUTPUT, payload)
    return OutputDirectory(said.base, said.directory, said.mode)


def sent_signal(payload: bytes) -> Signal:
    """SIGNAL. Raises FrameError."""
    return _read(_SIGNAL, payload)


def why_not_attached(payload: bytes) -> str:
    """ATTACH_FAILED. Raises FrameError."""
    return _read(_REASON, payload).reason[:MESSAGE_LENGTH_MAX]


def outcome(payload: bytes) -> TaskOutcome:
    """DONE. Raises FrameError."""
    said = decode_outcome(payload)
    _counted(said.accumulators)
    failure = said.failure
    if said.state not in {ExecutionState.FINISHED, ExecutionState.FAILED}:
        message = f"an attempt does not end {said.state.name}"
        raise FrameError(message)
    if (failure is None) != (said.state is ExecutionState.FINISHED):
        message = f"an attempt that is {said.state.name} with{'out' if failure is None else ''} a failure"
        raise FrameError(message)
    if failure is not None and (
        len(failure.class_name) > CLASS_LENGTH_MAX + _CUT
        or len(failure.message) > MESSAGE_LENGTH_MAX + _CUT
        or len(failure.stack_trace) > STACK_LENGTH_MAX + _CUT
        or len(failure.kind) > CLASS_LENGTH_MAX
    ):
        message = "the texts of a failure are longer than they can be"
        raise FrameError(message)
    try:
        for part in (said.metrics, *([failure] if failure is not None else ()), *said.partitions, *said.outputs):
            codec.encode(part)
    except InvalidInputError as error:
        message = f"an outcome that no message can carry: {error.__cause__}"
        raise FrameError(message) from error
    return said


def foreign_claim(said: TaskOutcome, order: WorkOrder) -> str:
    """Names in an outcome that are not the attempt's own, in words; "" when all are. Other tasks would read, move or
    delete them.
    """
    wrong = [one for one in said.outputs if not is_own_output(one, order)]
    if wrong:
        return f"an output directory {wrong[0].directory[:200]!r} below {wrong[0].base[:200]!r}"
    for partition in said.partitions:
        if not _is_own_partition(partition, order):
            return f"a result partition {str(partition.partition_id)[:200]} in {partition.directory[:200]!r}"
    return ""


def is_own_output(one: OutputDirectory, order: WorkOrder) -> bool:
    """False for a directory that is another attempt's, or none's, or that root would move for a task's user (R50)."""
    if order.user is not None and not is_of_other_hosts(one.base):
        return False
    return one.directory == f"{one.base}/.attempt-{order.attempt_id}"


def _is_own_partition(partition: PartitionDescriptor, order: WorkOrder) -> bool:
    own = f"{order.partition_directory}/{partition.partition_id}"
    is_asked = partition.partition_id.output in {spec.output for spec in order.outputs}
    is_there = partition.directory == own or not (partition.directory or partition.files)
    return (
        partition.partition_id.producer == order.attempt_id
        and is_asked
        and is_there
        and all(_is_file_of(own, file.path) for file in partition.files)
        and all(_has_subpartitions(partition, spec) for spec in order.outputs)
    )


def _has_subpartitions(partition: PartitionDescriptor, spec: ResultPartitionSpec) -> bool:
    """On a dynamic edge its files name subpartitions that there are: the owner of the job adds up what is in each."""
    is_other = spec.output != partition.partition_id.output or partition.kind is PartitionKind.JSON
    return (
        is_other
        or not spec.is_dynamic
        or all(
            one.consumer >= 0 and one.span >= 1 and one.consumer + one.span <= spec.consumer_parallelism
            for one in partition.files
        )
    )


def _is_file_of(directory: str, path: str) -> bool:
    name = path.removeprefix(f"{directory}/")
    return name != path and "/" not in name and name not in {"", ".", ".."}


def _read(adapter: TypeAdapter[T], payload: bytes) -> T:
    try:
        return adapter.validate_json(payload)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False, include_context=False)[0]
        message = f"{'.'.join(map(str, found['loc']))[:80]}: {found['msg'][:200]}"
        raise FrameError(message) from error
