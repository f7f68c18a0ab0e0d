"""What a slot process said just before its end counts, though its end is told on another socket."""

from __future__ import annotations

import signal
import socket
from typing import Any

from runtime.gateways.task import OutputDirectory
from runtime.taskexecutor.slots.slot_process import SlotProcess
from runtime.taskexecutor.slots.template import ProcessExit
from runtime.taskexecutor.slots.wire import Frame, FrameKind, encode_fields


class _Listener:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def spark_used(self, _process: SlotProcess) -> None:
        self.heard.append("spark used")

    def output_announced(self, _process: SlotProcess, output: OutputDirectory) -> None:
        self.heard.append(output.base)

    def process_exited(self, _process: SlotProcess) -> None:
        self.heard.append("exited")


def test_what_was_said_is_heard_before_the_end() -> None:
    listener: Any = _Listener()
    nothing: Any = None
    process = SlotProcess(nothing, listener)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        process._socket = ours
        for kind, payload in (
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
