"""What the TaskExecutor hands to a slot, and what it hears back.

Layout that the TaskExecutor prepares before `SlotProcessPool.run`: `job_directory` holds the job's `files` by name and
its `archives` unpacked (`x.zip#alias` as `alias/`), and is the task's working directory; `python_path` are the py-files
(the directory of a `.py`, a `.zip` or `.egg` itself) and the unpacked wheels, in the order in which they are searched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from runtime.common.ids import ExecutionAttemptId
from runtime.gateways.task import (
    JobInformation,
    TaskDeploymentDescriptor,
    TaskExecutionReport,
    TaskProgress,
)
from runtime.taskexecutor.containment.cgroups import SlotCgroups
from runtime.taskexecutor.containment.users import TaskUser
from runtime.taskexecutor.slot_protocol.wire import RemoteFile
from runtime.taskexecutor.task_environment import TaskEnvironment


@dataclass(frozen=True, slots=True)
class SlotSettings:
    """How slots work on this TaskManager. Durations in seconds; `memory_bytes_max` is per slot, 0 = no limit.

    `keep_idle`: how long a process that has run a task waits for another one that may run in it.
    `moves_scripts`: a script that sets static conf begins again in a Spark environment that has it.
    `stop_timeout`: how long a script has to end when its job was stopped with a savepoint (R61).
    `spark_cluster`: the master whose executors run Spark's tasks on other hosts, "" when they run in the JVM here.
    `checkpoint_directory`: below which streaming queries keep their state, a directory for each job.
    `attaches_ahead`: idle processes get a session. Where slots have users they are root's, and hear nothing of a JVM.
    """

    slots: int
    task_manager_id: str
    memory_bytes_max: int = 0
    cancellation_timeout: float = 1.0
    stop_timeout: float = 30.0
    is_reuse_enabled: bool = True
    inline_bytes_max: int = 256 * 1024
    log_bytes_max: int = 10 * 1024 * 1024
    is_static_conf_fatal: bool = False
    moves_scripts: bool = False
    spark_cluster: str = ""
    sample_interval: float = 0.2
    progress_interval: float = 1.0
    attach_idle_delay: float = 0.05
    attaches_ahead: bool = True
    checkpoint_directory: str = ""
    keep_idle: float = 30.0
    start_timeout: float = 60.0
    session_timeout: float = 60.0
    cgroups: SlotCgroups | None = None
    environment: TaskEnvironment = field(default_factory=TaskEnvironment.of_this_process)


@dataclass(frozen=True, slots=True)
class SlotWork:
    """One attempt to run. `code_files` maps the sha256 of each code blob to its local file.

    `secrets` are values by name, `brought` the names of what the job has in `job_directory` from the beginning.
    Partitions go under `<partition_directory>/<partition id>`, `<exchange_directory>/<job id>` unless it is named; logs
    under `<log_directory>/<attempt id>/`. `user`: the user it runs as, None: as the TaskManager's user (R50). `jars`:
    what the job brings for the class path of its Spark. `remote` files are in `job_directory` once the slot process has
    fetched them, and count as `brought`. `shares`: how many slots' parts of the TaskManager it may use (D-141).
    """

    job: JobInformation
    task: TaskDeploymentDescriptor
    job_directory: Path
    exchange_directory: str
    log_directory: Path
    python_path: tuple[Path, ...] = ()
    brought: tuple[str, ...] = ()
    code_files: Mapping[str, Path] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    partition_directory: str = ""
    user: TaskUser | None = None
    jars: tuple[Path, ...] = ()
    remote: tuple[RemoteFile, ...] = ()
    shares: int = 1


@dataclass(frozen=True, slots=True)
class ProcessRoom:
    """What a slot process may use: the parts of so many slots, and memory beyond for the JVM of a Java application."""

    shares: int = 1
    jvm_bytes: int = 0


ONE_SLOT = ProcessRoom()


class ProcessGuard(Protocol):
    """Ends processes of exclusive tasks, and of movers, should this process not be able to (R14, R27)."""

    def mark_exclusive(self, pid: int, /) -> None:
        """Before an exclusive task, or a move, begins in the process. Raises UnavailableError: then do not begin."""

    def unmark(self, pid: int, /) -> None:
        """Take the mark away when nothing of the task is left, in process and Spark. Raises UnavailableError."""


class OrphanReaper(Protocol):
    """Ends what dead processes of this TaskManager have left behind (R29)."""

    async def sweep(self) -> str:
        """Returns when nothing is left: "", or the processes that do not die."""


class SlotListener(Protocol):
    """The component that runs an attempt.

    Called on the loop, in the order in which things happened; calls never block.
    """

    def task_state_changed(self, report: TaskExecutionReport, /) -> None:
        """RUNNING, then exactly one terminal state; the terminal one only after R15 holds."""

    def task_progressed(self, progress: TaskProgress, /) -> None:
        """Something visible changed while it runs."""

    def split_wanted(self, attempt_id: ExecutionAttemptId, sequence: int, /) -> None:
        """It has read the `sequence` splits that it was given, and waits for the next one (R12)."""
