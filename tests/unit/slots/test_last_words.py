"""What a slot process said just before its end counts, though its end is told on another socket."""

from __future__ import annotations

import signal
import socket
from typing import Any

import pytest

from runtime.gateways.task import OutputDirectory
from runtime.taskexecutor.slot_protocol.wire import OUTCOME_BYTES_MAX, Frame, FrameKind, encode_fields
from runtime.taskexecutor.slots.slot_handle import SlotProcess
from runtime.taskexecutor.slots.template_handle import ProcessExit


class _Listener:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def spark_used(self, _process: SlotProcess) -> None:
        self.heard.append("spark used")

    def output_announced(self, _process: SlotProcess, output: OutputDirectory) -> None:
        self.heard.append(output.base)

    def process_exited(self, _process: SlotProcess) -> None:
        self.heard.append("exited")


class _Endless:
    """A socket that others write to for ever, faster than it is read."""

    def __init__(self, frame: Frame) -> None:
        self._said = frame.encode() * (1 + (64 << 10) // len(frame.encode()))
        self.bytes_read = 0

    def recv(self, size: int) -> bytes:
        begin = self.bytes_read % len(self._said)
        data = self._said[begin : begin + size]
        self.bytes_read += len(data)
        assert self.bytes_read < 100 << 20
        return data


def test_what_was_said_is_heard_before_the_end() -> None:
    listener: Any = _Listener()
    nothing: Any = None
    process = SlotProcess(nothing, listener)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        process._socket = ours
        for kind, payload in (
            *[(FrameKind.PROGRESS, encode_fields(fraction=0.5, text=""))] * 150,
            (FrameKind.SPARK_USED, b""),
            (FrameKind.OUTPUT, encode_fields(base="/out", directory="d", mode="append")),
            (FrameKind.NEED_SPARK, b""),
            (FrameKind.SIGNAL, encode_fields(number=15, to_template=False)),
        ):
            theirs.sendall(Frame(kind, payload).encode())
        process._note_exit(ProcessExit(-signal.SIGKILL, 0, 0))
    assert listener.heard == ["spark used", "/out", "exited"]
    assert process.uses_spark
    assert process.own_signals == {15}


def test_who_ends_before_its_socket_is_known_has_ended() -> None:
    """Its template process is lost while it forks."""
    listener: Any = _Listener()
    nothing: Any = None
    process = SlotProcess(nothing, listener)
    process._note_exit(ProcessExit(-signal.SIGKILL, 0, 0, "lost"))
    assert listener.heard == ["exited"]
    assert process.exit.value is not None


@pytest.mark.parametrize("frame", [Frame(FrameKind.SPARK_USED), Frame(FrameKind.DONE, b"x" * 2_000_000)])
def test_who_got_its_socket_and_writes_on_keeps_nobody_from_anything(frame: Frame) -> None:
    """R43: a descriptor can be handed to another process of the job, which goes on when this one has ended."""
    listener: Any = _Listener()
    nothing: Any = None
    process = SlotProcess(nothing, listener)
    endless: Any = _Endless(frame)
    process._socket = endless
    process._note_exit(ProcessExit(-signal.SIGKILL, 0, 0))
    assert listener.heard[-1] == "exited"
    assert endless.bytes_read <= OUTCOME_BYTES_MAX + (64 << 10)


def test_of_its_last_words_no_more_are_read_than_of_others() -> None:
    """Each costs the process that all tasks depend on, however small it is."""
    listener: Any = _Listener()
    nothing: Any = None
    process = SlotProcess(nothing, listener)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        process._socket = ours
        said = Frame(FrameKind.SPARK_USED).encode() * 20_000
        sent = theirs.send(said)
        process._note_exit(ProcessExit(-signal.SIGKILL, 0, 0))
    assert sent > 60_000, "it was not all taken: so many are there"
    assert listener.heard.count("spark used") == 10_000
