"""What the driver `ssh` asks a script of bin/ on another host: `workers`, `start-worker`, `release-worker` and so on.

Each answer is a line of JSON: a login shell may say other things. A start asks back, on standard output, whether it is
still wanted, in the moment before it begins (R65); an answer that comes late counts as a no.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runtime.common.errors import InvalidInputError
from runtime.config.layout import Layout
from runtime.config.loading import load, parse_dynamic
from runtime.entrypoint.control.daemon import Daemon
from runtime.entrypoint.control.last_words import last_line
from runtime.entrypoint.control.pid_file import Record
from runtime.entrypoint.control.run_directory import prepare_run_directory
from runtime.taskexecutor.guard.signals import END_AT_ONCE

logger = logging.getLogger(__name__)

WORKERS, START, RELEASE, KILL, WORDS, END = (
    "workers",
    "start-worker",
    "release-worker",
    "kill-worker",
    "worker-words",
    "end-workers",
)
ASKS = "asks"
ANSWERS = frozenset({"workers", "started", "released", "words", "ended"})
"""Each answer has one of these: a login shell may print JSON too."""
GO = "go\n"
"""The answer of who wants a worker."""
ANSWER_WITHIN = 10.0
"""Seconds in which a start has to be wanted: who asked for it may have lost its term meanwhile."""


def labelled(daemon: Daemon) -> dict[str, Record]:
    """The workers that run here, by their labels."""
    found: dict[str, Record] = {}
    for record in daemon.records():
        try:
            label = daemon.label_in(daemon.options_of(record))
        except (OSError, ValueError) as error:  # it has ended meanwhile
            logger.debug("the command of process %d cannot be read: %s", record.process.pid, error)
            continue
        if label:
            found[label] = record
    return found


def signal_worker(daemon: Daemon, record: Record, *, kills: bool) -> None:
    """Begin a drain, or end it at once, also when it is stopped. Raises OSError."""
    if not kills:
        record.process.send(signal.SIGTERM)
        return
    record.process.send(END_AT_ONCE if daemon.kind.is_guarded else signal.SIGKILL)
    record.process.send(signal.SIGCONT)  # a stopped one heeds no signal before


def _workers(daemon: Daemon, _layout: Layout, _arguments: Sequence[str]) -> None:
    _say({"workers": sorted(labelled(daemon))})


def _start(daemon: Daemon, layout: Layout, arguments: Sequence[str]) -> None:
    label, *options = arguments
    dynamic = parse_dynamic(options)
    load(layout.conf, environment=os.environ, dynamic=dynamic)
    prepare_run_directory(layout, sys.stderr)
    if label in labelled(daemon):
        _say({"started": label, "out": ""})
        return
    started = daemon.spawn((*dynamic, f"{daemon.kind.label}={label}"), is_wanted=_is_wanted)
    _say({"started": label, "out": str(started.out_file)})


def _release(daemon: Daemon, _layout: Layout, arguments: Sequence[str]) -> None:
    _signal(daemon, arguments[0], kills=False)


def _kill(daemon: Daemon, _layout: Layout, arguments: Sequence[str]) -> None:
    _signal(daemon, arguments[0], kills=True)


def _words(_daemon: Daemon, layout: Layout, arguments: Sequence[str]) -> None:
    path = Path(arguments[0])
    if path.parent != layout.log:
        message = f"{path} is no log file of this cluster"
        raise InvalidInputError(message)
    _say({"words": last_line(path)})


def _end(daemon: Daemon, _layout: Layout, _arguments: Sequence[str]) -> None:
    daemon.end(*labelled(daemon).values())
    daemon.end_statements(0.0)
    _say({"ended": True})


VERBS: dict[str, Callable[[Daemon, Layout, Sequence[str]], None]] = {
    WORKERS: _workers,
    START: _start,
    RELEASE: _release,
    KILL: _kill,
    WORDS: _words,
    END: _end,
}


def _signal(daemon: Daemon, label: str, *, kills: bool) -> None:
    record = labelled(daemon).get(label)
    if record is not None:
        signal_worker(daemon, record, kills=kills)
    _say({"released": label})


def _is_wanted() -> bool:
    _say({ASKS: True})
    ready, _, _ = select.select([sys.stdin], [], [], ANSWER_WITHIN)
    return bool(ready) and sys.stdin.readline() == GO


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
