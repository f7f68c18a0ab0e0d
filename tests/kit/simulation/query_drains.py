"""Empties TaskManagers below streaming queries: drains, half of which are taken back soon, and now and then SIGTERM.

Draws from a source of its own, so that all other misfortunes of a seed are those that they were without it.
"""

from __future__ import annotations

from runtime.aio.entropy import SeededEntropy
from tests.kit.simulation.world import World

SHARE = 0.45
"""So many seeds have it, if they have queries that do not end by themselves. Stops of the others are less disturbed."""
_PAUSE_LOW, _PAUSE_HIGH = 0.5, 6.0
_SOON = (0.05, 4.0)
"""A batch takes 0.2 to 3 s: some drains are taken back before it has ended, some while the query is held."""
_LATE = (4.0, 40.0)
_KEEN = 0.4
"""So many are taken back as soon as a query is held."""
_STOPS = 0.2


class QueryDrains:
    """Of one seed. `drains`, `stops`: whether this, and SIGTERM, may happen."""

    def __init__(self, world: World, entropy: SeededEntropy, *, drains: bool, stops: bool) -> None:
        self._world = world
        self._entropy = entropy
        self._stops = stops
        self._end = 0.0
        self.happens = entropy.uniform(0.0, 1.0) < SHARE and drains

    def begin(self, end: float) -> None:
        """Until that time."""
        self._end = end
        if self.happens:
            self._again()

    def _again(self) -> None:
        self._world.loop.outside_later(self._entropy.uniform(_PAUSE_LOW, _PAUSE_HIGH), self._act)

    def _act(self) -> None:
        world = self._world
        if world.loop.time() >= self._end:
            return
        with_queries = [name for name in world.task_managers if world.machine(name).has_endless_queries]
        where = self._entropy.uniform(0.0, 1.0)
        is_keen = self._entropy.uniform(0.0, 1.0) < _KEEN
        is_stop = self._entropy.uniform(0.0, 1.0) < _STOPS and self._stops
        seconds = self._entropy.uniform(*(_SOON if self._entropy.uniform(0.0, 1.0) < 0.5 else _LATE))
        if with_queries:
            name = with_queries[int(where * len(with_queries))]
            if not is_stop:
                machine = world.machine(name)
                world.operator.drain_until(name, lambda: is_keen and machine.has_held_queries, seconds)
            elif world.is_running(name):
                world.terminate(name)
        self._again()
