"""Blocking calls: at most so many at once, on threads with a name, and an end that does not wait."""

from __future__ import annotations

import threading

import pytest

from runtime.aio.blocking import BlockingIo
from runtime.aio.scope import Scope


@pytest.mark.asyncio
async def test_calls_have_threads_of_their_own_and_no_more_than_are_given() -> None:
    io = BlockingIo("read things", threads=1)
    free, begun = threading.Event(), threading.Event()

    def first() -> str:
        begun.set()
        free.wait(60)
        return threading.current_thread().name

    async with Scope("test") as scope:
        one = scope.start("one", io.run(first))
        other = scope.start("other", io.run(threading.current_thread))
        await BlockingIo("others").run(begun.wait, 60)
        assert not other.done()
        free.set()
        assert (await one).startswith("read things")
        assert (await other).name == await one
    io.close()


@pytest.mark.asyncio
async def test_what_is_abandoned_is_not_waited_for_and_takes_no_more() -> None:
    io = BlockingIo("stuck", threads=1)
    free, begun = threading.Event(), threading.Event()

    def stuck() -> None:
        begun.set()
        free.wait(60)

    async with Scope("test") as scope:
        scope.spawn("stuck", io.run(stuck))
        await BlockingIo("others").run(begun.wait, 60)
        io.abandon()
        with pytest.raises(RuntimeError):
            await io.run(stuck)
        free.set()
