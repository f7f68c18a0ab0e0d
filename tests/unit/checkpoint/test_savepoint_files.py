"""A savepoint is whole or not there: what is read, what is refused, and what is deleted."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.checkpoint.savepoint import savepoint_files
from runtime.checkpoint.savepoint.query_copy import copy_query
from runtime.checkpoint.savepoint.savepoint_files import (
    discard_part,
    dispose,
    finish_savepoint,
    local_path,
    part_path,
    read_savepoint,
    savepoint_name,
    savepoints_in,
)
from runtime.checkpoint.savepoint.savepoint_form import (
    Savepoint,
    SavepointFile,
    SavepointQuery,
    parse_savepoint,
    savepoint_text,
)
from runtime.common.errors import InvalidInputError, NotFoundError
from tests.kit.checkpoint.query_directories import query_directory, saved

SAMPLE = Path(__file__).with_name("savepoint_1.json")
NAME = savepoint_name("0123456789" * 3, "a" * 12)


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    return saved(tmp_path / "savepoints", query_directory(tmp_path / "query", batches=4), batch_id=3)


def test_a_finished_savepoint_is_read_as_it_was_written(tmp_path: Path, savepoint: Path) -> None:
    assert savepoint.name.startswith("savepoint-")
    assert list(savepoints_in(savepoint.parent)) == [savepoint]
    assert [one.name for one in savepoint.parent.iterdir()] == [savepoint.name], "nothing is left of the part"
    (query,) = read_savepoint(savepoint).queries
    assert (query.uid, query.subtask_index, query.snapshot.batch_id) == ("sink", 0, 3)
    assert all((savepoint / query.directory / file.path).stat().st_size == file.size for file in query.snapshot.files)


def test_a_savepoint_is_finished_once(tmp_path: Path) -> None:
    part = part_path(tmp_path, NAME)
    snapshot = copy_query(query_directory(tmp_path / "query", batches=1), part / "sink" / "0", 0, None)
    savepoint = of(SavepointQuery(uid="sink", subtask_index=0, parallelism=1, snapshot=snapshot))
    path = finish_savepoint(part, savepoint)
    assert finish_savepoint(part, savepoint) == path
    with pytest.raises(InvalidInputError, match="another savepoint"):
        finish_savepoint(part, savepoint.model_copy(update={"job_name": "another"}))


def test_what_is_discarded_never_becomes_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # R60
    part = part_path(tmp_path, NAME)
    snapshot = copy_query(query_directory(tmp_path / "query", batches=1), part / "sink" / "0", 0, None)
    savepoint = of(SavepointQuery(uid="sink", subtask_index=0, parallelism=1, snapshot=snapshot))
    verify = savepoint_files._verify

    def verified_and_discarded(*args: Any) -> None:
        verify(*args)
        discard_part(part)

    monkeypatch.setattr(savepoint_files, "_verify", verified_and_discarded)
    with pytest.raises(FileNotFoundError):
        finish_savepoint(part, savepoint)
    assert [one.name for one in tmp_path.iterdir()] == ["query"]


@pytest.mark.parametrize("is_linked", [True, False])
def test_all_of_it_is_durable_before_it_becomes_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_linked: bool
) -> None:  # R60
    synced: set[int] = set()
    fsync, rename = os.fsync, Path.rename
    unsynced: list[list[str]] = []

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    def looked(path: Path, target: Path) -> Path:
        if path.name.endswith(".part"):
            everything = [path, *path.rglob("*")]
            unsynced.append([str(one) for one in everything if one.stat().st_ino not in synced])
        return rename(path, target)

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "no links here")

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "rename", looked)
    if not is_linked:
        monkeypatch.setattr(os, "link", refused)
    path = saved(tmp_path / "savepoints", query_directory(tmp_path / "query", batches=4), batch_id=3)
    assert unsynced == [[]]
    assert path.parent.stat().st_ino in synced, "the rename, too"


def test_what_is_whole_is_not_discarded(savepoint: Path) -> None:
    discard_part(part_path(savepoint.parent, savepoint.name))
    assert read_savepoint(savepoint).queries


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda files: files[0].unlink(), "does not have"),
        (lambda files: files[0].with_name("more").write_text("x"), "does not have"),
        (lambda files: files[0].write_text("x"), "have changed"),
    ],
)
def test_files_that_are_not_those_of_the_copy_make_no_savepoint(
    tmp_path: Path, change: Callable[[list[Path]], Any], what: str
) -> None:
    part = part_path(tmp_path, NAME)
    snapshot = copy_query(query_directory(tmp_path / "query", batches=2), part / "sink" / "0", 1, None)
    change(sorted((part / "sink" / "0" / "offsets").iterdir()))
    with pytest.raises(InvalidInputError, match=what):
        finish_savepoint(part, of(SavepointQuery(uid="sink", subtask_index=0, parallelism=1, snapshot=snapshot)))
    assert not list(savepoints_in(tmp_path))


def of(*queries: SavepointQuery) -> Savepoint:
    return Savepoint(
        job_id="0123456789" * 3, job_name="orders", checkpoint_id=7, trigger_millis=1, software_version="1",
        queries=queries,
    )  # fmt: skip


def test_the_form_of_version_1_is_kept() -> None:
    """A change of this sample makes savepoints of earlier releases unreadable: make a new version instead."""
    text = SAMPLE.read_bytes()
    savepoint = parse_savepoint(text, "the sample")
    assert savepoint_text(savepoint) == text
    assert (savepoint.job_name, savepoint.checkpoint_id) == ("orders", 7)
    (query,) = savepoint.queries
    assert (query.uid, query.snapshot.watermark_millis, query.state_rows) == ("table", 1_700_000_000_000, 12)
    assert query.snapshot.files[0] == SavepointFile(path="commits/41", size=29, sha256="e" * 64)
    assert savepoint.query("table", 0) is query
    assert savepoint.query("table", 1) is None


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda body: body.update(version=2, software_version="9.9"), "version '2'.*written by 9.9.*reads version 1"),
        (lambda body: body.update(job_name="other"), "was changed"),
        (lambda body: body.pop("digest"), "was changed"),
        (lambda body: body.pop("version"), "has no version"),
    ],
)
def test_metadata_that_is_not_as_it_was_written_is_refused(change: Callable[[dict[str, Any]], Any], what: str) -> None:
    body = json.loads(SAMPLE.read_bytes())
    change(body)
    with pytest.raises(InvalidInputError, match=what):
        parse_savepoint(json.dumps(body).encode(), "it")


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_metadata_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidInputError, match="it is no metadata of a savepoint"):
        parse_savepoint(text, "it")


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../b", "a//b", "", ".", "a\0", "x" * 2000])
def test_paths_lead_nowhere_else(path: str) -> None:
    with pytest.raises(ValueError, match=r"relative|at least"):
        SavepointFile(path=path, size=0, sha256="0" * 64)


def test_there_has_to_be_a_savepoint(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(NotFoundError, match="no savepoint at"):
            read_savepoint(path)
        with pytest.raises(NotFoundError, match="no savepoint at"):
            dispose(path)


def test_a_savepoint_is_disposed_of_whole(savepoint: Path) -> None:
    dispose(savepoint)
    assert not list(savepoint.parent.iterdir())


def test_nothing_beside_a_savepoint_is_deleted(tmp_path: Path, savepoint: Path) -> None:
    (savepoint / "notes").write_text("mine")
    with pytest.raises(InvalidInputError, match=r"\['notes'\].*nothing is deleted"):
        dispose(savepoint)
    (savepoint / "notes").unlink()
    link = tmp_path / "link"
    link.symlink_to(savepoint)
    with pytest.raises(InvalidInputError, match="is a link"):
        dispose(link)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (savepoint / "sink" / "0" / "out").symlink_to(outside)
    with pytest.raises(InvalidInputError, match=r"\['sink/0/out'\].*nothing is deleted"):
        dispose(savepoint)
    (savepoint / "sink" / "0" / "out").unlink()
    (savepoint / "sink" / "0" / ".nfs0001").touch()
    (savepoint / ".claimed" / "job").mkdir(parents=True)
    dispose(savepoint)
    assert not savepoint.exists()
    assert (outside / "kept").read_text() == "kept"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a%20b", "/a b"),
        ("file://localhost/a", "/a"),
        ("/a%20b", "/a%20b"),
    ],
)
def test_paths_and_file_urls(text: str, path: str) -> None:
    assert local_path(text) == Path(path)


@pytest.mark.parametrize("text", ["", "a/b", "s3://bucket/a", "file://host/a", "hdfs:/a", "/a\0b"])
def test_other_places_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="no absolute path and no file URL"):
        local_path(text)
