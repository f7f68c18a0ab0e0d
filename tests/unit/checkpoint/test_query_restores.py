"""Restores: a query begins as the savepoint has it, once, and what does not fit is refused with both sides' uids."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from runtime.checkpoint.savepoint import savepoint_files
from runtime.checkpoint.savepoint.query_restore import QueryToRestore, RestoredQuery, claim, restore_query
from runtime.checkpoint.savepoint.savepoint_files import CLAIMED, disposed_path, read_savepoint
from runtime.checkpoint.savepoint.savepoint_form import METADATA, Savepoint
from runtime.checkpoint.savepoint.shares import QueryShape
from runtime.common.errors import InvalidInputError, NotFoundError
from runtime.common.stream_progress import NO_BATCH
from tests.kit.checkpoint.query_directories import query_directory, saved, sink_directory
from tests.unit.checkpoint.test_query_copies import files


class Scene:
    """A query with a table, a savepoint at batch 4, and a job that may be restored from it."""

    def __init__(self, directory: Path) -> None:
        self.table = sink_directory(directory / "table", batches=5)
        query = query_directory(directory / "query", batches=5)
        self.path = saved(directory / "savepoints", query, batch_id=4, sink=self.table)
        self.checkpoints = directory / "checkpoints" / "job"

    def query(self, uid: str = "sink", subtask: int = 0, **options: Any) -> QueryToRestore:
        options = {"queries": {"sink": 1}, "sink": self.table, **options}
        options["queries"] = {one: QueryShape(number) for one, number in options["queries"].items()}
        return QueryToRestore(self.checkpoints / uid / str(subtask), uid, subtask, **{"job_id": "a" * 32, **options})


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_query_begins_as_the_savepoint_has_it(scene: Scene) -> None:
    query = scene.query()
    assert restore_query(scene.path, query) == RestoredQuery(4)
    saved_files = [file.path for file in read_savepoint(scene.path).queries[0].snapshot.files]
    assert files(query.directory) == [path for path in saved_files if not path.startswith("_sink")]
    assert [one.name for one in query.directory.parent.iterdir()] == ["0"], "nothing is left beside it"


def test_a_query_is_restored_once(scene: Scene) -> None:
    query = scene.query()
    restore_query(scene.path, query)
    (query.directory / "offsets" / "5").write_text("the query has gone on")
    shutil.rmtree(scene.path)
    assert restore_query(scene.path, query) is None
    assert (query.directory / "offsets" / "5").exists()


def test_what_an_interrupted_restore_left_is_no_state(scene: Scene) -> None:
    query = scene.query()
    left = query.directory.parent / ".0.restored-1"
    (left / "offsets").mkdir(parents=True)
    (left / "offsets" / "9").write_text("half")
    restore_query(scene.path, query)
    assert not (query.directory / "offsets" / "9").exists()
    assert not left.exists()


def test_a_query_that_the_savepoint_does_not_have_begins(scene: Scene) -> None:
    query = scene.query("new", queries={"sink": 1, "new": 2}, subtask=1)
    assert restore_query(scene.path, query) == RestoredQuery(NO_BATCH)
    assert files(query.directory) == []
    assert restore_query(scene.path, query) is None


def test_state_that_the_job_does_not_have_is_refused_with_both_lists(scene: Scene) -> None:
    queries = {"orders": 1, "alerts": 1}
    with pytest.raises(InvalidInputError) as refused:
        restore_query(scene.path, scene.query("orders", queries=queries))
    assert "has state of 'sink', which the job does not have" in str(refused.value)
    assert "The savepoint's queries: 'sink'; the job's: 'alerts', 'orders'" in str(refused.value)
    assert not (scene.checkpoints / "orders").exists()
    query = scene.query("orders", queries=queries, allow_non_restored_state=True)
    assert restore_query(scene.path, query) == RestoredQuery(NO_BATCH)


def test_another_parallelism_is_refused(scene: Scene) -> None:
    with pytest.raises(InvalidInputError, match="'sink' with parallelism 1, and the job has 2: its state"):
        restore_query(scene.path, scene.query(queries={"sink": 2}))


def test_another_table_is_refused(scene: Scene, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="has to write where it has written"):
        restore_query(scene.path, scene.query(sink=tmp_path / "other"))
    assert restore_query(scene.path, scene.query(sink=None)) == RestoredQuery(4)


def test_a_damaged_savepoint_is_refused(scene: Scene) -> None:
    one = scene.path / "sink" / "0" / "offsets" / "4"
    text = one.read_text()
    one.unlink()
    one.write_text(text.replace("4", "5"))
    with pytest.raises(InvalidInputError, match="offsets/4 of sink/0 in the savepoint is damaged"):
        restore_query(scene.path, scene.query())
    assert list(scene.query().directory.parent.iterdir()) == [], "no attempt follows that would delete what is left"


def test_a_savepoint_with_a_missing_file_is_refused(scene: Scene) -> None:
    """It is no failure of the storage that passes: another attempt would find the same."""
    (scene.path / "sink" / "0" / "offsets" / "4").unlink()
    with pytest.raises(InvalidInputError, match="4 of sink/0 in the savepoint is missing: it is damaged"):
        restore_query(scene.path, scene.query())
    assert list(scene.query().directory.parent.iterdir()) == []


def test_there_has_to_be_a_savepoint(scene: Scene, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        restore_query(tmp_path, scene.query())


def test_the_log_of_a_table_is_put_back(scene: Scene) -> None:
    shutil.rmtree(scene.table / "_spark_metadata")
    sink_directory(scene.table, batches=8)
    restored = restore_query(scene.path, scene.query())
    assert restored == RestoredQuery(4, tuple(f"file://{scene.table}/part-{n}.json" for n in (5, 6, 7)))
    assert files(scene.table / "_spark_metadata") == ["2.compact", "3", "4"]
    assert [one.name for one in scene.table.iterdir() if one.name.startswith(".")] == []


def test_a_log_of_another_past_is_put_back_too(scene: Scene) -> None:
    """The table went back and on to the same batch: the numbers are the same, the files are others."""
    (scene.table / "_spark_metadata" / "4").unlink()
    (scene.table / "_spark_metadata" / "4").write_text('v1\n{"path":"file:/other"}')
    assert restore_query(scene.path, scene.query()) == RestoredQuery(4, ("file:/other",))
    assert "part-4" in (scene.table / "_spark_metadata" / "4").read_text()


@pytest.mark.parametrize("step", [0, 1])
def test_a_log_is_put_back_after_an_interruption(scene: Scene, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(scene.table / "_spark_metadata")
    sink_directory(scene.table, batches=8)
    rename, calls = Path.rename, iter(range(100))

    def interrupted(path: Path, target: Path) -> Path:
        if next(calls) == step:
            message = "interrupted"
            raise OSError(message)
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", interrupted)
        with pytest.raises(OSError, match="interrupted"):
            restore_query(scene.path, scene.query())
    restored = restore_query(scene.path, scene.query())
    assert restored == RestoredQuery(4, tuple(f"file://{scene.table}/part-{n}.json" for n in (5, 6, 7)))
    assert files(scene.table / "_spark_metadata") == ["2.compact", "3", "4"]
    assert [one.name for one in scene.table.iterdir() if one.name.startswith(".")] == []


def test_a_log_that_was_put_back_before_an_interruption_names_its_orphans(scene: Scene) -> None:
    log, old = scene.table / "_spark_metadata", scene.table / "._spark_metadata.replaced"
    shutil.copytree(log, old)
    (old / "5").write_text('v1\n{"path":"file:/orphan"}')
    assert restore_query(scene.path, scene.query()) == RestoredQuery(4, ("file:/orphan",))
    assert not old.exists()


def test_a_restored_query_is_another_one(scene: Scene) -> None:  # Spark ends a query for another one of its id
    ids = set()
    for job in ("a", "b"):
        scene.checkpoints = scene.checkpoints.with_name(job)
        query = scene.query(job_id=job * 32)
        for _ in range(2):
            restore_query(scene.path, query)
            ids.add((query.directory / "metadata").read_text())
    told = (scene.path / "sink" / "0" / "metadata").read_text()
    assert len(ids) == 2, "one for each job, whichever attempt restores it"
    assert told not in ids
    assert all(str(UUID(json.loads(one)["id"])) for one in ids)


def test_what_another_job_has_restored_claims_nothing(scene: Scene) -> None:
    queries = {"sink": 1, "new": 1}
    failed = scene.query("new", queries=queries, job_id="b" * 32)
    restore_query(scene.path, failed)
    assert not claim(scene.path, failed)
    first, second = scene.query(queries=queries), scene.query("new", queries=queries)
    assert not claim(scene.path, first)
    assert scene.path.exists(), "one query of this job is not restored"
    assert claim(scene.path, second)


def test_what_an_interrupted_claim_has_left_goes_with_the_next_attempt(scene: Scene) -> None:
    query = scene.query()
    left = disposed_path(scene.path)
    (scene.path / CLAIMED).mkdir()
    scene.path.rename(left)  # and then the process was killed, with some of the files deleted
    (left / METADATA).unlink()
    assert claim(scene.path, query)
    assert not left.exists()
    assert not claim(scene.path, query), "once"


def test_of_queries_that_see_all_marks_at_once_one_deletes_and_the_others_leave_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, strange = scene.query(), savepoint_files._strange

    def another_is_first(path: Path, savepoint: Savepoint) -> list[str]:
        monkeypatch.setattr(savepoint_files, "_strange", strange)
        assert claim(path, query)
        return []

    monkeypatch.setattr(savepoint_files, "_strange", another_is_first)
    assert not claim(scene.path, query)
    assert not scene.path.exists()
    assert not disposed_path(scene.path).exists()


def test_a_claimed_savepoint_goes_with_its_last_query(scene: Scene) -> None:
    queries = {"sink": 1, "new": 2}
    jobs = [scene.query(queries=queries), *(scene.query("new", n, queries=queries) for n in range(2))]
    for query in jobs[:2]:
        restore_query(scene.path, query)
        assert not claim(scene.path, query)
        assert not claim(scene.path, query), "a second attempt changes nothing"
    restore_query(scene.path, jobs[2])
    assert claim(scene.path, jobs[2])
    assert not scene.path.exists()
    assert not claim(scene.path, jobs[0]), "an attempt that starts later finds its own directory"
    assert restore_query(scene.path, jobs[0]) is None
