"""What the registration of this process says beside its address: its state, its jobs, and what it uses.

The leader knows better from heartbeats, and each write costs the store: the numbers are coarse and old by up to a
period, the state is written when it changes.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Protocol

from jobmaster_process.container_runner import JobMasterContainerRunner
from jobmaster_process.secondary_dispatcher import LoadProbe
from runtime.aio.scope import Scope
from runtime.highavailability.records import DRAINING, JobMasterRecord

LOAD_PERIOD = 10.0
_MEMORY_STEP_BYTES = 16 * 1024 * 1024


class Registration(Protocol):
    """`runtime.highavailability.registration.JobMasterRegistration`."""

    def update(self, record: JobMasterRecord) -> None:
        """Change what is registered."""


async def register_load(
    registration: Registration,
    record: JobMasterRecord,
    container: JobMasterContainerRunner,
    probe: LoadProbe,
    *,
    period: float = LOAD_PERIOD,
) -> None:
    """Keep the registration about right. Eternal."""
    draining = container.dispatcher.is_draining
    while True:
        generation, drained = container.state.generation, draining.generation
        load = probe.sample()
        registration.update(
            replace(
                record,
                state=DRAINING if draining.value else container.state.value.name.lower(),
                jobs=container.dispatcher.jobs_running,
                cpu_fraction=round(load.cpu_fraction, 1),
                memory_bytes=load.memory_bytes // _MEMORY_STEP_BYTES * _MEMORY_STEP_BYTES,
            )
        )
        async with Scope("load") as scope:
            changes = {
                scope.start("state", container.state.wait_changed(generation)),
                scope.start("draining", draining.wait_changed(drained)),
            }
            _ = await asyncio.wait(changes, timeout=period, return_when=asyncio.FIRST_COMPLETED)
            scope.cancel_all()
