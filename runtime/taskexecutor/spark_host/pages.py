"""Spark's own pages in the Spark host: a few requests at once, so that a JVM that does not answer takes few threads."""

from __future__ import annotations

import threading
from typing import Protocol

from runtime.taskexecutor.spark_protocol.pages import ASKED_AT_ONCE_MAX


class PagesOfDriver(Protocol):
    """The driver, as far as its pages go."""

    def page(self, target: str, prefix: str, /) -> str:
        """The answer to a GET, in base64."""

    def forget_pages(self) -> None:
        """Drop what nobody has looked at."""


class Pages:
    """Those of one driver. Any thread may ask."""

    def __init__(self, driver: PagesOfDriver) -> None:
        self._driver = driver
        self._places = threading.BoundedSemaphore(ASKED_AT_ONCE_MAX)
        self._is_shown = False

    def answer(self, target: str, prefix: str) -> str:
        """The answer to a GET. Raises RuntimeError while as many are asked for as may be."""
        if not self._places.acquire(blocking=False):
            message = f"{ASKED_AT_ONCE_MAX} of its pages are being made"
            raise RuntimeError(message)
        try:
            self._is_shown = True
            return self._driver.page(target, prefix)
        finally:
            self._places.release()

    def forget_unused(self) -> None:
        """Costs nothing where nobody has looked."""
        if self._is_shown:
            self._driver.forget_pages()
