"""What a slot process sends: user code may write anything there.

Whatever it is, the process ends or goes on, its end is told once, and what it is taken to have said can be sent to the
JobMaster, and is no more than an attempt may say.

Pickles: the wires between our processes carry none. User code itself is a pickle, and is read in slot processes only,
which run what it says anyway.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from runtime.common.accumulators import AccumulatorKind, UserAccumulator
from runtime.common.ids import ExecutionAttemptId, JobId, PartitionId, VertexId
from runtime.common.states import ExecutionState
from runtime.gateways.job_master import TaskProgresses, TaskReports
from runtime.gateways.task import (
    FailureInfo,
    OutputDirectory,
    PartitionDescriptor,
    PartitionFile,
    PartitionKind,
    TaskExecutionReport,
    TaskMetrics,
    TaskProgress,
)
from runtime.rpc import codec
from runtime.rpc.settings import RpcLimits
from runtime.taskexecutor.slot_protocol.wire import (
    Frame,
    FrameKind,
    TaskOutcome,
    encode_accumulators,
    encode_fields,
    encode_outcome,
)
from runtime.taskexecutor.slots.slot_handle import SlotProcess, SlotProcessState
from runtime.taskexecutor.slots.template_handle import ProcessExit
from runtime.taskexecutor.spark_protocol.frames import FrameError, decode_body
from tests.fuzz.surface import Surface

ATTEMPT = ExecutionAttemptId(JobId("a" * 32), VertexId("b" * 32), 0, 7, 0)
_TEXT_MAX = 64 * 1024
_MESSAGE_MAX = RpcLimits().message_size_max


class _Template:
    """Sends no signals."""

    def kill(self, _number: int, _signal: int = 9) -> None: ...


class _Listener:
    """Takes what a slot's owner takes, and sends it as the TaskManager does."""

    def __init__(self) -> None:
        self.ends = 0
        self.outputs: list[OutputDirectory] = []

    def spark_needed(self, _process: SlotProcess) -> None: ...

    def spark_used(self, _process: SlotProcess) -> None: ...

    def attach_failed(self, _process: SlotProcess) -> None: ...

    def split_wanted(self, _process: SlotProcess) -> None: ...

    def accumulated(self, _process: SlotProcess, accumulators: tuple[UserAccumulator, ...]) -> None:
        progress = TaskProgress(ATTEMPT, 0.0, "", 0, 0, 0, 0, accumulators)
        _check_sent(TaskProgresses(ATTEMPT.job_id, 7, (progress,)), _MESSAGE_MAX)

    def progress_reported(self, _process: SlotProcess, fraction: float, text: str) -> None:
        assert 0.0 <= fraction <= 1.0, fraction
        _check_sent(TaskProgresses(ATTEMPT.job_id, 7, (TaskProgress(ATTEMPT, fraction, text, 0, 0, 0, 0),)), _TEXT_MAX)

    def output_announced(self, _process: SlotProcess, output: OutputDirectory) -> None:
        self.outputs.append(output)
        assert len(self.outputs) < 5000
        _check_report(outputs=tuple(self.outputs))

    def process_exited(self, _process: SlotProcess) -> None:
        self.ends += 1


class _Process(SlotProcess):
    """Of which only the socket's end is real."""

    def __init__(self, listener: _Listener) -> None:
        template: Any = _Template()
        super().__init__(template, listener)

    def run(self) -> Any:
        """As `hand_over` does, without a loop."""
        self._machine.to(SlotProcessState.RUNNING)
        self._ending = _Ending()  # type: ignore[assignment]
        return self._ending


class _Ending:
    def __init__(self) -> None:
        self.results: list[Any] = []

    def done(self) -> bool:
        return bool(self.results)

    def set_result(self, result: Any) -> None:
        self.results.append(result)


def _check_report(**fields: Any) -> None:
    nothing = {"failure": None, "value": b"", "partitions": (), "outputs": (), "metrics": TaskMetrics()}
    report = TaskExecutionReport(
        attempt_id=ATTEMPT, timestamp_millis=1, **{"state": ExecutionState.FAILED, **nothing, **fields}
    )
    _check_sent(TaskReports(ATTEMPT.job_id, 7, (report,)), _MESSAGE_MAX)


def _check_sent(message: Any, size_max: int) -> None:
    """An error here ends the TaskManager, with what it runs for others."""
    size = len(codec.encode(message))
    assert size <= size_max, f"{size} bytes are more than one message takes"


