"""Copies of a query's directory: one committed batch, whatever stands behind it and whatever is deleted meanwhile."""

from __future__ import annotations

import errno
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.checkpoint.savepoint.file_tree import FileTree, place_files
from runtime.checkpoint.savepoint.query_copy import QueryCopyError, copy_query, file_sink_path
from runtime.checkpoint.savepoint.savepoint_form import StateOperator
from runtime.common.errors import InvalidInputError
from runtime.common.stream_progress import NO_BATCH
from tests.kit.checkpoint.query_directories import query_directory, sink_directory, write


def files(directory: Path) -> list[str]:
    return sorted(str(one.relative_to(directory)) for one in directory.rglob("*") if one.is_file())


def test_a_copy_ends_with_the_committed_batch(tmp_path: Path) -> None:
    source = query_directory(tmp_path / "query", batches=3)
    snapshot = copy_query(source, tmp_path / "copy", 1, None)
    assert files(tmp_path / "copy") == sorted(file.path for file in snapshot.files) == [
        "commits/0", "commits/1", "metadata", "offsets/0", "offsets/1",
        "sources/0/0", "sources/0/1",
        "state/0/0/1.delta", "state/0/0/2.delta", "state/0/0/_metadata/schema", "state/0/1/1.delta",
        "state/0/1/2.delta", "state/0/_metadata/metadata",
    ]  # fmt: skip
    assert (snapshot.query_id, snapshot.batch_id, snapshot.watermark_millis) == ("query-1", 1, 2000)
    assert snapshot.offsets == ('{"logOffset": 1}',)
    assert snapshot.operators == (StateOperator(operator_id=0, name="stateStoreSave", partitions=2),)


def test_stores_of_a_join_and_schemas_of_later_batches(tmp_path: Path) -> None:
    source = query_directory(tmp_path / "query", batches=3, with_state=False)
    stores = source / "state" / "0" / "1"
    for version in (1, 2, 3):
        write(stores / "left-keyToNumValues" / f"{version}.delta", "x")
        write(stores / "left-keyToNumValues" / f"{version}.delta.crc", "x")
    for name in ("0_5f1c-a", "2_9e3b-b"):
        write(source / "state" / "0" / "_stateSchema" / "default" / name, "x")
    write(source / "state" / "0" / "_metadata" / "v2" / "0", 'v2\n{"operatorInfo":{"operatorId":0,"operatorName":"j"}}')
    write(source / "state" / "0" / "_metadata" / "v2" / "2", 'v2\n{"operatorInfo":{"operatorId":0,"operatorName":"k"}}')
    snapshot = copy_query(source, tmp_path / "copy", 1, None)
    assert files(tmp_path / "copy" / "state" / "0") == [
        "1/left-keyToNumValues/1.delta", "1/left-keyToNumValues/2.delta", "_metadata/v2/0",
        "_stateSchema/default/0_5f1c-a",
    ]  # fmt: skip
    assert [one.name for one in snapshot.operators] == ["j"]


def test_the_log_of_a_file_sink_ends_there_too(tmp_path: Path) -> None:
    source = query_directory(tmp_path / "query", batches=6)
    sink = sink_directory(tmp_path / "table", batches=7)
    snapshot = copy_query(source, tmp_path / "copy", 4, sink)
    assert files(tmp_path / "copy" / "_sink") == [f"_spark_metadata/{name}" for name in ("2.compact", "3", "4")]
    assert snapshot.sink_path == str(sink)
    with pytest.raises(QueryCopyError, match="there is no entry 4"):
        copy_query(source, tmp_path / "copy", 4, sink_directory(tmp_path / "short", batches=3))


def test_a_query_without_a_batch_has_its_id_only(tmp_path: Path) -> None:
    snapshot = copy_query(query_directory(tmp_path / "query", batches=0), tmp_path / "copy", NO_BATCH, None)
    assert (snapshot.query_id, snapshot.batch_id, files(tmp_path / "copy")) == ("query-1", NO_BATCH, ["metadata"])
    snapshot = copy_query(tmp_path / "nothing", tmp_path / "copy", NO_BATCH, None)
    assert (snapshot.query_id, files(tmp_path / "copy")) == ("", [])


def test_what_an_earlier_try_left_is_deleted(tmp_path: Path) -> None:
    source = query_directory(tmp_path / "query", batches=2)
    first = copy_query(source, tmp_path / "copy", 1, None)
    write(tmp_path / "copy" / "offsets" / "7", "of another batch")
    assert copy_query(source, tmp_path / "copy", 1, None) == first
    assert "offsets/7" not in files(tmp_path / "copy")


@pytest.mark.parametrize("batch_id", [3, 4, 40])
def test_a_batch_that_is_not_committed_is_refused(tmp_path: Path, batch_id: int) -> None:
    with pytest.raises(QueryCopyError, match=f"there is no entry of batch {batch_id}"):
        copy_query(query_directory(tmp_path / "query", batches=3), tmp_path / "copy", batch_id, None)


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("more/1", "'more'"),
        ("state/0/0/1.lsm", "'1.lsm', which is no file of a state store"),
        ("/".join("s" * 12), "'s'"),
    ],
)
def test_what_is_not_known_is_not_cut(tmp_path: Path, path: str, what: str) -> None:
    source = query_directory(tmp_path / "query", batches=3)
    write(source / path, "x")
    with pytest.raises(QueryCopyError, match=what):
        copy_query(source, tmp_path / "copy", 1, None)


