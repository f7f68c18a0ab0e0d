"""One life of a TaskManager, as its guard and its watcher know it: its identity, its record, its end (R30)."""

from __future__ import annotations

import os
import secrets
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runtime.taskexecutor.guard.cgroup import Cgroup
from runtime.taskexecutor.guard.mark import carry, new_mark
from runtime.taskexecutor.guard.reaping import end_all
from runtime.taskexecutor.guard.records import Life, LifeRecord, boot_id, forget_life, host_identity, pid_namespace
from runtime.taskexecutor.guard.statement import leave_statement


@dataclass
class GuardedLife:
    """Made by the watcher before anything runs; the guard has a copy.

    `states_for`: seconds for which the end is stated at the guard's address; 0 while no process would ask.
    """

    incarnation: str
    cgroup: Cgroup | None
    mark: int
    record: LifeRecord
    listener: socket.socket | None = None
    states_for: float = 0.0

    @classmethod
    def begin(cls, records: Path) -> GuardedLife:
        """Make the life and its record. Raises OSError where the run directory cannot be written."""
        incarnation = secrets.token_hex(16)
        cgroup = Cgroup.make(f"flinklike-{incarnation}")
        mark = new_mark()
        life = Life(
            incarnation=incarnation,
            host=host_identity(),
            boot_id=boot_id(),
            pid_namespace=pid_namespace(),
            ends_namespace=os.getpid() == 1,
            cgroup=str(cgroup.path) if cgroup is not None else "",
            mark=mark,
        )
        return cls(incarnation, cgroup, mark, LifeRecord.create(records, life))

    @property
    def identity(self) -> str:
        """The statement to a dialler while anything of this life is alive."""
        return f"{self.incarnation} {boot_id()}"

    def enter(self) -> None:
        """Make this process, and all that it starts from now on, part of this life. Raises OSError."""
        if self.cgroup is not None:
            self.cgroup.enter()
        carry(self.mark)

    def end(self, pause: Callable[[float], object]) -> None:
        """Kill and reap everything, note it, and leave the statement behind."""
        end_all(self.cgroup, self.mark, pause)
        self.record.note_reaped()
        if self.listener is not None and self.states_for:
            leave_statement(self.listener, self.identity, self.record, self.states_for)
        else:
            forget_life(self.record.path.parent, self.incarnation)


def print_if_read(sentence: str) -> None:
    """Write to stderr, unless no process reads it now (a full pipe, a terminal that Ctrl-S holds): no guard waits for
    that.
    """
    try:
        if select.select([], [2], [], 0)[1]:
            os.write(2, sentence.encode())
    except OSError:
        return  # no process reads it
