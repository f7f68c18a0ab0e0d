"""SshCalls: a verb of a script on another host, and its answer. Each call blocks, within a timeout."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runtime.aio.clock import SystemClock
from runtime.common.clock import Deadline
from runtime.common.errors import FlinklikeError
from runtime.common.json_text import parse_json
from runtime.common.printable import printable
from runtime.entrypoint.control.daemon import DaemonKind
from runtime.entrypoint.control.remote import RemoteHosts
from runtime.entrypoint.control.worker_verbs import ANSWERS, ASKS, GO
from runtime.entrypoint.drivers.conversation import Conversation

_CLOCK = SystemClock()
_SSH_FAILED = 255
"""The exit code by which ssh says that it is about the connection."""


class HostUnreachableError(FlinklikeError):
    """Nothing is known of what runs on the host. `is_unknown`: the call may have been executed."""

    def __init__(self, message: str, *, is_unknown: bool) -> None:
        super().__init__(message)
        self.is_unknown = is_unknown


class HostRefusedError(FlinklikeError):
    """The host has answered that it cannot, and why."""


class SshCalls:
    """Calls for one kind of process. No call takes longer than `timeout` seconds."""

    def __init__(self, remote: RemoteHosts, kind: DaemonKind, timeout: float) -> None:
        self._remote = remote
        self._kind = kind
        self._timeout = timeout

    def remember(self, host: str) -> None:
        """Record that such processes may run there: a stop asks it, though conf/ names it no more."""
        self._remote.remember([(host, self._kind)])

    def ask(
        self, host: str, arguments: Sequence[str], *, is_wanted: Callable[[], bool] | None = None
    ) -> Mapping[str, Any]:
        """The answer of a host. It may ask back, once, whether what it was asked for `is_wanted`.

        Raises HostUnreachableError and HostRefusedError.
        """
        call = _Call(host, is_wanted)
        try:
            process = subprocess.Popen(
                self._remote.ssh(host),
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            message = f"there is no ssh on the JobManager's host: {error.strerror}"
            raise HostRefusedError(message) from error
        with Conversation(process, Deadline.after(_CLOCK, self._timeout)) as conversation:
            call.run(conversation, self._remote.script(self._kind, arguments, reads=is_wanted is not None))
        return call.answer(process.returncode, printable(conversation.complaint)[:500])


class _Call:
    """One call, until its answer."""

    def __init__(self, host: str, is_wanted: Callable[[], bool] | None) -> None:
        self._host = host
        self._is_wanted = is_wanted
        self._is_told = is_wanted is None
        self._is_late = False
        self._found: Mapping[str, Any] | None = None

    def run(self, conversation: Conversation, script: bytes) -> None:
        """Talk to the host until it has nothing more to say."""
        is_wanted = self._is_wanted
        conversation.say(script, is_last=is_wanted is None)
        for line in conversation.lines():
            answer = parsed(line)
            if answer is None:
                continue
            if answer.keys() & ANSWERS:
                self._found = answer
            elif ASKS in answer and is_wanted is not None:
                self._is_told = is_wanted()
                is_wanted = None
                conversation.say(GO.encode() if self._is_told else b"no\n", is_last=True)
        self._is_late = conversation.is_late

    def answer(self, code: int, complaint: str) -> Mapping[str, Any]:
        """What the host has said. Raises HostUnreachableError and HostRefusedError."""
        if self._found is not None:
            return self._found
        if self._is_late or code in {0, _SSH_FAILED} or code < 0:
            late = "it has not answered in time" if self._is_late else complaint or "ssh ended without a word"
            message = f"{self._host} cannot be reached: {late}"
            raise HostUnreachableError(message, is_unknown=self._is_told)
        message = f"{self._host}: {complaint or f'exit code {code}'}"
        raise HostRefusedError(message)


def parsed(line: bytes) -> Mapping[str, Any] | None:
    """A line of an answer; None for what a login shell says."""
    if not line.startswith(b"{"):
        return None
    try:
        found = parse_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
