"""What a guard is told by its main process, and what whoever dials one hears (R13)."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from runtime.common.ids import Incarnation
from runtime.heartbeat.core.death import Answered, GuardIdentity, Verdict, judge
from runtime.taskexecutor.guard.channel import LINE_BYTES_MAX, LISTEN
from runtime.taskexecutor.guard.guard_main import Guard
from runtime.taskexecutor.guard.life import GuardedLife
from tests.fuzz.surface import Surface

_IDENTITY = GuardIdentity(Incarnation("1" * 32), "boot")
_SAID = f"{_IDENTITY.incarnation} {_IDENTITY.boot_id}".encode()


class _Told:
    """A guard that has heard something, and has done nothing yet: its deeds kill."""

    def __init__(self) -> None:
        records = Path(tempfile.mkdtemp(prefix="fuzz-guard."))
        link, self._watcher = socket.socketpair()
        self.guard = Guard([], {}, GuardedLife.begin(records), link)
        self.guard._main = os.getpid()
        self._watcher.setblocking(False)

    def hear(self, data: bytes) -> bytes:
        guards, mains = socket.socketpair()
        with guards, mains:
            for end in (guards, mains):
                end.setblocking(False)
            self.guard._control, self.guard._request = guards, b""
            self.guard._selector.register(guards, 1)
            try:
                answers = self._say(data, guards, mains)
            finally:
                if guards in self.guard._selector.get_map():
                    self.guard._selector.unregister(guards)
        self.guard._timer.set(self.guard._isolation.due)
        return answers

    def _say(self, data: bytes, guards: socket.socket, mains: socket.socket) -> bytes:
        answers = b""
        for start in range(0, len(data), LINE_BYTES_MAX):
            mains.send(data[start : start + LINE_BYTES_MAX])
            self.guard._on_control(guards)
            answers += _received(mains)
            _received(self._watcher)
            if guards not in self.guard._selector.get_map():
                break  # it hears no more of who says so much
        return answers


def _received(end: socket.socket) -> bytes:
    try:
        return end.recv(1 << 16)
    except BlockingIOError:
        return b""


def _begin() -> Callable[[bytes], object]:
    told = _Told()

    def feed(data: bytes) -> object:
        if data[:1] == b"d":
            text = data[1:].decode(errors="replace")
            verdict = judge(Answered(text), _IDENTITY)
            assert verdict is Verdict.UNKNOWN or text.split()[:2] == _SAID.decode().split(), verdict
            return str(verdict)
        lines = data[1:].split(b"\n")  # names of hosts would be asked of the network
        return told.hear(b"\n".join(one for one in lines if LISTEN.encode() not in one)).decode(errors="replace")

    return feed


def _seeds() -> Sequence[bytes]:
    me = str(os.getpid()).encode()
    return [
        b"chold 1000.5\nsweep 1\nstate 600\n",
        b"cexclusive " + me + b"\nhold 1e9\nshared " + me + b"\n",
        b"cspark " + me + b"\n",
        b"d" + _SAID + b"\n",
        b"d" + _SAID + b" reaped\n",
    ]


SURFACES = (
    Surface(
        "guard",
        _begin,
        _seeds,
        (),
        prefix=1,
        tokens=(b"nan", b"inf", b"-1", b"1e308", b"99999999999", b"0x1"),
        cpu_seconds=5.0,  # of an input that is a quarter of a million lines; it hears 4 KiB between two other things
    ),
)
