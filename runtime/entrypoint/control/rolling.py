"""rolling-restart.sh: every process of a kind on this host is replaced, one after the other, while jobs go on.

A JobMaster process hands its jobs over when it is stopped, so its successor is started first; the other kinds give up a
port or a directory, so they are stopped first. The next process is replaced when the cluster is whole again: it has as
many processes and slots as before, and every job that ran has an owner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import TextIO

from runtime.aio.clock import SystemClock
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.loading import load
from runtime.config.options.jobmanager import JOBMASTER_PORT
from runtime.entrypoint.control.cluster_view import ClusterView
from runtime.entrypoint.control.daemon import JOBMASTER, START_TIMEOUT, TASKMANAGER, Daemon, DaemonKind, drain_patience
from runtime.entrypoint.control.pending import DaemonError, wait_all
from runtime.entrypoint.control.pid_file import Record

WHOLE_TIMEOUT = 120.0
_CLOCK = SystemClock()


class RollingRestart:
    """Replaces the processes of this host. `dynamic` is added to the -D options with which each was started."""

    def __init__(
        self,
        layout: Layout,
        environment: Mapping[str, str],
        dynamic: Sequence[str],
        view: ClusterView,
        out: TextIO,
    ) -> None:
        self._layout = layout
        self._environment = environment
        self._dynamic = tuple(dynamic)
        self._view = view
        self._out = out

    def run(self, kind: DaemonKind) -> None:
        """Replace all processes of a kind. Raises DaemonError when one does not start, or the cluster is not whole."""
        daemon = Daemon(kind, self._layout, self._environment, StringIO())
        records = daemon.records()
        for number, record in enumerate(records, start=1):
            before = self._view.state()
            if before is None:
                message = f"No JobManager answers: {kind.name} (pid {record.process.pid}) is left as it is."
                raise DaemonError(message)
            name = f"{kind.name} {number} of {len(records)}"
            began = _CLOCK.monotonic()
            self._say(f"{name} (pid {record.process.pid}): restarting ...")
            pid = self._replace(daemon, record)
            restarted = _CLOCK.monotonic()
            after, missing = self._view.wait_whole(before, WHOLE_TIMEOUT)
            if after is None or missing:
                message = f"{kind.name} (pid {pid}) has started, and {missing} after {WHOLE_TIMEOUT:.0f} s."
                raise DaemonError(message)
            self._say(
                f"{name} (pid {pid}): ready after {restarted - began:.1f} s, the cluster is whole after"
                f" {_CLOCK.monotonic() - restarted:.1f} s more; {len(after.going_on)} jobs go on,"
                f" {len(after.failed - before.failed)} have failed meanwhile."
            )

    def _replace(self, daemon: Daemon, record: Record) -> int:
        options = [*daemon.options_of(record), *self._dynamic]
        configuration = load(self._layout.conf, environment=self._environment, dynamic=options)
        if starts_first(daemon.kind, configuration):
            pid = self._start(daemon, options)
            daemon.end(record)
            return pid
        daemon.end(record, drain_timeout=drain_patience(configuration) if daemon.kind is TASKMANAGER else 0.0)
        return self._start(daemon, options)

    def _start(self, daemon: Daemon, options: Sequence[str]) -> int:
        starting = daemon.spawn(options)
        try:
            wait_all([starting], START_TIMEOUT)
        except BaseException:
            daemon.give_up([starting])
            raise
        return starting.process.pid

    def _say(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


def starts_first(kind: DaemonKind, configuration: Configuration) -> bool:
    """True when a successor can run beside its predecessor."""
    return kind is JOBMASTER and configuration.get(JOBMASTER_PORT) == 0
