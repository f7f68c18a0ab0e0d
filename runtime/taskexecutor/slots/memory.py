"""How much memory a slot's process tree uses.

The proportional set size is what a tree costs beside the pages it shares with the template; reading it walks page
tables (milliseconds). The resident size is its upper bound and costs microseconds, so it is read first.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.taskexecutor.slots.linux import process_tree, proportional_bytes, resident_bytes


@dataclass(frozen=True, slots=True)
class MemorySample:
    """`bytes_used` is exact (PSS) when `is_exact`, else an upper bound that is below the limit."""

    bytes_used: int
    processes: int
    is_exact: bool


def sample_tree(pid: int, *, limit: int) -> MemorySample:
    """Measure the tree below `pid`, exactly only when there is a limit and the upper bound is above it."""
    tree = process_tree(pid)
    resident = sum(map(resident_bytes, tree))
    if not limit or resident <= limit:
        return MemorySample(resident, len(tree), is_exact=False)
    return MemorySample(sum(map(proportional_bytes, tree)), len(tree), is_exact=True)


def format_bytes(count: int) -> str:
    """For people: 1.5 MiB."""
    if count < 1024 * 1024:
        return f"{count / 1024:.1f} KiB"
    if count < 1024 * 1024 * 1024:
        return f"{count / 1024 / 1024:.1f} MiB"
    return f"{count / 1024 / 1024 / 1024:.2f} GiB"
