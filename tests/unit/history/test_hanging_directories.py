"""A directory that hangs, as a mount of a server that does not answer does, holds up nobody else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from runtime.blob.directory import LocalDirectory
from runtime.common.errors import UnavailableError
from runtime.history import directory_calls
from runtime.history.catalogue import Catalogue
from runtime.history.reader import HistoryReader
from tests.kit.history.histories import Histories, ended, job_id

pytestmark = pytest.mark.asyncio


class HangingDirectory(LocalDirectory):
    """Answers nothing while it hangs."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, is_read_only=True)
        self.answers = threading.Event()
        self.answers.set()

    def folders(self, folder: str) -> Sequence[str]:
        """When it answers."""
        self.answers.wait()
        return super().folders(folder)

    def open(self, name: str) -> IO[bytes]:
        """When it answers."""
        self.answers.wait()
        return super().open(name)


class World:
    """The histories of a directory that answers, and of one that hangs when it is told to."""

    def __init__(self, root: Path) -> None:
        self.good, self.bad = Histories(root / "good"), Histories(root / "bad")
        self.hanging = HangingDirectory(root / "bad")
        readers = [HistoryReader(0, self.hanging), HistoryReader(1, LocalDirectory(root / "good", is_read_only=True))]
        self.catalogue = Catalogue(readers, self.good.clock, jobs_max=100)

    def shown(self) -> set[str]:
        return {one.job_id[-1] for one in self.catalogue.newest_first()}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(directory_calls, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(directory_calls, "READ_SECONDS", 0.2)
    made = World(tmp_path)
    yield made
    made.hanging.answers.set()
    for one in (made.good, made.bad):
        one.io.close()


async def test_others_are_shown_and_what_was_there_stays(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.good.put(ended(1))
    world.bad.put(ended(2))
    await world.catalogue.refresh()
    assert world.shown() == {"1", "2"}
    world.hanging.answers.clear()
    caplog.set_level(logging.INFO)
    for number in (3, 4):
        world.good.put(ended(number))
        await world.catalogue.refresh()
    assert world.shown() == {"1", "2", "3", "4"}
    assert caplog.text.count("cannot be listed: it has not answered in 0.2 s") == 1
    world.bad.put(ended(5))
    world.hanging.answers.set()
    while "can be listed again" not in caplog.text:
        await world.catalogue.refresh()
    await world.catalogue.refresh()
    assert "5" in world.shown()


async def test_an_archive_on_it_is_refused_in_time_and_others_are_read(world: World) -> None:
    world.good.put(ended(1))
    world.bad.put(ended(2))
    await world.catalogue.refresh()
    world.hanging.answers.clear()
    for sentence in ("it has not answered in 0.2 s", "an earlier call has not come back yet"):
        with pytest.raises(UnavailableError, match=rf"bad cannot be read now: {sentence}"):
            await world.catalogue.archive(job_id(2))
    assert await world.catalogue.archive(job_id(1)) == ended(1).archive
    world.hanging.answers.set()
    while True:
        try:
            assert await world.catalogue.archive(job_id(2)) == ended(2).archive
        except UnavailableError:
            continue
        break
