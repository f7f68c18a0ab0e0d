"""SIGTERM and SIGINT: an orderly stop with a deadline, then the end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)

EXIT_CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}


class StopSignal:
    """Remembers the first signal that asks this process to stop; a second one ends it at once."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self.exit_code = 0

    async def wait(self) -> None:
        """Return when somebody has asked."""
        await self._asked.wait()

    def ask(self, number: signal.Signals) -> None:
        """A signal has arrived."""
        if self._asked.is_set():
            logger.warning("second %s: ending at once", number.name)
            os._exit(EXIT_CODES[number])
        logger.info("%s: stopping", number.name)
        self.exit_code = EXIT_CODES[number]
        self._asked.set()


@contextmanager
def stop_signals() -> Iterator[StopSignal]:
    """Within the block the running loop takes SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()
    stop = StopSignal()
    for number in EXIT_CODES:
        loop.add_signal_handler(number, stop.ask, number)
    try:
        yield stop
    finally:
        for number in EXIT_CODES:
            loop.remove_signal_handler(number)
