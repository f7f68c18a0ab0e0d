"""Whether the turn of a job is this mover's still (R27).

The turn file names the mover that has the turn: `by` is one repeat by hand, "" the movers of the job's cluster; without
a file no mover has it, since the end of a commit deletes it. A mover that takes the turn from another waits SETTLE
seconds before it moves anything; a mover touches no file when its last look began more than LOOK seconds ago. So the
one that was replaced has stopped by then, and one that stood still meanwhile (a stopped process, a storage that hung, a
host that was suspended) finds it when it wakes: of what it was doing only the one file may follow before which each of
its threads stood.
"""

from __future__ import annotations

import os
import secrets
import socket

from runtime.common.clock import Clock
from runtime.common.errors import FlinklikeError
from runtime.common.json_text import parse_json
from runtime.taskexecutor.storage.output_files import OutputFiles

LOOK = 0.2
"""Seconds for which a look counts, on a clock that goes on while the host is suspended."""

SETTLE = 0.6


class MoveReplacedError(FlinklikeError):
    """A repeat by hand has taken this mover's place: it has stopped."""


def repeat_identity() -> str:
    """One repeat by hand, never used again; people read host and process."""
    return f"{socket.gethostname()[:64]} {os.getpid()} {secrets.token_hex(8)}"


def taken_by(data: bytes) -> str:
    """Which repeat by hand has the turn; "" for a mover of a cluster, and for what cannot be read."""
    try:
        return str(parse_json(data).get("by", ""))
    except (ValueError, AttributeError):
        return ""


class TurnLooks:
    """The looks of one mover, at the base in which it works.

    `by`: as in the turn file. `boot_clock` is read on any thread.
    """

    def __init__(self, turn: str, by: str, boot_clock: Clock) -> None:
        self._turn = turn
        self._by = by
        self._clock = boot_clock
        self._files: OutputFiles | None = None
        self._looked_at = 0.0

    def at(self, files: OutputFiles | None) -> None:
        """From now on this mover works there. None: nothing that it does needs the turn any more."""
        self._looked_at = self._clock.monotonic() - LOOK
        self._files = files

    def check(self) -> None:
        """On any thread, blocking, when the last look is too long ago. Raises MoveReplacedError."""
        files, now = self._files, self._clock.monotonic()
        if files is not None and now - self._looked_at >= LOOK:
            self.look(files, is_there=True)
            self._looked_at = now  # of several threads the last one counts: each looked when it says

    def look(self, files: OutputFiles, *, is_there: bool) -> None:
        """`is_there`: a turn without a file is another mover's too."""
        data = files.read(self._turn)
        if data is None:
            if is_there:
                message = (
                    f"{files.base}/{self._turn} is gone: {'another' if self._by else 'a'} repeat has ended this commit,"
                    " or somebody has deleted the file, and other jobs may have committed since. This one has stopped;"
                    " to see whether anything is left to be done, repeat it"
                )
                raise MoveReplacedError(message)
            return
        by = taken_by(data)
        if by != self._by:
            host, _, process = by.partition(" ")
            who = f"process {process.partition(' ')[0]} on {host}" if by else "a TaskManager of its cluster"
            message = (
                f"another mover goes on with this commit, {who}: this one has stopped, there is nothing to be done"
            )
            raise MoveReplacedError(message)
