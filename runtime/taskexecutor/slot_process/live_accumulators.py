"""Tells the TaskManager once a second what the attempt has counted, while it changes: a short task tells nothing."""

from __future__ import annotations

import threading

from runtime.jobgraph.task_accumulators import TaskAccumulators
from runtime.taskexecutor.slot_process.channel import Channel
from runtime.taskexecutor.slot_protocol.wire import FrameKind, encode_accumulators

_INTERVAL = 1.0


class LiveAccumulators:
    """Those of one attempt, with the timer that tells them."""

    def __init__(self, channel: Channel) -> None:
        self.accumulators = TaskAccumulators(self._note_change)
        self._channel = channel
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._is_waiting = self._is_closed = False

    def close(self) -> None:
        """End the timer: what is counted now travels with the outcome."""
        with self._lock:
            self._is_closed = True
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            timer.join()

    def _note_change(self) -> None:
        if self._is_waiting:  # without the lock: what is missed here is in the snapshot that the timer takes
            return
        with self._lock:
            if self._is_closed or self._timer is not None:
                return
            self._is_waiting = True
            self._timer = threading.Timer(_INTERVAL, self._tell)
            self._timer.daemon = True
            self._timer.start()

    def _tell(self) -> None:
        with self._lock:
            self._timer, self._is_waiting = None, False
        self._channel.send(FrameKind.ACCUMULATORS, encode_accumulators(self.accumulators.snapshot()))
