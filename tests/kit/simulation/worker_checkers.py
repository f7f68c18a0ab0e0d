"""The judge of workers that a driver has started (R65)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from runtime.gateways.resource_manager import RequestSlot, SlotReport
from runtime.highavailability.kv.key_value_store import WatchEvent
from tests.kit.simulation.checker import CheckerBase, Reader
from tests.kit.simulation.history import Applied, Expired, Received, Record, Sent, WorkerReleased, WorkerStarted
from tests.kit.simulation.workers import DRAIN_SECONDS, IDLE_SECONDS

_CROSSING = 2.0
"""A leader decides, and the calls to the driver take a moment, in which a slot may be allocated."""


class WorkersComeAndGo(CheckerBase):
    """R65: the leader alone starts workers, each once, and no more than there may be, and releases some; who has work
    is not released, and nobody is killed who has not had the time to end.
    """

    rule = "R65"

    sees: tuple[type, ...] = (Applied, Expired, Received, WorkerStarted, WorkerReleased)
    hears: tuple[type, ...] = (RequestSlot,)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._started: set[str] = set()
        self._released: dict[str, float] = {}
        self._busy: dict[str, list[float]] = defaultdict(list)
        self._candidacies: dict[str, str] = {}
        self._lapsed: dict[str, float] = {}

    def see(self, record: Record) -> Iterator[str]:
        """Starts and releases, and what leaders know of work."""
        match record.what:
            case Sent(peer=peer, message=RequestSlot()):
                self._busy[peer].append(record.at)
            case Received(peer=peer, message=SlotReport() as report) if record.process not in self._lapsed:
                # Whoever wakes behind its term reads what the TaskManager had before that.
                if any(slot.allocation_id is not None for slot in report.slots):
                    self._busy[peer].append(record.at)
            case Applied(events=events):
                self._note_candidacy(record.process, events)
            case Expired(events=events, is_revoked=False):
                keys = {event.kv.key for event in events}
                self._lapsed |= {one: record.at for one, key in self._candidacies.items() if key in keys}
            case WorkerStarted() as started:
                yield from self._judge_start(record.process, started)
            case WorkerReleased() as released:
                yield from self._judge_release(record.process, record.at, released)
            case _:
                return

    def _note_candidacy(self, process: str, events: tuple[WatchEvent, ...]) -> None:
        for event in events:
            if event.kv.key.startswith(self.keys.leaders) and not event.is_delete:
                self._candidacies[process] = event.kv.key
                self._lapsed.pop(process, None)

    def _judge_start(self, by: str, started: WorkerStarted) -> Iterator[str]:
        if started.worker_id in self._started:
            yield f"worker {started.worker_id} is started twice"
        self._started.add(started.worker_id)
        if self._lapsed.get(by, started.asked_at) < started.asked_at:
            yield f"{by} starts worker {started.worker_id}, and its lease has run out"
        if started.slots > started.slots_max:
            yield f"with worker {started.worker_id} there are {started.slots} slots, above {started.slots_max}"

    def _judge_release(self, by: str, at: float, released: WorkerReleased) -> Iterator[str]:
        worker_id = released.worker_id
        if self._lapsed.get(by, at) < at:
            yield f"{by} releases worker {worker_id}, and its lease has run out"
        if not released.kills:
            self._released.setdefault(worker_id, at)
            had_work = [one for one in self._busy[worker_id] if at - IDLE_SECONDS < one < at - _CROSSING]
            if had_work:
                yield f"worker {worker_id} is released {at - had_work[-1]:.1f} s after it had work"
        elif at - self._released.get(worker_id, at) < DRAIN_SECONDS:
            yield f"worker {worker_id} is killed before it has had {DRAIN_SECONDS} s to end"
