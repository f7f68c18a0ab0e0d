"""Users and groups of their own for slots (R50): which numbers they have, and how a slot process becomes its user.

A slot has a user, so that no task reaches another one's process; a job has a group, so that only its tasks share the
job's files. All numbers are from one range, which belongs to one TaskManager: the first is the group of
all slots, then come the users of slots, and the rest are groups of jobs. No account needs to have them.

Beside Spark, whose JVM is a user of its own, a slot has a group too, for the temporary files of its session, and a job
a second one, for what Spark works on. The JVM is in all groups of both kinds, and in no first group of a job.

A slot process belongs to root until it is given work: before that it runs no code of a job. Loaded before any fork.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import stat
from dataclasses import dataclass
from pathlib import Path

from runtime.system import linux
from runtime.taskexecutor.containment.left_ipc import remove_ipc_of

HOME = "home"
"""The home directory of all tasks of a job, and the place of their temporary files; in the job's directory, and deleted
with it.
"""
_GROUP_BITS = 0o070
_HADOOP_SCHEMES = frozenset({"arrow_hdfs", "hdfs"})
_OBJECT_SCHEMES = frozenset({"abfs", "abfss", "adl", "az", "dbfs", "gcs", "gs", "lakefs", "oci", "oss", "s3", "s3a"})
STORAGE_SCHEMES = _HADOOP_SCHEMES | _OBJECT_SCHEMES | {"ocilake", "tos", "tosfs", "webHDFS", "webhdfs"}
"""Where root moves files for a task: by their drivers no file of this host is reached."""
_HADOOP_HOST = re.compile(r"(?:[\w.-]+@)?(?!default[:/])[\w-][\w.-]*(?::[0-9]+)?/", re.ASCII | re.IGNORECASE)
_OPEN_GATE = 0o751
_APPENDED_BY_GROUP = 0o620
PRINTED = frozenset({"stdout", "stderr"})
"""The logs of an attempt that Spark writes to."""


@dataclass(frozen=True, slots=True)
class TaskUser:
    """The user that a task runs as. `directory` is the job's; `processes_max` counts all of this user, threads too.

    `spark_gids`: the groups that it has in common with Spark's JVM, its slot's and its job's; none without Spark.
    """

    uid: int
    gid: int
    shared_gid: int
    directory: str
    processes_max: int
    spark_gids: tuple[int, ...] = ()

    def environment(self) -> dict[str, str]:
        """The variables of a task that differ from the TaskManager's, because their places do."""
        home, name = str(Path(self.directory) / HOME), f"slot-{self.uid}"
        return {"HOME": home, "TMPDIR": home, "TEMP": home, "TMP": home, "USER": name, "LOGNAME": name}


@dataclass(frozen=True, slots=True)
class SlotUsers:
    """The numbers of one TaskManager, from `first` to `last`. Pure."""

    first: int
    last: int
    slots: int
    processes_max: int
    has_spark: bool = False

    @property
    def shared_gid(self) -> int:
        """The group of all slots: it may read delegation tokens (R51)."""
        return self.first

    def uid_of(self, slot_index: int) -> int:
        """The user of a slot."""
        assert 0 <= slot_index < self.slots, slot_index
        return self.first + 1 + slot_index

    @property
    def job_gids(self) -> range:
        """The groups of jobs."""
        first, rest = self.first + 1 + self.slots, self.last - self.first - self.slots
        return range(first, first + (rest // 2 if self.has_spark else rest))

    def work_gid_of(self, gid: int) -> int:
        """The group of what a job shows to Spark; its only one without Spark."""
        return gid + len(self.job_gids) if self.has_spark else gid

    def spark_gids_of(self, slot_index: int, gid: int) -> tuple[int, ...]:
        """The groups that a task has in common with the JVM."""
        return (self.slot_gids[slot_index], self.work_gid_of(gid)) if self.has_spark else ()

    @property
    def slot_gids(self) -> tuple[int, ...]:
        """The group of each slot: it has the number of the slot's user."""
        return tuple(self.uid_of(index) for index in range(self.slots)) if self.has_spark else ()

    @property
    def jvm_gids(self) -> tuple[int, ...]:
        """The groups of Spark's JVM beside its account's group: for delegation tokens (R51), and for files that it may
        read.
        """
        return (self.shared_gid, *self.slot_gids, *map(self.work_gid_of, self.job_gids))


def open_to_spark(user: TaskUser) -> None:
    """The job has touched Spark: from now on the JVM reaches all files with the job's second group. Idempotent."""
    with contextlib.suppress(FileNotFoundError):  # the job has left
        os.chmod(user.directory, _OPEN_GATE)  # noqa: PTH101 - pathlib would have a path made for each attempt


def let_spark_append(log_directory: str) -> None:
    """The calling task has touched Spark: from now on the JVM may append to what the task prints, and reads none of it.

    Raises OSError.
    """
    for stream in PRINTED:
        Path(log_directory, stream).chmod(_APPENDED_BY_GROUP)


def is_open_to_spark(user: TaskUser) -> bool:
    """True when the JVM reaches the job's files (`open_to_spark`)."""
    return stat.S_IMODE(Path(user.directory).stat().st_mode) == _OPEN_GATE


def as_group(umask: int) -> int:
    """A umask that lets the processes of the job's group change each other's files; others get what `umask` allows."""
    return umask & ~_GROUP_BITS


def is_of_other_hosts(url: str) -> bool:
    """True for a URL of storage in which users of this host have no rights. Pure.

    Only known protocols count: fsspec has many names for local files (`local:`, `simplecache::file:`, one letter and a
    colon), drivers that pass on to another one, and plug-ins.
    """
    scheme, separator, path = url.partition("://")
    if not separator or "::" in url or scheme not in STORAGE_SCHEMES:
        return False
    # Without a host, or with "default", it is what Hadoop's conf says; without a conf that is local files.
    return scheme not in _HADOOP_SCHEMES or _HADOOP_HOST.match(path) is not None


class Identity:
    """The user of this slot process: root until its first task, then one user for ever."""

    def __init__(self) -> None:
        self._template = os.getppid()
        self._user: TaskUser | None = None

    def become(self, user: TaskUser | None) -> None:
        """Give up all rights but those of `user`, before anything of a task is read or run; for good."""
        if user == self._user:
            return
        assert self._user is None, "a slot process has one user"
        assert user is not None
        self._user = user
        remove_ipc_of(user.uid)
        resource.setrlimit(
            resource.RLIMIT_MSGQUEUE, (0, 0)
        )  # queues that no list shows, for the next one with this user
        resource.setrlimit(resource.RLIMIT_NPROC, (user.processes_max, user.processes_max))
        os.setgroups([user.shared_gid, *user.spark_gids])
        os.setresgid(user.gid, user.gid, user.gid)
        os.setresuid(user.uid, user.uid, user.uid)
        linux.join_empty_keyring()
        linux.forget_keys_of_this_user()
        # The kernel has taken these two back with the rights.
        linux.die_with_parent(self._template)
        linux.allow_own_files()
        os.umask(as_group(os.umask(0)))
