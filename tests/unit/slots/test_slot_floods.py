"""R43: how much a slot process may say, by the time in which it was heard."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runtime.taskexecutor.slot_protocol.wire import Frame, FrameKind, encode_fields
from runtime.taskexecutor.slots.slot_handle import SlotProcess
from tests.kit.control_plane.virtual_time import run_virtual

PROGRESS = Frame(FrameKind.PROGRESS, encode_fields(fraction=0.5, text="x")).encode()
FITS_INTO_A_SOCKET = 278
"""Reports of a task whose TaskManager stands still; the next one waits."""


class _Listener:
    def __init__(self) -> None:
        self.heard = 0

    def progress_reported(self, _process: SlotProcess, _fraction: float, _text: str) -> None:
        self.heard += 1


class _Template:
    def kill(self, _number: int) -> None: ...


def process() -> tuple[SlotProcess, _Listener]:
    template: Any = _Template()
    listener: Any = _Listener()
    made = SlotProcess(template, listener)
    nothing: Any = None
    assert not made.hand_over(b"{}", nothing).done()
    return made, listener


@pytest.mark.parametrize("seconds", [1, 10, 27.8, 3600])
def test_a_task_manager_that_stood_still_takes_what_was_said_meanwhile(seconds: float) -> None:
    async def main() -> None:
        slot, listener = process()
        for _ in range(2):
            await asyncio.sleep(0.1)
            slot.data_received(PROGRESS)
        await asyncio.sleep(seconds)
        said = min(int(10 * seconds), FITS_INTO_A_SOCKET)
        slot.data_received(PROGRESS * (said // 2))
        slot.data_received(PROGRESS * (said - said // 2))
        assert slot.refusal == ""
        assert listener.heard == 2 + said

    run_virtual(main())


def test_a_flood_is_refused_however_long_it_was_silent() -> None:
    async def main() -> None:
        slot, listener = process()
        await asyncio.sleep(0.5)
        slot.data_received(PROGRESS * 101)
        assert "101 messages in a second" in slot.refusal
        slot, listener = process()
        await asyncio.sleep(3600)
        slot.data_received(PROGRESS * 10_001)
        assert "10001 messages in a second" in slot.refusal
        assert listener.heard == 10_000

    run_virtual(main())


def test_silence_counts_once() -> None:
    async def main() -> None:
        slot, _ = process()
        await asyncio.sleep(3600)
        slot.data_received(PROGRESS * FITS_INTO_A_SOCKET)
        await asyncio.sleep(1)
        slot.data_received(PROGRESS * 101)
        assert slot.refusal

    run_virtual(main())
