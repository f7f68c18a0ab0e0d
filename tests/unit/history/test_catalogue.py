"""The writer and the catalogue over real directories: several clusters, damage, deletion, repeats, bounds."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from runtime.blob.directory import LocalDirectory
from runtime.common.errors import NotFoundError, UnavailableError
from runtime.common.states import JobStatus
from runtime.history import catalogue as catalogue_module
from runtime.history import reader as reader_module
from runtime.history.catalogue import Catalogue
from tests.kit.history.histories import Histories, ended, job_id

pytestmark = pytest.mark.asyncio
DAY = 24 * 3600.0


@pytest.fixture
def histories(tmp_path: Path) -> Iterator[Histories]:
    made = Histories(tmp_path / "history")
    yield made
    made.io.close()


def shown(catalogue: Catalogue) -> list[str]:
    return [one.job_id[-2:] for one in catalogue.newest_first()]


async def test_jobs_of_two_clusters_with_their_archives(histories: Histories) -> None:
    await histories.write(ended(1), ended(2, JobStatus.FAILED))
    await histories.write(ended(3), cluster="two")
    catalogue = histories.catalogue()
    assert await catalogue.refresh() == 2
    assert sorted(shown(catalogue)) == ["01", "02", "03"]
    assert [catalogue.cluster(job_id(number)) for number in (1, 3, 9)] == ["one", "two", ""]
    assert await catalogue.archive(job_id(2)) == ended(2, JobStatus.FAILED).archive
    assert catalogue.counts() == {JobStatus.FINISHED: 2, JobStatus.FAILED: 1}
    changes = catalogue.changes
    assert await catalogue.refresh() == 0
    assert catalogue.changes == changes
    await histories.write(ended(4), cluster="two")
    assert await catalogue.refresh() == 1
    assert catalogue.changes > changes


async def test_a_storage_directory_is_read_too(histories: Histories) -> None:
    await histories.write(ended(1))
    storage = Histories(histories.root.parent)
    catalogue = storage.catalogue()
    await catalogue.refresh()
    assert shown(catalogue) == ["01"]
    assert await catalogue.archive(job_id(1)) == ended(1).archive
    storage.io.close()


@pytest.mark.parametrize("content", [b"", b"flinklike-history 1 9\n", b"\0" * 4096, None])
async def test_a_damaged_file_is_named_once_and_left_out(
    histories: Histories, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    await histories.write(ended(1))
    bad = await histories.write(ended(2))
    whole = bad.read_bytes()
    bad.write_bytes(whole[:-20] if content is None else content)
    catalogue = histories.catalogue()
    for _ in range(3):
        await catalogue.refresh()
    assert shown(catalogue) == ["01"]
    named = [one for one in caplog.messages if bad.name in one]
    assert len(named) == 1
    assert "is left out" in named[0]
    # It was being copied: now it is all there.
    bad.write_bytes(whole)
    await catalogue.refresh()
    assert sorted(shown(catalogue)) == ["01", "02"]


async def test_a_flood_of_damaged_files_does_not_fill_the_log(
    histories: Histories, caplog: pytest.LogCaptureFixture
) -> None:
    first = await histories.write(ended(1))
    for number in range(50):
        (first.parent / f"{number:013d}-{'0' * 32}.jobs").write_bytes(b"no")
        (first.parent / f"stranger-{number}").write_bytes(b"no")
    catalogue = histories.catalogue()
    await catalogue.refresh()
    await catalogue.refresh()
    assert len([one for one in caplog.messages if "left out" in one]) == 20
    assert "and 30 more files" in caplog.text


async def test_a_file_that_the_storage_does_not_give_is_read_later(
    histories: Histories, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = await histories.write(ended(1))
    await histories.write(ended(2))
    histories.clock.advance(5 * DAY)  # a day that is over is not listed in each look
    catalogue = histories.catalogue()
    opened = LocalDirectory.open

    def refused(directory: LocalDirectory, name: str) -> IO[bytes]:
        if name.endswith(away.name):
            message = f"read of {name}: the storage cannot be used"
            raise UnavailableError(message)
        return opened(directory, name)

    with monkeypatch.context() as storage:
        storage.setattr(LocalDirectory, "open", refused)
        for _ in range(3):
            await catalogue.refresh()
    assert shown(catalogue) == ["02"]
    assert len([one for one in caplog.messages if "is left out until it can be read" in one]) == 1
    await catalogue.refresh()
    assert sorted(shown(catalogue)) == ["01", "02"]
    assert await catalogue.refresh() == 0


async def test_what_a_cluster_deletes_goes(histories: Histories) -> None:
    file = await histories.write(ended(1))
    await histories.write(ended(2), cluster="two")
    catalogue = histories.catalogue()
    await catalogue.refresh()
    file.unlink()
    with pytest.raises(NotFoundError, match=r"cannot be read.*not found"):
        await catalogue.archive(job_id(1))
    await catalogue.refresh()
    assert shown(catalogue) == ["02"]
    with pytest.raises(NotFoundError, match="in no history"):
        await catalogue.archive(job_id(1))


async def test_a_day_that_is_over_is_listed_again_now_and_then(
    histories: Histories, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue_module, "FULL_LOOK_EVERY", 3)
    old = await histories.write(ended(1))
    kept = await histories.write(ended(2))
    histories.clock.advance(5 * DAY)
    catalogue = histories.catalogue()
    await catalogue.refresh()
    old.unlink()
    await catalogue.refresh()
    assert len(shown(catalogue)) == 2
    for _ in range(2):
        await catalogue.refresh()
    assert shown(catalogue) == ["02"]
    kept.unlink()
    kept.parent.rmdir()
    await catalogue.refresh()
    assert shown(catalogue) == []


async def test_a_job_that_was_written_twice_is_there_once(histories: Histories) -> None:
    await histories.write(ended(1, name="first"))
    await histories.write(ended(1, name="second"))
    catalogue = histories.catalogue()
    await catalogue.refresh()
    assert [one.name for one in catalogue.newest_first()] == ["second"]


@pytest.mark.parametrize("late", [None, 0, 1])
async def test_nobody_hides_the_jobs_of_a_directory_that_comes_first(
    histories: Histories, tmp_path: Path, caplog: pytest.LogCaptureFixture, late: int | None
) -> None:
    """Whichever of them is read first."""
    other = Histories(tmp_path / "other", histories.clock)
    await histories.write(ended(1, name="right"))
    await other.write(ended(1, name="false"), ended(2), cluster="evil")
    catalogue = histories.catalogue(other.root)
    if late is not None:
        (histories, other)[late].root.rename(tmp_path / "away")
        await catalogue.refresh()
        (tmp_path / "away").rename((histories, other)[late].root)
    await catalogue.refresh()
    assert {one.name for one in catalogue.newest_first()} == {"right", "daily"}
    assert catalogue.cluster(job_id(1)) == "one"
    assert "1 jobs of cluster evil" in caplog.text
    other.io.close()


async def test_the_jobs_that_ended_last_stay(histories: Histories) -> None:
    await histories.write(*(ended(number, end=10_000 - number) for number in range(1, 6)))
    catalogue = histories.catalogue(jobs_max=2)
    await catalogue.refresh()
    assert sorted(shown(catalogue)) == ["01", "02"]
    await histories.write(ended(9, end=20_000))
    await catalogue.refresh()
    assert sorted(shown(catalogue)) == ["01", "09"]


async def test_a_directory_does_not_push_out_the_jobs_of_another(histories: Histories, tmp_path: Path) -> None:
    """R56: whoever says that jobs end late says so of the own ones."""
    other = Histories(tmp_path / "other", histories.clock)
    await histories.write(ended(1), ended(2, end=3000))
    flood = [await other.write(*(ended(number, end=1 << 40) for number in range(10 * file, 10 * file + 10)))
             for file in range(2, 6)]  # fmt: skip
    catalogue = histories.catalogue(other.root, jobs_max=10)
    await catalogue.refresh()
    assert len(shown(catalogue)) == 10
    assert {"01", "02"} <= set(shown(catalogue)), "who has few jobs keeps them all"
    await histories.write(*(ended(number, end=4000 + number) for number in range(100, 110)))
    await catalogue.refresh()
    counted = [len([one for one in shown(catalogue) if (one >= "64") is is_own]) for is_own in (True, False)]
    assert counted == [5, 5], "who has many shares with the others"
    assert {"6d", "6c", "6b", "6a", "69"} <= set(shown(catalogue)), "those that ended last"
    for file in flood:
        file.unlink()
    await catalogue.refresh()
    assert sorted(shown(catalogue)) == sorted(f"{number:02x}" for number in (2, *range(101, 110), 100))[-10:]
    other.io.close()


async def test_what_was_left_out_comes_back_when_there_is_room(histories: Histories) -> None:
    files = [await histories.write(ended(number, end=2000 + number), ended(number + 50, end=10)) for number in range(9)]
    catalogue = histories.catalogue(jobs_max=4)
    await catalogue.refresh()
    assert sorted(shown(catalogue)) == ["05", "06", "07", "08"]
    assert await catalogue.archive(job_id(8))
    changes = catalogue.changes
    await catalogue.refresh()
    assert catalogue.changes == changes, "nothing is read again without room"
    for file in files[4:]:
        file.unlink()
    await catalogue.refresh()
    assert sorted(shown(catalogue)) == ["00", "01", "02", "03"]
    files[0].unlink()
    await catalogue.refresh()
    assert sorted(shown(catalogue))[:3] == ["01", "02", "03"]
    assert len(shown(catalogue)) == 4, "one of those that ended long ago"
    assert catalogue.counts() == {JobStatus.FINISHED: 4}


async def test_a_left_out_job_in_a_file_that_is_damaged_since_is_looked_for_once(
    histories: Histories, caplog: pytest.LogCaptureFixture
) -> None:
    bad = await histories.write(ended(1))
    last = await histories.write(ended(2, end=9000))
    catalogue = histories.catalogue(jobs_max=1)
    await catalogue.refresh()
    bad.write_bytes(b"x" * bad.stat().st_size)
    last.unlink()
    for _ in range(3):
        await catalogue.refresh()
    assert shown(catalogue) == []
    assert len([one for one in caplog.messages if "is left out" in one]) == 1


async def test_what_a_job_hid_is_shown_when_that_job_goes(histories: Histories, tmp_path: Path) -> None:
    other = Histories(tmp_path / "other", histories.clock)
    await other.write(ended(1, name="of another directory"))
    await histories.write(ended(1, name="older"))
    newer = await histories.write(ended(1, name="newer"))
    catalogue = histories.catalogue(other.root)
    await catalogue.refresh()
    assert [one.name for one in catalogue.newest_first()] == ["newer"]
    newer.unlink()
    await catalogue.refresh()
    assert [one.name for one in catalogue.newest_first()] == ["older"]
    for file in histories.files():
        file.unlink()
    await catalogue.refresh()
    assert [one.name for one in catalogue.newest_first()] == ["of another directory"]
    other.io.close()


async def test_a_directory_that_is_away_keeps_what_was_read(
    histories: Histories, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await histories.write(ended(1))
    catalogue = histories.catalogue()
    await catalogue.refresh()
    aside = histories.root.rename(tmp_path / "aside")
    histories.root.write_bytes(b"")
    caplog.set_level(logging.INFO)
    for _ in range(3):
        await catalogue.refresh()
    assert caplog.text.count("what was read before stays") == 1
    assert shown(catalogue) == ["01"]
    histories.root.unlink()
    aside.rename(histories.root)
    await catalogue.refresh()
    assert "can be listed again" in caplog.text
    assert shown(catalogue) == ["01"]


@pytest.mark.parametrize("is_mount_point", [True, False])
async def test_a_directory_that_is_gone_keeps_what_was_read(
    histories: Histories, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_mount_point: bool
) -> None:
    await histories.write(ended(1))
    catalogue = histories.catalogue()
    await catalogue.refresh()
    histories.root.rename(tmp_path / "aside")
    if is_mount_point:
        histories.root.mkdir()
    await catalogue.refresh()
    assert shown(catalogue) == ["01"]
    words = "is empty, and was not before" if is_mount_point else "is no directory, or is not there"
    assert words in caplog.text


@pytest.mark.parametrize("is_mount_point", [True, False])
async def test_a_storage_directory_whose_history_is_gone_keeps_what_was_read(
    histories: Histories, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_mount_point: bool
) -> None:
    await histories.write(ended(1))
    (histories.root.parent / "blobs").mkdir()
    storage = Histories(histories.root.parent)
    catalogue = storage.catalogue()
    await catalogue.refresh()
    aside = histories.root.rename(tmp_path.parent / f"{tmp_path.name}-aside")
    if is_mount_point:
        histories.root.mkdir()
    for _ in range(2):
        await catalogue.refresh()
    assert shown(catalogue) == ["01"]
    assert "/history is empty, and was not before" in caplog.text
    if is_mount_point:
        histories.root.rmdir()
    aside.rename(histories.root)
    (file,) = histories.files()
    file.unlink()
    await catalogue.refresh()
    assert shown(catalogue) == [], "folders are left: it was deleted"
    storage.io.close()


async def test_a_directory_that_was_never_there_is_told(
    histories: Histories, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await histories.catalogue(tmp_path / "nowhere").refresh()
    assert "nowhere is no directory, or is not there" in caplog.text


async def test_a_pipe_in_place_of_a_file_holds_nobody(histories: Histories) -> None:  # R52
    await histories.write(ended(1))
    catalogue = histories.catalogue()
    await catalogue.refresh()
    (file,) = histories.root.rglob("*.jobs")
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(NotFoundError):
        await catalogue.archive(job_id(1))


async def test_names_that_lead_elsewhere_are_no_files_of_a_history(histories: Histories, tmp_path: Path) -> None:
    file = await histories.write(ended(1))
    secret = tmp_path / "secret"
    secret.write_bytes(file.read_bytes())
    day = file.parent
    (day / "..jobs").write_bytes(b"")
    (day.parent / "not-a-day").mkdir()
    (day.parent / "not-a-day" / file.name).write_bytes(file.read_bytes())
    reader_module.logger.setLevel(logging.WARNING)
    catalogue = histories.catalogue()
    assert await catalogue.refresh() == 1


@pytest.mark.parametrize("cluster", ["..", "tmp", "a.b"])
async def test_any_name_of_a_cluster_stays_below_the_directory(histories: Histories, cluster: str) -> None:
    file = await histories.write(ended(1), cluster=cluster)
    assert file.is_relative_to(histories.root / f"cluster-{cluster}")
    catalogue = histories.catalogue()
    await catalogue.refresh()
    assert catalogue.cluster(job_id(1)) == cluster


async def test_the_oldest_files_go_above_the_size(histories: Histories) -> None:
    files = []
    for number in range(1, 5):
        files.append(await histories.write(ended(number)))
        histories.clock.advance(DAY)
    other = await histories.write(ended(9), cluster="two")
    size = files[0].stat().st_size
    assert await histories.writer(bytes_max=2 * size + 10).bound() == 2
    assert [path.exists() for path in (*files, other)] == [False, False, True, True, True]
    assert await histories.writer(bytes_max=0).bound() == 2
    assert histories.files() == [other]


async def test_what_was_never_finished_goes_after_an_hour(histories: Histories) -> None:
    assert await histories.writer().carry() == 0  # opens it
    left = histories.root / "tmp" / f"{histories.clock.millis:013d}-{'a' * 32}.jobs"
    left.write_bytes(b"half")
    assert await histories.writer().bound() == 0
    histories.clock.advance(3700)
    assert await histories.writer().bound() == 1
    assert not left.exists()


async def test_no_history_is_written_where_its_size_is_0(histories: Histories) -> None:
    await histories.writer(bytes_max=0).write([ended(1)])
    assert histories.files() == []
