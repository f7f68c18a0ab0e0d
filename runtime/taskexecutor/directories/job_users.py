"""Owners of the files that tasks of a job use, where slots have users of their own (R50).

The TaskManager, as root, makes everything and owns it; a job's group may write to its working directory, its home and
its result partitions only. So root follows no link and opens no file that a task could have put there in between: what
is handed over is handed over once, before the first task of the job runs.

Beside Spark, whose JVM is a user of its own, what Spark works on has the job's second group: all but its home. The JVM
is in that group, and gets there from the job's first use of Spark on.
"""

from __future__ import annotations

import asyncio
import fcntl
import grp
import logging
import os
import pwd
import stat
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from runtime.common.errors import PermanentError, RetryableError
from runtime.common.ids import JobId
from runtime.taskexecutor.attempt_logs.log_files import STREAMS
from runtime.taskexecutor.containment.command_as_user import command_as
from runtime.taskexecutor.containment.users import HOME, PRINTED, SlotUsers, TaskUser
from runtime.taskexecutor.directories.job_directory import JobDirectory
from runtime.taskexecutor.spark.account import SparkAccount

logger = logging.getLogger(__name__)

_LOCK = "slot-users.lock"
_NOBODY = 65534
_TABLES = "tables"
"""Of the job's directory, for what Spark's catalog has to remember (`spark/jvm/JobWarehouse.java`)."""
_LEAVE_PAUSE = 0.1
_LEAVE_LOOKS = 100
_TRAVERSABLE = 0o711
_CHECK_TIMEOUT = 60.0
_OWN_ACCOUNT = "give each one an account of its own, which nothing else uses (taskmanager.spark.user)"
_CHECK = (
    "import sys; sys.path.append(sys.argv[1])\n"
    "import encodings.idna, json, ctypes, cloudpickle, runtime.jobgraph.graph, os\n"
    "for path in sys.argv[2:]: os.stat(path + '/.')"
)
_IMPORT_ROOT = Path(__file__).resolve().parents[3]


class SlotUsersError(PermanentError):
    """Slots cannot have users of their own here."""


class GroupsExhaustedError(RetryableError):
    """More jobs are here than there are groups for them."""


def closed_to_others(paths: Iterable[Path]) -> Path | None:
    """The first directory above these, or of them, that other users may not go through, links followed. None: none."""
    for path in paths:
        real = path.resolve()
        for directory in (*reversed(real.parents), real):
            if directory.is_dir() and not directory.stat().st_mode & stat.S_IXOTH:
                return directory
    return None


def what_to_open(closed: Path | None, used: Mapping[str, Path]) -> str:
    """What to do when slots cannot use these, or other directories, because of that one; None: the directory is not
    known.
    """
    reals = {name: path.resolve() for name, path in used.items()}
    below = {name: path for name, path in reals.items() if closed is None or closed in (path, *path.parents)}
    if not below:
        return (
            "The directories above the run directory, and an exchange.dir outside of it, have to let all users "
            f"through: have it elsewhere, or chmod o+x {closed}"
        )
    named = ", ".join(f"{name} ({path})" for name, path in below.items())
    return (
        f"All users have to read {named}, and pass through the directories above the run directory and exchange.dir. "
        "Have the installation outside of /root, and make its environment with a Python that all users can read: "
        "remove .venv, then PYTHON=/usr/bin/python3.11 bin/quickstart.sh (docs/operations.md, Slots as users of their "
        "own). Only where that cannot be, open what is closed (chmod o+x): all users of this host get through there"
    )


