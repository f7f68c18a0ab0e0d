"""How much memory a slot's process tree uses.

The proportional set size is what a tree costs beside the pages it shares with the template; reading it walks page
tables (milliseconds). The resident size is its upper bound and costs microseconds, so it is read first. Files in memory
that are not mapped are in neither (`shared_memory`), and those that are in both count once (R43).

User code decides how long the exact figure takes, by processes, mappings and files: it is found out in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.system.linux import process_tree, proportional_bytes, resident_bytes
from runtime.taskexecutor.containment.segments import SlotSegments
from runtime.taskexecutor.containment.shared_memory import HeldFiles, bytes_beside, segment_file


@dataclass(frozen=True, slots=True)
class MemorySample:
    """`bytes_used` is exact (PSS, and files in memory) when `is_exact`, else an upper bound."""

    bytes_used: int
    tree: tuple[int, ...]
    is_exact: bool

    @property
    def processes(self) -> int:
        """How many there are."""
        return len(self.tree)


def sample_tree(
    pid: int, held: HeldFiles, segments: SlotSegments, *, limit: int, strays: Sequence[int] = ()
) -> MemorySample:
    """An upper bound for the trees below `pid`, and below `strays`, processes that have left it.

    `limit` 0: there is none.
    """
    tree = tuple(member for root in (pid, *strays) for member in process_tree(root))
    resident = sum(map(resident_bytes, tree))
    made = segments.of(pid, tree)
    if limit:
        held.look(tree)
        held.segments = {segment_file(id_): size for id_, size in made.items()}
    return MemorySample(resident + held.bytes_held, tree, is_exact=False)


def measure_tree(tree: tuple[int, ...], held: HeldFiles, *, limit: int) -> MemorySample:
    """Exact, unless a better upper bound is within the limit. Blocking; no other call uses `held` meanwhile.

    Where a tree has too many mappings to be read, a file in memory that is mapped counts twice.
    """
    held.look_again()
    upper = sum(map(proportional_bytes, tree)) + held.bytes_held
    if upper <= limit or not held.bytes_held:
        return MemorySample(upper, tree, is_exact=upper > limit)
    beside = bytes_beside(tree, held)
    return MemorySample(upper if beside is None else beside + held.bytes_held, tree, is_exact=True)
