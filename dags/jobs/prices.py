"""A module that an application imports from `py_files`."""

from __future__ import annotations


def price_in_cents(order: int) -> int:
    """Between 100 and 999, the same for the same order."""
    return 100 + order * 7919 % 900
