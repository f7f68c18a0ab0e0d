"""How a task begins and ends in what Spark sends to a Python worker, which Spark 4.3 has changed.

Since 4.3 a task begins with a message of known length. Before, its fields follow each other, up to what it runs and its
rows; 4.2 has some of them as JSON, and 4.0 more of them than 4.1. In all of them a keeper (`session_worker`) reads as
far as it has to, to know the session, and its fork reads the same bytes again. Standard library only, besides pyspark
at run time.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from runtime.taskexecutor.worker_protocol.worker_environment import SESSION_PROPERTY

_NUMBER = struct.Struct("!i")
_HEADER = struct.Struct("!ii")
_LONG_SIZE = 8


class LeftoversError(Exception):
    """Functions of a task have left threads or timers in its worker, which runs nothing more then: it ends."""


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """Read so many bytes. Raises EOFError when the stream ends before."""
    found = bytearray()
    while len(found) < size:
        part = connection.recv(min(size - len(found), 1 << 20))
        if not part:
            raise EOFError
        found += part
    return bytes(found)


@dataclass(frozen=True, slots=True)
class TaskBegin:
    """The bytes with which a task begins, the session that they name, and whether pandas and pyarrow are for certain
    wanted.
    """

    message: bytes
    session_id: str
    wants_pandas: bool = False


def read_begin(connection: socket.socket) -> TaskBegin:
    """Read how a task begins. Raises EOFError when Spark needs the worker no more."""
    if _has_messages():
        return _read_message(connection)
    fields = _Fields(connection)
    fields.number()  # the partition
    fields.text()  # Python's version
    read = {(4, 0): _properties_of_4_0, (4, 1): _properties_of_4_1}.get(_version(), _properties_of_json)
    properties = read(fields)
    return TaskBegin(bytes(fields.taken), properties.get(SESSION_PROPERTY) or "")


def follow_in_fork(worker: Any, daemon: Any, begin: Callable[[], bytes], finish: Callable[[], None]) -> None:
    """Let pyspark's `worker` begin each task with the bytes that `begin` returns, in a fork of the keeper.

    `finish` is called when Spark has said that the task is over and not yet heard it from the worker. It may raise
    LeftoversError: Spark then does not use the worker again.
    """
    if _has_messages():
        worker.SparkSocketMessageReceiver = _receiver_of(worker.SparkSocketMessageReceiver, begin, finish)
        return
    run, send_updates = worker.main, worker.send_accumulator_updates
    inputs: list[_TaskInput] = []

    def main(infile: Any, outfile: Any) -> None:
        inputs[:] = [_TaskInput(begin(), infile)]
        run(inputs[0], outfile)

    def send_last(outfile: Any) -> None:
        send_updates(outfile)
        inputs[0].finish_with(finish)

    worker.main, worker.send_accumulator_updates = main, send_last
    if hasattr(daemon, "worker_main"):  # 4.0 takes it at its import
        daemon.worker_main = main


def planner_end(program: str) -> Any:
    """The module whose `send_accumulator_updates` a program that plans calls last."""
    shared = "pyspark.sql.worker.utils"
    return importlib.import_module(shared if importlib.util.find_spec(shared) else program)


def _version() -> tuple[int, int]:
    """The installed PySpark's major and minor version."""
    from pyspark.version import __version__

    major, minor = __version__.split(".")[:2]
    return int(major), int(minor)


def _has_messages() -> bool:
    return _version() >= (4, 3)


def _read_message(connection: socket.socket) -> TaskBegin:
    from pyspark.serializers import SpecialLengths
    from pyspark.util import PythonEvalType
    from pyspark.worker_message import WorkerInitInfo

    kind, length = _HEADER.unpack(read_exactly(connection, _HEADER.size))
    if kind != SpecialLengths.START_OF_INIT_MESSAGE:
        unknown = f"a task begins with message {kind}"
        raise ValueError(unknown)
    message = read_exactly(connection, length)
    info = WorkerInitInfo.from_stream(_stream_of(message))
    wants_pandas = info.eval_type not in {PythonEvalType.NON_UDF, PythonEvalType.SQL_BATCHED_UDF}
    return TaskBegin(message, info.task_context.local_properties.get(SESSION_PROPERTY) or "", wants_pandas)


def _stream_of(message: bytes) -> Any:
    from pyspark.messages.zero_copy_byte_stream import ZeroCopyByteStream

    stream = ZeroCopyByteStream(memoryview(message))
    stream.finish()
    return stream


def _receiver_of(receiver: Any, begin: Callable[[], bytes], finish: Callable[[], None]) -> Any:
    class Receiver(receiver):  # type: ignore[misc]  # of pyspark, known at run time only
        def _do_get_init_message(self) -> Any:
            return _stream_of(begin())

        def get_finish_signal_from_stream(self) -> None:
            super().get_finish_signal_from_stream()
            finish()

    return Receiver


class _Fields:
    """What has been taken from a connection, field by field."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.taken = bytearray()

    def skip(self, size: int) -> bytes:
        found = read_exactly(self._connection, size)
        self.taken += found
        return found

    def number(self) -> int:
        return int(_NUMBER.unpack(self.skip(_NUMBER.size))[0])

    def text(self) -> str:
        return self.skip(max(0, self.number())).decode()  # a negative length says that there is none


def _properties_of_json(fields: _Fields) -> dict[str, str]:
    context: dict[str, dict[str, str]] = json.loads(fields.text())
    return context["localProperties"]


def _properties_of_4_0(fields: _Fields) -> dict[str, str]:
    fields.skip(1)  # whether it is a barrier
    _skip_barrier(fields)
    return _properties_of_fields(fields)


def _properties_of_4_1(fields: _Fields) -> dict[str, str]:
    if fields.skip(1) != b"\0":
        _skip_barrier(fields)
    return _properties_of_fields(fields)


def _skip_barrier(fields: _Fields) -> None:
    fields.number()  # its port
    fields.text()  # its secret, or its socket's path


def _properties_of_fields(fields: _Fields) -> dict[str, str]:
    for _ in ("stage", "partition", "attempt"):
        fields.number()
    fields.skip(_LONG_SIZE)  # the attempt's id
    fields.number()  # cpus
    for _ in range(fields.number()):  # resources
        fields.text()
        fields.text()
        for _ in range(fields.number()):
            fields.text()
    return {fields.text(): fields.text() for _ in range(fields.number())}


class _TaskInput:
    """What a task reads: its begin, which the keeper has read already, and then what Spark sends."""

    def __init__(self, begin: bytes, rest: Any) -> None:
        self._begin = BytesIO(begin)
        self._rest = rest
        self.read: Callable[[int], bytes] = self._read_begin

    def _read_begin(self, size: int) -> bytes:
        part = self._begin.read(size)  # whole fields, or nothing
        if not part and size:
            self.read = self._rest.read
            return self.read(size)
        return part

    def finish_with(self, finish: Callable[[], None]) -> None:
        """What is read next says whether the task is over."""
        from pyspark.serializers import SpecialLengths

        def read_end(size: int) -> bytes:
            found: bytes = self._rest.read(size)
            if found == _NUMBER.pack(SpecialLengths.END_OF_STREAM):
                try:
                    finish()
                except LeftoversError:
                    return _NUMBER.pack(SpecialLengths.END_OF_DATA_SECTION)  # anything but the end ends the worker
            return found

        self.read = read_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rest, name)
