"""What a slot process does of a savepoint before it asks Spark for anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.checkpoint.savepoint.query_restore import QueryToRestore
from runtime.checkpoint.savepoint.savepoint_files import disposed_path
from runtime.checkpoint.savepoint.shares import QueryShape
from runtime.common.errors import InvalidInputError
from runtime.jobgraph.savepoints import SavepointRestoreSettings, dump_query_settings
from runtime.taskexecutor.containment.users import TaskUser
from runtime.taskexecutor.slot_process import restoring
from runtime.taskexecutor.slot_process.restoring import restore
from runtime.taskexecutor.slots.running_attempt import work_order
from tests.kit.checkpoint.query_directories import query_directory, saved
from tests.kit.spark.slot_work import slot_work

NO_WRITER: Any = None
NO_SPARK: Any = None


def test_a_job_that_is_started_from_nothing_restores_nothing(tmp_path: Path) -> None:
    restore(work_order(slot_work(tmp_path)), "sink", str(tmp_path / "query"), NO_WRITER, NO_SPARK)
    assert not (tmp_path / "query").exists()


def test_slots_with_users_of_their_own_start_nothing_from_a_savepoint(tmp_path: Path) -> None:
    settings = dump_query_settings(SavepointRestoreSettings(path="/s/1"), {"sink": 1}, {})
    order = replace(
        work_order(slot_work(tmp_path, savepoint=settings)), user=TaskUser(20_000, 20_000, 20_000, str(tmp_path), 10)
    )
    with pytest.raises(InvalidInputError, match=r"taskmanager\.slots\.uids"):
        restore(order, "sink", str(tmp_path / "query"), NO_WRITER, NO_SPARK)


@pytest.mark.parametrize("settings", [b"{", b"[]", b'{"path": "/s", "queries": {"a": "b"}}'])
def test_settings_that_cannot_be_read_are_refused(tmp_path: Path, settings: bytes) -> None:
    with pytest.raises(InvalidInputError, match="settings of a savepoint"):
        restore(
            work_order(slot_work(tmp_path, savepoint=settings)), "sink", str(tmp_path / "query"), NO_WRITER, NO_SPARK
        )


def test_a_claimed_savepoint_that_holds_more_stays_and_the_job_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved(tmp_path / "s", query_directory(tmp_path / "query", batches=1), batch_id=0)
    (path / "notes").write_text("mine")
    restoring._claim(path, QueryToRestore(tmp_path / "restored", "sink", 0, {"sink": QueryShape(1)}, job_id="a" * 32))
    assert "was claimed and stays" in caplog.text
    assert (path / "notes").is_file()


def test_a_claimed_savepoint_that_cannot_be_deleted_stays_and_the_job_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved(tmp_path / "s", query_directory(tmp_path / "query", batches=1), batch_id=0)
    disposed_path(path).mkdir()
    (disposed_path(path) / "busy").touch()  # a savepoint cannot take this name
    restoring._claim(path, QueryToRestore(tmp_path / "restored", "sink", 0, {"sink": QueryShape(1)}, job_id="a" * 32))
    assert "has not deleted all of it" in caplog.text
    assert path.is_dir()


class LostQuery:
    """It fails, and its JVM answers nothing more."""

    _jsq: Any = None

    def __init__(self, *ends: bool) -> None:
        self.ends = [*ends]

    def awaitTermination(self, _: float) -> bool:  # noqa: N802 - PySpark's name
        if self.ends:
            return self.ends.pop(0)
        message = "no such customer"
        raise ValueError(message)


@pytest.mark.parametrize("looks", [(), (False, False)], ids=["before a look", "behind looks"])
def test_a_query_fails_with_its_own_error_where_nobody_can_look_at_it(looks: tuple[bool, ...]) -> None:
    query: Any = LostQuery(*looks)
    with pytest.raises(ValueError, match="no such customer"):
        restoring.await_end(query, "sink", ("FileStreamSource[file:/landing]",))
