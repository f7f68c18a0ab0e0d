"""The cache directory of a JobMaster process: its own, and deleted after its end."""

from __future__ import annotations

from pathlib import Path

from jobmaster_process.cache_directory import CacheDirectory
from runtime.common.ids import Incarnation

FIRST, SECOND = Incarnation("1" * 32), Incarnation("2" * 32)


def test_what_the_dead_have_left_is_deleted_and_what_lives_stays(tmp_path: Path) -> None:
    living = CacheDirectory(tmp_path / "jobmaster", FIRST)
    living.acquire()
    dead = tmp_path / "jobmaster" / ("3" * 32)
    dead.mkdir()
    (dead / "lock").touch()
    (dead / "object").write_bytes(b"x")
    just_being_made = tmp_path / "jobmaster" / ("4" * 32)
    just_being_made.mkdir()
    second = CacheDirectory(tmp_path / "jobmaster", SECOND)
    second.acquire()
    assert living.path.is_dir()
    assert just_being_made.is_dir()
    assert not dead.exists()
    living.remove()
    living.remove()
    assert not living.path.exists()
    second.remove()
