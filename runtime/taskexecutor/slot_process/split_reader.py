"""The splits of a source that takes them on demand, one after the other, as its code asks for them (R12)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from runtime.jobgraph.splits import NO_SPLIT
from runtime.taskexecutor.slot_process.causes import TaskError
from runtime.taskexecutor.slot_process.channel import Channel
from runtime.taskexecutor.slot_protocol.wire import FrameKind, decode_fields


class SplitReader:
    """Of one attempt. `splits`: all of the vertex; the owner of the job says by number which are this attempt's."""

    def __init__(self, operator_name: str, channel: Channel, splits: Sequence[Any]) -> None:
        self._operator_name = operator_name
        self._channel = channel
        self._splits = splits
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.is_exhausted = False
        """The owner has said that none is left."""

    def read(self, operator_name: str) -> Iterator[Any]:
        """Each step waits for the next split; ends when none is left. Raises TaskError."""
        if operator_name != self._operator_name:
            message = f"{operator_name!r} has no splits of its own: those of {self._operator_name!r} are read there"
            raise TaskError(message)
        while (split := self._next()) != NO_SPLIT:
            yield self._splits[split]

    def _next(self) -> int:
        if os.getpid() != self._pid:
            message = "ctx.next_splits() is for the task's own process, not for one that it has started"
            raise TaskError(message)
        with self._lock:
            if self.is_exhausted:
                return NO_SPLIT
            self._channel.send(FrameKind.NEXT_SPLIT)
            answer = self._channel.take_unless_cancelled(FrameKind.SPLIT)
            if answer is None:
                message = "the task is cancelled while it waits for its next split"
                raise TaskError(message)
            split = int(decode_fields(answer.payload)["split"])
            self.is_exhausted = split == NO_SPLIT
            return split

    def check_exhausted(self) -> None:
        """Raises TaskError for a function that has ended with splits left: nobody would read them."""
        if not self.is_exhausted:
            message = (
                f"{self._operator_name!r} takes its splits on demand, and has ended while some may be left: read "
                "ctx.next_splits() to its end, as `for split in ctx.next_splits():` does"
            )
            raise TaskError(message)
