"""Frames and messages between the TaskManager and a slot process."""

from __future__ import annotations

import pytest

from runtime.common.errors import BugError
from runtime.common.states import ExecutionState
from runtime.gateways.task import FailureInfo, OutputDirectory, TaskMetrics
from runtime.taskexecutor.slot_protocol.wire import (
    Frame,
    FrameDecoder,
    FrameKind,
    TaskOutcome,
    decode_order,
    decode_outcome,
    encode_order,
    encode_outcome,
)
from runtime.taskexecutor.slots.running_attempt import work_order
from tests.kit.spark.slot_work import slot_work


def test_frames_come_out_as_they_went_in_whatever_the_pieces() -> None:
    frames = [Frame(FrameKind.RUN, b"x" * 1000), Frame(FrameKind.CANCEL), Frame(FrameKind.PROGRESS, b"{}")]
    stream = b"".join(frame.encode() for frame in frames)
    for size in (1, 3, 7, 500, len(stream)):
        decoder = FrameDecoder()
        got = [frame for at in range(0, len(stream), size) for frame in decoder.feed(stream[at : at + size])]
        assert got == frames


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x01", b"\x00\x00\x00\x00\x63"])
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(BugError):
        FrameDecoder().feed(data)


def test_messages_survive_the_wire(tmp_path_factory: pytest.TempPathFactory) -> None:
    order = work_order(slot_work(tmp_path_factory.mktemp("w"), "json:dumps", params={"ü": [1, None]}, splits=["a"]))
    assert decode_order(encode_order(order)) == order
    outcome = TaskOutcome(
        state=ExecutionState.FAILED,
        failure=FailureInfo("E", "m", "s", "USER", is_recoverable=False, timestamp_millis=1),
        value='"ü"'.encode(),
        partitions=(),
        outputs=(OutputDirectory("/b", "/b/.a"),),
        metrics=TaskMetrics(cpu_millis=3),
        is_clean=True,
        is_reusable=False,
        is_spark_lost=True,
    )
    assert decode_outcome(encode_outcome(outcome)) == outcome
