"""Waiting for a level that another process reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def reached(look: Callable[[], T | None], what: str, *, timeout: float = 100.0, every: float = 0.02) -> T:
    """The first true answer of `look`; an AssertionError that names `what` when there is none in time."""
    until = time.monotonic() + timeout
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < until, f"{what}: not reached in {timeout} s, last seen {found!r}"
        time.sleep(every)