class JobUsers:
    """Users of one TaskManager, and the groups of the jobs that are here."""

    def __init__(
        self,
        users: SlotUsers,
        run: Path,
        directories: Sequence[Path],
        credentials: Path,
        accounts: Sequence[SparkAccount] = (),
    ) -> None:
        self._users = users
        self._accounts = accounts
        self._run = run
        self._directories = directories
        self._credentials = credentials
        self._gids: dict[JobId, int] = {}
        self._free = dict.fromkeys(users.job_gids)
        self._open: set[JobId] = set()
        self._opening: dict[JobId, asyncio.Lock] = {}

    @property
    def shared_gid(self) -> int:
        """The group of all slots."""
        return self._users.shared_gid

    def claim(self) -> None:
        """Take the range for this process, and let slots get to their directories. Blocking.

        Raises SlotUsersError with what to do.
        """
        first, last = self._users.first, self._users.last
        if taken := _account_within(first, last):
            message = (
                f"taskmanager.slots.uids {first}-{last} contains {taken}: a task would have its files and processes; "
                "name a range that has no accounts"
            )
            raise SlotUsersError(message)
        if os.geteuid() != 0:
            message = (
                "taskmanager.slots.uids needs a TaskManager that runs as root: run it as root, or unset the option"
            )
            raise SlotUsersError(message)
        lock = os.open(self._run / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # A lock of bytes, by number; it goes with this process, and no child has it.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, last - first + 1, first)
        except OSError as error:
            message = (
                f"another TaskManager of this run directory uses some of {first}-{last}: give each one a range of its "
                "own (-D taskmanager.slots.uids=...)"
            )
            raise SlotUsersError(message) from error
        for account in self._accounts:
            self._claim_account(lock, account)
        for directory in self._directories:
            _let_through(self._run, directory)
        os.chown(self._credentials, 0, self.shared_gid)
        self._credentials.chmod(0o750)
        uid = self._users.uid_of(0)
        self._check(uid, uid, f"user {uid} of taskmanager.slots.uids")
        for account in self._accounts:
            self._check(account.uid, account.gid, f"{account.name!r} of taskmanager.spark.user")

    def _claim_account(self, lock: int, account: SparkAccount) -> None:
        """Other processes of that user could be reached by jobs, and would be ended with the JVM."""
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, account.uid)
        except OSError as error:
            message = f"another TaskManager of this run directory runs Spark as {account.name!r}: {_OWN_ACCOUNT}"
            raise SlotUsersError(message) from error
        others: list[int] = []
        for _ in range(_LEAVE_LOOKS):  # those of a TaskManager that was killed are about to end
            others = account.processes()
            if not others:
                return
            threading.Event().wait(_LEAVE_PAUSE)
        message = f"processes run as {account.name!r} that are not Spark's ({others[:10]}): {_OWN_ACCOUNT}"
        raise SlotUsersError(message)

    def _check(self, uid: int, gid: int, who: str) -> None:
        """By a program that tries it: no look at modes knows what the system will say."""
        try:
            done = subprocess.run(
                command_as(
                    uid, gid, [sys.executable, "-P", "-c", _CHECK, str(_IMPORT_ROOT), *map(str, self._directories)]
                ),
                env={"PYTHONDONTWRITEBYTECODE": "1"},
                cwd="/",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_CHECK_TIMEOUT,
                check=False,
            )
            problem = (done.stderr.strip().splitlines() or ["it ended with " + str(done.returncode)])[-1]
            is_fine = done.returncode == 0
        except (OSError, subprocess.TimeoutExpired) as error:
            problem, is_fine = str(error), False
        if not is_fine:
            used = {
                "Python": Path(sys.base_prefix),
                "its environment": Path(sys.prefix),
                "the installation": _IMPORT_ROOT,
            }
            closed = closed_to_others([*used.values(), *self._directories])
            where = f": {closed} is closed to it" if closed is not None else f" ({problem[:300]})"
            message = f"{who} cannot run tasks here{where}. {what_to_open(closed, used)}"
            raise SlotUsersError(message)

    async def admit(self, job_id: JobId, slot_index: int, directory: JobDirectory, code: Iterable[Path]) -> TaskUser:
        """The user of a task; the files of its job are its. Raises GroupsExhaustedError, OSError."""
        gid = self._gid_of(job_id)
        if job_id not in self._open:
            async with self._opening.setdefault(job_id, asyncio.Lock()):
                if job_id not in self._open:
                    await asyncio.to_thread(_hand_over, directory, gid, self._users.work_gid_of(gid))
                    self._open.add(job_id)
        for path in code:
            _show(path.parent.parent, gid)
            _show(path.parent, gid)
            _show(path, gid)
        users = self._users
        return TaskUser(
            users.uid_of(slot_index),
            gid,
            users.shared_gid,
            str(directory.root),
            processes_max=users.processes_max,
            spark_gids=users.spark_gids_of(slot_index, gid),
        )

    def unpacker_of(self, job_id: JobId) -> int:
        """The user that unpacks what the job has brought (R42): no slot has the number of its group.

        Raises GroupsExhaustedError.
        """
        return self._gid_of(job_id)

    def open_partitions(self, job_id: JobId, directory: Path) -> None:
        """Where tasks of the job write result partitions.

        Tasks on other TaskManagers, with groups of other numbers, read there: a task that knows its name may.
        """
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.parent.chmod(_TRAVERSABLE)
        directory.mkdir(exist_ok=True)
        os.chown(directory, 0, self._users.work_gid_of(self._gid_of(job_id)))
        directory.chmod(0o2775)

    def open_logs(self, user: TaskUser, directory: Path) -> None:
        """The files are the task's, the directory is not: it cannot put links to others' files into their place.

        Spark may append to its output as soon as the task lets it (`let_spark_append`), and reads nothing of it (R22).
        """
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(_TRAVERSABLE)
        work_gid = self._users.work_gid_of(user.gid)
        for stream in STREAMS:
            descriptor = os.open(directory / stream, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            os.fchown(descriptor, user.uid, work_gid if stream in PRINTED else user.gid)
            os.fchmod(descriptor, 0o600)
            os.close(descriptor)

    def close_logs(self, directory: Path) -> None:
        """The next task of that slot has the same user."""
        for stream in STREAMS:
            os.chown(directory / stream, 0, 0, follow_symlinks=False)
        directory.chmod(0o700)

    def leave(self, job_id: JobId, *, is_removed: bool) -> None:
        """Its processes have ended. If its files are deleted too, another job may have its group."""
        self._open.discard(job_id)
        self._opening.pop(job_id, None)
        if not is_removed:
            logger.warning("group %s stays that of job %s: not all of it is removed", self._gids.get(job_id), job_id)
        elif (gid := self._gids.pop(job_id, None)) is not None:
            self._free[gid] = None  # at the end: the one that is free for longest comes next

    def _gid_of(self, job_id: JobId) -> int:
        gid = self._gids.get(job_id)
        if gid is None:
            if not self._free:
                message = (
                    f"{len(self._gids)} jobs are on this TaskManager, and taskmanager.slots.uids has no group for one "
                    "more: make the range larger"
                )
                raise GroupsExhaustedError(message)
            gid = self._gids[job_id] = next(iter(self._free))
            del self._free[gid]
        return gid


def _account_within(first: int, last: int) -> str:
    """In words, a user or group of this host with such a number; "" when there is none. Blocking."""
    if first <= _NOBODY <= last:
        return f"{_NOBODY}, which is nobody's"
    users = sorted((one.pw_uid, one.pw_name) for one in pwd.getpwall() if first <= one.pw_uid <= last)
    groups = sorted((one.gr_gid, one.gr_name) for one in grp.getgrall() if first <= one.gr_gid <= last)
    if users:
        return "user {1} ({0})".format(*users[0])
    return "group {1} ({0})".format(*groups[0]) if groups else ""


def _let_through(run: Path, directory: Path) -> None:
    """Others may go through the run directory to it, and see nothing of what is in between.

    So with what is made here outside of it. What was there stays as it is: a start says whether that is enough.
    """
    made = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    within = [path for path in (directory, *directory.parents) if path.is_relative_to(run)]
    for path in {*made, *within}:
        path.chmod(_TRAVERSABLE)


def _hand_over(directory: JobDirectory, gid: int, work_gid: int) -> None:
    """Blocking. Nothing of the job runs yet."""
    home, tables = directory.root / HOME, directory.root / _TABLES
    own = {home, directory.work}
    home.mkdir(exist_ok=True)
    if work_gid != gid:
        tables.mkdir(exist_ok=True)
        own.add(tables)
    _show(directory.root, gid)
    for entry in directory.root.iterdir():
        of_entry = gid if entry == home else work_gid
        for root, names, files in os.walk(entry):
            for path in (Path(root), *(Path(root) / name for name in (*names, *files))):
                _show(path, of_entry, is_writable=entry in own)
        if entry.is_file():
            _show(entry, of_entry)


def _show(path: Path, gid: int, *, is_writable: bool = False) -> None:
    """The group gets what the owner has, but for writing; of directories that it may write to, new files are its."""
    os.chown(path, 0, gid, follow_symlinks=False)
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return
    group = (mode & 0o700) >> 3
    if not is_writable:
        group &= ~0o020
    set_gid = stat.S_ISGID if is_writable and stat.S_ISDIR(mode) else 0
    path.chmod(stat.S_IMODE(mode) & 0o700 | group | set_gid)
