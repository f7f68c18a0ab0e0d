"""Sizes as people read them."""

from __future__ import annotations


def size_text(count: int) -> str:
    """Bytes, or KiB, or MiB."""
    if count < 1 << 10:
        return f"{count} B"
    return f"{count / (1 << 10):.1f} KiB" if count < 1 << 20 else f"{count / (1 << 20):.1f} MiB"
