"""Sizes in memory, as messages show them."""

from __future__ import annotations


def format_bytes(count: int) -> str:
    """A number of bytes as text for people, such as `1.5 MiB`."""
    if count < 1024 * 1024:
        return f"{count / 1024:.1f} KiB"
    if count < 1024 * 1024 * 1024:
        return f"{count / 1024 / 1024:.1f} MiB"
    return f"{count / 1024 / 1024 / 1024:.2f} GiB"
