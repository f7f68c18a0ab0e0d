"""Tells the TaskManager of a signal that user code sends to its own process, or to its template (R36).

How a process ended shows only which signal it was, and service managers send the same ones.

Python says what it is about to do by audit events, `signal.raise_signal` excepted, which is wrapped. Not seen are
`signal.pidfd_send_signal`, native code, and programs that a task starts (`kill` in a shell).
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from runtime.taskexecutor.slot_process.channel import Channel
from runtime.taskexecutor.slot_protocol.wire import FrameKind, encode_fields

_EVERYBODY = -1


def watch_own_signals(channel: Channel) -> None:
    """From here on, in this process. An audit hook stays as long as the process."""
    own, template = os.getpid(), os.getppid()
    targets = {own: False, -own: False, 0: False, _EVERYBODY: False, template: True}

    def tell(number: int, *, to_template: bool) -> None:
        channel.try_send(FrameKind.SIGNAL, encode_fields(number=int(number), to_template=to_template))

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "signal.pthread_kill":
            tell(arguments[1], to_template=False)
        elif event in {"os.kill", "os.killpg"}:
            target, number = arguments
            if number and target in targets:
                tell(number, to_template=targets[target])

    sys.addaudithook(note)
    raise_signal = signal.raise_signal

    def raise_told(signalnum: int, /) -> None:
        tell(signalnum, to_template=False)
        raise_signal(signalnum)

    signal.raise_signal = raise_told
