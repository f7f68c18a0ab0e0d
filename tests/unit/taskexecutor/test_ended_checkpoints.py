"""Directories of streaming queries whose jobs have ended: which go, and which never do."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from runtime.common.errors import UnavailableError
from runtime.common.ids import JobId
from runtime.taskexecutor.directories.ended_checkpoints import EndedCheckpoints

RUNNING, ENDED, KEPT, FOREIGN = (f"{number:032x}" for number in range(4))


class Jobs:
    """What the job store says, and how often it was asked."""

    def __init__(self) -> None:
        self.deletes: dict[str, bool | None] = {RUNNING: None, ENDED: True, KEPT: False}
        self.asked: list[str] = []

    async def look(self, job_id: JobId) -> bool | None:
        self.asked.append(job_id)
        return self.deletes.get(job_id, False)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for name in (RUNNING, ENDED, KEPT, FOREIGN, "savepoint-000000-0123456789ab"):
        commits = tmp_path / "checkpoints" / name / "orders" / "0" / "commits"
        commits.mkdir(parents=True)
        (commits / "0").touch()
    (tmp_path / "checkpoints" / "a-file").touch()
    return tmp_path / "checkpoints"


def names(base: Path) -> set[str]:
    return {one.name for one in base.iterdir()}


@pytest.mark.asyncio
async def test_only_those_of_jobs_that_have_ended_and_keep_none_go(base: Path) -> None:
    jobs, before = Jobs(), names(base)
    collector = EndedCheckpoints(base.as_uri(), jobs.look)
    assert await collector.activate() == 1
    assert before - names(base) == {ENDED}
    jobs.asked.clear()
    jobs.deletes[RUNNING] = True
    assert await collector.activate() == 1
    assert jobs.asked == [RUNNING], "what is settled is not asked for again"
    assert before - names(base) == {ENDED, RUNNING}


@pytest.mark.asyncio
async def test_what_cannot_be_deleted_is_tried_again(base: Path, caplog: pytest.LogCaptureFixture) -> None:
    collector = EndedCheckpoints(str(base), Jobs().look)
    (base / ENDED).rename(base / "elsewhere")
    (base / ENDED).symlink_to(base / "elsewhere")
    with caplog.at_level(logging.WARNING):
        assert await collector.activate() == 0
    assert "cannot be deleted, it is tried again" in caplog.text
    assert (base / "elsewhere" / "orders").is_dir(), "a link is not followed"
    (base / ENDED).unlink()
    (base / "elsewhere").rename(base / ENDED)
    assert await collector.activate() == 1


@pytest.mark.asyncio
async def test_nothing_is_deleted_while_the_store_is_away(base: Path) -> None:
    async def away(_: JobId) -> bool | None:
        message = "no etcd"
        raise UnavailableError(message)

    before = names(base)
    with pytest.raises(UnavailableError):
        await EndedCheckpoints(str(base), away).activate()
    assert names(base) == before


@pytest.mark.asyncio
async def test_a_storage_that_only_spark_reaches_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    collector = EndedCheckpoints("unheard-of://lake/checkpoints", Jobs().look)
    with caplog.at_level(logging.WARNING):
        assert await collector.activate() == await collector.activate() == 0
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("directories of ended streaming jobs stay, nothing here deletes them: unheard-of://lake")
