"""How late the event loop of a JobMaster process is: the mean of its last looks."""

from __future__ import annotations

import asyncio

import pytest

from jobmaster_process.load import LAG_PERIOD, LoopLag, OwnProcessLoad
from runtime.aio.clock import LoopClock
from runtime.aio.scope import Scope
from tests.kit.control_plane.virtual_time import ManualClock, run_virtual


class BusyLoop(ManualClock):
    """Time passes with each look at the clock, as it does while the loop runs a long step."""

    step = LAG_PERIOD

    def monotonic(self) -> float:
        """Later than before."""
        self.now += self.step
        return self.now


def test_the_mean_of_the_last_looks_is_told_so_that_one_long_step_is_no_overload() -> None:
    async def main() -> None:
        clock = BusyLoop()
        lag = LoopLag(clock)
        assert lag.mean == 0.0
        async with Scope("lag") as scope:
            scope.spawn_eternal("watch", lag.watch())
            await asyncio.sleep(LAG_PERIOD * (LoopLag.LOOKS + 0.5))
            assert lag.mean == pytest.approx(0.0), "as late as asked"
            clock.step = LAG_PERIOD + 2.0
            await asyncio.sleep(LAG_PERIOD)
            assert lag.mean == pytest.approx(2.0 / LoopLag.LOOKS)
            await asyncio.sleep(LAG_PERIOD * LoopLag.LOOKS)
            assert lag.mean == pytest.approx(2.0)
            scope.cancel_all()

    run_virtual(main())


def test_it_is_told_with_the_load() -> None:
    async def main() -> None:
        load = OwnProcessLoad(LoopClock())
        assert load.sample().loop_lag == 0.0

    asyncio.run(main())
