"""The driver `process`: TaskManagers and JobMaster processes on this host, as their scripts start them.

A worker (R65) is a daemon like any other: the scripts list, stop and drain it, and its log files lie beside those of
others. Its label is an option of its command line, so that a JobManager that starts here later finds it.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Collection, Mapping, Sequence

from runtime.aio.blocking import BlockingIo
from runtime.aio.thread_calls import in_own_thread
from runtime.config.layout import Layout
from runtime.entrypoint.control.daemon import LOG_CONSOLE_VARIABLE, Daemon, DaemonKind, Starting
from runtime.entrypoint.control.last_words import last_line
from runtime.entrypoint.control.pending import DaemonError
from runtime.entrypoint.control.pid_file import Record
from runtime.entrypoint.control.worker_verbs import labelled, signal_worker
from runtime.resourcemanager.driver import DriverError

_LAST_WORDS_MAX = 20
"""Ended workers whose last words are kept until somebody asks."""


class ProcessDriver:
    """Implements `ResourceManagerDriver` for one kind of process.

    `options_of`: the -D options of a worker.
    """

    def __init__(
        self,
        kind: DaemonKind,
        layout: Layout,
        environment: Mapping[str, str],
        options_of: Callable[[str], Sequence[str]],
    ) -> None:
        self._options_of = options_of
        own = {name: value for name, value in environment.items() if name != LOG_CONSOLE_VARIABLE}
        self._out = io.StringIO()
        self._daemon = Daemon(kind, layout, own, self._out)
        self._io = BlockingIo(f"{kind.name}-look", threads=1)
        self._one_start = asyncio.Lock()
        self._children: dict[str, Starting] = {}

    async def workers(self) -> Collection[str]:
        """ResourceManagerDriver."""
        return list(await self._look())

    async def start(self, worker_id: str, /, *, is_wanted: Callable[[], bool]) -> None:
        """ResourceManagerDriver."""
        try:
            self._forget_old()
            self._children[worker_id] = await self._started(worker_id, is_wanted)
        except (OSError, DaemonError) as error:
            message = f"the process cannot be started: {error}"
            raise DriverError(message) from error

    async def release(self, worker_id: str, /, *, kills: bool) -> None:
        """ResourceManagerDriver."""
        record = (await self._look()).get(worker_id)
        if record is None:
            return
        try:
            # One signal begins a drain (`Daemon.end` waits for its end, and holds the lock of all starts meanwhile).
            await self._io.run(signal_worker, self._daemon, record, kills=kills)
        except OSError as error:
            message = f"{self._daemon.kind.name} (pid {record.process.pid}) cannot be signalled: {error}"
            raise DriverError(message) from error

    async def last_words(self, worker_id: str, /) -> str:
        """ResourceManagerDriver. Of workers of an earlier JobManager nothing is known."""
        child = self._children.pop(worker_id, None)
        return "" if child is None else await self._io.run(_last_words, child)

    async def end_workers(self) -> None:
        """End all workers with all that they have started, and return when they have ended. DriverError.

        No guard states their ends any more: nobody is there to ask.
        """
        records = list((await self._look()).values())

        def end() -> None:
            self._daemon.end(*records)
            self._daemon.end_statements(0.0)

        try:
            await self._io.run(end)
        except (OSError, DaemonError) as error:
            message = f"{self._daemon.kind.name} processes of this host cannot be ended: {error}"
            raise DriverError(message) from error

    async def _look(self) -> dict[str, Record]:
        try:
            return await self._io.run(self._found)
        except OSError as error:
            message = f"the processes of this host cannot be listed ({self._daemon.kind.name}): {error}"
            raise DriverError(message) from error

    def _forget_old(self) -> None:
        ended = [name for name, child in self._children.items() if child.process.poll() is not None]
        for name in ended[: max(0, len(ended) - _LAST_WORDS_MAX)]:
            del self._children[name]

    async def _started(self, worker_id: str, is_wanted: Callable[[], bool]) -> Starting:
        """In a thread that no end of this process waits for: the lock may be held as long as a TaskManager drains."""
        options = (*self._options_of(worker_id), f"{self._daemon.kind.label}={worker_id}")
        async with self._one_start:
            _, started = in_own_thread("worker-start", lambda: self._daemon.spawn(options, is_wanted=is_wanted))
            return await started

    def _found(self) -> dict[str, Record]:
        for child in list(self._children.values()):
            child.process.poll()  # an ended child stays a zombie until its parent asks
        self._out.seek(0)
        self._out.truncate()
        return labelled(self._daemon)


def _last_words(child: Starting) -> str:
    """The last line of a worker that has ended, where it is; it says why it did not start."""
    if child.process.poll() is None:
        return ""
    return last_line(child.out_file) or f"exit code {child.process.returncode}, see {child.out_file}"
