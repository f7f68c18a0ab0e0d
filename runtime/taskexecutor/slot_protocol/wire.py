"""Frames between the TaskManager and a slot process, and between the TaskManager and the template process.

A frame is a four byte length, one byte for its kind, and JSON. Nothing on the wire is pickled: user code on the other
side can never make the TaskManager execute anything.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from pydantic import TypeAdapter, ValidationError

from runtime.common.accumulators import UserAccumulator
from runtime.common.errors import BugError, MessageTooLargeError
from runtime.common.ids import ExecutionAttemptId
from runtime.common.json_text import parse_json
from runtime.common.states import ExecutionState
from runtime.gateways.task import (
    FailureInfo,
    InputGate,
    OutputDirectory,
    PartitionDescriptor,
    QueryShare,
    ResultPartitionSpec,
    TaskMetrics,
)
from runtime.taskexecutor.containment.users import TaskUser

FRAME_BYTES_MAX = 64 * 1024 * 1024
OUTCOME_BYTES_MAX = 3 * 1024 * 1024
"""Size of DONE, and so of any frame of a slot process: its content fits into one message to the JobMaster (4 mb)."""
TEXT_LENGTH_MAX = 500
"""Length of the text of report_progress()."""
OUTPUTS_LENGTH_MAX = 512 * 1024
"""Length of the names of all output directories of an attempt: they travel in one message."""
_HEAD = struct.Struct("!IB")


class FrameError(BugError):
    """Bytes that are no frame, or a frame that no slot process sends. From a slot process it costs that process."""


class FrameKind(IntEnum):
    """The kind of a frame. 1 to 9 go to the slot process, 11 and above come from it."""

    ATTACH = 1
    NO_SPARK = 2
    RUN = 3
    CANCEL = 4
    RELEASE = 5
    SPLIT = 6
    ATTACHED = 11
    ATTACH_FAILED = 12
    NEED_SPARK = 13
    SPARK_USED = 14
    PROGRESS = 15
    DONE = 16
    OUTPUT = 17
    SIGNAL = 18
    ACCUMULATORS = 19
    NEXT_SPLIT = 20


@dataclass(frozen=True, slots=True)
class Frame:
    """One message on the socket of a slot process or the template."""

    kind: FrameKind
    payload: bytes = b""

    def encode(self) -> bytes:
        """The bytes on the wire. Raises MessageTooLargeError."""
        if len(self.payload) > FRAME_BYTES_MAX:
            message = f"frame {self.kind.name} of {len(self.payload)} bytes is above {FRAME_BYTES_MAX}"
            raise MessageTooLargeError(message)
        return _HEAD.pack(len(self.payload), self.kind) + self.payload


class FrameDecoder:
    """Puts frames together from pieces of the stream, none of which is larger than `bytes_max`."""

    __slots__ = ("_buffer", "_bytes_max")

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._bytes_max = bytes_max

    def feed(self, data: bytes) -> list[Frame]:
        """Add bytes that have arrived, and return the frames that are complete. Raises FrameError for other bytes."""
        self._buffer += data
        frames: list[Frame] = []
        while len(self._buffer) >= _HEAD.size:
            length, kind = _HEAD.unpack_from(self._buffer)
            if length > self._bytes_max:
                message = f"a frame announces {length} bytes, above {self._bytes_max}"
                raise FrameError(message)
            end = _HEAD.size + length
            if len(self._buffer) < end:
                break
            frames.append(Frame(_kind(kind), bytes(self._buffer[_HEAD.size : end])))
            del self._buffer[:end]
        return frames


def _kind(number: int) -> FrameKind:
    try:
        return FrameKind(number)
    except ValueError as error:
        message = f"{number} is not a kind of frame"
        raise FrameError(message) from error


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file that the slot process fetches before user code runs, to `path`; an archive is unpacked there."""

    url: str
    path: str
    is_archive: bool = False


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """One attempt, as the slot process gets it. The `bytes` fields are JSON text.

    `partition_directory`: the directory of the job's result partitions. `log_directory`: the directory of the attempt's
    logs. `ships_files`: the job brings files or an environment, so that its Python workers must be its own. `brought`:
    names in its directory that the job has brought. `user`: the user of the slot; None: the TaskManager's user. `jars`:
    for the class path of a Java application. `may_move`: a script that needs another Spark for its static conf ends at
    its first session, and says so. `checkpoint_directory`: below which streaming queries of the job keep their state;
    `is_checkpoint_named`: other jobs do so before and after it.
    `committed_batch`: what the directory of the query must have, None for nothing (R59).
    `savepoint`: what they are started from, b"" for nothing.
    `is_stopped`: the job was stopped with a savepoint, so that its query ends before it begins.
    `queries`: of a task that runs one query for each of its splits, with `queries_total` of the vertex (R68).
    `splits_on_demand`: `splits`, or what the input brings, are all those of the vertex; it takes them by number (R12).
    """

    attempt_id: ExecutionAttemptId
    ordinal: int
    job_name: str
    vertex_name: str
    operators: bytes
    parallelism: int
    splits: bytes
    params: bytes
    spark_conf: bytes
    environment: bytes
    inputs: tuple[InputGate, ...]
    outputs: tuple[ResultPartitionSpec, ...]
    job_directory: str
    python_path: tuple[str, ...]
    code_files: dict[str, str]
    log_directory: str
    partition_directory: str
    ships_files: bool
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    brought: tuple[str, ...] = ()
    user: TaskUser | None = None
    jars: tuple[str, ...] = ()
    remote: tuple[RemoteFile, ...] = ()
    may_move: bool = False
    checkpoint_directory: str = ""
    committed_batch: int | None = None
    savepoint: bytes = b""
    is_stopped: bool = False
    is_checkpoint_named: bool = False
    queries: tuple[QueryShare, ...] = ()
    queries_total: int = 0
    splits_on_demand: bool = False


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """How user code ended, when it ended by itself.

    `is_clean`: nothing of the attempt is left in the process, neither threads nor children nor active Spark jobs.
    `is_reusable`: another task may run in the process. `is_spark_lost`: it failed because the JVM did not answer.
    `needed_conf`: the static Spark conf for which the script has to begin again in another Spark.
    """

    state: ExecutionState
    failure: FailureInfo | None
    value: bytes
    partitions: tuple[PartitionDescriptor, ...]
    outputs: tuple[OutputDirectory, ...]
    metrics: TaskMetrics
    is_clean: bool
    is_reusable: bool
    is_spark_lost: bool
    needed_conf: dict[str, str] = field(default_factory=dict)
    accumulators: tuple[UserAccumulator, ...] = ()


