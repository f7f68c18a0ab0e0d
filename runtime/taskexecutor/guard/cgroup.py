"""A cgroup of a TaskManager: its main process with all descendants; the kernel kills all members at once.

Only cgroup v2 has that (`cgroup.kill`). Each start finds out whether it can be had here, by making a group and entering
it: the tree may be mounted read-only, belong to another user, or be missing (R30). Standard library only.
"""

from __future__ import annotations

import os
from pathlib import Path

_FILE_SYSTEM = "cgroup2"


class Cgroup:
    """One group, by its directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def make(cls, name: str) -> Cgroup | None:
        """A group below our own one; None where that cannot be had."""
        parent = _own_directory()
        if parent is None:
            return None
        made = cls(parent / name)
        try:
            made.path.mkdir()
        except OSError:
            return None
        if not made._can_be_used():
            made.remove()
            return None
        return made

    def _can_be_used(self) -> bool:
        if not (self.path / "cgroup.kill").exists():
            return False
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self.enter()
                code = 0
            finally:
                os._exit(code)
        return os.waitpid(pid, 0)[1] == 0

    def enter(self) -> None:
        """Make this process, and all that it starts from now on, members. Raises OSError."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")

    def kill(self) -> None:
        """Send SIGKILL to every member, and to processes that members fork meanwhile."""
        try:
            (self.path / "cgroup.kill").write_text("1", encoding="ascii")
        except FileNotFoundError:
            return

    @property
    def is_populated(self) -> bool:
        """True while a member is alive."""
        try:
            events = (self.path / "cgroup.events").read_text(encoding="ascii")
        except FileNotFoundError:
            return False
        return "populated 1" in events.splitlines()

    def members(self) -> list[int]:
        """The pids of the members."""
        found: list[int] = []
        for directory in self._directories():
            try:
                found += map(int, (directory / "cgroup.procs").read_text(encoding="ascii").split())
            except OSError:
                continue
        return found

    def remove(self) -> None:
        """Remove the group if no process is in it; a populated group stays."""
        for directory in self._directories():
            try:
                directory.rmdir()
            except OSError:
                continue

    def _directories(self) -> list[Path]:
        """The directory of the group, and of groups that members have made below it, the lowest first."""
        return [Path(path) for path, _, _ in os.walk(self.path, topdown=False)]


def _own_directory() -> Path | None:
    """The directory of the group that this process is in."""
    try:
        own = _own_path(Path("/proc/self/cgroup").read_text(encoding="utf-8"))
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in mounts:
        left, _, right = line.partition(" - ")
        if right.split(" ")[0] != _FILE_SYSTEM or own is None:
            continue
        root, mounted_at = left.split(" ")[3:5]
        if own == root or own.startswith(root.rstrip("/") + "/"):
            return Path(mounted_at) / own.removeprefix(root).lstrip("/")
    return None


def _own_path(text: str) -> str | None:
    """The path in the v2 hierarchy, which has the number 0 and no controllers in its name."""
    return next((line[3:] for line in text.splitlines() if line.startswith("0::")), None)
