"""Turns of a component: its events are handled one at a time, in the order in which they were posted.

An effect of an event may post further events: they wait until everything that the first one brings about is done, so
that the component is never entered while it is at work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

E = TypeVar("E")


class Turns(Generic[E]):
    """The turns of one component, on one event loop. `handle` decides on an event and executes the effects; it never
    waits.
    """

    __slots__ = ("_events", "_handle", "_is_handling")

    def __init__(self, handle: Callable[[E], None]) -> None:
        self._handle = handle
        self._events: deque[E] = deque()
        self._is_handling = False

    def post(self, event: E) -> None:
        """Handle an event now, or after those that are being handled.

        An exception of `handle` goes to the caller that began the turn; events that waited for their turn are dropped.
        """
        self._events.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._events.clear()
            self._is_handling = False
