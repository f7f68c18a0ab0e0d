"""Events that no component of a term sees: JobManagers that come and go, a full store, an absent history (D-114)."""

from __future__ import annotations

from runtime.common.ids import Incarnation
from runtime.dispatcher.runner import DispatcherRunner
from runtime.gateways.cluster_events import NO_EVENTS, ClusterEvents, EventKind
from runtime.highavailability.kv.compaction import CompactionStatus, Compactor
from runtime.highavailability.leadership.retrieval import LeaderRetrieval
from runtime.history.writer import HistoryWriter

STORE = "store"
HISTORY = "history"
"""Subjects of the events about them."""
HISTORY_PERIOD = 30.0
"""Seconds between two looks whether the history can be written."""


class JobManagerEvents:
    """Tells them to the events of this process's term; to nobody while it does not lead."""

    def __init__(
        self, runner: DispatcherRunner, retrieval: LeaderRetrieval, compactor: Compactor, history: HistoryWriter
    ) -> None:
        self._history = history
        self._runner = runner
        self._retrieval = retrieval
        self._compactor = compactor

    @property
    def _events(self) -> ClusterEvents:
        term = self._runner.leading.value
        return NO_EVENTS if term is None else term.dispatcher.events

    async def compact(self) -> CompactionStatus:
        """R21, and whether the store is full."""
        status = await self._compactor.activate()
        figures = f"{status.size_bytes} of {status.quota_bytes} bytes"
        if status.is_full:
            message = f"the store is nearly full, {figures}: no new jobs until it shrinks"
            self._events.tell(EventKind.STORE_FULL, message, subject=STORE)
        else:
            self._events.tell(EventKind.STORE_HAS_ROOM, f"the store has room again, {figures}", subject=STORE)
        return status

    async def carry_history(self) -> int:
        """Carry over what waits, and tell whether the history can be written, and whether it could meanwhile."""
        if self._history.trouble:  # of a write, which this look may find gone
            self._events.tell(EventKind.HISTORY_AWAY, self._history.trouble, subject=HISTORY)
        carried = await self._history.carry()
        if self._history.trouble:
            self._events.tell(EventKind.HISTORY_AWAY, self._history.trouble, subject=HISTORY)
        else:
            self._events.tell(EventKind.HISTORY_BACK, "the history can be written again", subject=HISTORY)
        return carried

    async def follow_candidates(self) -> None:
        """Tell which JobManagers come and go while this one leads. Eternal."""
        known: dict[Incarnation, str] = {}
        is_first = True
        generation = -1
        while True:
            present = await self._retrieval.present.wait_changed(generation)
            generation = self._retrieval.present.generation
            found = {one.incarnation: one.rest_address for one in present}
            for incarnation, address in found.items():
                if not is_first and incarnation not in known:
                    message = f"JobManager {incarnation} stands by at {address}"
                    self._events.tell(EventKind.JOBMANAGER_REGISTERED, message, subject=incarnation)
            for incarnation in known.keys() - found.keys():
                message = f"JobManager {incarnation} at {known[incarnation]} has ended, or has lost its lease"
                self._events.tell(EventKind.JOBMANAGER_LOST, message, subject=incarnation)
            known, is_first = found, is_first and not found
