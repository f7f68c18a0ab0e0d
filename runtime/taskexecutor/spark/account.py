"""The user of Spark's host and JVM where slots are users of their own (R50): an account of the system.

Hadoop asks the system for the name of its user, so that a number alone does not do. The account is this TaskManager's
alone: whatever runs as it is Spark's, or was started by a job, and ends with the JVM. The TaskManager, as root, makes
the directory in which Spark works anew for each life of a JVM, and owns all above it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.common.deletion import delete_tree
from runtime.common.errors import InvalidInputError
from runtime.common.spark_environments import JARS, jar_paths
from runtime.config.log_files import cut_large
from runtime.taskexecutor.containment.command_as_user import command_as
from runtime.taskexecutor.containment.left_ipc import remove_ipc_of
from runtime.taskexecutor.containment.user_processes import end_processes_of, has_process, processes_of
from runtime.taskexecutor.spark_protocol.settings import SparkSettings, crash_file, temporary_directory

_OPTION = "taskmanager.spark.user"
_TRAVERSABLE, _PRIVATE = 0o711, 0o700
_READABLE = 0o644
_OF_ANOTHER_USER = ("XDG_RUNTIME_DIR", "PYSPARK_UDS_MODE", "PYTHONSTARTUP", "PYTHONUSERBASE")
"""What would lead to places of the TaskManager's user, or to sockets that slots cannot open."""


@dataclass(frozen=True, slots=True)
class SparkAccount:
    """`gids`: the groups that its processes have beside `gid`. `umask`: of what they write."""

    name: str
    uid: int
    gid: int
    gids: tuple[int, ...]
    umask: int

    @classmethod
    def named(cls, name: str, range_: tuple[int, int], gids: tuple[int, ...], umask: int) -> SparkAccount:
        """The account of that name. Raises InvalidInputError, with what to do."""
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            message = f"{_OPTION}: there is no account {name!r} here: make one (useradd --system {name})"
            raise InvalidInputError(message) from None
        first, last = range_
        if found.pw_uid == 0 or found.pw_gid == 0:
            message = f"{_OPTION}: {name!r} is root, or in its group: name an account that only this TaskManager uses"
            raise InvalidInputError(message)
        if first <= found.pw_uid <= last or first <= found.pw_gid <= last:
            message = (
                f"{_OPTION}: {name!r} has the numbers {found.pw_uid} and {found.pw_gid}, and those of "
                f"taskmanager.slots.uids ({first}-{last}) are of slots and jobs: give it others"
            )
            raise InvalidInputError(message)
        return cls(name, found.pw_uid, found.pw_gid, gids, umask)

    def environment(self, variables: Mapping[str, str], settings: SparkSettings) -> dict[str, str]:
        """`variables` for the processes of the account: with its own name and directories in them."""
        home, temporary = str(settings.work_directory), str(temporary_directory(settings))
        kept = {name: value for name, value in variables.items() if name not in _OF_ANOTHER_USER}
        own = {"HOME": home, "TMPDIR": temporary, "TEMP": temporary, "TMP": temporary}
        return {**kept, **own, "USER": self.name, "LOGNAME": self.name}

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` as this user."""
        return command_as(self.uid, self.gid, command, groups=self.gids, umask=self.umask)

    def processes(self) -> list[int]:
        """The living processes of the account. A zombie runs nothing."""
        return processes_of(self.uid)

    def owns(self, pid: int) -> bool:
        """True if it is a process of this user: what its processes say is not to be believed."""
        return has_process(self.uid, pid)

    def end_all(self, wait: Callable[[float], object]) -> list[int]:
        """Kill all processes of the account, and those that they start meanwhile; returns those that do not die.
        Blocking.
        """
        return end_processes_of(self.uid, wait)

    def prepare(self, settings: SparkSettings, jars: Path) -> SparkSettings:
        """Make what host and JVM own, empty; the settings with which they find it. Blocking, as root.

        Nothing of an earlier life is followed or kept, as jobs could write there. What the class archive is made of was
        written by root: it is linked, and may be read; so are jars of jobs, of those in `jars` which its conf names.
        Directories of sessions are beside the private one, for slots.
        """
        remove_ipc_of(self.uid)
        delete_tree(settings.work_directory)
        own = settings.work_directory / "own"
        archives = own / "cds"
        archives.mkdir(parents=True)
        for source in settings.cds_directory.iterdir() if settings.cds_directory.is_dir() else ():
            if source.suffix in {".jsa", ".aot", ".jar"} and not source.name.startswith("."):
                _lend(source, archives / source.name)
        conf, lent = self._lend_jars(settings.spark_conf, jars, own / "jars")
        private = ((directory, _PRIVATE) for directory in (*lent, archives, own))
        for directory, mode in (*private, (settings.work_directory, _TRAVERSABLE)):
            os.chown(directory, self.uid, self.gid)
            directory.chmod(mode)
        for log in _logs(settings):
            cut_large([log])
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            os.fchown(descriptor, self.uid, self.gid)
            os.close(descriptor)
        warehouse = settings.warehouse
        if Path(warehouse).parent == settings.work_directory:  # of one job
            warehouse = str(own / Path(warehouse).name)
        return replace(settings, work_directory=own, cds_directory=archives, spark_conf=conf, warehouse=warehouse)

    @staticmethod
    def close_logs(settings: SparkSettings) -> None:
        """The JVM has ended: the next one of the account reads nothing of what it has written. Blocking."""
        for log in _logs(settings):
            with contextlib.suppress(FileNotFoundError):
                os.chown(log, 0, 0, follow_symlinks=False)

    @staticmethod
    def _lend_jars(conf: Mapping[str, str], jars: Path, target: Path) -> tuple[dict[str, str], list[Path]]:
        """The conf with the paths of the jars that are lent, and the directories that are made for them."""
        found = jar_paths(conf, str(target))
        lent = [Path(jar) for jar in found.get(JARS, "").split(",") if jar.startswith(f"{target}/")]
        made = dict.fromkeys(directory for jar in lent for directory in (jar.parent, target))
        for directory in made:
            directory.mkdir(parents=True, exist_ok=True)
        for jar in lent:
            _lend(jars / jar.relative_to(target), jar)
        return found, list(made)


def _logs(settings: SparkSettings) -> tuple[Path, Path]:
    """Those that a JVM writes."""
    return settings.log_file("jvm"), crash_file(settings)


def _lend(source: Path, target: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # another process has replaced it
        source.chmod(_READABLE)
        try:
            target.hardlink_to(source)
        except OSError:  # on another file system, or more links than it takes
            shutil.copyfile(source, target)
            target.chmod(_READABLE)
