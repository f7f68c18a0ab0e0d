"""Two TaskManagers find out whether they see one exchange directory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runtime.aio.entropy import SystemEntropy
from runtime.taskexecutor.directories.exchange_identity import MARK, exchange_identity


def test_one_directory_has_one_identity_for_all_who_come_at_the_same_time(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: exchange_identity(str(shared), SystemEntropy()), range(32)))
    assert len(set(found)) == 1
    assert found[0]
    assert [path.name for path in shared.iterdir()] == [MARK]
    assert exchange_identity(f"file://{shared}", SystemEntropy()) == found[0]
    assert exchange_identity(str(tmp_path / "another"), SystemEntropy()) != found[0]


def test_a_remote_url_is_one_place_and_what_cannot_be_told_is_not_held_against_anybody(tmp_path: Path) -> None:
    assert exchange_identity("s3://bucket/exchange", SystemEntropy()) == "s3://bucket/exchange"
    (tmp_path / "file").touch()
    assert exchange_identity(str(tmp_path / "file"), SystemEntropy()) == ""
