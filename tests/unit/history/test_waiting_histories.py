"""The directory of a history may be away: what ends meanwhile waits in the storage directory, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.blob.directory import LocalDirectory
from runtime.entrypoint.job_manager_events import HISTORY, JobManagerEvents
from runtime.gateways.cluster_events import EventKind
from runtime.history.writer import WAITING
from tests.kit.history.histories import Histories, ended, job_id

pytestmark = pytest.mark.asyncio


@pytest.fixture
def histories(tmp_path: Path) -> Iterator[Histories]:
    made = Histories(tmp_path / "history")
    yield made
    made.io.close()


def waiting(histories: Histories) -> list[Path]:
    return sorted((histories.storage / WAITING).rglob("*.jobs"))


async def test_what_ends_while_the_directory_is_away_is_written_later(
    histories: Histories, caplog: pytest.LogCaptureFixture
) -> None:
    histories.root.write_bytes(b"no directory")
    writer = histories.writer()
    await writer.write([ended(1)])
    await writer.write([ended(2)])
    assert await writer.carry() == 0
    assert len(waiting(histories)) == 2
    assert [one for one in caplog.messages if "ended jobs wait in" in one] == [writer.trouble], "told once"
    assert str(histories.storage / WAITING) in writer.trouble
    histories.root.unlink()
    # The next leader finds it too.
    follower = histories.writer()
    assert await follower.carry() == 2
    assert (follower.trouble, waiting(histories)) == ("", [])
    catalogue = histories.catalogue()
    assert await catalogue.refresh() == 2
    assert await catalogue.archive(job_id(2)) == ended(2).archive
    assert await writer.carry() == 0
    assert writer.trouble == ""
    assert "the history can be written again" in caplog.text


class Told:
    """Of the events of a term the kinds, each when it is news."""

    def __init__(self) -> None:
        self.kinds: list[EventKind] = []

    def tell(self, kind: EventKind, message: str, /, *, subject: str = "") -> None:
        assert message
        assert subject == HISTORY
        if self.kinds[-1:] != [kind]:
            self.kinds.append(kind)


async def test_a_write_that_fails_between_two_looks_is_told(histories: Histories) -> None:
    """The next look finds the directory as it was."""
    told = Told()
    writer = histories.writer()
    term: Any = SimpleNamespace(leading=SimpleNamespace(value=SimpleNamespace(dispatcher=SimpleNamespace(events=told))))
    nobody: Any = None
    events = JobManagerEvents(term, nobody, nobody, writer)
    assert await events.carry_history() == 0
    histories.root.rename(histories.root.with_name("aside"))
    histories.root.write_bytes(b"no directory")
    await writer.write([ended(1)])
    histories.root.unlink()
    histories.root.with_name("aside").rename(histories.root)
    assert await events.carry_history() == 1
    assert told.kinds == [EventKind.HISTORY_BACK, EventKind.HISTORY_AWAY, EventKind.HISTORY_BACK]


async def test_a_directory_that_goes_meanwhile_is_opened_anew(histories: Histories, tmp_path: Path) -> None:
    await histories.write(ended(1))
    writer = histories.writer()
    await writer.write([ended(2)])
    aside = histories.root.rename(tmp_path / "aside")
    histories.root.write_bytes(b"")
    await writer.write([ended(3)])
    assert len(waiting(histories)) == 1
    histories.root.unlink()
    aside.rename(histories.root)
    await writer.write([ended(4)])
    assert await writer.carry() == 1
    catalogue = histories.catalogue()
    assert await catalogue.refresh() == 4


async def test_a_carrier_that_dies_between_both_carries_it_again(
    histories: Histories, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories.root.write_bytes(b"")
    await histories.writer().write([ended(1)])
    histories.root.unlink()

    def dies(_directory: LocalDirectory, _name: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(LocalDirectory, "delete", dies)
        with pytest.raises(KeyboardInterrupt):
            histories.writer()._carry()
    assert len(waiting(histories)) == len(histories.files()) == 1
    assert await histories.writer().carry() == 1
    assert (len(waiting(histories)), len(histories.files())) == (0, 1)


async def test_what_waits_is_bounded_and_swept(histories: Histories) -> None:
    histories.root.write_bytes(b"")
    for number in range(4):
        await histories.writer().write([ended(number)])
        histories.clock.advance(1)
    size = waiting(histories)[0].stat().st_size
    left = histories.storage / "tmp" / f"{histories.clock.millis - 7_200_000:013d}-{'a' * 32}.jobs"
    left.write_bytes(b"half")
    newest = waiting(histories)[-2:]
    assert await histories.writer(bytes_max=2 * size + 10).bound() == 3
    assert (waiting(histories), left.exists()) == (newest, False)


async def test_what_nobody_takes_is_named_and_ends_nothing(
    histories: Histories, caplog: pytest.LogCaptureFixture
) -> None:
    histories.root.write_bytes(b"")
    writer = histories.writer()
    (histories.storage / WAITING).write_bytes(b"in the way")
    await writer.write([ended(1)])
    assert f"missing in the history ({job_id(1)})" in caplog.text


async def test_events_about_it_exclude_each_other() -> None:
    assert EventKind.HISTORY_AWAY.axis == EventKind.HISTORY_BACK.axis != ""
    assert EventKind.HISTORY_BACK.is_normal


async def test_a_history_that_is_off_waits_for_nothing(histories: Histories, caplog: pytest.LogCaptureFixture) -> None:
    histories.root.write_bytes(b"")
    writer = histories.writer(bytes_max=0)
    await writer.write([ended(1)])
    assert (await writer.carry(), await writer.bound(), writer.trouble) == (0, 0, "")
    assert waiting(histories) == []
    assert "cannot be deleted" in caplog.text
