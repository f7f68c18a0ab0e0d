"""The end of a TaskManager: what runs has its time, and what has finished waits as long for an owner that takes it."""

from __future__ import annotations

import asyncio

import pytest

from runtime.aio.scope import ServiceScope
from runtime.aio.watch import Watch
from runtime.taskexecutor.core.events import DrainChanged, Released
from runtime.taskexecutor.draining import Draining
from runtime.taskexecutor.moving_queries import MovingQueries
from runtime.taskexecutor.slots.stream_queries import StreamQueries
from tests.kit.control_plane.virtual_time import run_virtual

TIMEOUT, REPORT_PATIENCE = 20.0, 5.0


async def flush() -> None:
    """Nothing is on its way."""


async def finish(*, runs_for: float, taken_after: float) -> tuple[float, list[DrainChanged | Released]]:
    """How long an end takes, and what it says, when attempts run and their reports are taken for so long from now."""
    loop = asyncio.get_running_loop()
    said: list[DrainChanged | Released] = []
    running, kept = Watch(1), Watch(1)

    def post(event: DrainChanged | Released) -> None:
        said.append(event)
        if isinstance(event, Released):
            running.set(0)

    scope = ServiceScope("test")
    await scope.open()
    queries = MovingQueries(StreamQueries(list, stop_timeout=1.0), scope, post, lambda _: False, running, flush)
    draining = Draining(TIMEOUT, running, kept, post, flush, queries)
    began = loop.time()
    loop.call_later(runs_for, running.set, 0)
    loop.call_later(taken_after, kept.set, 0)
    await draining.finish(TIMEOUT, report_patience=REPORT_PATIENCE)
    await scope.close()
    return loop.time() - began, said


@pytest.mark.parametrize(
    ("runs_for", "taken_after", "lasts", "is_released"),
    [
        (2.0, 3.0, 3.0, False),
        (2.0, 12.0, 12.0, False),  # its owner has died, and the next one takes the reports first of all
        (2.0, 99.0, TIMEOUT, False),
        (19.0, 99.0, 19.0 + REPORT_PATIENCE, False),
        (99.0, 99.0, TIMEOUT + REPORT_PATIENCE, True),
        (99.0, 21.0, 21.0, True),
    ],
)
def test_reports_have_the_rest_of_the_time(
    runs_for: float, taken_after: float, lasts: float, is_released: bool
) -> None:
    took, said = run_virtual(finish(runs_for=runs_for, taken_after=taken_after))
    assert took == pytest.approx(lasts)
    assert [type(one) for one in said] == [DrainChanged, *[Released] * is_released]
