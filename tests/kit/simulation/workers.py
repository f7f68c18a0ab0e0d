"""TaskManagers that a driver starts (R65), and the driver: a host whose labels outlive the JobManager that gave them.

What may go wrong until everything heals: calls fail, before or after they have done what they were asked; a worker does
not come up, ends before it registers, or comes after it was given up; one that was killed is started again with the
same label, as a container is that has a restart policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime.resourcemanager.driver import DriverError
from tests.kit.simulation.history import WorkerEnded, WorkerReleased, WorkerStarted
from tests.kit.simulation.processes import current_process

if TYPE_CHECKING:
    from runtime.aio.entropy import SeededEntropy
    from tests.kit.simulation.world import Shape, World

IDLE_SECONDS = 8
REGISTRATION_SECONDS = 20
DRAIN_SECONDS = 30

_MOMENT = 0.01
_FAILING_CALLS = 0.15
_HANGS, _DIES, _IS_LATE, _RETURNS = 0.1, 0.2, 0.3, 0.2
"""Of all workers: which part never comes up, ends while it comes up (up to there), is late, is started again."""


@dataclass
class Worker:
    """One label. `is_up`: its TaskManager was started; `returns`: it is started again when it is killed."""

    is_deaf: bool
    returns: bool
    is_up: bool = False
    begins_anew: bool = False


def worker_options(shape: Shape) -> dict[str, str]:
    """Options of all processes of a cluster with a driver."""
    return {
        "resourcemanager.driver": "process",
        "slotmanager.number-of-slots.min": f"{shape.slots_min}",
        "slotmanager.number-of-slots.max": f"{shape.slots_max}",
        "slotmanager.redundant-taskmanager-num": f"{shape.redundant}",
        "resourcemanager.taskmanager-timeout": f"{IDLE_SECONDS} s",
        "resourcemanager.taskmanager-registration.timeout": f"{REGISTRATION_SECONDS} s",
        "taskmanager.drain-timeout": f"{DRAIN_SECONDS} s",
    }


def left_over(shape: Shape, workers: Mapping[str, bool]) -> Iterator[str]:
    """What is wrong at rest: all workers that are not needed have had the time to go, and those that hang to be ended
    and replaced. `workers`: which have a process. One without has no slots.
    """
    up = [name for name, is_up in workers.items() if is_up]
    if hanging := [name for name, is_up in workers.items() if not is_up]:
        yield f"workers {', '.join(hanging)} never came up, and are left"
    slots = shape.slots * (shape.task_managers + len(up))
    least = max(shape.slots_min, shape.redundant * shape.slots)
    if slots < min(least, shape.slots_max):
        yield f"{slots} slots are left, and {least} are kept"
    spare = slots - shape.slots
    if up and spare >= least:
        yield f"workers {', '.join(up)} run on without work"


class WorkerHost:
    """Where workers run: what the driver of any JobManager sees."""

    def __init__(self, world: World, entropy: SeededEntropy) -> None:
        self._world = world
        self._entropy = entropy
        self._workers: dict[str, Worker] = {}
        self.is_troubled = entropy.child("trouble").uniform(0, 1) < 0.8

    def __contains__(self, worker_id: str) -> bool:
        return worker_id in self._workers

    @property
    def labels(self) -> list[str]:
        """All that there are."""
        return list(self._workers)

    @property
    def names(self) -> list[str]:
        """Those with a TaskManager process, which may be dead for a moment."""
        return [name for name, worker in self._workers.items() if worker.is_up]

    def draw(self, low: float, high: float) -> float:
        """Of what calls take, and whether they fail."""
        return self._entropy.uniform(low, high)

    def fails(self) -> bool:
        """Whether a call fails now."""
        return self.draw(0, 1) < _FAILING_CALLS and self.is_troubled

    def ask_for(self, worker_id: str, by: str) -> float:
        """A start that nobody can take back: it happens soon, whatever becomes of who has asked. Says when."""
        loop = self._world.loop
        seconds = self.draw(0.0, 0.2)
        loop.outside_later(seconds, self._launch, worker_id, by, loop.time())
        return loop.time() + seconds

    def note_release(self, worker_id: str, by: str, *, kills: bool) -> None:
        """The driver is asked to end one."""
        self._record(by, WorkerReleased(worker_id, kills))

    def release(self, worker_id: str, *, kills: bool) -> None:
        """End one."""
        worker, world = self._workers.get(worker_id), self._world
        if worker is None:
            return
        worker.returns = False
        if kills and worker.is_up:
            world.crash(worker_id)
        if kills or (not worker.is_up and not worker.is_deaf):
            self._gone(worker_id)
        elif worker.is_up:
            world.terminate(worker_id)

    def process_died(self, worker_id: str) -> None:
        """Its label goes with it, unless it comes again."""
        worker = self._workers[worker_id]
        if not worker.returns and not worker.begins_anew:
            self._gone(worker_id)
        worker.begins_anew = False

    def begins_anew(self, worker_id: str) -> None:
        """It was told to end as one that was taken for dead: the same process begins again."""
        self._workers[worker_id].begins_anew = True

    def keep(self, worker_id: str) -> None:
        """It is started again when it dies next: nobody else ends there what its dead guards have left."""
        self._workers[worker_id].returns = True

    def heal(self) -> None:
        """Whoever begins from now on comes up."""
        self.is_troubled = False

    def left_over(self) -> Iterator[str]:
        """What is wrong at rest."""
        return left_over(self._world.shape, {name: worker.is_up for name, worker in self._workers.items()})

    def _launch(self, worker_id: str, by: str, asked_at: float) -> None:
        shape = self._world.shape
        others = len(self._workers) * shape.slots
        self._record(by, WorkerStarted(worker_id, asked_at, others + shape.slots, shape.slots_max))
        draw = self._entropy.child(worker_id).uniform
        what = draw(0, 1) if self.is_troubled else 1.0
        self._workers[worker_id] = Worker(is_deaf=draw(0, 1) < 0.5, returns=draw(0, 1) < _RETURNS)
        if what < _HANGS:
            return
        if what < _DIES:
            self._world.loop.outside_later(draw(0.1, 5.0), self._gone, worker_id)
            return
        seconds = draw(0.7, 2.0) * REGISTRATION_SECONDS if what < _IS_LATE else draw(0.1, 2.0)
        self._world.loop.outside_later(seconds, self._come_up, worker_id)

    def _come_up(self, worker_id: str) -> None:
        worker = self._workers.get(worker_id)
        if worker is not None:
            worker.is_up = True
            self._world.start_process(worker_id)

    def _gone(self, worker_id: str) -> None:
        if self._workers.pop(worker_id, None) is not None:
            self._record(worker_id, WorkerEnded(worker_id))

    def _record(self, who: str, what: WorkerStarted | WorkerReleased | WorkerEnded) -> None:
        self._world.history.add(self._world.loop.time(), who, what)


class SimulatedDriver:
    """Implements `ResourceManagerDriver` in one JobManager process."""

    def __init__(self, host: WorkerHost) -> None:
        self._host = host
        self._name = current_process().name

    async def workers(self) -> Collection[str]:
        """ResourceManagerDriver."""
        await self._wait(0.2, "the host cannot be asked")
        found = self._host.labels
        await self._wait(0.2, "the host has not answered")
        return found

    async def start(self, worker_id: str, /, *, is_wanted: Callable[[], bool]) -> None:
        """ResourceManagerDriver."""
        await self._wait(3.0, "the host has no room")
        if not is_wanted():
            message = "nobody wants it any more"
            raise DriverError(message)
        runs_at = self._host.ask_for(worker_id, self._name)
        await self._wait(0.5, "the host has not said that it runs")
        loop = asyncio.get_running_loop()
        while loop.time() <= runs_at:  # a call that has failed may return before that
            await asyncio.sleep(_MOMENT)

    async def release(self, worker_id: str, /, *, kills: bool) -> None:
        """ResourceManagerDriver."""
        self._host.note_release(worker_id, self._name, kills=kills)
        await self._wait(0.2, "the host cannot be reached")
        self._host.release(worker_id, kills=kills)
        await self._wait(0.2, "the host has not said that it was told")

    async def last_words(self, worker_id: str, /) -> str:
        """ResourceManagerDriver."""
        assert worker_id
        return ""

    async def end_workers(self) -> None:
        """Only the cluster of one job asks for this."""
        raise AssertionError

    async def _wait(self, seconds: float, failure: str) -> None:
        await asyncio.sleep(self._host.draw(0.0, seconds))
        if self._host.fails():
            raise DriverError(failure)
