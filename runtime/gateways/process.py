"""Calls that every process of the cluster answers about itself: its log files, its stacks, its environment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

LOG_BYTES_MAX = 1 << 20
"""The largest piece of a log file in one answer."""
DUMP_BYTES_MAX = 2 << 20
"""The largest text of all stacks in one answer, which is below the smallest `rpc.max-message-size`."""


class ProcessFile(Enum):
    """Which file is meant: the log, what the process has printed, or the one that is named."""

    LOG = "log"
    STDOUT = "stdout"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class LogFilesRequest:
    """Asks for the names of all log files."""


@dataclass(frozen=True, slots=True)
class LogFileInfo:
    """One log file. `modified_millis`: since 1970."""

    name: str
    size_bytes: int
    modified_millis: int


@dataclass(frozen=True, slots=True)
class LogFilesResponse:
    """The log files of the process, and of no other one; the last changed first."""

    files: tuple[LogFileInfo, ...]


@dataclass(frozen=True, slots=True)
class LogFileRequest:
    """Bytes from `offset`, at most `limit`; a negative offset counts from the end. `name`: of a NAMED file."""

    file: ProcessFile
    name: str
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class LogFileResponse:
    """`next_offset`: where to read on. `size_bytes`: the current size.

    `is_restarted`: the offset was beyond the end, since the file was moved aside or cut: `data` is its beginning.
    """

    data: bytes
    next_offset: int
    size_bytes: int
    is_restarted: bool = False


@dataclass(frozen=True, slots=True)
class ThreadDumpRequest:
    """Asks for the stacks of now."""


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """One thread, or one task of a loop: its name, and its stack with the innermost call first."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ThreadDumpResponse:
    """All of them, up to DUMP_BYTES_MAX; the last one says how many more there are."""

    stacks: tuple[ThreadStack, ...]


@dataclass(frozen=True, slots=True)
class ProcessEnvironmentRequest:
    """Asks for what the process was started with."""


@dataclass(frozen=True, slots=True)
class ProcessEnvironmentResponse:
    """`version` of Python, `arch` of the machine, `options`: the command line with secrets masked, `path`: sys.path."""

    version: str
    arch: str
    options: tuple[str, ...]
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogLevelRequest:
    """Order to log what a logger, and those below it, say from that level on; DEFAULT: as configured."""

    logger: str
    level: str


@dataclass(frozen=True, slots=True)
class LogLevelChanged:
    """`former`: the level that the logger had, DEFAULT where it had none of its own."""

    former: str


@dataclass(frozen=True, slots=True)
class StopProcessRequest:
    """Order to stop, as Ctrl-C does: at once, without handing work over. Stored jobs stay stored."""


@dataclass(frozen=True, slots=True)
class ProcessStopping:
    """The process stops when this is answered."""


@dataclass(frozen=True, slots=True)
class ProcessFiguresRequest:
    """Asks for numbers of now."""


@dataclass(frozen=True, slots=True)
class SlotFigures:
    """`attempt_id` "" where nothing runs. `memory_bytes`: of what runs; `limit_bytes` 0: none."""

    index: int
    attempt_id: str
    memory_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class ConfValue:
    """One key of Spark's."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class SparkJvmFigures:
    """One Spark environment; `key` "" is the default one. `resident_bytes`: of the JVM, 0 where it is not known.

    `conf`: (key, value) of its Spark, secrets masked. A JVM that does not answer has -1 for everything else.
    """

    key: str
    resident_bytes: int
    heap_used: int
    heap_committed: int
    heap_max: int
    non_heap_used: int
    threads: int
    gc_count: int
    gc_millis: int
    conf: tuple[ConfValue, ...]


@dataclass(frozen=True, slots=True)
class ProcessFiguresResponse:
    """Of the process itself; slots and Spark of TaskManagers only. `cpu_millis` since its start, without children."""

    cpu_millis: int
    resident_bytes: int
    threads: int
    open_files: int
    slots: tuple[SlotFigures, ...]
    jvms: tuple[SparkJvmFigures, ...]


class ProcessGateway(Protocol):
    """Looks into a process, the level of its log, and its end. No call waits for what the process does for jobs."""

    async def request_log_files(self, request: LogFilesRequest, /) -> LogFilesResponse:
        """The log files of the process; none when it logs to the terminal."""

    async def request_log_file(self, request: LogFileRequest, /) -> LogFileResponse:
        """A piece of one file. Raises NotFoundError when the process has no such file, and InvalidInputError."""

    async def request_thread_dump(self, request: ThreadDumpRequest, /) -> ThreadDumpResponse:
        """The stacks of the process, and of those that it has started and can ask. No process is stopped for it."""

    async def set_log_level(self, request: LogLevelRequest, /) -> LogLevelChanged:
        """Change the level of a logger until the process ends. Idempotent.

        Raises NotFoundError for a logger that the process does not have, and InvalidInputError.
        """

    async def request_environment(self, request: ProcessEnvironmentRequest, /) -> ProcessEnvironmentResponse:
        """What the process was started with."""

    async def stop_process(self, request: StopProcessRequest, /) -> ProcessStopping:
        """Stop soon after the answer. Idempotent."""

    async def request_figures(self, request: ProcessFiguresRequest, /) -> ProcessFiguresResponse:
        """Numbers of the process, of its slots and of its Spark."""
