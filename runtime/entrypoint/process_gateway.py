"""OwnProcess answers what REST asks of this process: its log files, its stacks, and what it was started with."""

from __future__ import annotations

import asyncio
import logging
import platform
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from runtime.aio.blocking import BlockingIo
from runtime.aio.stacks import task_stacks, thread_stacks
from runtime.common.masking import MASK, masked
from runtime.common.printable import printable
from runtime.config.catalog import all_options
from runtime.entrypoint.control.daemon import LOG_FILE_VARIABLE
from runtime.gateways.process import (
    DUMP_BYTES_MAX,
    LOG_BYTES_MAX,
    LogFileInfo,
    LogFileRequest,
    LogFileResponse,
    LogFilesRequest,
    LogFilesResponse,
    LogLevelChanged,
    LogLevelRequest,
    ProcessEnvironmentRequest,
    ProcessEnvironmentResponse,
    ProcessFiguresRequest,
    ProcessFiguresResponse,
    ProcessFile,
    ProcessStopping,
    SlotFigures,
    SparkJvmFigures,
    StopProcessRequest,
    ThreadDumpRequest,
    ThreadDumpResponse,
    ThreadStack,
)
from runtime.logs.levels import set_level
from runtime.logs.own_files import OwnLogFiles
from runtime.metrics.process_figures import own_figures

logger = logging.getLogger(__name__)

_READERS = 2
_STOP_SECONDS = 0.2
"""For the answer to an order to stop."""
_NAME_MAX = 300

Stacks = AsyncIterator[tuple[str, str]]
"""(name, stack) of one thread each."""

T = TypeVar("T")


async def no_stacks() -> Stacks:
    """Of a process that has started none."""
    for nothing in list[tuple[str, str]]():
        yield nothing


Parts = tuple[tuple[SlotFigures, ...], tuple[SparkJvmFigures, ...]]
"""Slots and Spark of a TaskManager."""


async def no_parts() -> Parts:
    """Of a process that has neither."""
    return (), ()


class OwnProcess:
    """Implements `ProcessGateway`. `further`: stacks of processes that this one has started; `parts`: what it has."""

    def __init__(
        self,
        log_file: Path | None,
        further: Callable[[], Stacks] = no_stacks,
        parts: Callable[[], Awaitable[Parts]] = no_parts,
    ) -> None:
        self._parts = parts
        self._files = OwnLogFiles(log_file)
        self._further = further
        # Of its own: files on a disk that hangs keep only their readers waiting.
        self._io = BlockingIo("read own logs", threads=_READERS)
        self._dumping = asyncio.Lock()
        self._dump: tuple[float, ThreadDumpResponse] = (float("-inf"), ThreadDumpResponse(()))

    @classmethod
    def of(
        cls,
        environment: Mapping[str, str],
        further: Callable[[], Stacks] = no_stacks,
        parts: Callable[[], Awaitable[Parts]] = no_parts,
    ) -> OwnProcess:
        """That of a process with these variables."""
        log_file = environment.get(LOG_FILE_VARIABLE)
        return cls(Path(log_file) if log_file else None, further, parts)

    async def request_log_files(self, request: LogFilesRequest, /) -> LogFilesResponse:
        """All log files of this process."""
        del request
        files = await self._in_thread(self._files.list)
        return LogFilesResponse(tuple(LogFileInfo(one.name, one.size_bytes, one.modified_millis) for one in files))

    async def request_log_file(self, request: LogFileRequest, /) -> LogFileResponse:
        """A piece of one of them."""
        known = {ProcessFile.LOG: self._files.log, ProcessFile.STDOUT: self._files.stdout}
        name = known.get(request.file, request.name)
        piece = await self._in_thread(
            partial(self._files.read, name, request.offset, min(request.limit, LOG_BYTES_MAX))
        )
        return LogFileResponse(piece.data, piece.next_offset, piece.size_bytes, piece.is_restarted)

    async def request_thread_dump(self, request: ThreadDumpRequest, /) -> ThreadDumpResponse:
        """The stacks. One dump is made at a time; those who asked before it began share it."""
        del request
        loop = asyncio.get_running_loop()
        asked = loop.time()
        async with self._dumping:
            begun, dump = self._dump
            if begun < asked:
                begun, dump = loop.time(), await self._new_dump()
                self._dump = (begun, dump)
        return dump

    async def _new_dump(self) -> ThreadDumpResponse:
        bounded = _Bounded()
        for name, text in thread_stacks():
            bounded.add(name, text)
        async for name, text in self._further():  # before the tasks: of those there may be thousands
            bounded.add(name, text)
        seen = 0
        async for name, text in task_stacks():
            seen += 1
            if not bounded.add(name, text):
                bounded.left_out += len(asyncio.all_tasks()) - 1 - seen
                break
        return ThreadDumpResponse(bounded.stacks())

    async def stop_process(self, request: StopProcessRequest, /) -> ProcessStopping:
        """As SIGINT does, when the answer has left."""
        del request
        logger.info("told to stop by the leading JobManager (DELETE /cluster)")
        asyncio.get_running_loop().call_later(_STOP_SECONDS, signal.raise_signal, signal.SIGINT)
        return ProcessStopping()

    async def set_log_level(self, request: LogLevelRequest, /) -> LogLevelChanged:
        """Change the level of one of our loggers here."""
        return LogLevelChanged(set_level(request.logger, request.level))

    async def request_environment(self, request: ProcessEnvironmentRequest, /) -> ProcessEnvironmentResponse:
        """The Python of this process, with its command line."""
        del request
        version = f"Python {platform.python_version()} ({platform.python_implementation()})"
        options = tuple(shown_options(sys.orig_argv))
        return ProcessEnvironmentResponse(version, platform.machine(), options, tuple(map(printable, sys.path)))

    async def request_figures(self, request: ProcessFiguresRequest, /) -> ProcessFiguresResponse:
        """Numbers of now."""
        del request
        slots, jvms = await self._parts()
        figures = own_figures()
        return ProcessFiguresResponse(
            round(figures.cpu_seconds * 1000), figures.resident_bytes, figures.threads, figures.open_files, slots, jvms
        )

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await self._io.run(call)

    def close(self) -> None:
        """End the threads that read. Idempotent."""
        self._io.abandon()


class _Bounded:
    """Stacks until there is no more room, and a last one that says how many have had none."""

    def __init__(self) -> None:
        self._room = DUMP_BYTES_MAX
        self._stacks: list[ThreadStack] = []
        self.left_out = 0

    def add(self, name: str, text: str) -> bool:
        """One more; False when it has no room. Names and texts may be of user code (R41)."""
        stack = ThreadStack(printable(name)[:_NAME_MAX], printable(text))
        size = len(stack.name.encode(errors="replace")) + len(stack.text.encode(errors="replace"))
        if size > self._room:
            self.left_out += 1
            return False
        self._room -= size
        self._stacks.append(stack)
        return True

    def stacks(self) -> tuple[ThreadStack, ...]:
        """All that have had room."""
        if self.left_out:
            said = f"{self.left_out} more stacks, for which there is no room in one answer"
            self._stacks.append(ThreadStack("left out", said))
        return tuple(self._stacks)


def shown_options(command: Sequence[str]) -> Iterable[str]:
    """R48: a command line with secrets masked: by the option, by its name, and by what looks like one."""
    for word in command:
        key, equals, value = word.partition("=")
        option = all_options().get(key)
        if option is not None and option.is_secret:
            yield f"{key}={MASK}"
        else:
            yield printable(f"{key}={masked(key, value)}" if equals else masked("", word))
