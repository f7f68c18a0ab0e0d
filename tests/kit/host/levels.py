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


def reached_while(look: Callable[[], T | None], what: str, *, progress: Callable[[], object], quiet: float = 60.0) -> T:
    """The first true answer of `look`; an AssertionError when `progress` has been the same for `quiet` seconds before.

    For what a busy machine may take any time for: `progress` is the CPU time of a process, the size of a file.
    """
    seen, since = progress(), time.monotonic()
    while not (found := look()):
        if (now := progress()) != seen:
            seen, since = now, time.monotonic()
        assert time.monotonic() - since < quiet, f"{what}: no progress in {quiet} s, last {seen!r}"
        time.sleep(0.1)
    return found
