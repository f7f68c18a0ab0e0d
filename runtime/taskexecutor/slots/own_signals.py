"""Tells the TaskManager of a signal that user code sends to its own process, or to its template (R36).

How a process ended shows only which signal it was, and service managers send the same ones.

Python says what it is about to do by audit events; programs that a task starts (`kill` in a shell) are not seen.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from runtime.taskexecutor.slots.channel import Channel
from runtime.taskexecutor.slots.wire import FrameKind, encode_fields

_EVERYBODY = -1


def watch_own_signals(channel: Channel) -> None:
    """From here on, in this process. An audit hook stays as long as the process."""
    own, template = os.getpid(), os.getppid()
    targets = {own: False, -own: False, 0: False, _EVERYBODY: False, template: True}

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in {"os.kill", "os.killpg"}:
            return
        target, number = arguments
        if number and target in targets:
            channel.try_send(FrameKind.SIGNAL, encode_fields(number=int(number), to_template=targets[target]))

    sys.addaudithook(note)
