"""The template process of all slots: one lives at a time, and a lost one is replaced."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from runtime.aio.watch import Watch
from runtime.common.clock import Clock
from runtime.common.errors import FlinklikeError
from runtime.taskexecutor.slot_protocol.template_config import TemplateConfig
from runtime.taskexecutor.slots.template_handle import TemplateProcess
from runtime.taskexecutor.slots.work import SlotSettings

logger = logging.getLogger(__name__)

RESTART_PAUSE = 1.0
"""Seconds before the second start of what ended at once."""
_RESTART_PAUSE_MAX = 10.0
_STEADY_SECONDS = 60.0
_STOP_TIMEOUT = 5.0


class Templates:
    """`current` is the template process that lives, or the last one that did. All calls belong to one event loop.

    `prepare` forks what a new one is for; `note_changed` looks whether slots can take tasks now.
    """

    def __init__(
        self,
        settings: SlotSettings,
        clock: Clock,
        *,
        has_spark: bool,
        prepare: Callable[[], Awaitable[None]],
        note_changed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._has_spark = has_spark
        self._prepare = prepare
        self._note_changed = note_changed
        self._is_stopping = False
        self._is_renewing = False
        self.current = self._new()
        self.starts: Watch[None] = Watch(None)
        """Changes when there is another one, and when an attempt that waits for one is to look again."""

    def _new(self) -> TemplateProcess:
        settings = self._settings
        config = TemplateConfig(
            parent_pid=os.getpid(),
            task_manager_id=settings.task_manager_id,
            has_spark=self._has_spark,
            address_space=4 * settings.memory_bytes_max,
            inline_bytes_max=settings.inline_bytes_max,
            is_static_conf_fatal=settings.is_static_conf_fatal,
            is_connect=settings.spark_cluster.startswith("sc://"),
        )
        return TemplateProcess(config, settings.environment)

    async def start(self) -> None:
        """Start the first one. Raises UnavailableError, TimeoutError."""
        await self.current.start(timeout=self._settings.start_timeout)
        await self._prepare()
        self.starts.set(None)
        self._note_changed()

    def begin_stop(self) -> None:
        """From now on none is replaced, and no attempt waits for one."""
        self._is_stopping = True
        self.starts.set(None)

    async def end_current(self) -> None:
        """End it and all slot processes. `watch` replaces it, unless everything stops. Idempotent."""
        await self.current.stop(timeout=_STOP_TIMEOUT)

    @contextmanager
    def renewal(self) -> Iterator[None]:
        """While it lasts the end of a template is no error, and does not delay the next one (R50)."""
        self._is_renewing = True
        try:
            yield
        finally:
            self._is_renewing = False

    async def watch(self) -> None:
        """Eternal: a lost template process is replaced; its slot processes died with it.

        At once, unless its life was short: no restart strategy counts these losses (R36), so they must not come in a
        hot loop.
        """
        pause = 0.0
        while True:
            begun = self._clock.monotonic()
            await self.current.state.wait_until(lambda state: state == "lost")
            if self._is_stopping:
                await asyncio.get_running_loop().create_future()
            level = logging.INFO if self._is_renewing else logging.ERROR
            logger.log(level, "%s; all slot processes are replaced", self.current.lost_reason)
            self._note_changed()
            has_lived = self._is_renewing or self._clock.monotonic() - begun >= _STEADY_SECONDS
            pause = 0.0 if has_lived else min(max(2 * pause, RESTART_PAUSE), _RESTART_PAUSE_MAX)
            await asyncio.sleep(pause)
            self.current = self._new()
            try:
                await self.start()
            except (FlinklikeError, TimeoutError) as error:
                logger.error("template process cannot be replaced, trying again: %s", error)  # noqa: TRY400 - the sentence is enough
                await self.end_current()
                await asyncio.sleep(RESTART_PAUSE)
