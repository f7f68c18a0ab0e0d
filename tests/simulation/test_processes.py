"""Processes on the simulated loop: what freezing and killing do to everything that belongs to one."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.kit.simulation.processes import SimulatedLoop, SimulatedProcess
from tests.kit.simulation.seeds import on_virtual_time


class Diary:
    """What ran, and when."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.start = loop.time()
        self.lines: list[tuple[float, str]] = []

    def note(self, text: str) -> None:
        self.lines.append((round(self.loop.time() - self.start, 3), text))

    async def tick(self, name: str, period: float) -> None:
        try:
            while True:
                await asyncio.sleep(period)
                self.note(name)
        finally:
            self.note(f"{name} cleans up")


def with_diary(scenario: Any) -> list[tuple[float, str]]:
    async def main(loop: SimulatedLoop) -> list[tuple[float, str]]:
        diary = Diary(loop)
        await scenario(loop, diary)
        return diary.lines

    return on_virtual_time(main)


def test_what_a_frozen_process_misses_happens_when_it_wakes() -> None:
    async def scenario(loop: SimulatedLoop, diary: Diary) -> None:
        one, other = (SimulatedProcess(loop, name) for name in ("one", "other"))
        for process in (one, other):
            _ = process.start("tick", diary.tick(process.name, 1.0))
        await asyncio.sleep(1.5)
        one.freeze()
        one.post(diary.note, "a message for one")
        await asyncio.sleep(2.0)
        one.thaw()
        await asyncio.sleep(0.1)

    assert with_diary(scenario) == [
        (1.0, "one"), (1.0, "other"), (2.0, "other"), (3.0, "other"), (3.5, "a message for one"), (3.5, "one"),
    ]  # fmt: skip


def test_a_killed_process_runs_nothing_more_not_even_its_cleaning() -> None:
    async def scenario(loop: SimulatedLoop, diary: Diary) -> None:
        process = SimulatedProcess(loop, "one")
        _ = process.start("tick", diary.tick("one", 1.0))
        process.post_later(2.0, diary.note, "a timer")
        await asyncio.sleep(1.5)
        process.kill()
        process.post(diary.note, "a message")
        await asyncio.sleep(5.0)
        assert [task.get_name() for task in process.pending_tasks] == ["tick"]

    assert with_diary(scenario) == [(1.0, "one")]


def test_what_a_process_starts_belongs_to_it() -> None:
    async def scenario(loop: SimulatedLoop, diary: Diary) -> None:
        async def parent() -> None:
            async with asyncio.TaskGroup() as group:
                _ = group.create_task(diary.tick("a child", 1.0))
                asyncio.get_running_loop().call_later(1.5, diary.note, "a timer")

        process = SimulatedProcess(loop, "one")
        _ = process.start("parent", parent())
        await asyncio.sleep(1.2)
        process.kill()
        await asyncio.sleep(5.0)
        assert len(process.pending_tasks) == 2

    assert with_diary(scenario) == [(1.0, "a child")]


def test_file_work_takes_time_and_dies_with_its_process() -> None:
    async def scenario(loop: SimulatedLoop, diary: Diary) -> None:
        loop.storage_delay = lambda _: 1.0

        async def work(name: str) -> None:
            await asyncio.to_thread(diary.note, f"{name} writes")
            diary.note(f"{name} goes on")

        one, other = (SimulatedProcess(loop, name) for name in ("one", "other"))
        for process in (one, other):
            _ = process.start("work", work(process.name))
        await asyncio.sleep(0.5)
        one.kill()
        await asyncio.sleep(5.0)

    assert with_diary(scenario) == [(1.0, "other writes"), (1.0, "other goes on")]


def test_file_work_can_fail() -> None:
    async def scenario(_loop: SimulatedLoop, diary: Diary) -> None:
        def fails() -> None:
            message = "Input/output error"
            raise OSError(message)

        try:
            await asyncio.to_thread(fails)
        except OSError as error:
            diary.note(str(error))

    assert [text for _, text in with_diary(scenario)] == ["Input/output error"]


def test_a_group_cancels_its_tasks_in_the_order_in_which_they_were_started() -> None:
    """asyncio keeps them in a set: by address the order would differ from run to run."""

    async def scenario(_loop: SimulatedLoop, diary: Diary) -> None:
        async def child(number: int) -> None:
            try:
                await asyncio.sleep(100)
            finally:
                diary.note(str(number))

        async def parent() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    _ = group.create_task(child(number))

        task = asyncio.get_running_loop().create_task(parent())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait({task})

    first, second = with_diary(scenario), with_diary(scenario)
    assert first == second
    assert len(first) == 50
