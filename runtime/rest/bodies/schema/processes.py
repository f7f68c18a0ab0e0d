"""Bodies of the routes that look into a process, as Flink's clients want them. Times are milliseconds since 1970."""

from __future__ import annotations

from typing_extensions import TypedDict


class JvmInfo(TypedDict):
    """Of Python, where Flink has its JVM. `options`: the command line, secrets masked."""

    version: str
    arch: str
    options: list[str]


class ProcessEnvironment(TypedDict):
    """`classpath`: where Python looks for modules."""

    jvm: JvmInfo
    classpath: list[str]


class LogInfo(TypedDict):
    """One log file; `size` in bytes."""

    name: str
    size: int
    mtime: int


class LogList(TypedDict):
    """The log files of one process."""

    logs: list[LogInfo]


class ChangedProcess(TypedDict):
    """`former`: its level before. `error`: why it logs as before, "" when it was changed."""

    process: str
    former: str
    error: str


class ChangedLogLevel(TypedDict):
    """What has become of it in each process that the leader knows."""

    logger: str
    level: str
    processes: list[ChangedProcess]


class ThreadInfo(TypedDict):
    """One thread, or one task of a loop."""

    threadName: str
    stringifiedThreadInfo: str


class ThreadDump(TypedDict):
    """All stacks of one process, and of those that it has started and can ask."""

    threadInfos: list[ThreadInfo]
