"""The slot process's end of its socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from runtime.taskexecutor.slot_process.channel import Channel
from runtime.taskexecutor.slot_protocol.wire import Frame, FrameDecoder, FrameKind

Pair = tuple[socket.socket, Channel]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, Channel(theirs)


def send(sock: socket.socket, *kinds: FrameKind) -> None:
    sock.sendall(b"".join(Frame(kind).encode() for kind in kinds))


def test_a_cancel_is_seen_without_waiting(pair: Pair) -> None:
    ours, channel = pair
    send(ours, FrameKind.RUN)
    assert channel.receive() == Frame(FrameKind.RUN)
    assert not channel.is_cancelled
    send(ours, FrameKind.CANCEL)
    assert channel.is_cancelled


def test_a_cancel_counts_for_the_task_it_came_after(pair: Pair) -> None:
    ours, channel = pair
    send(ours, FrameKind.RUN, FrameKind.CANCEL)
    channel.receive()
    assert channel.is_cancelled
    send(ours, FrameKind.CANCEL, FrameKind.RUN)
    channel.receive()
    assert not channel.is_cancelled


def test_an_answer_is_taken_out_of_turn(pair: Pair) -> None:
    ours, channel = pair
    send(ours, FrameKind.RUN, FrameKind.ATTACH)
    assert channel.take(FrameKind.ATTACH, FrameKind.NO_SPARK) == Frame(FrameKind.ATTACH)
    assert channel.receive() == Frame(FrameKind.RUN)


def test_the_end_of_the_other_side_is_the_end(pair: Pair) -> None:
    ours, channel = pair
    ours.close()
    assert channel.receive() is None
    assert channel.take(FrameKind.ATTACH) is None
    channel.send(FrameKind.DONE)


def test_frames_go_out_whole(pair: Pair) -> None:
    ours, channel = pair
    channel.send(FrameKind.PROGRESS, b"{}")
    assert FrameDecoder().feed(ours.recv(100)) == [Frame(FrameKind.PROGRESS, b"{}")]
