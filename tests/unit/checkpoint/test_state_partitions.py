"""Another number of state partitions: done once, before the query has its directory, refused where state is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.checkpoint.savepoint.query_copy import copy_query
from runtime.checkpoint.savepoint.query_restore import QueryToRestore, RestoredQuery, restore_query
from runtime.checkpoint.savepoint.repartition import Partitions, PartitionsChange
from runtime.checkpoint.savepoint.shares import QueryShape
from runtime.common.errors import InvalidInputError, UnavailableError
from tests.kit.checkpoint.query_directories import query_directory, saved, sink_directory, write

OWN, SHUFFLES = "spark.sql.streaming.internal.stateStore.partitions", "spark.sql.shuffle.partitions"


def offsets(batch: int, conf: dict[str, str]) -> str:
    return f'v1\n{json.dumps({"conf": conf})}\n{{"logOffset": {batch}}}'


class Spark:
    """Does what Spark does to a directory; `fails` first, in the middle."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.done, self.noted = fails, 0, list[tuple[str, int]]()

    def repartition(self, part: Path, number: int) -> None:
        assert part.name.startswith("."), "nobody takes it for a query's directory"
        last = max(int(one.name) for one in (part / "commits").iterdir())
        write(part / "offsets" / str(last + 1), offsets(last, {OWN: str(number)}))
        if self.fails:
            self.fails = False
            raise UnavailableError("Spark was lost")
        for partition in range(number):
            write(part / "state" / "0" / str(partition) / f"{last + 2}.snapshot", "state")
        write(part / "commits" / str(last + 1), "v1\n{}")
        self.done += 1

    def note(self, log: Path, batch_id: int) -> None:
        write(log / str(batch_id), "v1")
        self.noted.append((log.name, batch_id))

    def to(self, number: int, *, is_named: bool = True) -> Partitions:
        return Partitions(number, is_named, self.repartition, self.note)


class Scene:
    """A query in two partitions, at batch 4, and a savepoint of it."""

    def __init__(self, directory: Path, **options: Any) -> None:
        conf = options.pop("conf", {OWN: "2", SHUFFLES: "9"})
        self.table = sink_directory(directory / "table", batches=5)
        query = query_directory(directory / "query", batches=5, **options)
        write(query / "offsets" / "4", offsets(4, conf))
        self.path = saved(directory / "savepoints", query, batch_id=4, sink=self.table)
        self.directory = directory / "checkpoints" / "job" / "sink" / "0"

    def restore(self, partitions: Partitions, attempt: str = "1-0") -> RestoredQuery | None:
        return restore_query(
            self.path,
            QueryToRestore(
                self.directory,
                "sink",
                0,
                {"sink": QueryShape(1)},
                sink=self.table,
                attempt=attempt,
                partitions=partitions,
                job_id="b" * 32,
            ),
        )


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.mark.parametrize("number", [1, 3])
def test_state_gets_its_partitions_once(scene: Scene, number: int) -> None:
    spark = Spark()
    restored = scene.restore(spark.to(number))
    assert restored == RestoredQuery(5, (), PartitionsChange(2, number, 5))
    parts = {one.name for one in (scene.directory / "state" / "0").iterdir() if one.name.isdigit()}
    assert parts == {str(index) for index in range(number)}
    assert (scene.table / "_spark_metadata" / "5").read_text() == "v1", "Spark reads no log with a gap"
    assert scene.restore(spark.to(number)) is None
    assert spark.done == 1


def test_what_follows_can_be_copied(scene: Scene, tmp_path: Path) -> None:
    """State of partitions that are none any more has no version for later batches."""
    scene.restore(Spark().to(1))
    copy_query(scene.directory, tmp_path / "copy", 5, None)
    write(scene.directory / "offsets" / "6", offsets(6, {OWN: "1"}))
    write(scene.directory / "commits" / "6", "v1\n{}")
    write(scene.directory / "state" / "0" / "0" / "7.snapshot", "state")
    names = [file.path for file in copy_query(scene.directory, tmp_path / "next", 6, None).files]
    assert [one for one in names if one.startswith("state/0/1/")] == []


def test_a_crash_in_the_middle_leaves_nothing_and_it_is_done_again(scene: Scene) -> None:
    spark = Spark(fails=True)
    with pytest.raises(UnavailableError):
        scene.restore(spark.to(3))
    assert not scene.directory.exists()
    assert not (scene.table / "_spark_metadata" / "5").exists()
    left = scene.directory.parent / ".0.restored-1-0"
    assert left.is_dir()
    restored = scene.restore(spark.to(3), "1-1")
    assert restored is not None
    assert restored.batch_id == 5
    assert [one.name for one in scene.directory.parent.iterdir()] == ["0"]
    assert spark.noted == [("._spark_metadata.restored", 5)]


def test_the_same_number_changes_nothing(scene: Scene) -> None:
    spark = Spark()
    assert scene.restore(spark.to(2)) == RestoredQuery(4, (), PartitionsChange(2, 2, 4))
    assert (spark.done, spark.noted) == (0, [])


def test_spark_before_4_1_has_one_number_for_state_and_shuffles(tmp_path: Path) -> None:
    scene = Scene(tmp_path, conf={SHUFFLES: "2"})
    assert scene.restore(Spark().to(3)) == RestoredQuery(5, (), PartitionsChange(2, 3, 5))


def test_a_query_without_state(tmp_path: Path) -> None:
    scene = Scene(tmp_path, with_state=False)
    with pytest.raises(InvalidInputError, match="'sink' has no state in the savepoint"):
        scene.restore(Spark().to(3))
    assert scene.restore(Spark().to(3, is_named=False)) == RestoredQuery(4, (), PartitionsChange(0, 0, 4))


@pytest.mark.parametrize(("conf", "says"), [({OWN: "3"}, "in 2 of 3"), ({OWN: "1"}, "in 2 of 1")])
def test_state_that_spark_reads_from_one_partition_is_refused(tmp_path: Path, conf: dict[str, str], says: str) -> None:
    scene = Scene(tmp_path, conf=conf)
    with pytest.raises(InvalidInputError, match=says):
        scene.restore(Spark().to(5))
    assert not scene.directory.exists()


@pytest.mark.parametrize("conf", [{}, {OWN: "many"}])
def test_an_unknown_number_is_refused(tmp_path: Path, conf: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="do not say how many partitions"):
        Scene(tmp_path, conf=conf).restore(Spark().to(5))


def test_what_spark_has_not_done_is_no_state(scene: Scene) -> None:
    with pytest.raises(InvalidInputError, match="has not written batch 5"):
        scene.restore(Partitions(3, True, lambda part, number: None, Spark().note))
    assert not scene.directory.exists()