def _begin() -> Callable[[bytes], object]:
    runner = asyncio.Runner()

    async def heard(data: bytes) -> object:
        listener = _Listener()
        process = _Process(listener)
        process.attachment = _Attachment()  # type: ignore[assignment]
        ending = process.run()
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            process._socket = ours
            first, _, last = data[1:].partition(b"--last words--") if data[:1] == b"w" else (data[1:], b"", b"")
            for at in range(0, len(first), 65536):
                process.data_received(first[at : at + 65536])
            theirs.settimeout(0.1)
            theirs.sendall(last[:100_000])
            for outcome in ending.results:
                assert isinstance(outcome, TaskOutcome)
                assert outcome.state.is_terminal
                assert (outcome.failure is not None) == (outcome.state is ExecutionState.FAILED)
                names = ("state", "failure", "value", "partitions", "outputs", "metrics", "accumulators")
                _check_report(**{name: getattr(outcome, name) for name in names})
            process._note_exit(ProcessExit(-9, 0, 0))
            assert process.exit.value is not None
            assert len(ending.results) == 1
            assert listener.ends == 1, "its end was not told"
        finally:
            ours.close()
            theirs.close()
        return f"{process.state.name} {process.refusal.partition(':')[0][:30]}"

    return lambda data: runner.run(heard(data))


class _Attachment:
    def set(self, _value: object) -> None: ...


def _seeds() -> Sequence[bytes]:
    partition = PartitionDescriptor(
        PartitionId(ATTEMPT, 0), PartitionKind.PARQUET, "/x/d", "{}", (PartitionFile("/x/d/f", 1, 2, 0),), b""
    )
    failure = FailureInfo("E", "m", "s", "USER", is_recoverable=False, timestamp_millis=1)
    metrics = TaskMetrics(cpu_millis=3)
    output = OutputDirectory("/b", "/b/.attempt-x", "append")
    counted = (
        UserAccumulator("rows", AccumulatorKind.COUNTER, 3),
        UserAccumulator("seconds", AccumulatorKind.HISTOGRAM, 2, 1.5, 0.5, 1.0),
    )
    good = TaskOutcome(ExecutionState.FINISHED, None, b'"x"', (partition,), (output,), metrics, True, True, False)
    bad = TaskOutcome(ExecutionState.FAILED, failure, b"", (), (), metrics, True, False, False)
    frames = [
        Frame(FrameKind.PROGRESS, encode_fields(fraction=0.5, text="half")),
        Frame(FrameKind.OUTPUT, encode_fields(base="/b", directory="/b/.attempt-x", mode="append")),
        Frame(FrameKind.SIGNAL, encode_fields(number=15, to_template=False)),
        Frame(FrameKind.ATTACH_FAILED, encode_fields(reason="because")),
        Frame(FrameKind.ACCUMULATORS, encode_accumulators(counted)),
        Frame(FrameKind.DONE, encode_outcome(replace(good, accumulators=counted))),
        Frame(FrameKind.DONE, encode_outcome(bad)),
        Frame(FrameKind.SPARK_USED),
        Frame(FrameKind.NEED_SPARK),
        Frame(FrameKind.RUN),
    ]
    whole = b"".join(frame.encode() for frame in frames[:5])
    last = [b"w--last words--" + frame.encode() for frame in frames]
    return [
        b"f" + whole,
        b"w" + whole + b"--last words--" + frames[1].encode(),
        *(b"f" + f.encode() for f in frames),
        *last,
    ]


# --- one payload, whose length is right ---------------------------------------------------------------------------

_KINDS = (
    FrameKind.DONE,
    FrameKind.PROGRESS,
    FrameKind.OUTPUT,
    FrameKind.SIGNAL,
    FrameKind.ATTACH_FAILED,
    FrameKind.ACCUMULATORS,
)


def _begin_payloads() -> Callable[[bytes], object]:
    feed_frames = _begin()

    def feed(data: bytes) -> object:
        number = data[0] if data else 0
        frame = Frame(_KINDS[number % len(_KINDS)], data[1:]).encode()
        return feed_frames(b"w--last words--" + frame if number & 0x80 else b"f" + frame)

    return feed


def _payload_seeds() -> Sequence[bytes]:
    found: list[bytes] = []
    for data in _seeds():
        kind, payload = data[5], data[6:]
        if data[:1] == b"f" and kind in _KINDS and len(found) < 40 and data != _seeds()[0]:
            number = _KINDS.index(FrameKind(kind))
            found += [bytes([number]) + payload, bytes([130 + number]) + payload]
    return found


def _begin_host() -> Callable[[bytes], object]:
    return lambda data: str(type(decode_body(data).get("id")).__name__)


SURFACES = (
    Surface(
        "slot-wire",
        _begin,
        _seeds,
        (),
        prefix=1,
        tokens=(b"--last words--", b"\x00\x00\x00\x02\x10{}"),
        cpu_seconds=2.0,
    ),
    Surface("slot-payloads", _begin_payloads, _payload_seeds, (), prefix=1, cpu_seconds=2.0, smoke_inputs=1500),
    Surface("spark-host", _begin_host, lambda: [b'{"id":1,"value":[]}', b'{"event":"x"}'], (FrameError,)),
)
