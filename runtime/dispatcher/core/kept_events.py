"""The events of a cluster that are kept, a bounded number, and what of it is still to be stored (D-114, R55).

Invariants: memory and store hold EVENTS_MAX events of BYTES_MAX at most, and OF_KIND_MAX of one kind, so that a process
that comes and goes pushes out nothing but its like. In a minute OF_SUBJECT_MAX events of one kind about one process are
kept and AT_ONCE_MAX of one kind; what is more becomes one event with their number. An event is given to the store once.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from runtime.common.printable import printable
from runtime.gateways.cluster_events import ClusterEvent, EventKind, EventPage

EVENTS_MAX = 1000
OF_KIND_MAX = 200
BYTES_MAX = 512 * 1024
MESSAGE_MAX = 400
"""Bytes of a message, as JSON writes it."""
WINDOW_SECONDS = 60.0
OF_SUBJECT_MAX = 5
AT_ONCE_MAX = 30
BATCH_MAX = 32
"""Events of one transaction. With as many deletions and what they stand for it stays below etcd's limit of 128."""
_FIXED_BYTES = 300
_STATES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Events to be stored and the keys of stored ones to be deleted, in one transaction."""

    puts: Sequence[tuple[str, ClusterEvent]]
    deletes: Sequence[str]


@dataclass(slots=True)
class _Kept:
    event: ClusterEvent
    key: str = ""
    """"" before it is given to the store."""


class EventGate:
    """Which events of a flood are kept, by (kind, namespace) and by process."""

    def __init__(self) -> None:
        self._since = 0.0
        self._kept: Counter[tuple[EventKind, str, str | None]] = Counter()
        self._left_out: Counter[tuple[EventKind, str]] = Counter()

    def takes(self, event: ClusterEvent, now: float) -> bool:
        """True if the event is kept; else it is counted."""
        if not self._kept and not self._left_out:
            self._since = now
        of_kind = (event.kind, event.namespace, None)
        of_subject = (event.kind, event.namespace, event.about)
        if self._kept[of_kind] >= AT_ONCE_MAX or self._kept[of_subject] >= OF_SUBJECT_MAX:
            self._left_out[event.kind, event.namespace] += 1
            return False
        self._kept[of_kind] += 1
        self._kept[of_subject] += 1
        return True

    def close_old_window(self, now: float) -> Sequence[tuple[EventKind, str, int]]:
        """What a window that is over has left out: kind, namespace and number."""
        if now - self._since < WINDOW_SECONDS:
            return ()
        found = [(kind, namespace, count) for (kind, namespace), count in self._left_out.items()]
        self._kept.clear()
        self._left_out.clear()
        return found


class KeptEvents:
    """The events of a term: those that it has found in the store, and its own. `term` is part of each new key."""

    def __init__(self, term: int) -> None:
        self._prefix = f"{term:016d}"
        self._events: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0
        self._of_kind: Counter[EventKind] = Counter()
        self._states: dict[tuple[str, str], EventKind] = {}
        self._deletes: list[str] = []
        self._numbers = 0
        self.generation = 0

    def __iter__(self) -> Iterator[ClusterEvent]:
        return (kept.event for kept in self._events.values())

    def recover(self, stored: Iterable[tuple[str, ClusterEvent]], unreadable: Iterable[str] = ()) -> None:
        """Take over what the store has, oldest first. Unreadable keys are deleted with the next write."""
        self._deletes += unreadable
        for key, event in stored:
            if event.id in self._events:  # nobody but a meddler writes an id twice
                self._deletes.append(key)
            else:
                self._enter(_Kept(event, key))

    def is_news(self, kind: EventKind, subject: str) -> bool:
        """False when that is so already, by the last event of that axis about the process."""
        if not kind.axis:
            return True
        last = self._states.get((kind.axis, subject))
        return last is not kind and not (last is None and kind.is_normal)

    def last(self, kind: EventKind) -> ClusterEvent | None:
        """The last event of a kind."""
        return next((kept.event for kept in reversed(self._events.values()) if kept.event.kind is kind), None)

    def note(self, kind: EventKind, subject: str) -> None:
        """That is so from now on, whether it is kept as an event or not."""
        if kind.axis:
            self._states.pop((kind.axis, subject), None)
            self._states[kind.axis, subject] = kind
        if len(self._states) > _STATES_MAX:
            del self._states[next(iter(self._states))]

    def add(self, event: ClusterEvent) -> None:
        """An event has happened."""
        self._enter(_Kept(event))
        self.generation += 1

    def _enter(self, kept: _Kept) -> None:
        event = kept.event
        self._events[event.id] = kept
        self._bytes += _size(event)
        self._of_kind[event.kind] += 1
        if not event.count:
            self.note(event.kind, event.about)
        if self._of_kind[event.kind] > OF_KIND_MAX:
            self._drop(next(one.event.id for one in self._events.values() if one.event.kind is event.kind))
        while len(self._events) > EVENTS_MAX or self._bytes > BYTES_MAX:
            self._drop(next(iter(self._events)))

    def _drop(self, event_id: str) -> None:
        kept = self._events.pop(event_id)
        event = kept.event
        self._bytes -= _size(event)
        self._of_kind[event.kind] -= 1
        if kept.key:
            self._deletes.append(kept.key)
        if not any(one.event.about == event.about for one in self._events.values()):
            for axis in {axis for axis, about in self._states if about == event.about}:
                del self._states[axis, event.about]

    # --- the store ----------------------------------------------------------------------------------------

    def take_batch(self) -> Batch | None:
        """What is to be written next, None when there is nothing. It counts as written from now on."""
        waiting = [kept for kept in self._events.values() if not kept.key][:BATCH_MAX]
        deletes, self._deletes = self._deletes[:BATCH_MAX], self._deletes[BATCH_MAX:]
        for kept in waiting:
            kept.key = f"{self._prefix}-{self._numbers:08d}"
            self._numbers += 1
        puts = [(kept.key, kept.event) for kept in waiting]
        return Batch(puts, deletes) if puts or deletes else None

    def put_back(self, batch: Batch) -> None:
        """The batch was surely not written: it is still to be."""
        gone = {key for key, event in batch.puts if event.id not in self._events}
        for _, event in batch.puts:
            if event.id in self._events:
                self._events[event.id].key = ""
        self._deletes = [*batch.deletes, *(key for key in self._deletes if key not in gone)]

    # --- readers ------------------------------------------------------------------------------------------

    def page(self, sees: Callable[[str], bool], after: str, limit: int) -> EventPage:
        """R48. An unknown id, or one of an event that the reader does not see, is a gap."""
        start = self._events.get(after)
        has_gap = bool(after) and (start is None or not sees(start.event.namespace))
        found: list[ClusterEvent] = []
        for event in reversed(list(self)):
            if event.id == after and not has_gap:
                break
            if sees(event.namespace):
                found.append(event)
        found.reverse()
        return EventPage(found[:limit] if after else found[-limit:], has_gap)


def bounded(message: str) -> str:
    """One line of MESSAGE_MAX bytes: reasons may hold any text of a job."""
    text = printable(message[: 2 * MESSAGE_MAX]).replace("\n", " ")
    while len(json.dumps(text)) - 2 > MESSAGE_MAX:
        text = text[: max(0, len(text) - max(1, (len(json.dumps(text)) - 2 - MESSAGE_MAX) // 6))]
    return text


def _size(event: ClusterEvent) -> int:
    return _FIXED_BYTES + len(event.message.encode())