def test_shared_files_of_a_version_are_those_that_it_names(tmp_path: Path) -> None:
    source = query_directory(tmp_path / "query", batches=2, with_state=False)
    store = source / "state" / "0" / "0"
    for version, shared in ((1, ("000008-a.sst",)), (2, ("000008-a.sst", "000009-b.sst")), (3, ("000010-c.sst",))):
        for name in shared:
            write(store / "SSTs" / name, name)
        told = ",".join(f'{{"localFileName":"x","dfsSstFileName":"{name}","sizeBytes":1}}' for name in shared)
        with zipfile.ZipFile(store / f"{version}.zip", "w") as archive:
            archive.writestr("metadata", f'v1\n{{"sstFiles":[{told}],"numKeys":1}}')
    copy_query(source, tmp_path / "copy", 1, None)
    assert files(tmp_path / "copy" / "state") == ["0/0/2.zip", "0/0/SSTs/000008-a.sst", "0/0/SSTs/000009-b.sst"]
    with zipfile.ZipFile(store / "2.zip", "w") as archive:
        archive.writestr("metadata", 'v1\n{"sstFiles":[{"dfsSstFileName":"../../../etc/passwd"}]}')
    with pytest.raises(QueryCopyError, match=r"passwd.*a file of SSTs is expected"):
        copy_query(source, tmp_path / "copy", 1, None)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"sstFiles":[5]}', '{"sstFiles":[{"dfs":5}]}'])
def test_an_archive_that_is_no_version_is_refused(tmp_path: Path, text: str) -> None:  # R52
    source = query_directory(tmp_path / "query", batches=2, with_state=False)
    store = source / "state" / "0" / "0"
    store.mkdir(parents=True)
    with zipfile.ZipFile(store / "2.zip", "w") as archive:
        archive.writestr("metadata" if text else "other", f"v1\n{text}")
    with pytest.raises((QueryCopyError, FileNotFoundError)):
        copy_query(source, tmp_path / "copy", 1, None)


@pytest.mark.parametrize(
    "text",
    [
        '{"operatorInfo": 5}',
        '{"operatorInfo":{"operatorId":null}}',
        '{"stateStoreInfo":7}',
        '{"stateStoreInfo":[3]}',
        '{"stateStoreInfo":[{"numPartitions":-2}]}',
    ],
)
def test_what_state_says_of_itself_may_be_anything(tmp_path: Path, text: str) -> None:  # R52
    source = query_directory(tmp_path / "query", batches=2)
    write(source / "state" / "0" / "_metadata" / "metadata", f"v1\n{text}\n")
    copy_query(source, tmp_path / "copy", 1, None)


def test_what_the_query_deletes_meanwhile_is_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that runs replaces changes of state by a whole version, and deletes them."""
    source = query_directory(tmp_path / "query", batches=3)
    store = source / "state" / "0" / "0"
    place, times = FileTree.place, iter(range(100))

    def placed(tree: FileTree, path: str, target: Path) -> Any:
        if path.endswith("0/0/1.delta") and next(times) == 0:
            write(store / "2.snapshot", "whole")
            (store / "1.delta").unlink()
        return place(tree, path, target)

    monkeypatch.setattr(FileTree, "place", placed)
    copy_query(source, tmp_path / "copy", 1, None)
    assert files(tmp_path / "copy" / "state" / "0" / "0") == ["2.snapshot", "_metadata/schema"]


@pytest.fixture(params=["linked", "copied"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "copied":

        def link(*_: object, **__: object) -> None:
            raise OSError(errno.EXDEV, "another file system")

        monkeypatch.setattr(os, "link", link)
    return str(request.param)


def test_a_file_is_linked_or_copied_with_its_time(tmp_path: Path, way: str) -> None:
    write(tmp_path / "from" / "a" / "b", "content")
    os.utime(tmp_path / "from" / "a" / "b", (5, 7))
    (placed,) = place_files(FileTree(tmp_path / "from"), ["a/b"], tmp_path / "to")
    found = (tmp_path / "to" / "a" / "b").stat()
    assert (placed.path, placed.size, found.st_mtime) == ("a/b", 7, 7)
    assert (found.st_nlink == 2) is (way == "linked")
    assert placed == FileTree(tmp_path / "to").digest("a/b")


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/etc/passwd"), os.mkfifo])
def test_a_link_or_a_pipe_in_the_place_of_a_file_is_not_read(
    tmp_path: Path, way: str, make: Callable[[Path], Any]
) -> None:
    source = query_directory(tmp_path / "query", batches=1)
    (source / "offsets" / "0").unlink()
    make(source / "offsets" / "0")
    with pytest.raises((OSError, InvalidInputError)):
        copy_query(source, tmp_path / "copy", 0, None)
    assert files(tmp_path / "copy" / "offsets") == [], way


def test_a_link_in_the_place_of_a_directory_is_not_followed(tmp_path: Path) -> None:
    source = query_directory(tmp_path / "query", batches=1)
    (source / "sources").rename(tmp_path / "outside")
    (source / "sources").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="sources"):
        copy_query(source, tmp_path / "copy", 0, None)


@pytest.mark.parametrize(
    ("description", "path"),
    [
        ("FileSink[file:/table]", "/table"),
        ("FileSink[file:/a%20b]", "/a b"),
        ("FileSink[/a%20b]", "/a%20b"),
        ("ForeachBatchSink", None),
        ("org.apache.spark.sql.kafka010.KafkaSourceProvider@1", None),
    ],
)
def test_the_directory_of_a_file_sink(description: str, path: str | None) -> None:
    assert file_sink_path(description) == (None if path is None else Path(path))


def test_a_file_sink_elsewhere_is_refused() -> None:
    with pytest.raises(QueryCopyError, match="s3a://bucket/table is on no file system of this host"):
        file_sink_path("FileSink[s3a://bucket/table]")
