"""The name of a TaskManager: drawn once, kept in a file, of its host."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.common.ids import Incarnation
from runtime.entrypoint.resource_id import kept_resource_id

FIRST, SECOND = Incarnation("a" * 32), Incarnation("b" * 32)


def test_the_next_life_has_the_name_of_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "attempts/taskmanager-0-host.id"
    assert kept_resource_id(file, "tm.example", FIRST) == "tm.example-aaaaaaaa"
    assert kept_resource_id(file, "tm.example", SECOND) == "tm.example-aaaaaaaa"
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_another_host_has_another_name(tmp_path: Path) -> None:
    file = tmp_path / "id"
    kept_resource_id(file, "old", FIRST)
    assert kept_resource_id(file, "new", SECOND) == "new-bbbbbbbb"
    assert kept_resource_id(file, "new", FIRST) == "new-bbbbbbbb"


@pytest.mark.parametrize("content", [b"", b"host-", b"host-../../x", b"host-aaaaaaaab", b"\xff\xfe", b"x" * 5000])
def test_a_spoiled_file_is_written_anew(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "id"
    file.write_bytes(content)
    assert kept_resource_id(file, "host", SECOND) == "host-bbbbbbbb"
    assert file.read_text() == "host-bbbbbbbb\n"


def test_without_a_file_the_name_is_of_this_life(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert kept_resource_id(None, "host", FIRST) == "host-aaaaaaaa"
    assert not caplog.records
    (tmp_path / "file").write_text("")
    assert kept_resource_id(tmp_path / "file/id", "host", SECOND) == "host-bbbbbbbb"
    assert "has a new name" in caplog.text
