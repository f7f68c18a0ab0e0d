"""Somebody who deletes savepoints: soon after they were made, or while jobs start from them; and who is hit then.

Works in a process of its own, which nothing happens to, and draws from a source of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from runtime.aio.entropy import SeededEntropy
from runtime.aio.scope import Scope
from runtime.common.errors import FlinklikeError, NotFoundError, RetryableError, StaleTokenError
from runtime.gateways.operations import OperationState, SavepointDisposal
from tests.kit.simulation.clients import REQUEST_TIMEOUT, Disposal, Dispose, Upgrade
from tests.kit.simulation.history import DisposalAccepted, DisposalShown, Disposing, Happening
from tests.kit.simulation.network import ConnectionLostError, RefusedError
from tests.kit.simulation.processes import EPOCH_MILLIS, Life, SimulatedProcess
from tests.kit.simulation.world import World

logger = logging.getLogger(__name__)

SHARE = 0.8
"""So many seeds with savepoints have it."""
_TRIES_MAX = 12
_WRONG = 0.15
"""So many wishes name what is no savepoint."""
_SOON = (0.0, 3.0)
_WHILE_READ = (0.0, 1.5)
_AGAIN = (0.1, 3.0)


class Disposer:
    """Of one seed: asks for the end of each savepoint that the jobs of `upgrades` have made, until it has gone."""

    def __init__(self, world: World, upgrades: list[Upgrade], entropy: SeededEntropy) -> None:
        self._world = world
        self._upgrades = upgrades
        self._entropy = entropy
        self._addresses = list(world.rest_addresses)
        self._process = SimulatedProcess(world.loop, "janitor")
        self._begun: set[str] = set()
        self.happens = entropy.uniform(0.0, 1.0) < SHARE and bool(upgrades)

    def begin(self) -> None:
        """From now on."""
        if self.happens:
            self._process.post(lambda: self._process.start("janitor", self._run()))

    async def _run(self) -> None:
        async with Scope("janitor") as scope:
            while not all(one.is_over for one in self._upgrades):
                for upgrade, directory in self._found():
                    scope.spawn("dispose", self._dispose(upgrade, directory))
                await asyncio.sleep(0.05)

    def _found(self) -> Iterator[tuple[Upgrade, str]]:
        for upgrade in self._upgrades:
            for directory in upgrade.made:
                if directory not in self._begun:
                    self._begun.add(directory)
                    yield upgrade, directory

    async def _dispose(self, upgrade: Upgrade, directory: str) -> None:
        draw = self._entropy.child(Path(directory).name).uniform  # other trees have other paths
        if draw(0.0, 1.0) < 0.1:
            await asyncio.sleep(draw(*_SOON))
        else:
            while not upgrade.is_read and not self._is_late:
                await asyncio.sleep(0.05)
            await asyncio.sleep(draw(*_WHILE_READ))
        for _ in range(_TRIES_MAX):
            if draw(0.0, 1.0) < _WRONG:
                _ = await self._ask_to_end(str(Path(directory).parent / "savepoint-of-nobody"))
            if self._is_late or not self._world.programs.directories.shelf.has(directory):
                return
            _ = await self._ask_to_end(directory)
            await asyncio.sleep(draw(*_AGAIN))

    @property
    def _is_late(self) -> bool:
        return all(one.is_over for one in self._upgrades)

    async def _ask_to_end(self, directory: str) -> OperationState | None:
        """One wish to its end, by an id of its own that is repeated after lost answers. None: it is refused."""
        millis = EPOCH_MILLIS + round(1000 * self._world.loop.time())
        wish = SavepointDisposal(self._entropy.hex_id(), directory, OperationState.IN_PROGRESS, millis)
        self._record(Disposing(wish.trigger_id, directory))
        try:
            await self._insist(Dispose(wish))
        except FlinklikeError as error:
            logger.info("disposal %s is refused: %s", wish.trigger_id, error)
            return None
        self._record(DisposalAccepted(wish.trigger_id))
        while True:
            try:
                found = await self._insist(Disposal(wish.trigger_id))
            except NotFoundError:
                self._record(DisposalShown(wish.trigger_id, None))
                return None
            assert isinstance(found, SavepointDisposal), found
            self._record(DisposalShown(wish.trigger_id, found.state))
            if found.state is not OperationState.IN_PROGRESS:
                return found.state
            await asyncio.sleep(self._entropy.uniform(0.1, 2.0))

    def _record(self, what: Happening) -> None:
        self._world.history.add(self._world.loop.time(), self._process.name, what)

    async def _insist(self, request: Dispose | Disposal) -> object:
        """An answer that settles it, at whichever address."""
        while True:
            try:
                address = self._addresses[0]
                answer = await self._world.network.request(self._process, address, request, timeout=REQUEST_TIMEOUT)
            except (TimeoutError, RefusedError, ConnectionLostError):
                answer = None
            if answer is not None and not isinstance(answer, RetryableError | StaleTokenError):
                break
            self._addresses.append(self._addresses.pop(0))
            await asyncio.sleep(self._entropy.uniform(0.05, 0.5))
        if isinstance(answer, Exception):
            raise answer
        return answer


class DisposalTrouble:
    """Hits the leader, or a TaskManager, a moment after something of a disposal was stored.

    `crashes`, `freezes`: the leader; `stops`: whether that TaskManager may be killed now.
    """

    def __init__(
        self, world: World, entropy: SeededEntropy, *, crashes: bool, freezes: bool, stops: Callable[[str], bool]
    ) -> None:
        self._world = world
        self._entropy = entropy
        self._crashes, self._freezes, self._stops = crashes, freezes, stops
        self._end = 0.0

    def begin(self, end: float) -> None:
        """Until that time."""
        self._end = end
        self._world.witness.on_disposal = self._on_disposal

    def _on_disposal(self, disposal: SavepointDisposal) -> None:
        draw = self._entropy.uniform
        what, delay = draw(0.0, 1.0), draw(0.0, 0.05)
        if disposal.state is OperationState.IN_PROGRESS:
            self._world.loop.outside_later(delay, self._hit, what)

    def _hit(self, what: float) -> None:
        world, draw = self._world, self._entropy.uniform
        seconds, task_managers = draw(0.5, 20.0), world.task_managers
        number = int(draw(0.0, 0.999) * len(task_managers))
        leader, task_manager = world.leader(), task_managers[number] if task_managers else ""
        if world.loop.time() >= self._end:
            return
        if what < 0.7 and leader is not None and world.is_running(leader):
            if what < 0.2 and self._crashes:
                self._crash(leader, seconds / 2)
            elif what >= 0.2 and self._freezes:
                process = world.processes[leader]
                world.freeze(leader)
                world.loop.outside_later(seconds, self._thaw, leader, process)
        elif what > 0.85 and world.is_running(task_manager) and self._stops(task_manager):
            self._crash(task_manager, seconds / 2)

    def _crash(self, name: str, seconds: float) -> None:
        self._world.crash(name)
        self._world.loop.outside_later(seconds, self._start, name)

    def _start(self, name: str) -> None:
        if self._world.processes[name].life is Life.DEAD:
            self._world.start_process(name)

    def _thaw(self, name: str, process: SimulatedProcess) -> None:
        if process.life is Life.FROZEN:
            self._world.thaw(name)
