"""Control groups of slots: the kernel's own limits of memory, processor and processes for all that runs in one (R50).

A group for each slot and controller, below the group that the TaskManager is in; what a slot process starts is in it
too. Memory is limited in one more, of each slot process: what it leaves in memory is charged to no later one. Whether a
controller can be had is found out by making the groups, never assumed. Version 1 gives each controller a tree of its
own; version 2 has one tree, and lends controllers only to groups below one that holds no process itself.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePosixPath

from runtime.common.errors import UnavailableError
from runtime.system.linux import is_alive

CONTROLLERS = ("memory", "cpu", "pids")
_OCTAL = re.compile(r"\\([0-7]{3})")
"""How mountinfo writes blanks."""
_PREFIX = "flinklike-slots-"
_PERIOD_MICROS = 100_000
_MEMORY_SHARE = 1.25
"""The measured limit comes first, and says what has happened; this one holds where memory grows faster than is seen."""


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """The limits of one slot; 0 is no limit."""

    memory_bytes: int
    cpu_cores: float
    processes: int

    def of_shares(self, shares: int, more_bytes: int = 0) -> SlotLimits:
        """These limits of so many slots together, with more memory; none stays none."""
        memory = self.memory_bytes and self.memory_bytes * shares + more_bytes
        return SlotLimits(memory, self.cpu_cores * shares, self.processes * shares)

    def settings(self, controller: str, version: int) -> dict[str, str]:
        """Files of a group, and what goes into them."""
        memory, quota = int(self.memory_bytes * _MEMORY_SHARE), int(self.cpu_cores * _PERIOD_MICROS)
        match controller, version:
            case "pids", _ if self.processes:
                return {"pids.max": str(self.processes)}
            case "memory", 1 if memory:
                return {"memory.limit_in_bytes": str(memory)}
            case "memory", 2 if memory:
                return {"memory.max": str(memory)}
            case "cpu", 1 if quota:
                return {"cpu.cfs_period_us": str(_PERIOD_MICROS), "cpu.cfs_quota_us": str(quota)}
            case "cpu", 2 if quota:
                return {"cpu.max": f"{quota} {_PERIOD_MICROS}"}
            case _:
                return {}


class SlotCgroups:
    """The groups of one TaskManager. `refused` says by controller why there are none."""

    def __init__(self) -> None:
        self._roots: list[Path] = []
        self._memory: Path | None = None
        self._memory_settings: Callable[[int, int], dict[str, str]] = lambda _shares, _more: {}
        self._scaled: dict[int, int] = {}
        self._of_slots: list[Callable[[int], tuple[Path, dict[str, str]]]] = []
        """Of controllers whose limits are those of the slot's group: its root, and the settings for so many shares."""
        self._numbers = count()
        self.refused: dict[str, str] = {}
        self.controllers: list[str] = []

    @classmethod
    def make(cls, slots: int, limits: SlotLimits) -> SlotCgroups:
        """Make the groups of every limited controller that this host lends; `refused` names the others. Blocking."""
        made = cls()
        trees = _trees()
        for controller in CONTROLLERS:
            if not limits.settings(controller, 1):
                continue
            if controller not in trees:
                made.refused[controller] = "no tree of control groups has it"
                continue
            parent, version = trees[controller]
            try:
                made._add(parent, version, controller, slots, limits)
            except OSError as error:
                if (root := _root_below(parent)) not in made._roots:
                    _remove(root)
                made.refused[controller] = f"{error.strerror}: {error.filename or parent}"
        return made

    def _add(self, parent: Path, version: int, controller: str, slots: int, limits: SlotLimits) -> None:
        _remove_of_dead(parent)
        root = _root_below(parent)
        if version == 2:
            _write(parent / "cgroup.subtree_control", f"+{controller}")
        root.mkdir(exist_ok=True)
        if version == 2:
            _write(root / "cgroup.subtree_control", f"+{controller}")
        settings = limits.settings(controller, version)
        for index in range(slots):
            group = root / str(index)
            group.mkdir(exist_ok=True)
            if controller == "memory":
                self._try_memory(group, version, settings)
                continue
            for name, value in settings.items():
                _write(group / name, value)
        if controller == "memory":
            self._memory = root
            self._memory_settings = lambda shares, more: limits.of_shares(shares, more).settings("memory", version)
        else:
            self._of_slots.append(lambda shares: (root, limits.of_shares(shares).settings(controller, version)))
        if root not in self._roots:
            self._roots.append(root)
        self.controllers.append(controller)

    def _try_memory(self, group: Path, version: int, settings: Mapping[str, str]) -> None:
        if version == 2:
            _write(group / "cgroup.subtree_control", "+memory")
        self._make(group / "tried", settings)
        (group / "tried").rmdir()

    def _make(self, group: Path, settings: Mapping[str, str]) -> None:
        group.mkdir()
        for name, value in settings.items():
            _write(group / name, value)

    def of(self, slot_index: int) -> tuple[str, ...]:
        """The groups of a slot, by their directories."""
        return tuple(str(root / str(slot_index)) for root in self._roots)

    def open(self, slot_index: int, more_bytes: int = 0, shares: int = 1) -> tuple[str, ...]:
        """The groups that a new process of a slot enters, with the memory of so many slots, and more. Blocking.

        Raises UnavailableError.
        """
        if self._memory is None:
            return self.of(slot_index)
        own = self._memory / str(slot_index) / str(next(self._numbers))
        try:
            self._make(own, self._memory_settings(shares, more_bytes))
        except OSError as error:
            message = f"the control group {error.filename or own} cannot be made: {error.strerror}"
            raise UnavailableError(message) from error
        return (str(own), *(str(root / str(slot_index)) for root in self._roots if root != self._memory))

    def scale(self, slot_index: int, shares: int) -> None:
        """Give a slot the cores and processes of so many slots, for what begins there now. Blocking.

        Raises UnavailableError.
        """
        if self._scaled.get(slot_index, 1) == shares:
            return
        self._scaled[slot_index] = 0  # unknown, until all files are written
        for settings_of in self._of_slots:
            root, settings = settings_of(shares)
            try:
                for name, value in settings.items():
                    _write(root / str(slot_index) / name, value)
            except OSError as error:
                message = f"the control group {error.filename or root} cannot be changed: {error.strerror}"
                raise UnavailableError(message) from error
        self._scaled[slot_index] = shares

    def close(self, groups: tuple[str, ...]) -> None:
        """Remove the group of a process that has ended with all its descendants, or was never started. Blocking.

        Memory that the process has left is charged to the slot's group from now on, which has no limit of memory.
        """
        if self._memory is not None and groups:
            _remove(Path(groups[0]))

    def has_ended(self, groups: tuple[str, ...]) -> bool:
        """Has the limit of memory ended a process of these groups?"""
        if self._memory is None or not groups:
            return False
        return any(_oom_kills(Path(groups[0]) / name) for name in ("memory.events", "memory.oom_control"))

    def remove(self) -> None:
        """Remove everything, when all slot processes have ended. Blocking."""
        for root in self._roots:
            _remove(root)


