"""Ending everything of one life: below the process that reaps, in the cgroup, and all carriers of the mark (R30).

The tree is whole as long as one guard lives: both are subreapers, one above the other. The cgroup is whole always. The
mark finds what neither has: children of guards that were killed. Standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from runtime.system.linux import children_of, process_tree
from runtime.taskexecutor.guard.cgroup import Cgroup
from runtime.taskexecutor.guard.mark import carriers
from runtime.taskexecutor.guard.records import LifeRecord, boot_id, host_identity, pid_namespace

KILL_ROUND_SECONDS = 0.05
OTHERS_KEPT_SECONDS = 7 * 86400
"""A week: by then an owner that waited for that life's end has waited out its fence, or a person has helped."""
LEFTOVER_PATIENCE = 20.0


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal a process that may have ended, or may be another user's (`sudo`): what cannot be killed is not taken for
    dead.
    """
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def reap_children(note: Callable[[int, int], None] = lambda _pid, _status: None) -> bool:
    """Collect every child that has ended; True while one is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        note(pid, status)


def kill_orphans(main: int) -> list[int]:
    """Kill what dead processes have left to this guard, with all below it: which of its children that was."""
    orphans = [pid for pid in children_of(os.getpid()) if pid != main]
    for orphan in orphans:
        for pid in process_tree(orphan):
            kill(pid)
    return orphans


def end_all(cgroup: Cgroup | None, mark: int, pause: Callable[[float], object]) -> None:
    """Kill and reap until nothing is left, however long that takes. `pause` lets time pass, and may serve meanwhile."""
    while _kill_round(cgroup, mark):
        pause(KILL_ROUND_SECONDS)
    if cgroup is not None:
        cgroup.remove()


def _kill_round(cgroup: Cgroup | None, mark: int) -> bool:
    """True while anything is left. The scan of all processes comes last, when nothing else is."""
    has_children = reap_children()
    if has_children:
        for pid in process_tree(os.getpid())[1:]:
            kill(pid)
    if cgroup is not None and cgroup.is_populated:
        cgroup.kill()
        return True
    if has_children:
        return True
    strays = carriers(mark)
    for pid in strays:
        kill(pid)
    return bool(strays)


def reap_leftovers(directory: Path) -> None:
    """End what killed guards have left on this host, life by life, and note it: from then on their end is known."""
    try:
        paths = sorted(directory.iterdir())
    except FileNotFoundError:
        return
    removed = 0
    for path in paths:
        record = LifeRecord.take_over(path)
        if record is None:
            continue
        try:
            if record.is_reaped:
                continue
            if _is_forgotten(record):
                path.unlink(missing_ok=True)
                removed += 1
            else:
                _reap_leftover(record)
        finally:
            record.close()
    if removed:
        days = OTHERS_KEPT_SECONDS // 86400
        _say(f"{removed} records of lives on other hosts, all older than {days} days, are removed from {directory}")


def _is_forgotten(record: LifeRecord) -> bool:
    """Is it of another host, and old? Where each start has another host name there would be more and more (D-050)."""
    life = record.life()
    return life is not None and life.host != host_identity() and record.age >= OTHERS_KEPT_SECONDS


def _reap_leftover(record: LifeRecord) -> None:
    life = record.life()
    if life is None:
        _say(f"{record.path} cannot be read: nothing is known of the end of that life")
        return
    if life.host != host_identity():
        _say(f"life {life.incarnation} was on another host: nothing is known of its end from here")
        return
    is_same_boot = life.boot_id == boot_id()
    if is_same_boot and life.pid_namespace != pid_namespace() and not life.ends_namespace:
        _say(f"life {life.incarnation} was in another container: nothing is known of its end from here")
        return
    if is_same_boot and life.pid_namespace == pid_namespace():
        if not life.cgroup and not life.mark:
            _say(f"life {life.incarnation} left neither a cgroup nor a mark: nothing is known of its end")
            return
        if not _end_leftover(Cgroup(Path(life.cgroup)) if life.cgroup else None, life.mark):
            _say(f"processes of life {life.incarnation} do not end: nothing is known of its end")
            return
    record.note_reaped()


def _end_leftover(cgroup: Cgroup | None, mark: int) -> bool:
    """Members of the cgroup, and carriers of the mark, until there are none; they are others' children to reap."""
    deadline = time.monotonic() + LEFTOVER_PATIENCE  # noqa: TID251 - a guard loads no clock of ours
    while time.monotonic() < deadline:  # noqa: TID251
        is_populated = cgroup is not None and cgroup.is_populated
        if cgroup is not None and is_populated:
            cgroup.kill()
        strays = carriers(mark)
        for pid in strays:
            kill(pid)
        if not strays and not is_populated:
            if cgroup is not None:
                cgroup.remove()
            return True
        select.select([], [], [], KILL_ROUND_SECONDS)  # they are not our children: the kernel sends no signal
    return False


def _say(sentence: str) -> None:
    sys.stderr.write(f"guard: {sentence}\n")
    sys.stderr.flush()
