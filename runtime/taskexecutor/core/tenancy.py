"""The namespace that an environment belongs to: a TaskManager that serves one namespace at a time (R50,
`taskmanager.tenancy: namespace`).

Invariant: from the first slot of a namespace until Spark and all slot processes have been replaced, no slot is given to
another one; and they are replaced only when no job is left here that has used them.
"""

from __future__ import annotations

from runtime.common.namespaces import DEFAULT_NAMESPACE
from runtime.taskexecutor.core.events import Effect, RenewEnvironment
from runtime.taskexecutor.core.jobs import JobTable
from runtime.taskexecutor.core.moves import Moves
from runtime.taskexecutor.core.slot_table import SlotState, TaskSlotTable

RENEWS = "its slots are started anew for another namespace (taskmanager.tenancy: namespace)"
_OTHERS = "this TaskManager serves another namespace, and jobs of it are still here (taskmanager.tenancy: namespace)"


class Tenancy:
    """The tenant of one TaskManager. Not `is_enforced`: it serves all namespaces at once."""

    def __init__(self, slots: TaskSlotTable, jobs: JobTable, moves: Moves, *, is_enforced: bool) -> None:
        self._slots = slots
        self._jobs = jobs
        self._moves = moves
        self._is_enforced = is_enforced
        self.tenant = ""
        """The namespace that it serves, "" as long as it may be any."""
        self.is_renewing = False
        self._is_ordered = False
        self.is_used = False
        """True once something of the tenant has run."""

    def refusal(self, namespace: str) -> str:
        """Why a slot that is asked for cannot be given, "" if it can. `orders` has what follows."""
        if not self._is_enforced:
            return ""
        namespace = namespace or DEFAULT_NAMESPACE
        if self.tenant != namespace and not self.is_renewing:
            if not self._is_empty:
                return _OTHERS
            self.tenant = namespace
            self.is_renewing = self.is_used
        return RENEWS if self.is_renewing else ""

    def orders(self) -> list[Effect]:
        """Replace the environment, once each time."""
        if not self.is_renewing or self._is_ordered:
            return []
        self._is_ordered = True
        return [RenewEnvironment()]

    def renewed(self) -> list[Effect]:
        """Spark and all slot processes are replaced; the new ones have served no namespace."""
        self.is_renewing = self._is_ordered = self.is_used = False
        return []

    @property
    def _is_empty(self) -> bool:
        """No job is here that has run something, or may."""
        is_free = all(slot.state is SlotState.FREE for slot in self._slots)
        return is_free and all(job.information is None and not self._moves.is_ordered(job.job_id) for job in self._jobs)
