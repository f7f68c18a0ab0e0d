"""Keeps the registration of this process up to date: its state, its jobs, and its load.

The leader has better figures from heartbeats, and each write costs the store. So the figures are coarse and up to a
period old; the state is written when it changes.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Protocol

from jobmaster_process.container_runner import JobMasterContainerRunner
from jobmaster_process.secondary_dispatcher import LoadProbe
from runtime.aio.scope import Scope
from runtime.aio.watch import Watch
from runtime.highavailability.records import DRAINING, JobMasterRecord

LOAD_PERIOD = 10.0
_MEMORY_STEP_BYTES = 16 * 1024 * 1024


class Registration(Protocol):
    """`runtime.highavailability.leadership.registration.JobMasterRegistration`."""

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
    """Write the load every `period` seconds, and the state when it changes. Eternal."""
    draining = container.dispatcher.is_draining
    is_news = asyncio.Event()
    async with Scope("load") as scope:
        scope.spawn_eternal("state", _tell(container.state, is_news))
        scope.spawn_eternal("draining", _tell(draining, is_news))
        while True:
            is_news.clear()
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
            timer = asyncio.get_running_loop().call_later(period, is_news.set)
            try:
                await is_news.wait()
            finally:
                timer.cancel()


async def _tell(watched: Watch[Any], is_news: asyncio.Event) -> None:
    while True:
        await watched.wait_changed(watched.generation)
        is_news.set()