_ORDERS = TypeAdapter(WorkOrder)
_OUTCOMES = TypeAdapter(TaskOutcome)
_ACCUMULATORS = TypeAdapter(tuple[UserAccumulator, ...])


def encode_order(order: WorkOrder) -> bytes:
    """The payload of RUN."""
    return _ORDERS.dump_json(order)


def decode_order(payload: bytes) -> WorkOrder:
    """An order from RUN's payload."""
    return _ORDERS.validate_json(payload)


def encode_outcome(outcome: TaskOutcome) -> bytes:
    """The payload of DONE."""
    return _OUTCOMES.dump_json(outcome)


def decode_outcome(payload: bytes) -> TaskOutcome:
    """An outcome from DONE's payload. Raises FrameError."""
    try:
        return _OUTCOMES.validate_json(payload)
    except ValidationError as error:
        message = f"an outcome of {len(payload)} bytes cannot be read"
        raise FrameError(message) from error


def encode_accumulators(accumulators: tuple[UserAccumulator, ...]) -> bytes:
    """The payload of ACCUMULATORS."""
    return _ACCUMULATORS.dump_json(accumulators)


def decode_accumulators(payload: bytes) -> tuple[UserAccumulator, ...]:
    """The accumulators of ACCUMULATORS' payload. Raises FrameError."""
    try:
        return _ACCUMULATORS.validate_json(payload)
    except ValidationError as error:
        message = f"accumulators of {len(payload)} bytes cannot be read"
        raise FrameError(message) from error


def encode_fields(**fields: Any) -> bytes:
    """A small message without a class of its own."""
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_fields(payload: bytes) -> dict[str, Any]:
    """The fields of a small message. Raises FrameError."""
    try:
        fields = parse_json(payload)
    except ValueError as error:
        message = "a message holds no JSON"
        raise FrameError(message) from error
    if not isinstance(fields, dict):
        message = f"a message holds a {type(fields).__name__}, expected an object"
        raise FrameError(message)
    return fields
