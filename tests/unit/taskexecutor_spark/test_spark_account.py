"""R50: which account Spark's JVM may have, what it finds, and that nothing of it is left for the next JVM."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.taskexecutor.containment.users import SlotUsers
from runtime.taskexecutor.spark.account import SparkAccount
from runtime.taskexecutor.spark_protocol.settings import crash_file, sessions_directory
from tests.kit.cluster.beside_spark import spare_account
from tests.kit.host.levels import reached
from tests.kit.spark.spark_box import spark_settings

RANGE = (23300, 23399)
as_root = pytest.mark.skipif(os.geteuid() != 0 or not spare_account(range(0)), reason="takes root, and a spare account")


def account() -> SparkAccount:
    return SparkAccount.named(spare_account(range(0)), RANGE, (23300, 23301), 0o002)


@pytest.mark.parametrize(("name", "words"), [("no-such-account", "useradd"), ("root", "root")])
def test_what_cannot_be_it_is_refused(name: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        SparkAccount.named(name, RANGE, (), 0o002)


def test_no_slot_has_its_number() -> None:
    entry = next(one for one in pwd.getpwall() if one.pw_uid and one.pw_gid)
    with pytest.raises(InvalidInputError, match="give it others"):
        SparkAccount.named(entry.pw_name, (entry.pw_uid - 1, entry.pw_uid + 1), (), 0o002)


def test_it_shares_a_group_with_each_slot_and_job_and_no_jobs_first() -> None:
    users = SlotUsers(20000, 20012, 2, 64, has_spark=True)
    assert users.slot_gids == (20001, 20002)
    assert list(users.job_gids) == [20003, 20004, 20005, 20006, 20007]
    assert [users.work_gid_of(gid) for gid in users.job_gids] == [20008, 20009, 20010, 20011, 20012]
    assert set(users.jvm_gids) == {20000, 20001, 20002, *range(20008, 20013)}
    assert users.spark_gids_of(1, 20004) == (20002, 20009)


def test_without_spark_a_job_has_one_group() -> None:
    users = SlotUsers(20000, 20012, 2, 64)
    assert list(users.job_gids) == [*range(20003, 20013)]
    assert users.work_gid_of(20005) == 20005
    assert users.spark_gids_of(1, 20005) == users.slot_gids == ()


def test_its_environment_leads_to_no_place_of_root(tmp_path: Path) -> None:
    made = SparkAccount("spark", 5, 60, (), 0o002)
    found = made.environment({"HOME": "/root", "TMPDIR": "/root/tmp", "PATH": "/bin"}, spark_settings(tmp_path))
    assert found["PATH"] == "/bin"
    assert not [value for value in found.values() if value.startswith("/root")]


@as_root
def test_whatever_runs_as_it_ends() -> None:
    made = account()
    process = subprocess.Popen(
        made.command(["/bin/sh", "-c", "setsid sleep 60 & id; exec sleep 60"]), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as said:
        told = said.readline()
    assert f"uid={made.uid}(" in told
    assert f"gid={made.gid}(" in told
    assert "23301" in told
    reached(lambda: len(made.processes()) == 2, "both run")
    assert made.owns(process.pid)
    assert not made.owns(os.getpid())
    assert made.end_all(time.sleep) == []
    assert made.processes() == []
    assert process.wait() == -9


@as_root
def test_an_earlier_life_leaves_it_nothing(tmp_path: Path) -> None:
    made = account()
    settings = replace(spark_settings(tmp_path), slot_gids=(23301, 23302))
    (tmp_path / "log").mkdir()
    settings.cds_directory.mkdir()
    (settings.cds_directory / "spark-1.jsa").write_text("archive")
    (settings.cds_directory / ".spark-2.jsa.tmp").write_text("half")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("of root")
    found = made.prepare(settings, tmp_path)
    # what a job may have done there
    (found.work_directory / "cds").rename(found.work_directory / "other")
    (found.work_directory / "cds").symlink_to(tmp_path)
    (found.work_directory / "spark.properties").symlink_to(elsewhere)
    found = made.prepare(settings, tmp_path)
    assert sessions_directory(found) == settings.work_directory / "sessions"
    assert [path.name for path in settings.work_directory.iterdir()] == ["own"]
    assert [path.name for path in found.work_directory.iterdir()] == ["cds"]
    assert [path.name for path in found.cds_directory.iterdir()] == ["spark-1.jsa"]
    assert (found.cds_directory / "spark-1.jsa").stat().st_uid == 0, "no other user can change it"
    for directory, mode in ((settings.work_directory, 0o711), (found.work_directory, 0o700)):
        assert (directory.stat().st_uid, directory.stat().st_mode & 0o777) == (made.uid, mode)
    for log in (settings.log_file("jvm"), crash_file(settings)):
        assert (log.stat().st_uid, log.stat().st_mode & 0o777) == (made.uid, 0o600)
    assert elsewhere.read_text() == "of root"
    for _ in range(2):
        made.close_logs(settings)
        assert {log.stat().st_uid for log in (settings.log_file("jvm"), crash_file(settings))} == {0}


@as_root
def test_jars_of_jobs_and_a_metastore_of_one_job_are_where_only_it_comes(tmp_path: Path) -> None:
    made, jars = account(), tmp_path / "jars"
    (jars / "ab").mkdir(parents=True, mode=0o700)
    (jars / "ab" / "a.jar").write_text("jar")
    (jars / "ab" / "a.jar").chmod(0o600)
    (tmp_path / "log").mkdir()
    plain = replace(
        spark_settings(tmp_path), slot_gids=(23301, 23302), spark_conf={"spark.jars": "/b.jar,blob:ab/a.jar"}
    )
    settings = replace(plain, warehouse=str(plain.work_directory / "hive"))
    found = made.prepare(settings, jars)
    assert found.warehouse == str(found.work_directory / "hive")
    other, lent = found.spark_conf["spark.jars"].split(",")
    assert (other, lent) == ("/b.jar", str(found.work_directory / "jars" / "ab" / "a.jar"))
    assert Path(lent).read_text() == "jar"
    assert (Path(lent).stat().st_uid, Path(lent).stat().st_mode & 0o777) == (0, 0o644), "no other user can change it"
    for directory in (Path(lent).parent, found.work_directory / "jars"):
        assert (directory.stat().st_uid, directory.stat().st_mode & 0o777) == (made.uid, 0o700)
    assert made.prepare(plain, jars).warehouse == ""
    elsewhere = replace(plain, warehouse="/data/warehouse")
    assert made.prepare(elsewhere, jars).warehouse == "/data/warehouse"


@as_root
def test_no_link_in_the_place_of_a_log_is_followed(tmp_path: Path) -> None:
    made, elsewhere = account(), tmp_path / "elsewhere"
    settings = replace(spark_settings(tmp_path), slot_gids=(23301, 23302))
    (tmp_path / "log").mkdir()
    elsewhere.write_text("of root")
    settings.log_file("jvm").symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic links"):
        made.prepare(settings, tmp_path)
    assert elsewhere.stat().st_uid == 0
