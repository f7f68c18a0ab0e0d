"""Shared memory of System V that slots have made (R43): a segment that no process has attached is in no process's
figures, and stays when its maker has ended.

The kernel names the process that has made a segment by its number. If that process was seen in a slot's tree, the
segment is the slot's, unless the segment is older than the process: then the number was another process's. A segment
counts for its slot as long as it exists; when the slot's process has ended it is removed, unless a process has it
attached.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from runtime.system.linux import began_at
from runtime.taskexecutor.containment import left_ipc

logger = logging.getLogger(__name__)

_SEGMENTS_MAX = 10_000
"""So many segments of a host are read. The kernel's own bound is 4096 unless an administrator has raised it."""
_MANY = 100
"""Which take a millisecond to read."""
_GRAIN = 1.0
"""Seconds: the kernel notes whole ones."""


class Segment(NamedTuple):
    """`created`: seconds since 1970; `bytes_held`: of memory and swap, not the size that was asked for."""

    id: int
    creator: int
    created: int
    attached: int
    bytes_held: int


def listed_segments() -> list[Segment]:
    """All of this host that this process may see; none where the kernel has none."""
    return [
        Segment(
            int(row["shmid"]),
            int(row["cpid"]),
            int(row["ctime"]),
            int(row["nattch"]),
            int(row["rss"]) + int(row["swap"]),
        )
        for row in left_ipc.listed(left_ipc.SHARED_MEMORY, _SEGMENTS_MAX)
    ]


def remove_segment(segment_id: int) -> None:
    """Delete a segment. Raises OSError."""
    left_ipc.remove(left_ipc.SHARED_MEMORY, segment_id)


class SlotSegments:
    """Which slot has made which segments. A slot is named by its process."""

    def __init__(
        self,
        listed: Callable[[], Iterable[Segment]] = listed_segments,
        remove: Callable[[int], None] = remove_segment,
        began: Callable[[int], float | None] = began_at,
    ) -> None:
        self._listed = listed
        self._remove = remove
        self._began = began
        self._found: dict[int, Segment] = {}
        self._by_creator: dict[int, list[Segment]] = {}
        self._slots: dict[int, int] = {}
        """By segment."""
        self._trees: dict[int, frozenset[int]] = {}
        """As they were seen last."""
        self._slots_began: dict[int, float] = {}

    @property
    def are_many(self) -> bool:
        """To read them is work for a thread."""
        return len(self._found) > _MANY

    def read(self) -> list[Segment]:
        """All segments that exist now. On any thread."""
        return list(self._listed())

    def look(self, found: Iterable[Segment]) -> None:
        """Assign the segments that were read to their slots; once for all slots."""
        self._found = {one.id: one for one in found}
        self._slots = {id_: slot for id_, slot in self._slots.items() if id_ in self._found}
        self._by_creator = {}
        for one in self._found.values():
            if one.id not in self._slots:
                self._by_creator.setdefault(one.creator, []).append(one)

    def of(self, slot: int, tree: Collection[int]) -> Mapping[int, int]:
        """The segments of the slot with this tree: bytes by id."""
        self._trees[slot] = frozenset(tree)
        if slot not in self._slots_began:
            self._slots_began[slot] = self._began(slot) or 0.0
        self._note(slot)
        return {id_: self._found[id_].bytes_held for id_, whose in self._slots.items() if whose == slot}

    @property
    def are_left(self) -> bool:
        """True if a segment of any slot exists."""
        return bool(self._slots)

    def end_of_others(self, slots: Collection[int]) -> None:
        """Remove the segments of all slots but these."""
        for slot in self._trees.keys() - set(slots):
            self._note(slot)  # what it has made since it was looked at last
            del self._trees[slot], self._slots_began[slot]
        for id_, slot in list(self._slots.items()):
            if slot in slots or self._found[id_].attached:
                continue
            del self._slots[id_]
            try:
                self._remove(id_)
            except OSError as error:
                logger.warning("segment %d of shared memory, which a task has left, stays: %s", id_, error.strerror)
            else:
                size = self._found.pop(id_).bytes_held
                logger.info("removed a segment of shared memory with %d bytes, which a task has left", size)

    def _note(self, slot: int) -> None:
        for pid in self._trees[slot] & self._by_creator.keys():
            # What is known of one that has ended is that it was of the slot.
            began = self._began(pid) or self._slots_began[slot]
            for one in self._by_creator[pid]:
                if one.created + _GRAIN >= began:
                    self._slots.setdefault(one.id, slot)
