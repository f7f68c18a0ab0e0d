"""What guards leave in the run directory does not become more and more (D-050)."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.taskexecutor.guard.reaping import OTHERS_KEPT_SECONDS, reap_leftovers
from runtime.taskexecutor.guard.records import Life, LifeRecord

LIFE = Life("", "another host", "a boot", "a namespace", ends_namespace=False, cgroup="", mark=0)


def record_of(directory: Path, name: str, *, is_old: bool) -> LifeRecord:
    record = LifeRecord.create(directory, replace(LIFE, incarnation=name))
    if is_old:
        stated = record.path.stat()
        os.utime(record.path, (stated.st_atime, stated.st_mtime - OTHERS_KEPT_SECONDS - 1))
    return record


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_old_records_of_other_hosts_are_removed_and_that_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        record_of(tmp_path, f"old-{number}", is_old=True).close()
    record_of(tmp_path, "young", is_old=False).close()
    reap_leftovers(tmp_path)
    assert names(tmp_path) == {"young"}
    assert capsys.readouterr().err.count("3 records of lives on other hosts") == 1
    reap_leftovers(tmp_path)
    assert "records of lives" not in capsys.readouterr().err


def test_an_old_record_of_guards_that_live_is_kept(tmp_path: Path) -> None:
    living = record_of(tmp_path, "living", is_old=True)
    reap_leftovers(tmp_path)
    assert names(tmp_path) == {"living"}
    living.close()


def test_an_old_record_that_says_that_everything_is_reaped_is_kept(tmp_path: Path) -> None:
    """Its key may still be in etcd: who starts here deletes it, and then the record."""
    reaped = record_of(tmp_path, "reaped", is_old=False)
    reaped.note_reaped()
    os.utime(reaped.path, (0, 0))
    reaped.close()
    reap_leftovers(tmp_path)
    assert names(tmp_path) == {"reaped"}
