"""Somebody who drains processes and moves jobs, now and then, and takes no for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any

from runtime.aio.entropy import SeededEntropy
from runtime.common.ids import JobId
from runtime.gateways.overview import JobMasterInfo
from runtime.gateways.resource_manager import TaskManagerInfo
from tests.kit.simulation.clients import (
    REQUEST_TIMEOUT,
    Drain,
    DrainSlots,
    JobMasters,
    Move,
    Request,
    TaskManagers,
)
from tests.kit.simulation.history import Fault, History
from tests.kit.simulation.network import ConnectionLostError, Network, RefusedError
from tests.kit.simulation.processes import SimulatedProcess

_LOOK_SECONDS = 0.01
JobsByProcess = list[tuple[JobMasterInfo, list[JobId]]]


class Operator:
    """Works in a process of its own, which nothing happens to."""

    def __init__(
        self,
        network: Network,
        history: History,
        addresses: Sequence[str],
        process: SimulatedProcess,
        entropy: SeededEntropy,
    ) -> None:
        self._network = network
        self._history = history
        self._addresses = list(addresses)
        self._process = process
        self._entropy = entropy.child("operator")

    def drain_some(self, seconds: float) -> None:
        """Drain one of the processes for a while."""
        self._begin(lambda: self._drain_some(seconds))

    def drain_slots(self, seconds: float) -> None:
        """Drain one of the TaskManagers for a while."""
        self._begin(lambda: self._drain_slots(lambda: asyncio.sleep(seconds)))

    def drain_until(self, of: str, is_enough: Callable[[], bool], seconds: float) -> None:
        """Drain this TaskManager until something holds, for so long at most."""
        self._begin(lambda: self._drain_slots(lambda: _until(is_enough, seconds), of))

    def move_some(self) -> None:
        """Move one of the jobs."""
        self._begin(self._move_some)

    def undrain_all(self, hosts: Collection[str]) -> None:
        """Until each of these takes work again: one that comes back later may still be draining."""
        self._begin(lambda: self._undrain_all(frozenset(hosts)))

    def _begin(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._process.post(lambda: self._process.start("operator", make()))

    async def _drain_some(self, seconds: float) -> None:
        found = await self._look()
        if found:
            process, _ = found[self._draw(len(found))]
            self._record(f"drains {process.address}")
            await self._ask(Drain(process.incarnation, is_draining=True))
            await asyncio.sleep(seconds)
            self._record(f"undrains {process.address}")
            await self._ask(Drain(process.incarnation, is_draining=False))

    async def _drain_slots(self, wait: Callable[[], Awaitable[None]], of: str = "") -> None:
        found = [one for one in await self._task_managers() if of in {"", one.registration.task_manager_id}]
        if found:
            one = found[0 if of else self._draw(len(found))].registration
            self._record(f"drains {one.task_manager_id}")
            await self._ask(DrainSlots(one.incarnation, is_draining=True))
            await wait()
            self._record(f"undrains {one.task_manager_id}")
            await self._ask(DrainSlots(one.incarnation, is_draining=False))

    async def _move_some(self) -> None:
        self._record("wants to move a job")
        found = await self._look()
        jobs = [job_id for _, owned in found for job_id in owned]
        if jobs:
            target, _ = found[self._draw(len(found))]
            job_id = jobs[self._draw(len(jobs))]
            self._record(f"moves job {job_id} to {target.address}")
            await self._ask(Move(job_id, target.incarnation))

    def _record(self, what: str) -> None:
        self._history.add(self._network.loop.time(), self._process.name, Fault(what))

    async def _undrain_all(self, hosts: frozenset[str]) -> None:
        calm = 0
        while calm < 2:  # one that has just registered has not said that it is draining
            found = [process for process, _ in await self._look()]
            draining = [process for process in found if process.state == "draining"]
            for process in draining:
                await self._ask(Drain(process.incarnation, is_draining=False))
            task_managers = await self._task_managers()
            drained = [one.registration.incarnation for one in task_managers if one.is_draining]
            for incarnation in drained:
                await self._ask(DrainSlots(incarnation, is_draining=False))
            ready = {process.address.partition(":")[0] for process in found if process.state == "ready"}
            ready |= {one.registration.task_manager_id for one in task_managers}
            calm = calm + 1 if not draining and not drained and ready >= hosts else 0
            await asyncio.sleep(1.0)

    async def _task_managers(self) -> list[TaskManagerInfo]:
        found = await self._ask(TaskManagers())
        return found if isinstance(found, list) else []

    async def _look(self) -> JobsByProcess:
        found = await self._ask(JobMasters())
        return found if isinstance(found, list) else []

    async def _ask(self, request: Request) -> object:
        """One try at each address; what comes of it, refusals included."""
        answer: object = None
        for address in self._addresses:
            try:
                answer = await self._network.request(self._process, address, request, timeout=REQUEST_TIMEOUT)
            except (TimeoutError, RefusedError, ConnectionLostError):
                continue
            if not isinstance(answer, Exception):
                break
        return answer

    def _draw(self, count: int) -> int:
        return int(self._entropy.uniform(0, count))


async def _until(is_enough: Callable[[], bool], seconds: float) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end and not is_enough():
        await asyncio.sleep(_LOOK_SECONDS)
