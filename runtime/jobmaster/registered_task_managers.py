"""The keys of TaskManagers, followed for all JobMasters of a process: a TaskManager whose key is deleted is dead (R13).

The key is deleted by its TaskManager, when all its processes have ended, or by the leader, which has a proof of death.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol

from runtime.common.ids import Incarnation


class RegisteredTaskManager(Protocol):
    """A registration, as far as people are told of it."""

    @property
    def task_manager_id(self) -> str:
        """Its name."""

    @property
    def address(self) -> str:
        """Where it is."""


async def follow_ends(
    registered: Callable[[], AsyncIterator[Mapping[Incarnation, RegisteredTaskManager]]],
    died: Callable[[Incarnation, str], None],
    found: Callable[[Incarnation, str], None],
) -> None:
    """Tell of each TaskManager whose key goes, in words that name it, and where each one is that can be asked. Eternal.

    R31: one whose record cannot be read has no address, and may get one.
    """
    before: Mapping[Incarnation, RegisteredTaskManager] = {}
    async for present in registered():
        for incarnation, task_manager in before.items():
            if incarnation not in present:
                host = task_manager.address.rpartition(":")[0]
                died(incarnation, f"TaskManager {task_manager.task_manager_id} on host {host}: its process died")
        for incarnation, task_manager in present.items():
            known = before.get(incarnation)
            if task_manager.address and (known is None or known.address != task_manager.address):
                found(incarnation, task_manager.address)
        before = present
