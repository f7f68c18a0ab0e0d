"""R43: whose segments of System V are, and which go when their slot has ended: the kernel's, and made up ones."""

from __future__ import annotations

import ctypes
import errno
import logging
import os

import pytest

from runtime.system.linux import began_at
from runtime.taskexecutor.containment.memory import measure_tree, sample_tree
from runtime.taskexecutor.containment.segments import Segment, SlotSegments, listed_segments, remove_segment
from runtime.taskexecutor.containment.shared_memory import HeldFiles, memory_devices

MEGABYTE = 1 << 20
IPC_CREAT_PRIVATE = 0o1600


BEGAN = 50.0


def segment(number: int, creator: int, attached: int, size: int, *, created: int = 100) -> Segment:
    return Segment(number, creator, created, attached, size)


class Kernel:
    """Segments, and which were removed."""

    def __init__(self, *segments: Segment) -> None:
        self.segments = list(segments)
        self.removed: list[int] = []
        self.refuses = False

    def remove(self, segment_id: int) -> None:
        if self.refuses:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        self.removed.append(segment_id)
        self.segments = [one for one in self.segments if one.id != segment_id]

    def slots(self) -> SlotSegments:
        return SlotSegments(lambda: self.segments, self.remove, lambda _: BEGAN)


def test_they_are_of_the_slot_whose_tree_had_their_maker() -> None:
    kernel = Kernel(segment(1, 11, 0, 100), segment(2, 12, 1, 200), segment(3, 99, 0, 400))
    slots = kernel.slots()
    slots.look(slots.read())
    assert slots.of(10, (10, 11)) == {1: 100}
    assert slots.of(20, (20, 12)) == {2: 200}
    kernel.segments[0] = segment(1, 11, 0, 300)
    slots.look(slots.read())
    assert slots.of(10, (10,)) == {1: 300}, "its maker has ended, and it has grown"
    assert slots.of(20, (20, 11, 12)) == {2: 200}, "a number that comes again takes nothing from who had it"


def test_what_nobody_has_attached_goes_with_its_slot() -> None:
    kernel = Kernel(segment(1, 10, 0, 100), segment(2, 10, 1, 200), segment(3, 20, 0, 400), segment(4, 99, 0, 800))
    slots = kernel.slots()
    slots.look(slots.read())
    slots.of(10, (10,))
    slots.of(20, (20,))
    slots.end_of_others({10, 20})
    assert kernel.removed == []
    slots.end_of_others({20})
    assert kernel.removed == [1], "2 is attached, 3 is another one's, and whose 4 is is not known"
    kernel.segments[0] = segment(2, 10, 0, 200)
    slots.look(slots.read())
    slots.end_of_others({20})
    slots.end_of_others({20})
    assert kernel.removed == [1, 2]


def test_what_was_made_last_goes_too() -> None:
    kernel = Kernel()
    slots = kernel.slots()
    slots.look(slots.read())
    slots.of(10, (10, 11))
    kernel.segments = [segment(1, 11, 0, 100)]
    slots.look(slots.read())
    slots.end_of_others(())
    assert kernel.removed == [1]
    kernel.segments = [segment(2, 11, 0, 100)]
    slots.look(slots.read())
    slots.end_of_others(())
    assert kernel.removed == [1], "the number of a process that has ended is another one's"


def test_what_is_older_than_the_process_of_that_number_is_another_programs() -> None:
    kernel = Kernel(segment(1, 11, 0, 100, created=int(BEGAN) - 2), segment(2, 11, 0, 200, created=int(BEGAN)))
    slots = kernel.slots()
    slots.look(slots.read())
    assert slots.of(10, (10, 11)) == {2: 200}
    slots.look(slots.read())
    slots.end_of_others(())
    assert kernel.removed == [2]


def test_of_a_process_that_has_ended_the_slots_beginning_tells() -> None:
    kernel = Kernel(segment(1, 11, 0, 100, created=int(BEGAN) - 2), segment(2, 11, 0, 200, created=int(BEGAN)))
    slots = SlotSegments(lambda: kernel.segments, kernel.remove, {10: BEGAN}.get)
    slots.look(slots.read())
    assert slots.of(10, (10, 11)) == {2: 200}


def test_what_is_gone_is_forgotten() -> None:
    kernel = Kernel(segment(1, 10, 0, 100))
    slots = kernel.slots()
    slots.look(slots.read())
    slots.of(10, (10,))
    kernel.segments = []
    slots.look(slots.read())
    assert slots.of(10, (10,)) == {}
    slots.end_of_others(())
    assert kernel.removed == []


def test_what_cannot_be_removed_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    kernel = Kernel(segment(1, 10, 0, 100))
    kernel.refuses = True
    slots = kernel.slots()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            slots.look(slots.read())
            slots.of(10, (10,) if not caplog.text else ())
            slots.end_of_others(())
    assert len(caplog.records) == 1
    assert "segment 1 of shared memory" in caplog.text


def test_those_of_the_kernel_count_once_attached_or_not() -> None:
    library, size = ctypes.CDLL(None), 32 * MEGABYTE
    library.shmat.restype = ctypes.c_void_p
    made = library.shmget(0, size, IPC_CREAT_PRIVATE)
    try:
        address = library.shmat(made, None, 0)
        ctypes.memset(address, 1, size)
        (found,) = [one for one in listed_segments() if one.id == made]
        assert found == Segment(made, os.getpid(), found.created, 1, size)
        assert found.created + 1 >= (began_at(os.getpid()) or 0.0)
        held, segments = HeldFiles(memory_devices()), SlotSegments(lambda: [found])
        segments.look(segments.read())
        tree = sample_tree(os.getpid(), held, segments, limit=1).tree
        attached = measure_tree(tree, held, limit=1).bytes_used
        library.shmdt(ctypes.c_void_p(address))
        detached = measure_tree(tree, held, limit=1).bytes_used
        assert abs(attached - detached) < size // 4, "this process itself has a little more or less at times"
    finally:
        remove_segment(made)
    assert made not in {one.id for one in listed_segments()}
    with pytest.raises(OSError, match="Invalid argument"):
        remove_segment(made)
