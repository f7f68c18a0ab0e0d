"""What a slot process does of a savepoint before it asks Spark for anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.common.errors import InvalidInputError
from runtime.jobgraph.savepoints import SavepointRestoreSettings, dump_query_settings
from runtime.taskexecutor.containment.users import TaskUser
from runtime.taskexecutor.slot_process.restoring import restore
from runtime.taskexecutor.slots.running_attempt import work_order
from tests.kit.spark.slot_work import slot_work

NO_WRITER: Any = None
NO_SPARK: Any = None


def test_a_job_that_is_started_from_nothing_restores_nothing(tmp_path: Path) -> None:
    restore(work_order(slot_work(tmp_path)), "sink", str(tmp_path / "query"), NO_WRITER, NO_SPARK)
    assert not (tmp_path / "query").exists()


def test_slots_with_users_of_their_own_start_nothing_from_a_savepoint(tmp_path: Path) -> None:
    settings = dump_query_settings(SavepointRestoreSettings(path="/s/1"), {"sink": 1})
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
