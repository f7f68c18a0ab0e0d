"""SIGTERM and SIGINT: an orderly stop with a deadline. SIGTERM leaves time to drain."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)

EXIT_CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}


class StopSignal:
    """Remembers the first signal that asks this process to stop; a second one ends it at once.

    While the process hands over its work, a second signal ends only that, and a third one the process.
    """

    def __init__(self, can_leave: Callable[[], bool]) -> None:
        self._can_leave = can_leave
        self._asked = asyncio.Event()
        self._insisted = asyncio.Event()
        self.is_patient = False
        """True when the process may take its time to hand over: after SIGTERM, but not after SIGINT."""
        self.exit_code = 0

    async def wait(self) -> None:
        """Return after the first signal."""
        await self._asked.wait()

    async def insisted(self) -> None:
        """Return after the second signal."""
        await self._insisted.wait()

    def ask(self, number: signal.Signals) -> None:
        """Handle a signal."""
        if self._asked.is_set():
            if not self.is_patient or not self._can_leave() or self._insisted.is_set():
                logger.warning("another %s: ending at once", number.name)
                os._exit(EXIT_CODES[number])
            logger.info("another %s: stopping without handing over", number.name)
            self._insisted.set()
            return
        logger.info("%s: stopping", number.name)
        self.exit_code = EXIT_CODES[number]
        self.is_patient = number is signal.SIGTERM
        self._asked.set()


@contextmanager
def stop_signals(can_leave: Callable[[], bool] = lambda: False) -> Iterator[StopSignal]:
    """Within the block the running loop takes SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()
    stop = StopSignal(can_leave)
    for number in EXIT_CODES:
        loop.add_signal_handler(number, stop.ask, number)
    try:
        yield stop
    finally:
        for number in EXIT_CODES:
            loop.remove_signal_handler(number)


def stop_with_standard_input() -> None:
    """Begin an orderly stop when the parent closes standard input, or ends."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(descriptor, readable)