def remove_own() -> None:
    """Remove the groups of this process, should it end before its slots have begun. Blocking."""
    for parent, _ in _trees().values():
        _remove(_root_below(parent))


def enter(groups: tuple[str, ...]) -> None:
    """Make this process, and all that it starts from now on, members of the groups. Raises OSError."""
    for group in groups:
        _write(Path(group) / "cgroup.procs", str(os.getpid()))


def _root_below(parent: Path) -> Path:
    """The root is named by this process, so that a later start can tell that its process was killed."""
    return parent / f"{_PREFIX}{_namespace()}-{os.getpid()}"


def _namespace() -> int:
    """The number of the pid namespace: containers may share a tree, and pids of another container mean nothing here."""
    return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - a link that leads to no path


def _oom_kills(path: Path) -> int:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0  # the other version's
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)


def _remove(root: Path) -> None:
    for path, _, _ in os.walk(root, topdown=False):
        with contextlib.suppress(OSError):  # a process is still in it: the next start here removes it
            os.rmdir(path)  # noqa: PTH106 - a name, as os.walk has it


def _remove_of_dead(parent: Path) -> None:
    prefix = f"{_PREFIX}{_namespace()}-"
    for root in parent.glob(f"{prefix}*"):
        pid = root.name.removeprefix(prefix)
        if pid.isdigit() and not is_alive(int(pid)):
            _remove(root)


def _trees() -> Mapping[str, tuple[Path, int]]:
    """Where this process is in the tree of each controller, and the version of that tree."""
    try:
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return _trees_of(own, mounts)


def _trees_of(own: list[str], mounts: list[str]) -> Mapping[str, tuple[Path, int]]:
    paths: dict[str, str] = {}
    for line in own:
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    found: dict[str, tuple[Path, int]] = {}
    for controller, root, mounted_at, version in _mounted(mounts):
        path = paths.get("" if version == 2 else controller, "")
        if path:
            is_below = PurePosixPath(path).is_relative_to(root)
            directory = Path(mounted_at) / PurePosixPath(path).relative_to(root) if is_below else Path(mounted_at)
            found.setdefault(controller, (directory if directory.is_dir() else Path(mounted_at), version))
    return found


def _mounted(mounts: list[str]) -> Iterator[tuple[str, str, str, int]]:
    """Controller, root and place of each mount, and its version. Those of version 1 first."""
    for version, kind in ((1, "cgroup"), (2, "cgroup2")):
        for line in mounts:
            left, _, right = line.partition(" - ")
            root, mounted_at = (_OCTAL.sub(lambda found: chr(int(found[1], 8)), one) for one in left.split(" ")[3:5])
            file_system, _, options = right.split(" ")[:3]
            if file_system != kind:
                continue
            if version == 1:
                controllers = options.split(",")
            else:
                try:
                    controllers = (Path(mounted_at) / "cgroup.controllers").read_text(encoding="ascii").split()
                except OSError:
                    continue
            for controller in controllers:
                yield controller, root, mounted_at, version
